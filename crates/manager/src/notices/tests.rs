//! Tables: who hears of what, and in which words.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Stamp, render, with_address};
use crate::{
    app::{alarms, samples, subscriptions},
    domain::{
        Api, ExtLink, Instance, Notice, Operation, OperationState, OperationType, OperationalState, Problem,
        Severity, Subscription, SubscriptionId, UsageState, Verbosity,
    },
};

fn stamp() -> Stamp {
    Stamp { id: Uuid::nil(), at: samples::at(9), usage: Some(UsageState::NotInUse) }
}

/// A subscription with a filter as a caller writes it.
fn subscription(api: Api, filter: &Value) -> Subscription {
    let body = json!({ "callbackUri": "http://127.0.0.1/", "filter": filter });
    let wanted = match api {
        Api::LcmV1 => {
            serde_json::from_value::<subscriptions::LccnSubscriptionRequest>(body).unwrap().wanted()
        }
        Api::LcmV2 => {
            serde_json::from_value::<subscriptions::LccnSubscriptionRequestV2>(body).unwrap().wanted()
        }
        Api::Pkgm => serde_json::from_value::<subscriptions::PkgmSubscriptionRequest>(body).unwrap().wanted(),
        Api::Fm => serde_json::from_value::<subscriptions::FmSubscriptionRequest>(body).unwrap().wanted(),
    };
    let wanted = wanted.unwrap();
    Subscription {
        id: SubscriptionId::new(),
        api,
        callback: wanted.callback,
        filter: wanted.filter,
        verbosity: wanted.verbosity,
        auth: None,
        created: Timestamp::now(),
    }
}

fn notice(operation: &Operation, instance: &Instance) -> Notice {
    Notice::Operation { operation: Box::new(operation.clone()), instance: Box::new(instance.clone()) }
}

fn hears(api: Api, filter: &Value, notice: &Notice) -> bool {
    render(&subscription(api, filter), notice, stamp()).is_some()
}

#[test]
fn filters_of_lifecycle_changes() {
    let instance = samples::instance(&samples::package(), Vec::new());
    let operation = samples::operation(&instance, OperationType::Scale, OperationState::Completed);
    let (op, created) = (notice(&operation, &instance), Notice::InstanceCreated(Box::new(instance.clone())));
    let about = |filter: Value| json!({ "vnfInstanceSubscriptionFilter": filter });
    let products = |products: Value| about(json!({ "vnfProductsFromProviders": products }));
    let version = |versions: Value| {
        products(json!([{ "vnfProvider": "Guywire", "vnfProducts": [
            { "vnfProductName": "Other" }, { "vnfProductName": "Hello", "versions": versions }] }]))
    };
    // Filter, whether the operation is heard of, whether the creation is.
    let table = [
        (json!({}), true, true),
        (json!({ "notificationTypes": ["VnfLcmOperationOccurrenceNotification"] }), true, false),
        (json!({ "notificationTypes": ["VnfIdentifierCreationNotification"] }), false, true),
        (json!({ "notificationTypes": ["VnfIdentifierDeletionNotification"] }), false, false),
        (json!({ "operationTypes": ["SCALE", "HEAL"] }), true, true),
        (json!({ "operationTypes": ["HEAL"] }), false, true),
        (json!({ "operationStates": ["COMPLETED"] }), true, true),
        (json!({ "operationStates": ["STARTING", "FAILED"] }), false, true),
        (json!({ "operationTypes": ["SCALE"], "operationStates": ["STARTING"] }), false, true),
        (about(json!({ "vnfdIds": ["other", "vnfd-hello"] })), true, true),
        (about(json!({ "vnfdIds": ["other"] })), false, false),
        (about(json!({ "vnfInstanceIds": [instance.id] })), true, true),
        (about(json!({ "vnfInstanceIds": [Uuid::nil()] })), false, false),
        (about(json!({ "vnfInstanceNames": ["greeter"] })), true, true),
        (about(json!({ "vnfInstanceNames": ["Greeter"] })), false, false),
        (about(json!({ "vnfInstanceNames": ["greeter"], "vnfdIds": ["other"] })), false, false),
        (products(json!([{ "vnfProvider": "Guywire" }])), true, true),
        (products(json!([{ "vnfProvider": "Nobody" }, { "vnfProvider": "Guywire" }])), true, true),
        (products(json!([{ "vnfProvider": "Nobody" }])), false, false),
        (
            products(json!([{ "vnfProvider": "Guywire", "vnfProducts": [{ "vnfProductName": "No" }] }])),
            false,
            false,
        ),
        (version(json!([])), true, true),
        (version(json!([{ "vnfSoftwareVersion": "2.0" }])), true, true),
        (version(json!([{ "vnfSoftwareVersion": "1.9" }])), false, false),
        (version(json!([{ "vnfSoftwareVersion": "2.0", "vnfdVersions": ["0.9", "1.0"] }])), true, true),
        (version(json!([{ "vnfSoftwareVersion": "2.0", "vnfdVersions": ["0.9"] }])), false, false),
    ];
    for (filter, of_operation, of_creation) in table {
        for api in [Api::LcmV1, Api::LcmV2] {
            assert_eq!(hears(api, &filter, &op), of_operation, "operation by {api:?} {filter}");
            assert_eq!(hears(api, &filter, &created), of_creation, "creation by {api:?} {filter}");
        }
    }
    for other in [Api::Pkgm, Api::Fm] {
        assert!(!hears(other, &json!({}), &op), "{other:?} does not tell of operations");
    }
}

