//! A plan as the console and the command line show it. Inputs and outputs of tasks stay inside.

use guywire_plan::{How, JournalErrorKind, Plan, PlanId, PlanState, PlanView, TaskState, TaskView};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    app::App,
    domain::{AppError, ErrorKind},
};

/// A plan: what is done, and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PlanDoc {
    /// Its number.
    pub id: i64,
    /// One line.
    pub title: String,
    /// Where it stands.
    pub state: &'static str,
    /// Why it stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub created: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub ended: Option<Timestamp>,
    /// Its phases by name, in their order.
    pub phases: Vec<String>,
    /// Its tasks.
    pub tasks: Vec<TaskDoc>,
    /// What it locks.
    pub scopes: Vec<String>,
    /// The number of the last event that is in here.
    pub cursor: i64,
}

/// A task of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskDoc {
    /// Its name.
    pub name: String,
    /// The phase, counted from 0.
    pub phase: u32,
    /// Who does it.
    pub handler: String,
    /// Where it stands.
    pub state: &'static str,
    /// Why it failed, or waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Counted from 1; 0 if it has not begun.
    pub attempt: u32,
    /// When the last attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub started: Option<Timestamp>,
    /// How long it took, or takes so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Whether it was done already when it was looked at.
    pub satisfied: bool,
}

/// Reads a plan and all that happened to it.
pub async fn load(app: &App, id: PlanId) -> Result<PlanDoc, AppError> {
    let (plan, view) = app.engine.load(id).await.map_err(|error| {
        let gone = matches!(&error, guywire_plan::EngineError::Journal(error) if error.kind == JournalErrorKind::NotFound);
        let (kind, detail) = if gone {
            (ErrorKind::NotFound, format!("plan {id} is not in the journal any more"))
        } else {
            (ErrorKind::Internal, "the journal cannot be read; the manager's log says more".to_owned())
        };
        AppError::new(kind, detail).because(error)
    })?;
    Ok(document(&plan, &view, Timestamp::now()))
}

/// A plan as it is shown at a moment.
pub fn document(plan: &Plan, view: &PlanView, now: Timestamp) -> PlanDoc {
    let task = |(task, view): (&guywire_plan::Task, &TaskView)| TaskDoc {
        name: task.name.clone(),
        phase: task.phase,
        handler: task.handler.to_string(),
        state: view.state.as_str(),
        reason: view.state.reason().map(str::to_owned),
        attempt: view.attempt,
        started: view.started,
        seconds: seconds(view, now),
        satisfied: view.how == Some(How::Satisfied) && view.state == TaskState::Succeeded,
    };
    PlanDoc {
        id: view.id.0,
        title: plan.title.clone(),
        state: view.state.as_str(),
        reason: view.reason.clone().filter(|_| view.state != PlanState::Succeeded),
        created: view.created,
        ended: view.ended,
        phases: plan.phases.iter().map(|phase| phase.name.clone()).collect(),
        tasks: plan.tasks.iter().zip(&view.tasks).map(task).collect(),
        scopes: plan.scopes.iter().map(|scope| scope.resource.clone()).collect(),
        cursor: view.cursor.0,
    }
}

fn seconds(view: &TaskView, now: Timestamp) -> Option<f64> {
    let end = match view.state {
        TaskState::Running | TaskState::Undoing => now,
        _ => view.ended?,
    };
    Some(end.duration_since(view.started?).as_secs_f64().max(0.0))
}
