//! Errors of the operating system in the words of [`InfraError`].

use std::fmt::Display;
use std::io;

use rustix::io::Errno;

use crate::{InfraError, InfraErrorKind};

/// What every function of the lab answers.
pub(super) type Result<T> = std::result::Result<T, InfraError>;

/// Says what was being done when the operating system refused; the refusal becomes the source.
pub(super) fn while_doing<E: Into<io::Error>>(what: impl Display) -> impl FnOnce(E) -> InfraError {
    move |error| {
        let error: io::Error = error.into();
        let (kind, advice) = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => {
                (InfraErrorKind::Exhausted, "; the disk is full: make room and try again")
            }
            Some(Errno::PERM | Errno::ACCESS) => {
                (InfraErrorKind::Unsupported, "; a lab is made by root: run it as root")
            }
            Some(Errno::ROFS) => (InfraErrorKind::Unsupported, "; the disk is read-only"),
            _ => (InfraErrorKind::Unavailable, ""),
        };
        InfraError::new(kind, format!("{what}{advice}")).because(error)
    }
}

/// An [`InfraErrorKind::Invalid`] with a message.
pub(super) fn invalid(message: impl Into<String>) -> InfraError {
    InfraError::new(InfraErrorKind::Invalid, message)
}

/// An [`InfraErrorKind::Conflict`] with a message.
pub(super) fn conflict(message: impl Into<String>) -> InfraError {
    InfraError::new(InfraErrorKind::Conflict, message)
}

/// An [`InfraErrorKind::NotFound`] with a message.
pub(super) fn not_found(message: impl Into<String>) -> InfraError {
    InfraError::new(InfraErrorKind::NotFound, message)
}

/// An [`InfraErrorKind::Unsupported`] with a message.
pub(super) fn unsupported(message: impl Into<String>) -> InfraError {
    InfraError::new(InfraErrorKind::Unsupported, message)
}

/// An [`InfraErrorKind::Unavailable`] with a message.
pub(super) fn unavailable(message: impl Into<String>) -> InfraError {
    InfraError::new(InfraErrorKind::Unavailable, message)
}
