//! An alarm as SOL003 shows it: in lists and in notifications alike. No I/O.

use serde_json::{Value, json};

use crate::domain::{Alarm, Api};

/// An alarm as SOL003 shows it; links begin with `address`.
pub fn shown(alarm: &Alarm, address: &str) -> Value {
    let mut body = json!({
        "id": alarm.id,
        "managedObjectId": alarm.instance,
        "alarmRaisedTime": alarm.raised,
        "ackState": alarm.ack,
        "perceivedSeverity": alarm.severity,
        "eventTime": alarm.event_time,
        "eventType": alarm.event_type,
        "probableCause": alarm.cause,
        "isRootCause": alarm.resource.is_some(),
        "faultDetails": alarm.details,
        "_links": {
            "self": { "href": format!("{address}{}/alarms/{}", Api::Fm.root(), alarm.id) },
            "objectInstance": {
                "href": format!("{address}{}/vnf_instances/{}", Api::LcmV1.root(), alarm.instance)
            },
        },
    });
    if let Some(vnfc) = &alarm.vnfc {
        body["vnfcInstanceIds"] = json!([vnfc]);
    }
    if let Some((connection, resource)) = &alarm.resource {
        body["rootCauseFaultyResource"] = json!({
            "faultyResource": { "vimConnectionId": connection, "resourceId": resource },
            "faultyResourceType": "COMPUTE",
        });
    }
    for (name, time) in [
        ("alarmChangedTime", alarm.changed),
        ("alarmClearedTime", alarm.cleared),
        ("alarmAcknowledgedTime", alarm.acknowledged),
    ] {
        if let Some(time) = time {
            body[name] = json!(time);
        }
    }
    body
}
