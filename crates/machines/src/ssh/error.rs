//! What goes wrong on the way into a machine.

use std::fmt;

use super::Door;

/// Why something did not happen on a machine. It names the machine, its address and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{machine} ({address}): {message}")]
pub struct SshError {
    /// What kind of failure it is.
    pub kind: SshErrorKind,
    /// The machine.
    pub machine: String,
    /// Its address and port.
    pub address: String,
    /// What was wrong and what to do.
    pub message: String,
    /// The cause beneath.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of failure, and so whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshErrorKind {
    /// Nothing answers at the address.
    Unreachable,
    /// It answers and does not let us in.
    AuthFailed,
    /// It is not the machine that it was, or claims to be.
    HostKeyMismatch,
    /// Our own key cannot be used.
    Identity,
    /// A command took longer than it was given.
    Timeout,
    /// The connection ended in the middle; what was asked for may have happened.
    Dropped,
    /// The other side does not follow the protocol or refuses what we need of it.
    Protocol,
    /// A command that we need for ourselves failed on the machine.
    Remote,
    /// The request makes no sense.
    Invalid,
}

impl SshError {
    /// An error of `kind` at `door`.
    pub fn new(kind: SshErrorKind, door: &Door, message: impl Into<String>) -> Self {
        Self {
            kind,
            machine: door.machine.clone(),
            address: door.address(),
            message: message.into(),
            source: None,
        }
    }

    /// The same with the cause beneath it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Whether trying again can help.
    pub fn retry(&self) -> bool {
        use SshErrorKind::{Dropped, Timeout, Unreachable};
        matches!(self.kind, Unreachable | Timeout | Dropped)
    }
}

impl fmt::Display for SshErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "unreachable",
            Self::AuthFailed => "not let in",
            Self::HostKeyMismatch => "wrong host key",
            Self::Identity => "unusable key",
            Self::Timeout => "timeout",
            Self::Dropped => "connection dropped",
            Self::Protocol => "protocol error",
            Self::Remote => "failed there",
            Self::Invalid => "invalid request",
        })
    }
}
