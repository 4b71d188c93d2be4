//! How instances and operations look in SOL003 2.6.1 and 3.3.1.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    app::lcm::wishes_allowed,
    domain::{
        Api, Info, Instance, InstanceId, InstantiationState, Operation, OperationId, OperationState,
        OperationType, Problem, VnfState, Vnfc,
    },
    http::Call,
    notices::affected,
    sol013::Resource,
};

/// Attributes of an instance.
pub(super) static INSTANCE: Resource = Resource {
    name: "VnfInstance",
    mandatory: &[
        "id",
        "vnfdId",
        "vnfProvider",
        "vnfProductName",
        "vnfSoftwareVersion",
        "vnfdVersion",
        "instantiationState",
        "_links",
    ],
    optional: &[
        "vnfInstanceName",
        "vnfInstanceDescription",
        "vnfPkgId",
        "vnfConfigurableProperties",
        "vimConnectionInfo",
        "instantiatedVnfInfo",
        "metadata",
        "extensions",
    ],
    excluded: &[
        "vnfConfigurableProperties",
        "vimConnectionInfo",
        "instantiatedVnfInfo",
        "metadata",
        "extensions",
    ],
    heavy: &["instantiatedVnfInfo"],
};

/// Attributes of an operation.
pub(super) static OPERATION: Resource = Resource {
    name: "VnfLcmOpOcc",
    mandatory: &[
        "id",
        "operationState",
        "stateEnteredTime",
        "startTime",
        "vnfInstanceId",
        "operation",
        "isAutomaticInvocation",
        "isCancelPending",
        "_links",
    ],
    optional: &[
        "grantId",
        "operationParams",
        "cancelMode",
        "error",
        "resourceChanges",
        "changedInfo",
        "changedExtConnectivity",
        "warnings",
        "plans",
    ],
    excluded: &["operationParams", "error", "resourceChanges", "changedInfo", "changedExtConnectivity"],
    heavy: &[],
};

/// An instance, for the description of the interface.
#[derive(Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "it describes; what is sent is put together attribute by attribute")]
#[allow(clippy::struct_field_names, reason = "they are SOL003's")]
pub(super) struct VnfInstance {
    id: InstanceId,
    vnf_instance_name: Option<String>,
    vnf_instance_description: Option<String>,
    vnfd_id: String,
    vnf_provider: String,
    vnf_product_name: String,
    vnf_software_version: String,
    vnfd_version: String,
    vnf_configurable_properties: Option<Map<String, Value>>,
    vim_connection_info: Option<Value>,
    instantiation_state: InstantiationState,
    instantiated_vnf_info: Option<Map<String, Value>>,
    metadata: Option<Map<String, Value>>,
    extensions: Option<Map<String, Value>>,
    #[serde(rename = "_links")]
    links: Map<String, Value>,
}

/// An operation, for the description of the interface.
#[derive(Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "it describes; what is sent is put together attribute by attribute")]
pub(super) struct VnfLcmOpOcc {
    id: OperationId,
    operation_state: OperationState,
    state_entered_time: String,
    start_time: String,
    vnf_instance_id: InstanceId,
    grant_id: Option<String>,
    operation: OperationType,
    is_automatic_invocation: bool,
    operation_params: Option<Map<String, Value>>,
    is_cancel_pending: bool,
    cancel_mode: Option<crate::domain::CancelMode>,
    error: Option<Problem>,
    resource_changes: Option<Map<String, Value>>,
    changed_info: Option<Value>,
    changed_ext_connectivity: Option<Vec<Value>>,
    /// What was accepted and ignored; an attribute of our own.
    warnings: Option<Vec<String>>,
    /// The plans that do the work; an attribute of our own.
    plans: Option<Vec<i64>>,
    #[serde(rename = "_links")]
    links: Map<String, Value>,
}

