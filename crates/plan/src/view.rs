//! The state of a plan as the fold of its events.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Cancel, Cursor, Event, EventKind, Fence, How, Plan, PlanId, ScopeIndex, TaskIndex, event::Then};

/// Where a plan stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanState {
    /// Accepted, not begun.
    Ready,
    /// Tasks run.
    Running,
    /// No task starts; running ones end, scopes are left.
    Stopping,
    /// What was done is being undone.
    Undoing,
    /// All tasks have succeeded.
    Succeeded,
    /// A task failed for good; the plan can be resumed.
    Failed,
    /// Somebody stopped it; the plan can be resumed.
    Cancelled,
    /// All that was done was undone.
    Undone,
    /// A newer plan stands in its place.
    Superseded,
    /// It had stopped and was given up: it holds no lock and cannot be resumed.
    Abandoned,
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum TaskState {
    /// Not begun.
    Pending,
    /// It runs.
    Running,
    /// It ran when its executor died: the world must be asked, and the same attempt goes on.
    Unknown,
    /// A cancel stopped it; resuming makes another attempt.
    Stopped,
    /// It failed and will be tried again.
    Waiting {
        /// Not before.
        until: Timestamp,
        /// What went wrong.
        reason: String,
    },
    /// It is done.
    Succeeded,
    /// It failed for good.
    Failed {
        /// What went wrong.
        reason: String,
    },
    /// A guarded task that could not be probed with certainty.
    Blocked {
        /// What could not be told.
        reason: String,
    },
    /// It is being undone.
    Undoing,
    /// It was undone.
    Undone,
}

/// One task with what is known of its course.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskView {
    /// Where it stands.
    pub state: TaskState,
    /// The number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// Failures since the budget was last filled.
    pub failures: u32,
    /// Whether it has ever begun and was not undone since: it may have left something.
    pub touched: bool,
    /// Whether the last attempt was one to undo it.
    pub undoing: bool,
    /// When the first attempt began.
    pub started: Option<Timestamp>,
    /// When it came to its present end.
    pub ended: Option<Timestamp>,
    /// How it succeeded.
    pub how: Option<How>,
    /// What it answered.
    pub output: Value,
}

/// Where the locks of a scope tree stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeState {
    /// Not taken.
    Closed,
    /// Taken.
    Open,
    /// Taken, and kept by a plan that has stopped.
    Held,
}

/// A plan's state.
#[derive(Debug, Clone)]
pub struct PlanView {
    /// Which plan.
    pub id: PlanId,
    /// Where it stands.
    pub state: PlanState,
    /// Why it stopped.
    pub reason: Option<String>,
    /// What follows once running tasks have ended, while it stops.
    pub then: Option<Then>,
    /// What somebody asked for.
    pub cancel: Option<Cancel>,
    /// The fence of the last executor.
    pub fence: Option<Fence>,
    /// Tasks by index.
    pub tasks: Vec<TaskView>,
    /// Scope trees, by the index of their outermost scope.
    pub trees: Vec<TreeState>,
    /// The last event folded in.
    pub cursor: Cursor,
    /// When it was accepted.
    pub created: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

impl PlanState {
    /// Whether something is still to happen without anybody asking.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Ready | Self::Running | Self::Stopping | Self::Undoing)
    }

    /// Whether it may be told to go on.
    pub fn is_resumable(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled)
    }

    /// The word that stores and tables use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Undoing => "undoing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Undone => "undone",
            Self::Superseded => "superseded",
            Self::Abandoned => "abandoned",
        }
    }
}

impl std::str::FromStr for PlanState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        serde_json::from_value(Value::from(text)).map_err(|_| format!("{text:?} is no state of a plan"))
    }
}

impl TaskState {
    /// The word that tables use.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Unknown => "unknown",
            Self::Stopped => "stopped",
            Self::Waiting { .. } => "waiting",
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Blocked { .. } => "blocked",
            Self::Undoing => "undoing",
            Self::Undone => "undone",
        }
    }

    /// What went wrong, if something did.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Waiting { reason, .. } | Self::Failed { reason } | Self::Blocked { reason } => Some(reason),
            _ => None,
        }
    }
}

impl PlanView {
    /// A plan of which no event has been seen.
    pub fn new(id: PlanId, plan: &Plan) -> Self {
        let task = TaskView {
            state: TaskState::Pending,
            attempt: 0,
            failures: 0,
            touched: false,
            undoing: false,
            started: None,
            ended: None,
            how: None,
            output: Value::Null,
        };
        Self {
            id,
            state: PlanState::Ready,
            reason: None,
            then: None,
            cancel: None,
            fence: None,
            tasks: vec![task; plan.tasks.len()],
            trees: vec![TreeState::Closed; plan.scopes.len()],
            cursor: Cursor::default(),
            created: None,
            ended: None,
        }
    }

    /// The task of that index.
    pub fn task(&self, index: TaskIndex) -> &TaskView {
        &self.tasks[index.at()]
    }

    /// The number of the attempt that would start now. After a crash the same number goes on, so that
    /// remote work under it is found and not started twice.
    pub fn next_attempt(&self, index: TaskIndex, undo: bool) -> u32 {
        let task = self.task(index);
        if task.state == TaskState::Unknown && task.undoing == undo { task.attempt } else { task.attempt + 1 }
    }

