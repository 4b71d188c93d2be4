//! The way into machines: SSH with one connection per machine, shared by everybody.
//!
//! Nothing here knows what commands mean. A command that must not run twice goes through
//! [`remote`](crate::remote), which stands on this.

mod connection;
mod door;
mod error;
mod exec;
mod files;
mod identity;
mod known_hosts;
mod pool;
mod quote;

pub use door::{Auth, Door, HostKey};
pub use error::{SshError, SshErrorKind};
pub use exec::{Command, ExecOutput, ExecRequest, Stream};
pub use files::FileMode;
pub use identity::{Identity, IdentityError};
pub use known_hosts::KnownHosts;
pub use pool::Pool;
pub use quote::quote;