/// An instance.
pub(super) fn instance(call: &Call, instance: &Instance, api: Api) -> Value {
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    put("id", json!(instance.id));
    if let Some(name) = &instance.name {
        put("vnfInstanceName", json!(name));
    }
    if let Some(description) = &instance.description {
        put("vnfInstanceDescription", json!(description));
    }
    put("vnfdId", json!(instance.vnfd_id));
    put("vnfProvider", json!(instance.provider));
    put("vnfProductName", json!(instance.product));
    put("vnfSoftwareVersion", json!(instance.software_version));
    put("vnfdVersion", json!(instance.vnfd_version));
    if api == Api::LcmV1 {
        put("vnfPkgId", json!(instance.package));
    }
    for (name, map) in [
        ("vnfConfigurableProperties", &instance.configurable),
        ("metadata", &instance.metadata),
        ("extensions", &instance.extensions),
    ] {
        if !map.is_empty() {
            put(name, Value::Object(map.clone()));
        }
    }
    if !instance.vims.is_empty() {
        put("vimConnectionInfo", vim_connections(instance, api));
    }
    put("instantiationState", json!(instance.state));
    if let Some(info) = &instance.info {
        put("instantiatedVnfInfo", instantiated(info, api));
    }
    put("_links", instance_links(call, instance, api));
    Value::Object(shown)
}

/// A list with ids in 2.6.1, a map in 3.3.1.
fn vim_connections(instance: &Instance, api: Api) -> Value {
    if api == Api::LcmV2 {
        return json!(instance.vims);
    }
    let entries = instance.vims.iter().map(|(id, connection)| {
        let mut entry = json!(connection);
        entry["id"] = json!(id);
        entry
    });
    Value::Array(entries.collect())
}

fn instantiated(info: &Info, api: Api) -> Value {
    let scale: Vec<Value> =
        info.scale.iter().map(|(aspect, level)| json!({"aspectId": aspect, "scaleLevel": level})).collect();
    let resources: Vec<Value> = info.vnfcs.iter().map(|vnfc| resource(info, vnfc)).collect();
    let mut shown = json!({
        "flavourId": info.flavour,
        "vnfState": info.vnf_state,
        "scaleStatus": scale,
        "extCpInfo": ext_cps(info),
        "vnfcResourceInfo": resources,
    });
    if let Some(level) = &info.level {
        shown["instantiationLevelId"] = json!(level);
    }
    if !info.ext_links.is_empty() {
        let links: Vec<Value> = info.ext_links.iter().map(|link| ext_link(info, link)).collect();
        shown["extVirtualLinkInfo"] = Value::Array(links);
    }
    if api == Api::LcmV2 {
        let started = info.vnf_state == VnfState::Started;
        let components: Vec<Value> = info
            .vnfcs
            .iter()
            .map(|vnfc| {
                json!({
                    "id": vnfc.id,
                    "vduId": vnfc.vdu,
                    "vnfcResourceInfoId": vnfc.id,
                    "vnfcState": if started { "STARTED" } else { "STOPPED" },
                })
            })
            .collect();
        shown["vnfcInfo"] = Value::Array(components);
    }
    shown
}

fn resource(info: &Info, vnfc: &Vnfc) -> Value {
    let mut shown = json!({
        "id": vnfc.id,
        "vduId": vnfc.vdu,
        "computeResource": {
            "vimConnectionId": info.vim_connection,
            "resourceId": vnfc.resource,
            "vimLevelResourceType": "machine",
        },
        "metadata": {"machine": vnfc.machine.name, "infra": info.infra, "network": vnfc.machine.site},
    });
    if let Some(addresses) = vnfc.addresses {
        shown["vnfcCpInfo"] = json!([{
            "id": format!("{}-cp", vnfc.id),
            "cpdId": cpd_of(info, &vnfc.vdu).unwrap_or_else(|| "management".to_owned()),
            "cpProtocolInfo": protocol(addresses),
        }]);
    }
    shown
}

/// The connection point that a request put a VDU's machines on a network with.
fn cpd_of(info: &Info, vdu: &str) -> Option<String> {
    let mut cpds = info.ext_links.iter().flat_map(|link| &link.ext_cps);
    let found = cpds.find_map(|cp| cp.get("cpdId").and_then(Value::as_str).filter(|id| id.contains(vdu)));
    found.map(ToOwned::to_owned)
}

fn protocol(addresses: guywire_model::AddressPair) -> Value {
    json!([{
        "layerProtocol": "IP_OVER_ETHERNET",
        "ipOverEthernet": {"ipAddresses": [
            {"type": "IPV4", "addresses": [addresses.v4]},
            {"type": "IPV6", "addresses": [addresses.v6]},
        ]},
    }])
}

fn ext_cps(info: &Info) -> Vec<Value> {
    info.vnfcs
        .iter()
        .filter_map(|vnfc| {
            let addresses = vnfc.addresses?;
            Some(json!({
                "id": format!("{}-ext", vnfc.id),
                "cpdId": cpd_of(info, &vnfc.vdu).unwrap_or_else(|| vnfc.vdu.clone()),
                "cpProtocolInfo": protocol(addresses),
                "associatedVnfcCpId": format!("{}-cp", vnfc.id),
            }))
        })
        .collect()
}