#[test]
fn filters_of_packages() {
    let package = samples::package();
    let changed = Notice::PackageChanged { package: Box::new(package.clone()), deleted: false };
    let onboarded = Notice::PackageOnboarded(Box::new(package.clone()));
    let table = [
        (json!({}), true, true),
        (json!({ "notificationTypes": ["VnfPackageChangeNotification"] }), true, false),
        (json!({ "vnfdId": ["vnfd-hello"] }), true, true),
        (json!({ "vnfdId": ["other"] }), false, false),
        (json!({ "vnfPkgId": [package.id] }), true, true),
        (json!({ "vnfPkgId": ["other"] }), false, false),
        (json!({ "operationalState": ["ENABLED"] }), true, true),
        (json!({ "operationalState": ["DISABLED"] }), false, false),
        (json!({ "usageState": ["NOT_IN_USE"] }), true, true),
        (json!({ "usageState": ["IN_USE"] }), false, false),
        (json!({ "vnfmInfo": ["Guywire"] }), true, true),
        (json!({ "vnfmInfo": ["other"] }), false, false),
        (
            json!({ "vnfProductsFromProviders": [{ "vnfProvider": "Guywire", "vnfProducts": [
            { "vnfProductName": "Hello", "versions": [{ "vnfSoftwareVersion": "2.0" }] }] }] }),
            true,
            true,
        ),
        (json!({ "vnfProductsFromProviders": [{ "vnfProvider": "other" }] }), false, false),
    ];
    for (filter, of_change, of_onboarding) in table {
        assert_eq!(hears(Api::Pkgm, &filter, &changed), of_change, "change {filter}");
        assert_eq!(hears(Api::Pkgm, &filter, &onboarded), of_onboarding, "onboarding {filter}");
    }
    let mut empty = package;
    empty.vnfd = None;
    let gone = Notice::PackageChanged { package: Box::new(empty), deleted: true };
    assert!(!hears(Api::Pkgm, &json!({}), &gone), "nobody ever heard of a package without a descriptor");
}

#[test]
fn filters_of_alarms() {
    let vnfc = samples::vnfc("hello-0", "hello");
    let instance = samples::instance(&samples::package(), vec![vnfc.clone()]);
    let tell = |cleared: bool| {
        let mut alarm = alarms::machine_silent(&instance, &vnfc, samples::at(3));
        if cleared {
            (alarm.severity, alarm.cleared) = (Severity::Cleared, Some(samples::at(5)));
        }
        Notice::Alarm { alarm: Box::new(alarm), instance: Box::new(instance.clone()), cleared }
    };
    // Filter, whether the alarm is heard of, whether its end is.
    let table = [
        (json!({}), true, true),
        (json!({ "notificationTypes": ["AlarmNotification"] }), true, false),
        (json!({ "notificationTypes": ["AlarmListRebuiltNotification"] }), false, false),
        (json!({ "perceivedSeverities": ["CRITICAL"] }), true, true),
        (json!({ "perceivedSeverities": ["MINOR"] }), false, true),
        (json!({ "eventTypes": ["EQUIPMENT_ALARM"] }), true, true),
        (json!({ "eventTypes": ["QOS_ALARM"] }), false, false),
        (json!({ "probableCauses": [alarms::MACHINE_SILENT] }), true, true),
        (json!({ "probableCauses": ["other"] }), false, false),
        (json!({ "faultyResourceTypes": ["COMPUTE"] }), true, true),
        (json!({ "faultyResourceTypes": ["NETWORK"] }), false, false),
        (json!({ "vnfInstanceSubscriptionFilter": { "vnfInstanceIds": ["other"] } }), false, false),
    ];
    for (filter, of_alarm, of_end) in table {
        assert_eq!(hears(Api::Fm, &filter, &tell(false)), of_alarm, "alarm {filter}");
        assert_eq!(hears(Api::Fm, &filter, &tell(true)), of_end, "end {filter}");
    }
}