    /// Folds a recorded event in.
    pub fn see(&mut self, event: &Event) {
        self.cursor = event.seq;
        self.apply(&event.kind, event.at);
    }

    /// Folds in what happened at `at`.
    pub fn apply(&mut self, kind: &EventKind, at: Timestamp) {
        match kind {
            EventKind::PlanCreated => self.created = Some(at),
            EventKind::PlanStarted { fence } => self.taken_over(*fence),
            EventKind::CancelRequested { cancel } => self.cancel = self.cancel.max(Some(*cancel)),
            EventKind::PlanResumed => self.resumed(),
            EventKind::PlanStopping { reason, then } => {
                self.state = if *then == Then::Undo { PlanState::Undoing } else { PlanState::Stopping };
                self.reason = Some(reason.clone());
                self.then = Some(*then);
                // Failures to do a task do not count against undoing it.
                self.tasks.iter_mut().for_each(|task| task.failures = 0);
            }
            EventKind::PlanEnded { state, reason } => {
                self.state = *state;
                self.reason.clone_from(reason);
                self.ended = Some(at);
                self.then = None;
                self.cancel = None;
            }
            EventKind::PlanSuperseded { by, reason } => {
                self.state = PlanState::Superseded;
                self.reason = Some(format!("{reason}; plan {by} stands in its place"));
                self.ended = Some(at);
            }
            EventKind::PlanAbandoned { reason } => {
                self.state = PlanState::Abandoned;
                self.reason = Some(reason.clone());
                self.trees.fill(TreeState::Closed);
            }
            EventKind::TaskOutput { .. } | EventKind::ScopeWaiting { .. } => {}
            EventKind::ScopeEntered { scope } => self.set_tree(*scope, TreeState::Open),
            EventKind::ScopeLeft { scope } => self.set_tree(*scope, TreeState::Closed),
            EventKind::ScopeHeld { scope } => self.set_tree(*scope, TreeState::Held),
            _ => self.apply_task(kind, at),
        }
    }

    fn apply_task(&mut self, kind: &EventKind, at: Timestamp) {
        let Some(index) = kind.task() else { return };
        let task = &mut self.tasks[index.at()];
        let later = |retry_ms: u64| {
            at + jiff::SignedDuration::from_millis(i64::try_from(retry_ms).unwrap_or(i64::MAX / 2))
        };
        match kind {
            EventKind::TaskStarted { attempt, .. } => {
                task.state = TaskState::Running;
                task.attempt = *attempt;
                task.touched = true;
                task.undoing = false;
                task.started.get_or_insert(at);
            }
            EventKind::TaskSucceeded { how, output, .. } => {
                task.state = TaskState::Succeeded;
                task.how = Some(*how);
                task.output = output.clone();
            }
            EventKind::TaskFailed { reason, retry_ms, blocked, .. } => {
                task.failures += 1;
                let reason = reason.clone();
                task.state = match retry_ms {
                    Some(pause) => TaskState::Waiting { until: later(*pause), reason },
                    None if *blocked => TaskState::Blocked { reason },
                    None => TaskState::Failed { reason },
                };
            }
            EventKind::TaskStopped { .. } => task.state = TaskState::Stopped,
            EventKind::UndoStarted { attempt, .. } => {
                task.state = TaskState::Undoing;
                task.attempt = *attempt;
                task.undoing = true;
            }
            EventKind::UndoSucceeded { .. } => {
                task.state = TaskState::Undone;
                task.touched = false;
                task.failures = 0;
                task.output = Value::Null;
            }
            EventKind::UndoFailed { reason, retry_ms, .. } => {
                task.failures += 1;
                let reason = reason.clone();
                task.state = match retry_ms {
                    Some(pause) => TaskState::Waiting { until: later(*pause), reason },
                    None => TaskState::Failed { reason: format!("could not be undone: {reason}") },
                };
            }
            _ => {}
        }
        task.ended = Some(at);
    }

    fn taken_over(&mut self, fence: Fence) {
        self.fence = Some(fence);
        if self.state == PlanState::Ready {
            self.state = PlanState::Running;
        }
        for task in &mut self.tasks {
            if matches!(task.state, TaskState::Running | TaskState::Undoing) {
                task.state = TaskState::Unknown;
            }
        }
    }

    fn resumed(&mut self) {
        self.state = PlanState::Running;
        self.reason = None;
        self.cancel = None;
        self.ended = None;
        for task in &mut self.tasks {
            match task.state {
                TaskState::Failed { .. }
                | TaskState::Blocked { .. }
                | TaskState::Waiting { .. }
                | TaskState::Stopped
                | TaskState::Undone => {
                    task.state = TaskState::Pending;
                    task.failures = 0;
                }
                _ => {}
            }
        }
        for tree in &mut self.trees {
            if *tree == TreeState::Held {
                *tree = TreeState::Open;
            }
        }
    }

    fn set_tree(&mut self, scope: ScopeIndex, state: TreeState) {
        self.trees[scope.at()] = state;
    }
}
