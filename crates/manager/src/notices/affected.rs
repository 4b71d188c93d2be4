//! What an operation touched, as SOL003 shows it: in operations and in notifications alike. No I/O.

use serde_json::{Map, Value, json};

use crate::domain::{Affected, Api, ExtLink, Operation};

/// `affectedVnfcs`: one entry a machine that was made, removed or changed.
pub fn vnfcs(operation: &Operation, vnfd_id: &str, api: Api) -> Vec<Value> {
    let connection = operation.target.as_ref().map(|target| target.vim_connection.as_str());
    operation.affected.iter().map(|affected| vnfc(affected, connection, vnfd_id, api)).collect()
}

/// `changedExtConnectivity`: external networks as they are now.
pub fn ext_links(links: &[ExtLink], api: Api) -> Vec<Value> {
    links.iter().map(|link| ext_link(link, api)).collect()
}

/// One machine. Its `id` is that of the `vnfcResourceInfo` which it is or was; `resourceId` tells two machines apart
/// that stood under that id one after the other.
fn vnfc(affected: &Affected, connection: Option<&str>, vnfd_id: &str, api: Api) -> Value {
    let mut resource = Map::new();
    if let Some(connection) = connection {
        resource.insert("vimConnectionId".to_owned(), json!(connection));
    }
    resource.insert("resourceId".to_owned(), json!(affected.vnfc.resource));
    let mut shown = json!({
        "id": affected.vnfc.id,
        "vduId": affected.vnfc.vdu,
        "changeType": affected.change,
        "computeResource": resource,
        "metadata": { "machine": affected.vnfc.machine.name },
    });
    // The one connection point that a machine's `vnfcCpInfo` shows once it has addresses.
    if affected.vnfc.addresses.is_some() {
        shown["affectedVnfcCpIds"] = json!([format!("{}-cp", affected.vnfc.id)]);
    }
    // SOL003 knows this attribute since 3.3.1.
    if api == Api::LcmV2 {
        shown["vnfdId"] = json!(vnfd_id);
    }
    shown
}

fn ext_link(link: &ExtLink, api: Api) -> Value {
    let mut resource = Map::new();
    if let Some(connection) = &link.vim_connection_id {
        resource.insert("vimConnectionId".to_owned(), json!(connection));
    }
    resource.insert("resourceId".to_owned(), json!(link.resource_id));
    let mut shown = json!({ "id": link.id, "resourceHandle": resource });
    if api == Api::LcmV2 {
        shown["currentVnfExtCpData"] = json!(link.ext_cps);
    }
    shown
}
