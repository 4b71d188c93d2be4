//! The `GrantRequest` of an operation. No I/O.

use guywire_package::{Affinity, AffinityRule, Flavour};
use serde_json::{Value, json};

use crate::domain::{Api, Instance, Operation, OperationType, Target, Vnfc};

/// What the NFVO is asked. Ids of resource definitions follow from the resources, so that a request that is sent again
/// says the same. `flavour` is the one that the operation leads to, from the descriptor.
pub fn grant_request(
    operation: &Operation,
    instance: &Instance,
    target: &Target,
    flavour: Option<&Flavour>,
    base_url: &str,
) -> Value {
    let base = base_url.trim_end_matches('/');
    let mut request = json!({
        "vnfInstanceId": instance.id,
        "vnfLcmOpOccId": operation.id,
        "vnfdId": instance.vnfd_id,
        "flavourId": target.flavour,
        "operation": operation.operation,
        "isAutomaticInvocation": operation.automatic,
        "_links": {
            "vnfLcmOpOcc": { "href": format!("{base}{}/vnf_lcm_op_occs/{}", Api::LcmV2.root(), operation.id) },
            "vnfInstance": { "href": format!("{base}{}/vnf_instances/{}", Api::LcmV2.root(), instance.id) },
        },
    });
    let vnfd_after = target.package.as_ref().map_or(instance.vnfd_id.as_str(), |(_, vnfd)| vnfd);
    if operation.operation == OperationType::ChangeVnfpkg {
        request["dstVnfdId"] = json!(vnfd_after);
    }
    let sizes = matches!(
        operation.operation,
        OperationType::Instantiate | OperationType::ScaleToLevel | OperationType::ChangeFlavour
    );
    if let Some(level) = target.level.as_ref().filter(|_| sizes) {
        request["instantiationLevelId"] = json!(level);
    }
    let view = View { target, flavour };
    let added = target.add.iter().chain(target.replace.iter().map(|(vnfc, _)| vnfc));
    let add: Vec<Value> = added.flat_map(|vnfc| view.added(vnfc, vnfd_after)).collect();
    let gone = target.remove.iter().map(|vnfc| (vnfc, vnfc.resource));
    let gone = gone.chain(target.replace.iter().map(|(vnfc, old)| (vnfc, *old)));
    let remove: Vec<Value> =
        gone.map(|(vnfc, resource)| view.present(vnfc, resource, &instance.vnfd_id)).collect();
    let update: Vec<Value> = match operation.operation {
        OperationType::ChangeExtConn => view.kept(instance).flat_map(|vnfc| view.ports(vnfc)).collect(),
        OperationType::Operate => {
            view.kept(instance).map(|vnfc| view.present(vnfc, vnfc.resource, &instance.vnfd_id)).collect()
        }
        _ => Vec::new(),
    };
    for (name, resources) in [("addResources", add), ("removeResources", remove), ("updateResources", update)]
    {
        if !resources.is_empty() {
            request[name] = Value::Array(resources);
        }
    }
    let rules = flavour.map(|flavour| flavour.placement.as_slice()).unwrap_or_default();
    let rules: Vec<Value> = rules.iter().filter_map(|rule| view.constraint(rule, instance)).collect();
    if !rules.is_empty() {
        request["placementConstraints"] = Value::Array(rules);
    }
    request
}

struct View<'a> {
    target: &'a Target,
    flavour: Option<&'a Flavour>,
}

impl View<'_> {
    /// A machine to be made, with its ports and volumes.
    fn added(&self, vnfc: &Vnfc, vnfd_id: &str) -> Vec<Value> {
        let define = |kind: &str, suffix: &str, template: &str| {
            json!({
                "id": format!("{}{suffix}", vnfc.resource),
                "type": kind,
                "vduId": vnfc.vdu,
                "vnfdId": vnfd_id,
                "resourceTemplateId": template,
            })
        };
        let mut all = vec![define("COMPUTE", "", &vnfc.vdu)];
        let Some(flavour) = self.flavour else { return all };
        for cp in flavour.cps.iter().filter(|cp| cp.vdu == vnfc.vdu) {
            all.push(define("LINKPORT", &format!("/{}", cp.id), &cp.id));
        }
        let vdu = flavour.vdus.iter().find(|vdu| vdu.id == vnfc.vdu);
        for storage in vdu.map(|vdu| vdu.storages.as_slice()).unwrap_or_default() {
            all.push(define("STORAGE", &format!("/{storage}"), storage));
        }
        all
    }

    /// A machine that stands.
    fn present(&self, vnfc: &Vnfc, resource: uuid::Uuid, vnfd_id: &str) -> Value {
        json!({
            "id": resource,
            "type": "COMPUTE",
            "vduId": vnfc.vdu,
            "vnfdId": vnfd_id,
            "resourceTemplateId": vnfc.vdu,
            "resource": { "vimConnectionId": self.target.vim_connection, "resourceId": resource },
        })
    }

    /// The ports of a machine that stands and that lead outside.
    fn ports(&self, vnfc: &Vnfc) -> Vec<Value> {
        let Some(flavour) = self.flavour else { return Vec::new() };
        let outside =
            |cp: &str| flavour.ext_cps.iter().any(|ext| ext.cp.as_deref() == Some(cp) || ext.id == cp);
        let ports = flavour.cps.iter().filter(|cp| cp.vdu == vnfc.vdu && outside(&cp.id));
        ports
            .map(|cp| {
                json!({
                    "id": format!("{}/{}", vnfc.resource, cp.id),
                    "type": "LINKPORT",
                    "vduId": vnfc.vdu,
                    "resourceTemplateId": cp.id,
                    "resource": { "vimConnectionId": self.target.vim_connection, "resourceId": vnfc.resource },
                })
            })
            .collect()
    }

    /// The machines that stay as they are.
    fn kept<'b>(&'b self, instance: &'b Instance) -> impl Iterator<Item = &'b Vnfc> {
        let all = instance.info.as_ref().map(|info| info.vnfcs.as_slice()).unwrap_or_default();
        all.iter().filter(|vnfc| {
            !self.target.remove.iter().any(|gone| gone.id == vnfc.id)
                && !self.target.replace.iter().any(|(anew, _)| anew.id == vnfc.id)
        })
    }

    /// Who must be together or apart, among those to be made and those that stay. One alone is with nobody.
    fn constraint(&self, rule: &AffinityRule, instance: &Instance) -> Option<Value> {
        let meant = |vnfc: &&Vnfc| rule.vdus.contains(&vnfc.vdu);
        let added = self.target.add.iter().chain(self.target.replace.iter().map(|(vnfc, _)| vnfc));
        let mut resources: Vec<Value> = added
            .filter(meant)
            .map(|vnfc| json!({ "idType": "GRANT", "resourceId": vnfc.resource }))
            .collect();
        if resources.is_empty() {
            return None;
        }
        resources.extend(self.kept(instance).filter(meant).map(|vnfc| {
            json!({
                "idType": "RES_MGMT",
                "vimConnectionId": self.target.vim_connection,
                "resourceId": vnfc.resource,
            })
        }));
        (resources.len() > 1).then(|| {
            json!({
                "affinityOrAntiAffinity": match rule.kind {
                    Affinity::Affinity => "AFFINITY",
                    Affinity::AntiAffinity => "ANTI_AFFINITY",
                },
                "scope": rule.scope.to_ascii_uppercase(),
                "resource": resources,
            })
        })
    }
}
