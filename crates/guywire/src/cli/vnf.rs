//! The words of `guywire vnf`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::target::{Listing, Wait};

#[derive(Debug, Subcommand)]
pub enum VnfCommand {
    /// Create an instance; nothing is made for it yet
    Create {
        /// The VNFD's id, or a package by its id, the beginning of it or its product's name
        vnfd: String,
        /// A name for people
        #[arg(long)]
        name: Option<String>,
        /// More words for people
        #[arg(long)]
        description: Option<String>,
    },
    /// Instances
    List(Listing),
    /// One instance with its components and their addresses
    Show {
        /// Its id, the beginning of it, or its name
        vnf: String,
    },
    /// Make the machines of an instance and let its package set them up
    Instantiate {
        /// Its id, the beginning of it, or its name
        vnf: String,
        /// The flavour [default: the only one of the VNFD]
        #[arg(long)]
        flavour: Option<String>,
        /// The instantiation level [default: the flavour's own]
        #[arg(long)]
        level: Option<String>,
        /// The VIM that its machines stand in: its id, the beginning of it, or its name [default: the default VIM]
        #[arg(long)]
        vim: Option<String>,
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        wait: Wait,
    },
    /// Scale an aspect by steps
    Scale {
        /// Its id, the beginning of it, or its name
        vnf: String,
        /// The scaling aspect
        #[arg(long)]
        aspect: String,
        #[command(flatten)]
        steps: Steps,
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        wait: Wait,
    },
    /// Scale all aspects to an instantiation level, or some aspects to levels of their own
    ScaleTo {
        /// Its id, the beginning of it, or its name
        vnf: String,
        /// The instantiation level
        #[arg(long, conflicts_with = "aspects", required_unless_present = "aspects")]
        level: Option<String>,
        /// An aspect and its level; can be given several times
        #[arg(long = "aspect", value_name = "ASPECT=LEVEL")]
        aspects: Vec<String>,
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        wait: Wait,
    },
    /// Make machines anew
    Heal {
        /// Its id, the beginning of it, or its name
        vnf: String,
        #[command(flatten)]
        parts: Parts,
        /// Why, for the record
        #[arg(long)]
        cause: Option<String>,
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        wait: Wait,
    },
    /// Switch machines on or off
    Operate {
        /// Its id, the beginning of it, or its name
        vnf: String,
        /// What to do
        #[arg(value_enum)]
        change: Switch,
        /// Cut the power instead of shutting down
        #[arg(long)]
        force: bool,
        /// Seconds that the VNF may take to go out of service before it is stopped
        #[arg(long, value_name = "SECONDS", conflicts_with = "force")]
        grace: Option<u32>,
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        wait: Wait,
    },
    /// Change to another flavour
    ChangeFlavour {
        /// Its id, the beginning of it, or its name
        vnf: String,
        /// The new flavour
        flavour: String,
        /// The instantiation level
        #[arg(long)]
        level: Option<String>,
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        wait: Wait,
    },
    /// Change the external networks, which a request file names
    ChangeExtConn {
        /// Its id, the beginning of it, or its name
        vnf: String,
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        wait: Wait,
    },
    /// Change to another package
    ChangePackage {
        /// Its id, the beginning of it, or its name
        vnf: String,
        /// The VNFD's id, or a package by its id, the beginning of it or its product's name
        vnfd: String,
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        wait: Wait,
    },
    /// Change an instance's own attributes
    Modify {
        /// Its id, the beginning of it, or its name
        vnf: String,
        /// A new name
        #[arg(long)]
        name: Option<String>,
        /// A new description
        #[arg(long)]
        description: Option<String>,
        /// Metadata; null takes a key away
        #[arg(long, value_name = "KEY=VALUE")]
        metadata: Vec<String>,
        /// The whole request, as JSON; options add to it
        #[arg(long, value_name = "FILE")]
        request: Option<PathBuf>,
        #[command(flatten)]
        wait: Wait,
    },
    /// Remove the machines of an instance
    Terminate {
        /// Its id, the beginning of it, or its name
        vnf: String,
        /// Do not wait for the VNF to go out of service
        #[arg(long)]
        force: bool,
        /// Seconds that the VNF may take to go out of service
        #[arg(long, value_name = "SECONDS", conflicts_with = "force")]
        grace: Option<u32>,
        #[command(flatten)]
        request: Request,
        #[command(flatten)]
        wait: Wait,
    },
    /// Delete an instance that has no machines
    Delete {
        /// Its id, the beginning of it, or its name
        #[arg(required = true)]
        vnfs: Vec<String>,
    },
}

/// What else a request says.
#[derive(Debug, Clone, Default, Args)]
pub struct Request {
    /// A parameter for the package; a.b=1 makes {"a": {"b": 1}}, @FILE takes a file's text, secret:NAME refers to
    /// a secret of the manager's. Anything that is no JSON is text
    #[arg(long = "param", value_name = "KEY=VALUE")]
    pub params: Vec<String>,
    /// Parameters for the package from a JSON file; --param adds to them
    #[arg(long = "params", value_name = "FILE")]
    pub params_file: Option<PathBuf>,
    /// The whole request, as JSON; other options add to it
    #[arg(long = "request", value_name = "FILE")]
    pub whole: Option<PathBuf>,
}

/// Which machines are made anew.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Parts {
    /// A component whose machine is made anew, as `vnf show` names it; can be given several times
    #[arg(long = "vnfc", value_name = "COMPONENT")]
    pub vnfcs: Vec<String>,
    /// Make all machines anew
    #[arg(long)]
    pub all: bool,
}

/// How far to scale.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Steps {
    /// Scale out by so many steps
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    pub out: Option<u32>,
    /// Scale in by so many steps
    #[arg(long = "in", value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    pub r#in: Option<u32>,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Switch them on
    Start,
    /// Switch them off
    Stop,
}
