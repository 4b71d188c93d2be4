//! What happened, in order. The events of a plan are its journal: its state is their fold.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Cursor, Fence, PlanId, ScopeIndex, TaskIndex, view::PlanState};

/// One entry of the ordered, durable stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number: without gaps, in the order of commits.
    pub seq: Cursor,
    /// The plan it belongs to.
    pub plan: PlanId,
    /// When the database recorded it.
    pub at: jiff::Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    /// The plan was accepted.
    PlanCreated,
    /// An executor took the plan over. Tasks that another one had running are unknown from here.
    PlanStarted {
        /// Its fence.
        fence: Fence,
    },
    /// Somebody asked that it stop.
    CancelRequested {
        /// How.
        #[serde(flatten)]
        cancel: Cancel,
    },
    /// Somebody asked that a stopped plan go on: failed tasks get a new budget.
    PlanResumed,
    /// No task starts any more; what happens next depends on the direction.
    PlanStopping {
        /// Why.
        reason: String,
        /// What follows once running tasks have ended.
        then: Then,
    },
    /// The plan ended.
    PlanEnded {
        /// How.
        state: PlanState,
        /// Why, unless it succeeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A newer plan stands in its place.
    PlanSuperseded {
        /// The newer one.
        by: PlanId,
        /// Why.
        reason: String,
    },
    /// A plan that had stopped is given up; its locks were given back.
    PlanAbandoned {
        /// Why.
        reason: String,
    },
    /// A task is about to act.
    TaskStarted {
        /// The task.
        task: TaskIndex,
        /// Counted from 1; the same again after a crash of ours, so that remote work is found again.
        attempt: u32,
    },
    /// A task is done.
    TaskSucceeded {
        /// The task.
        task: TaskIndex,
        /// The attempt.
        attempt: u32,
        /// Whether it had to act.
        how: How,
        /// What the handler answered.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        output: Value,
    },
    /// An attempt failed.
    TaskFailed {
        /// The task.
        task: TaskIndex,
        /// The attempt.
        attempt: u32,
        /// What went wrong.
        reason: String,
        /// The pause before the next attempt; none if this was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_ms: Option<u64>,
        /// Whether a guarded task could not be probed with certainty.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        blocked: bool,
    },
    /// An attempt was stopped by a cancel.
    TaskStopped {
        /// The task.
        task: TaskIndex,
        /// The attempt.
        attempt: u32,
    },
    /// A task's own words, masked and bounded.
    TaskOutput {
        /// The task.
        task: TaskIndex,
        /// The attempt.
        attempt: u32,
        /// One or more lines.
        text: String,
    },
    /// A task is about to be undone.
    UndoStarted {
        /// The task.
        task: TaskIndex,
        /// The attempt.
        attempt: u32,
    },
    /// A task was undone.
    UndoSucceeded {
        /// The task.
        task: TaskIndex,
        /// The attempt.
        attempt: u32,
    },
    /// An attempt to undo failed.
    UndoFailed {
        /// The task.
        task: TaskIndex,
        /// The attempt.
        attempt: u32,
        /// What went wrong.
        reason: String,
        /// The pause before the next attempt; none if this was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_ms: Option<u64>,
    },
    /// The locks of a scope tree were taken.
    ScopeEntered {
        /// The outermost scope.
        scope: ScopeIndex,
    },
    /// A scope tree waits for a lock.
    ScopeWaiting {
        /// The outermost scope.
        scope: ScopeIndex,
        /// What is locked.
        resource: String,
        /// By whom.
        holder: PlanId,
    },
    /// The locks of a scope tree were given back.
    ScopeLeft {
        /// The outermost scope.
        scope: ScopeIndex,
    },
    /// The plan stops with the scope's locks held, since an irreversible task has started in it.
    ScopeHeld {
        /// The outermost scope.
        scope: ScopeIndex,
    },
}

/// A wish that a plan stop. The stronger of two wishes counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cancel {
    /// What becomes of running tasks.
    pub mode: CancelMode,
    /// Whether what was done is undone.
    pub undo: bool,
}

/// What becomes of running tasks when a plan is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CancelMode {
    /// Running tasks end, none starts.
    Graceful,
    /// Running tasks are stopped too.
    Forceful,
}

/// What a stopping plan does once running tasks have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Then {
    /// It fails, leaving scopes where nothing irreversible has started.
    Fail,
    /// It ends as cancelled, leaving scopes likewise.
    Cancel,
    /// All that was done is undone.
    Undo,
}

/// How a task came to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// It was applied.
    Applied,
    /// The probe found it done already.
    Satisfied,
}

impl EventKind {
    /// The task that the event is about.
    pub fn task(&self) -> Option<TaskIndex> {
        match self {
            Self::TaskStarted { task, .. }
            | Self::TaskSucceeded { task, .. }
            | Self::TaskFailed { task, .. }
            | Self::TaskStopped { task, .. }
            | Self::TaskOutput { task, .. }
            | Self::UndoStarted { task, .. }
            | Self::UndoSucceeded { task, .. }
            | Self::UndoFailed { task, .. } => Some(*task),
            _ => None,
        }
    }
}
