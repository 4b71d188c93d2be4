//! Affinity: who stands beside whom.

use super::topology::{Policy, Topology};
use crate::{
    item::Notes,
    rejection::{Rejection, printable},
    vnfd::{Affinity, AffinityRule, Vdu},
};

const SCOPES: &[&str] =
    &["nfvi_node", "zone", "zone_group", "nfvi_pop", "network_link_and_node", "container_namespace"];

/// Reads the affinity rules of a flavour.
pub fn read(
    policies: &[Policy],
    topology: &Topology,
    vdus: &[Vdu],
    notes: &mut Notes,
) -> Result<Vec<AffinityRule>, Rejection> {
    let mut rules = Vec::new();
    for policy in policies {
        let kind = match policy.kind.as_str() {
            "AffinityRule" => Affinity::Affinity,
            "AntiAffinityRule" => Affinity::AntiAffinity,
            _ => continue,
        };
        let properties = policy.item.need("properties", "the rule's scope")?;
        let scope = properties.need("scope", "nfvi_node, zone, zone_group or nfvi_pop")?;
        let scope_text = scope.word()?;
        if !SCOPES.contains(&scope_text.as_str()) {
            return Err(scope.expected(&format!("one of {}", SCOPES.join(", "))));
        }
        let mut members = Vec::new();
        for target in policy.item.need("targets", "the VDUs or groups that the rule is for")?.items()? {
            let name = target.word()?;
            match topology.group(&name)? {
                Some(group) => members.extend(group.into_iter().map(|member| (member, target.clone()))),
                None => members.push((name, target)),
            }
        }
        let mut affected: Vec<String> = Vec::new();
        for (name, target) in members {
            if vdus.iter().any(|vdu| vdu.id == name) {
                if !affected.contains(&name) {
                    affected.push(name);
                }
            } else if topology.templates.iter().any(|template| template.name == name) {
                notes
                    .at(&target, &format!("{} is no VDU; placement is for VDUs only here", printable(&name)));
            } else {
                let known: Vec<_> = vdus.iter().map(|vdu| printable(&vdu.id)).collect();
                let reason = format!(
                    "{} is no VDU of this flavour; expected one of {}",
                    printable(&name),
                    known.join(", ")
                );
                return Err(target.refuse(reason));
            }
        }
        rules.push(AffinityRule { id: policy.name.clone(), kind, scope: scope_text, vdus: affected });
    }
    Ok(rules)
}
