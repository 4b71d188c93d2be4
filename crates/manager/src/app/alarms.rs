//! Alarms: what raises them, what ends them, how they look.
//!
//! Operations raise theirs when they fail, and the watch below sweeps up what a crash left in between. Machines raise
//! theirs when they have not answered several times in a row.

#[cfg(test)]
mod tests;
mod watch;

use jiff::Timestamp;
use serde_json::json;
pub use watch::watch;

use super::App;
use crate::{
    domain::{
        AckState, Alarm, AlarmId, AppError, EventType, Instance, Operation, OperationState, Severity, Vnfc,
    },
    store::Raised,
};

/// What `probableCause` says of an operation that failed.
pub const OPERATION_FAILED: &str = "The VNF lifecycle management operation failed";
/// What `probableCause` says of a machine that does not answer.
pub const MACHINE_SILENT: &str = "The machine does not answer";

/// Raises an alarm, with its notification.
pub async fn raise(app: &App, alarm: &Alarm, instance: &Instance) -> Result<Raised, AppError> {
    Ok(app.store.raise_alarm(alarm, instance).await?)
}

/// Clears the open alarm of a trouble, with its notification; whether there was one.
pub async fn clear(app: &App, instance: &Instance, key: &str) -> Result<bool, AppError> {
    Ok(app.store.clear_alarm(instance, key, Timestamp::now()).await?)
}

/// Notes that somebody has, or has not, seen an alarm. It must be in the other state.
pub async fn acknowledge(app: &App, mut alarm: Alarm, state: AckState) -> Result<Alarm, AppError> {
    if alarm.ack == state {
        return Err(AppError::conflict(format!(
            "alarm {}: its ackState is {} already",
            alarm.id,
            json!(state)
        )));
    }
    alarm.ack = state;
    alarm.acknowledged = (state == AckState::Acknowledged).then(Timestamp::now);
    app.store.update_alarm(&alarm).await?;
    alarm.rev += 1;
    Ok(alarm)
}

/// The key of the alarm that an operation raises.
pub fn operation_key(operation: &Operation) -> String {
    format!("operation/{}", operation.id)
}

/// The key of the alarm that a machine raises.
pub fn machine_key(vnfc: &Vnfc) -> String {
    format!("machine/{}", vnfc.machine.name)
}

/// The alarm of an operation that failed.
pub fn operation_failed(operation: &Operation) -> Alarm {
    let word = operation.operation.as_str();
    let mut details = vec![format!("{word} operation {} is {}", operation.id, operation.state.as_str())];
    details.extend(operation.error.as_ref().map(|error| error.detail.clone()));
    details.push(match operation.state {
        OperationState::FailedTemp => "retry it, roll it back, or mark it as failed".to_owned(),
        _ => "look at the instance, and heal or terminate it".to_owned(),
    });
    Alarm {
        id: AlarmId::new(),
        rev: 0,
        instance: operation.instance,
        key: operation_key(operation),
        vnfc: None,
        resource: None,
        raised: Timestamp::now(),
        changed: None,
        cleared: None,
        ack: AckState::Unacknowledged,
        acknowledged: None,
        severity: Severity::Major,
        event_time: operation.entered,
        event_type: EventType::ProcessingErrorAlarm,
        cause: OPERATION_FAILED.to_owned(),
        details,
    }
}

/// The alarm of a machine that does not answer.
pub fn machine_silent(instance: &Instance, vnfc: &Vnfc, since: Timestamp) -> Alarm {
    let connection = instance.info.as_ref().map(|info| info.vim_connection.clone()).unwrap_or_default();
    Alarm {
        id: AlarmId::new(),
        rev: 0,
        instance: instance.id,
        key: machine_key(vnfc),
        vnfc: Some(vnfc.id.clone()),
        resource: Some((connection, vnfc.resource)),
        raised: Timestamp::now(),
        changed: None,
        cleared: None,
        ack: AckState::Unacknowledged,
        acknowledged: None,
        severity: Severity::Critical,
        event_time: since,
        event_type: EventType::EquipmentAlarm,
        cause: MACHINE_SILENT.to_owned(),
        details: vec![
            format!("machine {} of VNFC {} has not answered since {since}", vnfc.machine.name, vnfc.id),
            "look at the machine, or heal the VNFC".to_owned(),
        ],
    }
}
