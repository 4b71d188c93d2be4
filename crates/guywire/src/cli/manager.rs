//! `guywire manager`: the daemon and its data.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum ManagerCommand {
    /// Serve the interfaces of the VNF manager until told to stop (SIGTERM, Ctrl-C)
    Serve(Box<Serve>),
    /// Write a backup of a running or stopped manager's databases, packages and secrets to a file
    Backup {
        /// The new file
        file: PathBuf,
    },
    /// Put a backup into an empty data directory
    Restore {
        /// The backup
        file: PathBuf,
    },
    /// Give the administrator a new token, written to the data directory
    RenewToken,
}

/// How the manager serves.
#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen; can be given several times
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9890", env = "GUYWIRE_LISTEN")]
    pub listen: Vec<SocketAddr>,
    /// The address under which others reach this manager, for links and notifications [default: the first
    /// address that is listened on]
    #[arg(long = "public-url", value_name = "URL")]
    pub public_url: Option<String>,
    /// Let everybody in as administrator; only on loopback addresses
    #[arg(long)]
    pub no_auth: bool,
    /// The certificate chain, PEM; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let clients in whose certificate was signed by one of these authorities and whose name is known
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// Ask this NFVO for grants: the root of its API, before /grant/v1. Without it, operations are granted
    /// locally
    #[arg(long, value_name = "URL", env = "GUYWIRE_NFVO")]
    pub nfvo: Option<String>,
    /// The user that the NFVO knows this manager by
    #[arg(long, value_name = "NAME", requires = "nfvo")]
    pub nfvo_user: Option<String>,
    /// Where that user's password is kept
    #[arg(long, value_name = "secret:NAME", requires = "nfvo_user")]
    pub nfvo_password: Option<guywire_secrets::SecretRef>,
    /// The token endpoint for that user and password, as client and secret of `OAuth2`; without it they are
    /// sent as they are (Basic)
    #[arg(long, value_name = "URL", requires = "nfvo_password")]
    pub nfvo_token_url: Option<String>,
    /// This manager's own certificate towards callbacks and the NFVO [default: client.pem of the data directory]
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub client_key: Option<PathBuf>,
    /// Authorities that are trusted besides the system's own when others are called
    #[arg(long, value_name = "FILE")]
    pub trust: Option<PathBuf>,
    /// Do not test callbacks when somebody subscribes
    #[arg(long)]
    pub no_callback_test: bool,
    /// Whether packages must be signed
    #[arg(long, value_enum, default_value_t)]
    pub package_signatures: Signatures,
    /// Authorities whose signatures on packages count, PEM
    #[arg(long, value_name = "FILE")]
    pub package_trust: Option<PathBuf>,
    /// How long a manager that has fallen silent keeps its plans from others, in seconds. Shorter takes over
    /// sooner, and asks more of the database
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=600))]
    pub lease: u16,
    /// How log lines look
    #[arg(long, value_enum, default_value_t)]
    pub log: LogFormat,
}

/// Whether packages must be signed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Signatures {
    /// Signatures are not looked at
    Ignore,
    /// A signature that is there must be good
    #[default]
    Present,
    /// A package without a good signature is refused
    Required,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs: one JSON object a line
    Json,
}
