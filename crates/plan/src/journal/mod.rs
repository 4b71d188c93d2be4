//! Where plans and their events are kept: one trait, `SQLite` and `PostgreSQL` behind it.

mod error;
mod postgres;
mod sqlite;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;

pub use error::{JournalError, JournalErrorKind};
pub use postgres::PostgresJournal;
pub use sqlite::SqliteJournal;

use crate::{Cancel, Cursor, Event, EventKind, ExecutorId, Fence, Plan, PlanId, PlanState};

/// The durable record of plans. Every method that writes is one transaction.
///
/// Only the holder of a plan's lease appends to it; the lease is checked in the same transaction, so a
/// process that lost it cannot record anything. Wishes (cancel, resume) need no lease: they are recorded
/// by whoever has them and heeded by the holder.
#[async_trait]
pub trait Journal: Send + Sync {
    /// The file or database, for messages; no password in it.
    fn place(&self) -> &str;

    /// Names this journal among all that ever were.
    fn id(&self) -> &str;

    /// How many transactions this handle has committed.
    fn commits(&self) -> u64;

    /// Accepts a plan, unless its subject has an unfinished one. A plan whose `once` was accepted before is not
    /// accepted again: the answer is the earlier one's number.
    async fn create(&self, plan: &Plan) -> Result<PlanId, JournalError>;

    /// The plan that was accepted under a key, or the one that stands in its place.
    async fn find(&self, once: &str) -> Result<Option<PlanId>, JournalError>;

    /// What is known of a plan without reading its events.
    async fn header(&self, plan: PlanId) -> Result<PlanHeader, JournalError>;

    /// Headers, newest first.
    async fn list(&self, limit: u32) -> Result<Vec<PlanHeader>, JournalError>;

    /// The unfinished or resumable plan that is newest for `subject`.
    async fn latest(&self, subject: &str) -> Result<Option<PlanHeader>, JournalError>;

    /// The plan itself.
    async fn plan(&self, plan: PlanId) -> Result<Plan, JournalError>;

    /// Events after `after`, in order; of one plan or of all.
    async fn events(
        &self,
        plan: Option<PlanId>,
        after: Cursor,
        limit: u32,
    ) -> Result<Vec<Event>, JournalError>;

    /// Returns when there may be events after `after`, or after `patience`.
    async fn changed(&self, after: Cursor, patience: Duration) -> Result<(), JournalError>;

    /// Takes the lease of a plan, if nobody has it.
    async fn acquire(&self, plan: PlanId, owner: &ExecutorId, term: Duration) -> Result<Lease, JournalError>;

    /// Takes the lease of some plan that is active and that nobody executes.
    async fn claim(
        &self,
        owner: &ExecutorId,
        term: Duration,
        except: &[PlanId],
    ) -> Result<Option<Lease>, JournalError>;

    /// Makes the lease last `term` from now.
    async fn renew(&self, lease: &Lease, term: Duration) -> Result<Instant, JournalError>;

    /// Gives the lease back; nothing if it is lost already.
    async fn release(&self, lease: &Lease) -> Result<(), JournalError>;

    /// Records what happened, all or nothing, if the lease still stands.
    async fn append(&self, lease: &Lease, batch: &Batch) -> Result<(), JournalError>;

    /// Puts `plan` in the place of the leased one, in one step; it inherits the locks.
    async fn supersede(&self, lease: &Lease, plan: &Plan, reason: &str) -> Result<PlanId, JournalError>;

    /// Asks that an active plan stop.
    async fn request_cancel(&self, plan: PlanId, cancel: Cancel) -> Result<(), JournalError>;

    /// Makes a failed or cancelled plan active again.
    async fn request_resume(&self, plan: PlanId) -> Result<(), JournalError>;

    /// Gives up a failed or cancelled plan: its locks are given back, and it cannot be resumed. Nothing if that
    /// was done before.
    async fn abandon(&self, plan: PlanId, reason: &str) -> Result<(), JournalError>;

    /// All locks that are held.
    async fn locks(&self) -> Result<Vec<HeldLock>, JournalError>;
}

/// The right to execute a plan, until it runs out.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The plan.
    pub plan: PlanId,
    /// Who holds it.
    pub owner: ExecutorId,
    /// Higher than that of any lease before.
    pub fence: Fence,
    /// When it runs out by this process's own clock; at the database it lasts longer, never shorter.
    pub until: Instant,
}

