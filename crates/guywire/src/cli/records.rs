//! The words of `guywire op`, `vim`, `subscription` and `alarm`.

use std::path::PathBuf;

use clap::Subcommand;

use super::target::{Listing, Wait};

#[derive(Debug, Subcommand)]
pub enum OpCommand {
    /// Operations, the newest last
    List {
        /// Those of one instance: its id, the beginning of it, or its name
        #[arg(long)]
        vnf: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// One operation with its plans
    Show {
        /// Its id or the beginning of it
        operation: String,
    },
    /// Follow an operation until it ends
    Watch {
        /// Its id or the beginning of it
        operation: String,
    },
    /// Go on with an operation that has failed for now
    Retry {
        /// Its id or the beginning of it
        operation: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Go back to the state before an operation that has failed for now
    Rollback {
        /// Its id or the beginning of it
        operation: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Give up an operation that has failed for now; what is there stays as it is
    Fail {
        /// Its id or the beginning of it
        operation: String,
    },
    /// Stop an operation: running tasks end, none starts
    Cancel {
        /// Its id or the beginning of it
        operation: String,
        /// Stop running tasks too
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        wait: Wait,
    },
}

#[derive(Debug, Subcommand)]
pub enum VimCommand {
    /// Register a place that makes machines
    Register {
        /// A name that no other has
        name: String,
        /// What kind of place: lab, hosts or kubernetes
        #[arg(long = "type", value_name = "TYPE")]
        kind: String,
        /// What the kind needs to know: lab=NAME, inventory=FILE, endpoint=URL
        #[arg(long = "interface", value_name = "KEY=VALUE")]
        interface: Vec<String>,
        /// Credentials, which are kept as secrets; @FILE takes a file's text
        #[arg(long = "access", value_name = "KEY=@FILE")]
        access: Vec<String>,
        /// Words for people
        #[arg(long)]
        description: Option<String>,
        /// Use it where a request names none
        #[arg(long)]
        default: bool,
    },
    /// Places that make machines
    List,
    /// One of them; credentials are shown as references
    Show {
        /// Its id, the beginning of it, or its name
        vim: String,
    },
    /// Change one
    Set {
        /// Its id, the beginning of it, or its name
        vim: String,
        /// A new name
        #[arg(long)]
        name: Option<String>,
        /// New words for people
        #[arg(long)]
        description: Option<String>,
        /// Use it where a request names none
        #[arg(long)]
        default: bool,
        /// What the kind needs to know
        #[arg(long = "interface", value_name = "KEY=VALUE")]
        interface: Vec<String>,
        /// Credentials, which are kept as secrets; @FILE takes a file's text
        #[arg(long = "access", value_name = "KEY=@FILE")]
        access: Vec<String>,
    },
    /// Forget one that no instance stands in
    Delete {
        /// Its id, the beginning of it, or its name
        #[arg(required = true)]
        vims: Vec<String>,
    },
}

/// Which interface's notifications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum About {
    /// Operations and instances
    #[default]
    Vnflcm,
    /// Packages
    Vnfpkgm,
    /// Alarms
    Vnffm,
}

#[derive(Debug, Subcommand)]
pub enum SubscriptionCommand {
    /// Have changes told to a callback
    Create {
        /// Where they are sent to
        #[arg(required_unless_present = "request")]
        callback: Option<String>,
        /// What it is about
        #[arg(long, value_enum, default_value_t)]
        about: About,
        /// The whole request, as JSON, with a filter or with authentication
        #[arg(long, value_name = "FILE")]
        request: Option<PathBuf>,
    },
    /// Subscriptions of all interfaces
    List,
    /// One subscription, with what was delivered, what waits and the last error
    Show {
        /// Its id or the beginning of it
        subscription: String,
    },
    /// Delete a subscription
    Delete {
        /// Its id or the beginning of it
        #[arg(required = true)]
        subscriptions: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum AlarmCommand {
    /// Alarms
    List(Listing),
    /// One alarm
    Show {
        /// Its id or the beginning of it
        alarm: String,
    },
    /// Say that you have seen it
    Ack {
        /// Its id or the beginning of it
        #[arg(required = true)]
        alarms: Vec<String>,
        /// Take that back
        #[arg(long)]
        undo: bool,
    },
}