#[test]
fn the_first_notification_of_an_operation_is_its_start() {
    use OperationState as S;
    use OperationType as T;
    let instance = samples::instance(&samples::package(), Vec::new());
    // Operation, state, whether it was entered when the operation began, status.
    let table = [
        (T::Instantiate, S::Starting, true, "START"),
        (T::Instantiate, S::Processing, false, "RESULT"),
        (T::Instantiate, S::Completed, false, "RESULT"),
        (T::Instantiate, S::FailedTemp, false, "RESULT"),
        (T::Instantiate, S::Failed, false, "RESULT"),
        (T::Instantiate, S::RollingBack, false, "RESULT"),
        (T::Instantiate, S::RolledBack, false, "RESULT"),
        (T::ModifyInfo, S::Processing, true, "START"),
        (T::ModifyInfo, S::Processing, false, "RESULT"),
    ];
    for (kind, state, at_once, status) in table {
        let mut operation = samples::operation(&instance, kind, state);
        if at_once {
            operation.entered = operation.started;
        }
        let body =
            render(&subscription(Api::LcmV2, &json!({})), &notice(&operation, &instance), stamp()).unwrap();
        assert_eq!(body["notificationStatus"], status, "{kind:?} {state:?}");
        assert_eq!(body.get("affectedVnfcs").is_some(), status == "RESULT", "{kind:?} {state:?}");
    }
}

#[test]
fn an_operation_in_full_and_in_short() {
    let instance = samples::instance(&samples::package(), Vec::new());
    let mut operation = samples::operation(&instance, OperationType::Instantiate, OperationState::FailedTemp);
    operation.error = Some(Problem {
        kind: None,
        title: None,
        status: 500,
        detail: "the machine burns".to_owned(),
        instance: None,
    });
    operation.changed_info = Some(json!({ "vnfInstanceName": "x" }));
    operation.changed_ext = vec![ExtLink {
        id: "ext".to_owned(),
        vim_connection_id: None,
        resource_id: "a".to_owned(),
        ext_cps: vec![json!({ "cpdId": "cp" })],
    }];
    let told = notice(&operation, &instance);
    let mut v2 = subscription(Api::LcmV2, &json!({}));
    let mut body = render(&v2, &told, stamp()).unwrap();
    with_address(&mut body, "https://manager.example/");
    let root = "https://manager.example/vnflcm/v2";
    let expected = json!({
        "id": Uuid::nil(),
        "notificationType": "VnfLcmOperationOccurrenceNotification",
        "subscriptionId": v2.id,
        "timeStamp": "2027-01-15T08:00:09Z",
        "notificationStatus": "RESULT",
        "operationState": "FAILED_TEMP",
        "vnfInstanceId": instance.id,
        "operation": "INSTANTIATE",
        "isAutomaticInvocation": false,
        "verbosity": "FULL",
        "vnfLcmOpOccId": operation.id,
        "affectedVnfcs": [{
            "id": "hello-0", "vduId": "hello", "vnfdId": "vnfd-hello", "changeType": "ADDED",
            "computeResource": { "vimConnectionId": "vim1", "resourceId": operation.affected[0].vnfc.resource },
            "metadata": { "machine": "hello-0" },
        }],
        "changedInfo": { "vnfInstanceName": "x" },
        "changedExtConnectivity": [{
            "id": "ext", "resourceHandle": { "resourceId": "a" }, "currentVnfExtCpData": [{ "cpdId": "cp" }],
        }],
        "error": { "status": 500, "detail": "the machine burns" },
        "_links": {
            "vnfInstance": { "href": format!("{root}/vnf_instances/{}", instance.id) },
            "subscription": { "href": format!("{root}/subscriptions/{}", v2.id) },
            "vnfLcmOpOcc": { "href": format!("{root}/vnf_lcm_op_occs/{}", operation.id) },
        },
    });
    assert_eq!(body, expected);

    v2.verbosity = Verbosity::Short;
    let short = render(&v2, &told, stamp()).unwrap();
    assert_eq!(short["verbosity"], "SHORT");
    for gone in ["affectedVnfcs", "changedInfo", "changedExtConnectivity"] {
        assert!(short.get(gone).is_none(), "{gone}");
    }
    assert_eq!(short["error"]["detail"], "the machine burns", "the reason is told in short too");

    let v1 = render(&subscription(Api::LcmV1, &json!({})), &told, stamp()).unwrap();
    assert!(v1.get("verbosity").is_none(), "SOL003 2.6.1 does not know it");
    assert!(v1["affectedVnfcs"][0].get("vnfdId").is_none());
    assert!(v1["_links"]["vnfLcmOpOcc"]["href"].as_str().unwrap().starts_with("/vnflcm/v1/"));

    operation.state = OperationState::Processing;
    let again = render(&v2, &notice(&operation, &instance), stamp()).unwrap();
    assert!(again.get("error").is_none(), "an error is told of states that it led to");
}

