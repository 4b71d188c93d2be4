//! What can go wrong with a journal, in words that name the file and the way out.

use crate::PlanId;

/// A journal's failure.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {message}")]
pub struct JournalError {
    /// What kind of failure it is.
    pub kind: JournalErrorKind,
    /// The file or database.
    pub place: String,
    /// What is wrong and what to do.
    pub message: String,
    /// The database's own words.
    #[source]
    pub source: Option<Box<sqlx::Error>>,
}

/// The kinds of failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalErrorKind {
    /// There is no such plan.
    NotFound,
    /// Another process executes the plan.
    Executing,
    /// The lease is lost: this process must stop acting.
    Lost,
    /// A resource is locked by another plan.
    Locked {
        /// The resource.
        resource: String,
        /// The plan that holds it.
        holder: PlanId,
    },
    /// The subject has an unfinished plan.
    Busy {
        /// That plan.
        plan: PlanId,
    },
    /// The plan's state does not allow what was asked.
    State,
    /// A newer guywire has written it.
    Newer,
    /// Its content makes no sense.
    Corrupt,
    /// It cannot be written.
    ReadOnly,
    /// The disk is full.
    Full,
    /// It does not answer; trying again may help.
    Unavailable,
}

impl JournalError {
    pub(crate) fn new(kind: JournalErrorKind, place: &str, message: impl Into<String>) -> Self {
        Self { kind, place: place.to_owned(), message: message.into(), source: None }
    }

    pub(crate) fn corrupt(place: &str, message: impl Into<String>) -> Self {
        Self::new(JournalErrorKind::Corrupt, place, message)
    }

    pub(crate) fn not_found(place: &str, plan: PlanId) -> Self {
        Self::new(
            JournalErrorKind::NotFound,
            place,
            format!("there is no plan {plan}; `guywire plan list` shows those that are"),
        )
    }

    pub(crate) fn lost(place: &str, plan: PlanId) -> Self {
        let message = format!("the lease on plan {plan} is lost; another process may be executing it");
        Self::new(JournalErrorKind::Lost, place, message)
    }

    pub(crate) fn locked(place: &str, resource: &str, holder: PlanId) -> Self {
        let kind = JournalErrorKind::Locked { resource: resource.to_owned(), holder };
        Self::new(kind, place, format!("{resource} is locked by plan {holder}"))
    }

    pub(crate) fn busy(place: &str, subject: &str, plan: PlanId) -> Self {
        let message = format!(
            "{subject} has an unfinished plan {plan}; watch it with `guywire plan watch {plan}`, \
             or stop it with `guywire plan cancel {plan}`"
        );
        Self::new(JournalErrorKind::Busy { plan }, place, message)
    }

    /// What a database error means for a person, by its code.
    pub(crate) fn from_sqlx(place: &str, error: sqlx::Error) -> Self {
        use JournalErrorKind as Kind;
        let code = error
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code)
            .map(std::borrow::Cow::into_owned);
        // SQLite's extended codes keep the primary one in their lowest byte; PostgreSQL's are words.
        let sqlite = code.as_deref().and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff);
        let (kind, message) = match (sqlite, code.as_deref()) {
            (Some(11 | 26), _) => (
                Kind::Corrupt,
                "is not a journal, or is damaged; restore it from a backup, or move it away to begin anew",
            ),
            (Some(8), _) | (_, Some("25006")) => (
                Kind::ReadOnly,
                "cannot be written; check the permissions of the file, its directory and the file system",
            ),
            (Some(14), _) => {
                (Kind::ReadOnly, "cannot be opened; check that the directory is there and may be written")
            }
            (Some(13), _) | (_, Some("53100")) => {
                (Kind::Full, "the disk is full; nothing was lost: make room and resume the plan")
            }
            (Some(10), _) => (Kind::Unavailable, "the disk does not read or write; look at the kernel's log"),
            (Some(5 | 6), _) => {
                (Kind::Unavailable, "another process has kept it locked for too long; try again")
            }
            _ => (Kind::Unavailable, "does not answer as it should"),
        };
        let message = format!("{message} ({error})");
        Self { kind, place: place.to_owned(), message, source: Some(Box::new(error)) }
    }

    /// What a file system's refusal means for a person.
    pub(crate) fn from_io(place: &str, error: &std::io::Error) -> Self {
        let full = error.kind() == std::io::ErrorKind::StorageFull;
        let (kind, message) = if full {
            (JournalErrorKind::Full, "the disk is full; make room and try again")
        } else {
            (
                JournalErrorKind::ReadOnly,
                "cannot be opened; check that the directory is there and may be written",
            )
        };
        Self::new(kind, place, format!("{message} ({error})"))
    }

    /// A migration's failure: most of all, a database that is ahead of this program.
    pub(crate) fn from_migrate(place: &str, error: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError;
        match error {
            MigrateError::VersionMissing(version) => Self::new(
                JournalErrorKind::Newer,
                place,
                format!(
                    "was written by a newer guywire (schema {version}); upgrade this one, it changes nothing in it"
                ),
            ),
            MigrateError::VersionMismatch(version) => Self::corrupt(
                place,
                format!(
                    "schema {version} is not the one that this guywire knows by that number; was it built from altered sources?"
                ),
            ),
            MigrateError::Dirty(version) => Self::corrupt(
                place,
                format!("schema {version} was left half made; restore the journal from a backup"),
            ),
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                Self::from_sqlx(place, error)
            }
            other => Self::new(JournalErrorKind::Unavailable, place, other.to_string()),
        }
    }
}