fn ext_link(info: &Info, link: &crate::domain::ExtLink) -> Value {
    json!({
        "id": link.id,
        "resourceHandle": {
            "vimConnectionId": link.vim_connection_id.as_ref().unwrap_or(&info.vim_connection),
            "resourceId": link.resource_id,
        },
        "currentVnfExtCpData": link.ext_cps,
    })
}

/// Links to what is allowed in this state, and to nothing else.
fn instance_links(call: &Call, instance: &Instance, api: Api) -> Value {
    let me = instance_url(call, api, instance.id);
    let mut links = Map::new();
    let mut put = |name: &str, href: String| links.insert(name.to_owned(), json!({"href": href}));
    put("self", me.clone());
    if let Some(operation) = instance.operation {
        put("currentOperation", operation_url(call, api, operation));
        return Value::Object(links);
    }
    match instance.state {
        InstantiationState::NotInstantiated => {
            put("instantiate", format!("{me}/instantiate"));
        }
        InstantiationState::Instantiated => {
            for (name, task) in [
                ("terminate", "terminate"),
                ("scale", "scale"),
                ("scaleToLevel", "scale_to_level"),
                ("changeFlavour", "change_flavour"),
                ("heal", "heal"),
                ("operate", "operate"),
                ("changeExtConn", "change_ext_conn"),
            ] {
                put(name, format!("{me}/{task}"));
            }
            if api == Api::LcmV2 {
                put("changeCurrentVnfPkg", format!("{me}/change_vnfpkg"));
            }
        }
    }
    Value::Object(links)
}

/// An operation.
pub(super) fn operation(call: &Call, operation: &Operation, api: Api) -> Value {
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    put("id", json!(operation.id));
    put("operationState", json!(operation.state));
    put("stateEnteredTime", json!(operation.entered));
    put("startTime", json!(operation.started));
    put("vnfInstanceId", json!(operation.instance));
    if let Some(grant) = &operation.grant {
        put("grantId", json!(grant));
    }
    put("operation", json!(operation.operation));
    put("isAutomaticInvocation", json!(operation.automatic));
    put("operationParams", Value::Object(operation.params.clone()));
    put("isCancelPending", json!(operation.cancel.is_some()));
    if let Some(mode) = operation.cancel {
        put("cancelMode", json!(mode));
    }
    if let Some(error) = &operation.error {
        put("error", json!(error));
    }
    if !operation.affected.is_empty() {
        let vnfd_id = operation.params.get("vnfdId").and_then(Value::as_str).unwrap_or_default();
        put("resourceChanges", json!({"affectedVnfcs": affected::vnfcs(operation, vnfd_id, api)}));
    }
    if let Some(changed) = &operation.changed_info {
        put("changedInfo", changed.clone());
    }
    if !operation.changed_ext.is_empty() {
        put("changedExtConnectivity", Value::Array(affected::ext_links(&operation.changed_ext, api)));
    }
    if !operation.warnings.is_empty() {
        put("warnings", json!(operation.warnings));
    }
    if !operation.plans.is_empty() {
        put("plans", json!(operation.plans));
    }
    let me = operation_url(call, api, operation.id);
    let mut links = Map::new();
    links.insert("self".to_owned(), json!({"href": me}));
    links.insert("vnfInstance".to_owned(), json!({"href": instance_url(call, api, operation.instance)}));
    for wish in wishes_allowed(operation) {
        links.insert(wish.as_str().to_owned(), json!({"href": format!("{me}/{}", wish.as_str())}));
    }
    put("_links", Value::Object(links));
    Value::Object(shown)
}

/// Where an instance is.
pub(super) fn instance_url(call: &Call, api: Api, id: InstanceId) -> String {
    call.url(&format!("{}/vnf_instances/{id}", prefix(api)))
}

/// Where an operation is.
pub(super) fn operation_url(call: &Call, api: Api, id: OperationId) -> String {
    call.url(&format!("{}/vnf_lcm_op_occs/{id}", prefix(api)))
}

fn prefix(api: Api) -> &'static str {
    if api == Api::LcmV1 { "/vnflcm/v1" } else { "/vnflcm/v2" }
}