#[test]
fn packages_and_alarms_in_words() {
    let mut package = samples::package();
    package.operational = OperationalState::Disabled;
    let boxed = Box::new(package.clone());
    let pkgm = subscription(Api::Pkgm, &json!({}));
    let bodies = [
        Notice::PackageOnboarded(boxed.clone()),
        Notice::PackageChanged { package: boxed.clone(), deleted: false },
        Notice::PackageChanged { package: boxed, deleted: true },
    ]
    .map(|notice| render(&pkgm, &notice, stamp()).unwrap());
    let said = |body: &Value| {
        (body["notificationType"].clone(), body["changeType"].clone(), body["operationalState"].clone())
    };
    assert_eq!(said(&bodies[0]), (json!("VnfPackageOnboardingNotification"), Value::Null, Value::Null));
    let change = json!("VnfPackageChangeNotification");
    assert_eq!(said(&bodies[1]), (change.clone(), json!("OP_STATE_CHANGE"), json!("DISABLED")));
    assert_eq!(said(&bodies[2]), (change, json!("PKG_DELETE"), Value::Null));
    for body in &bodies {
        assert_eq!((&body["vnfPkgId"], &body["vnfdId"]), (&json!(package.id), &json!("vnfd-hello")));
        assert_eq!(body["_links"]["vnfPackage"]["href"], format!("/vnfpkgm/v1/vnf_packages/{}", package.id));
    }

    let vnfc = samples::vnfc("hello-0", "hello");
    let instance = samples::instance(&package, vec![vnfc.clone()]);
    let mut alarm = alarms::machine_silent(&instance, &vnfc, samples::at(3));
    let tell = |alarm: &crate::domain::Alarm, cleared| {
        let notice =
            Notice::Alarm { alarm: Box::new(alarm.clone()), instance: Box::new(instance.clone()), cleared };
        let mut body = render(&subscription(Api::Fm, &json!({})), &notice, stamp()).unwrap();
        with_address(&mut body, "http://m");
        body
    };
    let raised = tell(&alarm, false);
    assert_eq!(raised["notificationType"], "AlarmNotification");
    assert_eq!(raised["alarm"]["managedObjectId"], json!(instance.id));
    assert_eq!(raised["alarm"]["perceivedSeverity"], "CRITICAL");
    assert_eq!(
        raised["alarm"]["rootCauseFaultyResource"]["faultyResource"]["resourceId"],
        json!(vnfc.resource)
    );
    assert_eq!(raised["alarm"]["_links"]["self"]["href"], format!("http://m/vnffm/v1/alarms/{}", alarm.id));
    (alarm.severity, alarm.cleared) = (Severity::Cleared, Some(samples::at(5)));
    let over = tell(&alarm, true);
    assert_eq!(over["notificationType"], "AlarmClearedNotification");
    assert_eq!(
        (&over["alarmId"], &over["alarmClearedTime"]),
        (&json!(alarm.id), &json!("2027-01-15T08:00:05Z"))
    );
    assert_eq!(over["_links"]["alarm"]["href"], format!("http://m/vnffm/v1/alarms/{}", alarm.id));
}
