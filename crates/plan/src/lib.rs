//! Plans that never lose their place.
//!
//! A [`Plan`] is an immutable DAG of tasks, grouped in phases. An [`Engine`] executes it against a
//! [`Journal`]: every task is recorded as started before it acts and as succeeded before a dependent may
//! start. Whoever holds a plan's lease executes it; everybody else can watch the same ordered
//! [`Event`]s. A process that dies leaves *unknown* tasks, which its successor probes.
//!
//! Deciding is apart from doing: [`view`](PlanView) folds events into state, [`schedule`](Schedule)
//! says what may start, both without I/O; `engine` does what they say.

mod attempt;
mod builder;
mod engine;
mod event;
mod fence;
mod handler;
mod ids;
pub mod journal;
mod run;
mod schedule;
mod spec;
mod view;

pub use builder::{PlanBuilder, PlanError, TaskBuilder};
pub use engine::{Engine, EngineError, Options, Outcome, Report, follow};
pub use event::{Cancel, CancelMode, Event, EventKind, How, Then};
pub use fence::Fence;
pub use handler::{Context, Handler, Handlers, Planner, Probe, TaskError};
pub use ids::{Cursor, ExecutorId, PlanId, ScopeIndex, TaskIndex};
pub use journal::{Journal, JournalError, JournalErrorKind, Lease, PlanHeader};
pub use schedule::{Direction, Schedule, Start};
pub use spec::{HandlerId, OnFailure, Phase, Plan, Retry, Scope, Task};
pub use view::{PlanState, PlanView, TaskState, TaskView, TreeState};
