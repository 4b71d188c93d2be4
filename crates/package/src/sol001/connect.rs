//! Connection points and virtual links.

use super::topology::{Template, Topology};
use crate::{
    item::{Item, Notes},
    rejection::{Rejection, printable},
    tosca::NodeKind,
    vnfd::{Cp, ExtCp, L3, VirtualLink},
    yaml::Kind,
};

/// What connects a flavour's machines, and leads out of it.
#[derive(Debug)]
pub struct Connected {
    pub cps: Vec<Cp>,
    pub ext_cps: Vec<ExtCp>,
    pub vls: Vec<VirtualLink>,
}

/// Reads all connection points and virtual links of a flavour.
pub fn read(topology: &Topology, notes: &mut Notes) -> Result<Connected, Rejection> {
    let vls = topology
        .of(&[NodeKind::VirtualLink])
        .map(|vl| virtual_link(vl, notes))
        .collect::<Result<Vec<_>, _>>()?;
    let cps = topology
        .of(&[NodeKind::VduCp])
        .map(|template| cp(template, topology, notes))
        .collect::<Result<Vec<_>, _>>()?;
    let mut ext_cps = Vec::new();
    for template in topology.of(&[NodeKind::ExtCp]) {
        ext_cps.push(ExtCp {
            id: template.name.clone(),
            cp: None,
            virtual_link: link(template, "internal_virtual_link", topology)?,
            requirement: None,
            protocols: protocols(&template.properties)?,
        });
    }
    // What is mapped to a requirement of the VNF is exposed; so is what is on no link of the VNF, since there is
    // nowhere else for it to be connected.
    let mapped = mapped(topology, notes)?;
    let exposed =
        cps.iter().filter(|cp| cp.virtual_link.is_none() || mapped.iter().any(|(id, _)| *id == cp.id));
    ext_cps.extend(exposed.map(|cp| ExtCp {
        id: cp.id.clone(),
        cp: Some(cp.id.clone()),
        virtual_link: None,
        requirement: None,
        protocols: cp.protocols.clone(),
    }));
    for ext_cp in &mut ext_cps {
        let requirement = mapped.iter().find(|(id, _)| *id == ext_cp.id);
        ext_cp.requirement = requirement.map(|(_, requirement)| requirement.clone());
    }
    Ok(Connected { cps, ext_cps, vls })
}

fn cp(template: &Template, topology: &Topology, notes: &mut Notes) -> Result<Cp, Rejection> {
    let properties = &template.properties;
    if template.type_name.starts_with("tosca.nodes.nfv.") {
        properties.note_unknown(
            &[
                "layer_protocols",
                "role",
                "description",
                "protocol",
                "trunk_mode",
                "security_groups",
                "bitrate_requirement",
                "virtual_network_interface_requirements",
                "order",
                "vnic_type",
            ],
            notes,
        )?;
    }
    let expected = "the VDU that it belongs to, as '- virtual_binding: NAME' in its requirements";
    let bindings = template.requirements("virtual_binding")?;
    let [binding] = bindings.as_slice() else {
        let reason = match bindings.len() {
            0 => format!("virtual_binding is missing; expected {expected}"),
            _ => "has more than one virtual_binding; expected one".into(),
        };
        return Err(template.item.refuse(reason));
    };
    let vdu = binding.word()?;
    if !topology.of(&[NodeKind::Compute]).any(|template| template.name == vdu) {
        let known = topology.names(&[NodeKind::Compute]);
        return Err(binding.refuse(format!("{} is no VDU of this flavour; {known}", printable(&vdu))));
    }
    Ok(Cp {
        id: template.name.clone(),
        vdu,
        order: properties.field("order").map(|order| order.number(0, 1_000)).transpose()?,
        virtual_link: link(template, "virtual_link", topology)?,
        protocols: protocols(properties)?,
    })
}

