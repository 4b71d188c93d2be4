//! What somebody may wish of an operation: that it go on, go back, stop, or be given up.

use guywire_plan::{Cancel, CancelMode as PlanCancel};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{finish, outline::listed};
use crate::{
    app::App,
    domain::{
        AppError, CancelMode, Direction, ErrorKind, Instance, Notice, Operation, OperationId, OperationState,
        OperationType, Stage,
    },
    store::{Step, StoreErrorKind},
};

/// A wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wish {
    /// Go on.
    Retry,
    /// Go back.
    Rollback,
    /// Give up.
    Fail,
    /// Stop.
    Cancel,
}

impl Wish {
    /// The word in paths and links.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Rollback => "rollback",
            Self::Fail => "fail",
            Self::Cancel => "cancel",
        }
    }
}

/// What may be wished of an operation as it stands: what links show and what is checked are the same.
pub fn wishes_allowed(operation: &Operation) -> Vec<Wish> {
    match operation.state {
        OperationState::FailedTemp => {
            let mut wishes = vec![Wish::Retry];
            if can_go_back(operation) {
                wishes.push(Wish::Rollback);
            }
            wishes.push(Wish::Fail);
            wishes
        }
        OperationState::Starting | OperationState::Processing | OperationState::RollingBack => {
            vec![Wish::Cancel]
        }
        _ => Vec::new(),
    }
}

/// Whether the state before can be had again: not once machines have been destroyed.
pub fn can_go_back(operation: &Operation) -> bool {
    match operation.operation {
        OperationType::Heal | OperationType::Terminate => false,
        _ => operation
            .target
            .as_ref()
            .is_none_or(|target| target.remove.is_empty() && target.replace.is_empty()),
    }
}

/// Lets a failed operation go on from where it stopped.
pub async fn retry(app: &App, id: OperationId) -> Result<Operation, AppError> {
    let (mut operation, instance) = load(app, id, Wish::Retry).await?;
    let back = operation.direction == Direction::Back;
    operation.state = if back { OperationState::RollingBack } else { OperationState::Processing };
    if operation.plan.is_some() {
        operation.resumes += 1;
    }
    enter(app, operation, &instance).await
}

/// Lets a failed operation go back to the state before.
pub async fn rollback(app: &App, id: OperationId) -> Result<Operation, AppError> {
    let (mut operation, instance) = load(app, id, Wish::Rollback).await?;
    if operation.direction == Direction::Forward {
        operation.direction = Direction::Back;
        operation.stage = Stage::Start;
        operation.plan = None;
        operation.resumes = 0;
    } else if operation.plan.is_some() {
        operation.resumes += 1;
    }
    operation.state = OperationState::RollingBack;
    enter(app, operation, &instance).await
}

/// Gives a failed operation up: what exists is recorded as it is.
pub async fn fail(app: &App, id: OperationId) -> Result<Operation, AppError> {
    let (operation, instance) = load(app, id, Wish::Fail).await?;
    finish::give_up(app, operation, instance).await
}

/// Stops an operation that runs.
pub async fn cancel(app: &App, id: OperationId, mode: CancelMode) -> Result<Operation, AppError> {
    loop {
        let (mut operation, _) = load(app, id, Wish::Cancel).await?;
        // The stronger of two wishes counts.
        if operation.cancel != Some(CancelMode::Forceful) {
            operation.cancel = Some(mode);
        }
        match app.store.advance(&operation, Step::default()).await {
            // Whoever drives the operation took a step meanwhile: the wish is for what stands there now. Steps are
            // few, so this ends.
            Err(error) if error.kind == StoreErrorKind::Stale => continue,
            done => done?,
        }
        stop_plan(app, &operation).await;
        return Ok(operation);
    }
}

/// Tells the running plan of a cancelled operation. If that fails, whoever drives the operation does it again.
pub async fn stop_plan(app: &App, operation: &Operation) {
    let (Some(plan), Some(mode)) = (operation.plan, operation.cancel) else { return };
    let mode = match mode {
        CancelMode::Graceful => PlanCancel::Graceful,
        CancelMode::Forceful => PlanCancel::Forceful,
    };
    if let Err(error) = app.engine.cancel(plan, Cancel { mode, undo: false }).await {
        tracing::debug!(operation = %operation.id, %error, "the plan is not told to stop: it has ended");
    }
}

async fn load(app: &App, id: OperationId, wish: Wish) -> Result<(Operation, Instance), AppError> {
    let found = app.store.operation(id).await?;
    let operation =
        found.ok_or_else(|| AppError::not_found(format!("there is no operation occurrence {id}")))?;
    let allowed = wishes_allowed(&operation);
    if !allowed.contains(&wish) {
        let can = match &allowed[..] {
            [] => "nothing can be wished of it any more".to_owned(),
            some => format!("it can be told to {}", listed(some.iter().map(|wish| wish.as_str()))),
        };
        let why = if wish == Wish::Rollback && operation.state == OperationState::FailedTemp {
            " and removes machines, which cannot be taken back"
        } else {
            ""
        };
        return Err(AppError::conflict(format!(
            "operation {id} ({}) is {}{why}; {can}",
            operation.operation.as_str(),
            operation.state.as_str()
        )));
    }
    let instance = app.store.instance(operation.instance).await?;
    let instance = instance.ok_or_else(|| {
        AppError::new(ErrorKind::Internal, "the operation's instance is not there; see the manager's log")
    })?;
    Ok((operation, instance))
}

/// Records a new state and tells of it.
async fn enter(app: &App, mut operation: Operation, instance: &Instance) -> Result<Operation, AppError> {
    operation.entered = Timestamp::now();
    operation.error = None;
    operation.cancel = None;
    let notice =
        Notice::Operation { operation: Box::new(operation.clone()), instance: Box::new(instance.clone()) };
    app.store.advance(&operation, Step { notices: vec![notice], ..Step::default() }).await?;
    Ok(operation)
}
