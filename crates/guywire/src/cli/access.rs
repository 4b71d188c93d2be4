//! The words of `guywire login`, `context` and `token`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `guywire login`.
#[derive(Debug, Args)]
pub struct Login {
    /// The manager's address; the token is read from standard input, or asked for on a terminal
    pub url: String,
    /// What to call the context [default: the address's host and port]
    #[arg(long)]
    pub name: Option<String>,
    /// Certificates of the authorities that vouch for the manager, as PEM
    #[arg(long, env = "GUYWIRE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Managers that `guywire login` has kept; never their tokens
    List,
    /// Talk to this one from now on
    Use {
        /// Its name
        name: String,
    },
    /// Forget one, with its token
    Rm {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Let somebody in; the secret is shown this once
    Create {
        /// Who it is for
        name: String,
        /// What they may do
        #[arg(long, value_enum, default_value_t)]
        role: Role,
        /// How they prove who they are
        #[arg(long, value_enum, default_value_t)]
        kind: Kind,
    },
    /// Who is let in
    List,
    /// Let somebody in no longer
    Rm {
        /// Their name or id
        names: Vec<String>,
    },
}

/// What somebody may do; each may do what those before may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Look
    #[default]
    Reader,
    /// Change VNFs
    Operator,
    /// Change who may do what
    Admin,
}

/// How somebody proves who they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A token
    #[default]
    Token,
    /// An id and a secret for the token endpoint (`OAuth2` client credentials)
    Client,
    /// A client certificate that has the name
    Certificate,
}