/// The internal link that a connection point is on.
fn link(template: &Template, requirement: &str, topology: &Topology) -> Result<Option<String>, Rejection> {
    let targets = template.requirements(requirement)?;
    let Some(target) = targets.first() else { return Ok(None) };
    let name = target.word()?;
    if !topology.of(&[NodeKind::VirtualLink]).any(|template| template.name == name) {
        let known = topology.names(&[NodeKind::VirtualLink]);
        return Err(
            target.refuse(format!("{} is no virtual link of this flavour; {known}", printable(&name)))
        );
    }
    Ok(Some(name))
}

/// The connection points in `substitution_mappings`, with the VNF's requirement that each one meets.
fn mapped(topology: &Topology, notes: &mut Notes) -> Result<Vec<(String, String)>, Rejection> {
    let Some(requirements) = topology.mappings().and_then(|mappings| mappings.field("requirements")) else {
        return Ok(Vec::new());
    };
    let mut mapped = Vec::new();
    for (requirement, item) in requirements.named()? {
        let mapping = match item.node.kind() {
            Kind::Map(_) => item.need("mapping", "[node, requirement]")?,
            _ => item,
        };
        if mapping.node.is_null() {
            continue;
        }
        let target = mapping.texts()?;
        let Some(node) = target.first() else { continue };
        if !topology.templates.iter().any(|template| template.name == *node) {
            let known = topology.names(&[NodeKind::VduCp, NodeKind::ExtCp]);
            notes.at(
                &mapping,
                &format!("{} is no node of this flavour, {known}; passed over", printable(node)),
            );
            continue;
        }
        mapped.push((node.clone(), requirement));
    }
    Ok(mapped)
}

fn virtual_link(template: &Template, notes: &mut Notes) -> Result<VirtualLink, Rejection> {
    let properties = &template.properties;
    if template.type_name.starts_with("tosca.nodes.nfv.") {
        properties.note_unknown(
            &["connectivity_type", "description", "test_access", "vl_profile", "monitoring_parameters"],
            notes,
        )?;
    }
    let connectivity = properties.field("connectivity_type");
    let profile = properties.field("vl_profile");
    let data = profile.and_then(|profile| profile.field("virtual_link_protocol_data"));
    let mut l3 = Vec::new();
    for item in data.map(|data| data.items()).transpose()?.unwrap_or_default() {
        if let Some(network) = item.field("l3_protocol_data") {
            l3.push(layer3(&network)?);
        }
    }
    Ok(VirtualLink {
        id: template.name.clone(),
        description: properties.field("description").map(|text| text.text()).transpose()?,
        protocols: connectivity.map(|item| protocols(&item)).transpose()?.unwrap_or_default(),
        l3,
    })
}

fn layer3(item: &Item) -> Result<L3, Rejection> {
    let ip_version = item.field("ip_version").map(|version| {
        let text = version.text()?.to_ascii_lowercase();
        if text == "ipv4" || text == "ipv6" { Ok(text) } else { Err(version.expected("ipv4 or ipv6")) }
    });
    let cidr = item.field("cidr").map(|cidr| {
        let text = cidr.word()?;
        if is_cidr(&text) { Ok(text) } else { Err(cidr.expected("a network such as '10.10.0.0/24'")) }
    });
    let gateway = item.field("gateway_ip").map(|gateway| {
        let text = gateway.word()?;
        let is_address = text.parse::<std::net::IpAddr>().is_ok();
        if is_address { Ok(text) } else { Err(gateway.expected("an address such as '10.10.0.1'")) }
    });
    Ok(L3 {
        ip_version: ip_version.transpose()?,
        cidr: cidr.transpose()?,
        gateway: gateway.transpose()?,
        dhcp: item.field("dhcp_enabled").map(|dhcp| dhcp.truth()).transpose()?,
    })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn protocols(item: &Item) -> Result<Vec<String>, Rejection> {
    item.field("layer_protocols")
        .map(|protocols| protocols.texts())
        .transpose()
        .map(Option::unwrap_or_default)
}
