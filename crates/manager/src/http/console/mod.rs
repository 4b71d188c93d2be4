//! The console, and what only it and the command line ask for: plans, events, flavours.
//!
//! The console is a few static files that are part of the program. It asks the same interface as everybody else, with
//! a cookie instead of a token.

mod events;
mod files;
mod plan;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Access, Answer, Call, Reply, Route};
use crate::domain::{AppError, InstanceId, Operation, OperationId};

pub use files::index;
pub use plan::{PlanDoc, TaskDoc};

/// An operation with its plans.
#[derive(Debug, Serialize, JsonSchema)]
struct OperationPlans {
    /// Where the operation stands.
    operation: OperationDoc,
    /// Its plans, the oldest first.
    plans: Vec<PlanDoc>,
}

/// Where an operation stands.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OperationDoc {
    id: OperationId,
    vnf_instance_id: InstanceId,
    operation: crate::domain::OperationType,
    operation_state: crate::domain::OperationState,
    #[schemars(with = "String", extend("format" = "date-time"))]
    state_entered_time: jiff::Timestamp,
    #[schemars(with = "String", extend("format" = "date-time"))]
    start_time: jiff::Timestamp,
    is_cancel_pending: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<crate::domain::Problem>,
    /// The plans' numbers, the oldest first.
    plans: Vec<i64>,
}

/// The routes.
pub fn routes() -> Vec<Route> {
    let own = "guywire";
    let mut routes = files::routes();
    routes.extend([
        Route::get("/guywire/v1/operations/{vnfLcmOpOccId}/plan", Access::Reader, show_plans)
            .doc(own, "The plans of an operation: phases, tasks, durations, errors")
            .answers::<OperationPlans>(200, "The operation with its plans"),
        Route::get("/guywire/v1/operations/{vnfLcmOpOccId}/events", Access::Reader, events::of_operation)
            .doc(own, "What happens in an operation, as it happens, until it comes to rest")
            .answers_media(200, events::MEDIA, "Server-sent events: operation, plan, event, end"),
        Route::get("/guywire/v1/events", Access::Reader, events::of_everything)
            .doc(own, "That something changed, as it does")
            .answers_media(200, events::MEDIA, "Server-sent events: changed"),
        Route::get("/guywire/v1/instances/{vnfInstanceId}/flavours", Access::Reader, show_flavours)
            .doc(own, "The flavours that an instance can be instantiated in")
            .answers::<Vec<String>>(200, "Their ids"),
    ]);
    routes
}

async fn show_plans(call: Call) -> Answer {
    let operation = found(&call, call.id("vnfLcmOpOccId")?).await?;
    let mut plans = Vec::new();
    for id in &operation.plans {
        plans.push(plan::load(&call.app, *id).await?);
    }
    Ok(Reply::ok(&OperationPlans { operation: OperationDoc::of(&operation), plans }))
}

async fn show_flavours(call: Call) -> Answer {
    let id: InstanceId = call.id("vnfInstanceId")?;
    let instance = call.app.store.instance(id).await?;
    let instance = instance.ok_or_else(|| AppError::not_found(format!("there is no VNF instance {id}")))?;
    let package = call.app.store.package(instance.package).await?;
    let flavours: Vec<Value> = package
        .and_then(|package| package.vnfd)
        .map(|vnfd| vnfd.flavours.into_iter().map(|flavour| Value::String(flavour.id)).collect())
        .unwrap_or_default();
    Ok(Reply::ok(&flavours))
}

async fn found(call: &Call, id: OperationId) -> Result<Operation, AppError> {
    let operation = call.app.store.operation(id).await?;
    operation.ok_or_else(|| AppError::not_found(format!("there is no operation {id}")))
}

impl OperationDoc {
    fn of(operation: &Operation) -> Self {
        Self {
            id: operation.id,
            vnf_instance_id: operation.instance,
            operation: operation.operation,
            operation_state: operation.state,
            state_entered_time: operation.entered,
            start_time: operation.started,
            is_cancel_pending: operation.cancel.is_some(),
            error: operation.error.clone(),
            plans: operation.plans.iter().map(|plan| plan.0).collect(),
        }
    }
}
