//! Why the store did not do what it was asked.

use crate::domain::{AppError, ErrorKind};

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What kind of failure it is.
    pub kind: StoreErrorKind,
    /// What was wrong, where, and what to do.
    pub message: String,
    /// The cause beneath.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// Somebody else changed it first: read it again and decide anew.
    Stale,
    /// A name or a right that can be had once is taken.
    Taken,
    /// What was read is not what we wrote.
    Damaged,
    /// A later guywire wrote it.
    Newer,
    /// The database cannot do that.
    Unsupported,
    /// The disk is full, the server does not answer, the file cannot be opened.
    Unavailable,
}

impl StoreError {
    /// Somebody else was faster.
    pub fn stale(what: &str) -> Self {
        Self {
            kind: StoreErrorKind::Stale,
            message: format!("{what} was changed by somebody else meanwhile"),
            source: None,
        }
    }

    /// The name or the right is taken.
    pub fn taken(message: impl Into<String>) -> Self {
        Self { kind: StoreErrorKind::Taken, message: message.into(), source: None }
    }

    /// The database cannot do that.
    pub fn unsupported(place: &str, message: &str) -> Self {
        Self { kind: StoreErrorKind::Unsupported, message: format!("{place}: {message}"), source: None }
    }

    pub(super) fn damaged(column: impl std::fmt::Display, source: sqlx::Error) -> Self {
        Self {
            kind: StoreErrorKind::Damaged,
            message: format!(
                "the database holds something in column {column} that this guywire did not write; restore a backup"
            ),
            source: Some(source.into()),
        }
    }

    pub(super) fn from_sqlx(place: &str, source: sqlx::Error) -> Self {
        let taken = source.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation);
        let (kind, message) = if taken {
            (StoreErrorKind::Taken, format!("{place}: it is there already"))
        } else {
            (
                StoreErrorKind::Unavailable,
                format!("{place}: it cannot be read or written; check the disk and the server"),
            )
        };
        Self { kind, message, source: Some(source.into()) }
    }

    pub(super) fn from_migrate(place: &str, source: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError as M;
        let (kind, message) = match &source {
            M::VersionMissing(version) => (
                StoreErrorKind::Newer,
                format!(
                    "{place}: its schema {version} is newer than this guywire; use the guywire that wrote it"
                ),
            ),
            M::VersionMismatch(version) => (
                StoreErrorKind::Damaged,
                format!(
                    "{place}: its schema {version} was made by another build; use the guywire that wrote it"
                ),
            ),
            _ => (
                StoreErrorKind::Unavailable,
                format!(
                    "{place}: it cannot be opened or brought up to date; check that it is ours and can be written"
                ),
            ),
        };
        Self { kind, message, source: Some(source.into()) }
    }
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        let (kind, detail) = match error.kind {
            StoreErrorKind::Stale => (
                ErrorKind::Conflict,
                "somebody else changed this at the same time; read it again and repeat the request"
                    .to_owned(),
            ),
            StoreErrorKind::Taken => (ErrorKind::Conflict, error.message.clone()),
            StoreErrorKind::Unsupported => (ErrorKind::Unprocessable, error.message.clone()),
            StoreErrorKind::Damaged | StoreErrorKind::Newer => (
                ErrorKind::Internal,
                "the manager's database holds something unexpected; its log says what".to_owned(),
            ),
            StoreErrorKind::Unavailable => (
                ErrorKind::Unavailable,
                "the manager's database does not answer; try again later, and see the manager's log"
                    .to_owned(),
            ),
        };
        Self::new(kind, detail).because(error)
    }
}
