//! What a subscriber is told of a change. No I/O.
//!
//! Links are paths here. Whoever sends a notification puts the manager's address before them ([`with_address`]), so
//! that what waits in the outbox stays right when that address changes.

pub mod affected;
pub mod alarm;
#[cfg(test)]
mod tests;
mod wanted;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::domain::{
    Alarm, Api, Instance, Notice, Operation, OperationState, OperationType, OperationalState, PackageRecord,
    Subscription, UsageState, Verbosity,
};

/// What a notification says that follows neither from the subscription nor from the change.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Its id. It is made with the notification and stored with it: however often a notification is sent, it has the
    /// same id, by which the receiver knows a repeated one.
    pub id: Uuid,
    /// When the change was made.
    pub at: Timestamp,
    /// Whether instances follow the package that it is about; `None` if it is about none.
    pub usage: Option<UsageState>,
}

/// The notification's body, or `None` if the subscriber does not want to hear of it.
pub fn render(subscription: &Subscription, notice: &Notice, stamp: Stamp) -> Option<Value> {
    let kind = kind(subscription.api, notice)?;
    if !wanted::wants(subscription, kind, notice, stamp.usage) {
        return None;
    }
    let mut body = json!({
        "id": stamp.id,
        "notificationType": kind,
        "subscriptionId": subscription.id,
        "timeStamp": stamp.at,
    });
    let (attributes, links) = match notice {
        Notice::Operation { operation, instance } => operation_body(subscription, operation, instance),
        Notice::InstanceCreated(instance) | Notice::InstanceDeleted(instance) => (
            json!({ "vnfInstanceId": instance.id }),
            json!({ "vnfInstance": instance_link(subscription.api, instance) }),
        ),
        Notice::PackageOnboarded(package) => package_body(package, None)?,
        Notice::PackageChanged { package, deleted } => package_body(package, Some(*deleted))?,
        Notice::Alarm { alarm, cleared, .. } => alarm_body(alarm, *cleared),
    };
    merge(&mut body, attributes);
    merge(&mut body, json!({ "_links": links }));
    body["_links"]["subscription"] =
        link(&format!("{}/subscriptions/{}", subscription.api.root(), subscription.id));
    Some(body)
}

/// Puts the manager's address before the paths of all links in a notification.
pub fn with_address(body: &mut Value, address: &str) {
    let address = address.trim_end_matches('/');
    if let Some(links) = body.get_mut("_links").and_then(Value::as_object_mut) {
        for link in links.values_mut() {
            if let Some(path) = link["href"].as_str().filter(|path| path.starts_with('/')) {
                link["href"] = json!(format!("{address}{path}"));
            }
        }
    }
    // An alarm is told whole, with links of its own.
    if let Some(alarm) = body.get_mut("alarm") {
        with_address(alarm, address);
    }
}

/// The type of notification that tells of a change, if this interface tells of it at all.
fn kind(api: Api, notice: &Notice) -> Option<&'static str> {
    Some(match (api, notice) {
        (Api::LcmV1 | Api::LcmV2, Notice::Operation { .. }) => "VnfLcmOperationOccurrenceNotification",
        (Api::LcmV1 | Api::LcmV2, Notice::InstanceCreated(_)) => "VnfIdentifierCreationNotification",
        (Api::LcmV1 | Api::LcmV2, Notice::InstanceDeleted(_)) => "VnfIdentifierDeletionNotification",
        (Api::Pkgm, Notice::PackageOnboarded(_)) => "VnfPackageOnboardingNotification",
        (Api::Pkgm, Notice::PackageChanged { .. }) => "VnfPackageChangeNotification",
        (Api::Fm, Notice::Alarm { cleared: false, .. }) => "AlarmNotification",
        (Api::Fm, Notice::Alarm { cleared: true, .. }) => "AlarmClearedNotification",
        _ => return None,
    })
}

fn operation_body(subscription: &Subscription, operation: &Operation, instance: &Instance) -> (Value, Value) {
    let api = subscription.api;
    let status = status(operation);
    let mut body = json!({
        "notificationStatus": status,
        "operationState": operation.state,
        "vnfInstanceId": operation.instance,
        "operation": operation.operation,
        "isAutomaticInvocation": operation.automatic,
        "vnfLcmOpOccId": operation.id,
    });
    if api == Api::LcmV2 {
        body["verbosity"] = json!(subscription.verbosity);
    }
    // SOL003: what was changed is told with results and not with the start.
    if status == "RESULT" && subscription.verbosity == Verbosity::Full {
        let vnfcs = affected::vnfcs(operation, &instance.vnfd_id, api);
        if !vnfcs.is_empty() {
            body["affectedVnfcs"] = Value::Array(vnfcs);
        }
        if let Some(changed) = &operation.changed_info {
            body["changedInfo"] = changed.clone();
        }
        if !operation.changed_ext.is_empty() {
            body["changedExtConnectivity"] = Value::Array(affected::ext_links(&operation.changed_ext, api));
        }
    }
    let failed = matches!(
        operation.state,
        OperationState::FailedTemp | OperationState::Failed | OperationState::RolledBack
    );
    if let Some(error) = operation.error.as_ref().filter(|_| failed) {
        body["error"] = json!(error);
    }
    let links = json!({
        "vnfInstance": instance_link(api, instance),
        "vnfLcmOpOcc": link(&format!("{}/vnf_lcm_op_occs/{}", api.root(), operation.id)),
    });
    (body, links)
}

/// `START` is the first notification of an operation; all others tell of an intermediate or final result. Operations
/// start in `STARTING`, save the one that needs no grant and starts in `PROCESSING`.
fn status(operation: &Operation) -> &'static str {
    let first = match operation.state {
        OperationState::Starting => true,
        OperationState::Processing => {
            operation.operation == OperationType::ModifyInfo && operation.entered == operation.started
        }
        _ => false,
    };
    if first { "START" } else { "RESULT" }
}

/// A package without a descriptor was never onboarded: nobody was told of it, so nobody is told that it is gone.
fn package_body(package: &PackageRecord, deleted: Option<bool>) -> Option<(Value, Value)> {
    let vnfd = package.vnfd.as_ref()?;
    let mut body = json!({ "vnfPkgId": package.id, "vnfdId": vnfd.id });
    match deleted {
        None => {}
        Some(true) => body["changeType"] = json!("PKG_DELETE"),
        Some(false) => {
            body["changeType"] = json!("OP_STATE_CHANGE");
            body["operationalState"] = json!(match package.operational {
                OperationalState::Enabled => "ENABLED",
                OperationalState::Disabled => "DISABLED",
            });
        }
    }
    let links = json!({ "vnfPackage": link(&format!("{}/vnf_packages/{}", Api::Pkgm.root(), package.id)) });
    Some((body, links))
}

fn alarm_body(alarm: &Alarm, cleared: bool) -> (Value, Value) {
    if cleared {
        let body = json!({ "alarmId": alarm.id, "alarmClearedTime": alarm.cleared });
        (body, json!({ "alarm": link(&format!("{}/alarms/{}", Api::Fm.root(), alarm.id)) }))
    } else {
        (json!({ "alarm": alarm::shown(alarm, "") }), json!({}))
    }
}

fn instance_link(api: Api, instance: &Instance) -> Value {
    link(&format!("{}/vnf_instances/{}", api.root(), instance.id))
}

fn link(path: &str) -> Value {
    json!({ "href": path })
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}
