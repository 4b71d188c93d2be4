//! An instance as people read it.

use serde_json::Value;

use crate::output::{Table, text};

/// Its own attributes.
pub fn lines(instance: &Value) -> Vec<(&'static str, String)> {
    let get = |name: &str| text(&instance[name]);
    let info = &instance["instantiatedVnfInfo"];
    let scale = |one: &Value| format!("{} at {}", text(&one["aspectId"]), text(&one["scaleLevel"]));
    let scales: Vec<String> = each(&info["scaleStatus"]).map(scale).collect();
    vec![
        ("id", get("id")),
        ("name", get("vnfInstanceName")),
        ("description", get("vnfInstanceDescription")),
        ("state", get("instantiationState")),
        ("product", format!("{} {}", get("vnfProductName"), get("vnfSoftwareVersion")).trim().to_owned()),
        ("provider", get("vnfProvider")),
        ("vnfd", get("vnfdId")),
        ("flavour", text(&info["flavourId"])),
        ("machines", text(&info["vnfState"])),
        ("scale", scales.join(", ")),
    ]
}

/// Prints its components, if it has any.
pub fn components(instance: &Value) {
    let info = &instance["instantiatedVnfInfo"];
    let mut table = Table::new(["COMPONENT", "VDU", "RESOURCE", "ADDRESSES"]);
    let mut any = false;
    for component in each(&info["vnfcResourceInfo"]) {
        any = true;
        table.row([
            text(&component["id"]),
            text(&component["vduId"]),
            text(&component["computeResource"]["resourceId"]),
            addresses(component).join(", "),
        ]);
    }
    if any {
        println!();
        table.print();
    }
}

/// Every address of a component's connection points, each once.
pub fn addresses(component: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for cp in each(&component["vnfcCpInfo"]) {
        for protocol in each(&cp["cpProtocolInfo"]) {
            for entry in each(&protocol["ipOverEthernet"]["ipAddresses"]) {
                for address in each(&entry["addresses"]).map(text) {
                    if !found.contains(&address) {
                        found.push(address);
                    }
                }
            }
        }
    }
    found
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_found_where_sol003_has_them() {
        let protocol = json!({"ipOverEthernet": {"ipAddresses": [
            {"type": "IPV4", "addresses": ["10.0.0.2"]}, {"type": "IPV6", "addresses": ["fd00::2"]}]}});
        let component =
            json!({"vnfcCpInfo": [{"cpProtocolInfo": [protocol]}, {"cpProtocolInfo": [protocol]}]});
        assert_eq!(addresses(&component), ["10.0.0.2", "fd00::2"]);
        assert!(addresses(&json!({})).is_empty());
    }
}
