//! Which manager a command talks to, and how people name what it keeps.

use std::path::PathBuf;

use clap::Args;

/// Which manager.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Manager")]
pub struct Target {
    /// Its address [default: the current context, else <http://127.0.0.1:9890>]
    #[arg(long, global = true, env = "GUYWIRE_URL", value_name = "URL")]
    pub url: Option<String>,
    /// A context that `guywire login` has kept, instead of the current one
    #[arg(long, global = true, env = "GUYWIRE_CONTEXT", value_name = "NAME", conflicts_with = "url")]
    pub context: Option<String>,
    /// Certificates of the authorities that vouch for the manager, as PEM
    #[arg(long, global = true, env = "GUYWIRE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// Whether to stay until an operation has ended.
#[derive(Debug, Clone, Copy, Args)]
pub struct Wait {
    /// Stay until it has ended, and show what is being done
    #[arg(long, short)]
    pub wait: bool,
}

/// What lists take.
#[derive(Debug, Clone, Args)]
pub struct Listing {
    /// Only what fits: an attribute filter of SOL013, such as (eq,instantiationState,INSTANTIATED)
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}
