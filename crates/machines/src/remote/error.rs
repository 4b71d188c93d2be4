//! Why a unit has no exit code for us.

use guywire_plan::Fence;

use crate::ssh::SshError;

/// Why a unit did not run to its end, as far as we can tell.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A newer caller has been there; this one must stop.
    #[error("{machine}: a newer manager has taken over (fence {seen}, ours is {ours}); nothing was run")]
    Fenced {
        /// The machine.
        machine: String,
        /// The fence that it has seen.
        seen: Fence,
        /// The one that we showed.
        ours: Fence,
    },
    /// The machine rebooted or the unit was stopped by others: it may have done some of its work.
    #[error("{machine}: unit {key} attempt {attempt} {what}; look how far it came before it is tried again")]
    Lost {
        /// The machine.
        machine: String,
        /// The unit's key.
        key: String,
        /// The attempt.
        attempt: u32,
        /// What happened.
        what: String,
    },
    /// It ran longer than it may, and was stopped.
    #[error("{machine}: unit {key} was stopped after {seconds} s, the longest that it may take")]
    TimedOut {
        /// The machine.
        machine: String,
        /// The unit's key.
        key: String,
        /// How long it ran.
        seconds: u64,
    },
    /// We were told to stop it, and it is stopped.
    #[error("{machine}: unit {key} was cancelled; nothing of it runs any more")]
    Cancelled {
        /// The machine.
        machine: String,
        /// The unit's key.
        key: String,
    },
    /// Another attempt of the same key runs, or came later.
    #[error("{machine}: attempt {other} of unit {key} is there already; wait for it, or stop it first")]
    Busy {
        /// The machine.
        machine: String,
        /// The unit's key.
        key: String,
        /// The other attempt.
        other: u32,
    },
    /// The machine cannot run units.
    #[error("{machine}: {what}")]
    Machine {
        /// The machine.
        machine: String,
        /// What the wrapper said.
        what: String,
    },
    /// The machine was not reached for longer than we wait.
    #[error(transparent)]
    Ssh(#[from] SshError),
}

impl RemoteError {
    /// Whether asking again, with the same attempt, can help.
    pub fn retry(&self) -> bool {
        match self {
            Self::Ssh(error) => error.retry(),
            Self::Busy { .. } | Self::Machine { .. } => true,
            Self::Fenced { .. } | Self::Lost { .. } | Self::TimedOut { .. } | Self::Cancelled { .. } => false,
        }
    }
}
