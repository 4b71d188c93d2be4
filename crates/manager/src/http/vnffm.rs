//! Fault management: `/vnffm/v1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Access, Answer, Call, FM_V1, Reply, Route, page};
use crate::{
    app::alarms,
    domain::{AckState, Alarm, AlarmId, AppError, EventType, InstanceId, Severity},
    notices,
    sol013::Resource,
};

static ALARM: Resource = Resource {
    name: "Alarm",
    mandatory: &[
        "id",
        "managedObjectId",
        "alarmRaisedTime",
        "ackState",
        "perceivedSeverity",
        "eventTime",
        "eventType",
        "probableCause",
        "isRootCause",
        "_links",
    ],
    optional: &[
        "vnfcInstanceIds",
        "rootCauseFaultyResource",
        "alarmChangedTime",
        "alarmClearedTime",
        "alarmAcknowledgedTime",
        "faultDetails",
    ],
    excluded: &[],
    heavy: &[],
};

/// What can be changed in an alarm.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AlarmModifications {
    /// Whether somebody has seen it.
    ack_state: AckState,
}

/// An alarm as it is shown.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "it describes what another function builds")]
struct ShownAlarm {
    id: AlarmId,
    managed_object_id: InstanceId,
    vnfc_instance_ids: Option<Vec<String>>,
    root_cause_faulty_resource: Option<Value>,
    alarm_raised_time: String,
    alarm_changed_time: Option<String>,
    alarm_cleared_time: Option<String>,
    alarm_acknowledged_time: Option<String>,
    ack_state: AckState,
    perceived_severity: Severity,
    event_time: String,
    event_type: EventType,
    probable_cause: String,
    is_root_cause: bool,
    fault_details: Option<Vec<String>>,
    #[serde(rename = "_links")]
    links: Value,
}

/// The routes.
pub fn routes() -> Vec<Route> {
    let tag = FM_V1.name;
    vec![
        Route::get("/vnffm/v1/alarms", Access::Reader, list)
            .api(FM_V1)
            .doc(tag, "Alarms, those that are over among them")
            .listing()
            .answers::<Vec<ShownAlarm>>(200, "A page of alarms"),
        Route::get("/vnffm/v1/alarms/{alarmId}", Access::Reader, show)
            .api(FM_V1)
            .doc(tag, "An alarm")
            .answers::<ShownAlarm>(200, "The alarm"),
        Route::patch("/vnffm/v1/alarms/{alarmId}", Access::Operator, acknowledge)
            .api(FM_V1)
            .doc(tag, "Say that somebody has, or has not, seen an alarm")
            .takes::<AlarmModifications>()
            .answers::<AlarmModifications>(200, "What was changed"),
    ]
}

async fn list(call: Call) -> Answer {
    let listing = call.listing(&ALARM)?;
    let (store, address) = (call.app.store.clone(), call.url(""));
    page(&call, &listing, |after, limit| {
        let (store, address) = (store.clone(), address.clone());
        async move {
            let after = after.map(|id| id.parse::<AlarmId>()).transpose();
            let after = after.map_err(|_| AppError::invalid("nextpage_opaque_marker: it is none of ours"))?;
            let found = store.alarms(after, limit).await?;
            Ok(found
                .iter()
                .map(|alarm| (alarm.id.to_string(), notices::alarm::shown(alarm, &address)))
                .collect())
        }
    })
    .await
}

async fn show(call: Call) -> Answer {
    let alarm = find(&call).await?;
    Ok(Reply::ok(&notices::alarm::shown(&alarm, &call.url(""))).with_etag(alarm.rev))
}

async fn acknowledge(mut call: Call) -> Answer {
    let change: AlarmModifications = call.json().await?;
    let alarm = find(&call).await?;
    call.if_match(alarm.rev)?;
    let alarm = alarms::acknowledge(&call.app, alarm, change.ack_state).await?;
    Ok(Reply::ok(&change).with_etag(alarm.rev))
}

async fn find(call: &Call) -> Result<Alarm, AppError> {
    let id: AlarmId = call.id("alarmId")?;
    let found = call.app.store.alarm(id).await?;
    found.ok_or_else(|| AppError::not_found(format!("there is no alarm {id}")))
}