/// What one transaction records.
#[derive(Debug, Default)]
pub struct Batch {
    /// Events, in order; at least one.
    pub events: Vec<EventKind>,
    /// The plan's new state.
    pub state: Option<PlanState>,
    /// Resources to lock; if one is taken, nothing is recorded.
    pub lock: Vec<String>,
    /// Resources to unlock.
    pub unlock: Vec<String>,
}

/// A plan in a list.
#[derive(Debug, Clone, Serialize)]
pub struct PlanHeader {
    /// Its number.
    pub id: PlanId,
    /// Who made it.
    pub kind: String,
    /// One line for people.
    pub title: String,
    /// What it is about.
    pub subject: Option<String>,
    /// Where it stands.
    pub state: PlanState,
    /// How many tasks it has.
    pub tasks: u32,
    /// When it was accepted.
    pub created: Timestamp,
    /// Whether a process executes it right now.
    pub executing: bool,
    /// What somebody asked for.
    pub cancel: Option<Cancel>,
}

/// A lock in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldLock {
    /// What is locked.
    pub resource: String,
    /// By which plan.
    pub plan: PlanId,
}

/// The columns of a plan's row that both databases give alike.
struct HeaderRow {
    id: i64,
    kind: String,
    title: String,
    subject: Option<String>,
    state: String,
    tasks: i64,
    created_ms: i64,
    owner: Option<String>,
    executing: bool,
    cancel: Option<String>,
}

impl HeaderRow {
    fn parse(self, place: &str) -> Result<PlanHeader, JournalError> {
        let corrupt = |what: String| JournalError::corrupt(place, format!("plan {}: {what}", self.id));
        Ok(PlanHeader {
            id: PlanId(self.id),
            state: self.state.parse().map_err(corrupt)?,
            tasks: u32::try_from(self.tasks).map_err(|error| corrupt(error.to_string()))?,
            created: Timestamp::from_millisecond(self.created_ms)
                .map_err(|error| corrupt(error.to_string()))?,
            cancel: self
                .cancel
                .as_deref()
                .map(serde_json::from_str)
                .transpose()
                .map_err(|error| corrupt(error.to_string()))?,
            kind: self.kind,
            title: self.title,
            subject: self.subject,
            executing: self.executing,
        })
    }
}

/// What one commit recorded: the number of its last event, the plan, the time, the events.
type EventRow = (i64, i64, i64, String);

/// The events of these commits that come after `after`, at most `limit`.
fn parse_events(
    place: &str,
    rows: Vec<EventRow>,
    after: Cursor,
    limit: u32,
) -> Result<Vec<Event>, JournalError> {
    let mut events = Vec::new();
    for (last, plan, at_ms, bodies) in rows {
        let corrupt = |what: String| JournalError::corrupt(place, format!("events up to {last}: {what}"));
        let at = Timestamp::from_millisecond(at_ms).map_err(|error| corrupt(error.to_string()))?;
        let kinds: Vec<EventKind> =
            serde_json::from_str(&bodies).map_err(|error| corrupt(error.to_string()))?;
        let first = last + 1 - i64::try_from(kinds.len()).map_err(|error| corrupt(error.to_string()))?;
        let numbered = (first..).zip(kinds).filter(|(seq, _)| *seq > after.0);
        events.extend(numbered.map(|(seq, kind)| Event { seq: Cursor(seq), plan: PlanId(plan), at, kind }));
        if events.len() >= limit as usize {
            events.truncate(limit as usize);
            break;
        }
    }
    Ok(events)
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("our own types are plain data that JSON can hold")
}

/// Whether the plan's state, as stored, is one that `good` takes; `so` says what cannot be done otherwise.
fn check_state(
    place: &str,
    plan: PlanId,
    state: &str,
    good: impl Fn(PlanState) -> bool,
    so: &str,
) -> Result<(), JournalError> {
    let state: PlanState =
        state.parse().map_err(|error| JournalError::corrupt(place, format!("plan {plan}: {error}")))?;
    if good(state) {
        return Ok(());
    }
    let message = format!("plan {plan} is {}: {so}", state.as_str());
    Err(JournalError::new(JournalErrorKind::State, place, message))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}
