//! SOL001: what a VNF is, read from its service templates.

mod artifacts;
mod compute;
mod connect;
mod lcm;
mod placement;
mod properties;
mod scaling;
mod topology;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::{
    artifacts::Artifacts,
    properties::Properties,
    topology::{Template, Topology},
};
use crate::{
    hash::Promise,
    item::{Item, Notes},
    package::ArtifactKind,
    rejection::{Rejection, printable},
    tosca::{Document, Documents, NodeKind, Types},
    vnfd::{Flavour, Input, Vnfd},
    yaml::{Kind, Node},
};

/// The descriptor, and what it says about files of the package.
#[derive(Debug)]
pub struct Described {
    pub vnfd: Vnfd,
    pub promises: Vec<Promise>,
    pub kinds: BTreeMap<String, ArtifactKind>,
}

/// Whether a file is a flavour of the VNF: it says that it can stand in for a node of the VNF's type.
pub fn is_flavour(document: &Document, types: &Types) -> Result<bool, Rejection> {
    let mappings = document.topology().and_then(|topology| topology.field("substitution_mappings"));
    let Some(node_type) = mappings.and_then(|mappings| mappings.field("node_type")) else { return Ok(false) };
    Ok(types.kind(&node_type)? == NodeKind::Vnf)
}

/// Whether a file describes machines itself; if not, other files must describe flavours.
pub fn has_machines(document: &Document, types: &Types) -> Result<bool, Rejection> {
    let templates = document.topology().and_then(|topology| topology.field("node_templates"));
    for (name, template) in templates.as_ref().map(Item::entries).transpose()?.unwrap_or_default() {
        if let Some(named_at) = template.relabelled(printable(name)).field("type")
            && matches!(types.kind(&named_at)?, NodeKind::Compute | NodeKind::Container)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the descriptor. `files` are those that the package has.
pub fn describe(
    documents: &Documents,
    types: &Types,
    files: &BTreeSet<String>,
    notes: &mut Notes,
) -> Result<Described, Rejection> {
    let mut artifacts = Artifacts::new(files);
    let entry = documents.entry();
    let Some(top_topology) = entry.topology() else {
        let reason = "has no topology_template; expected one with a node template of the VNF";
        return Err(Rejection::file(&entry.path, reason));
    };
    let top = Topology::read(&top_topology, types, None, notes)?;
    let inputs = inputs(&top_topology)?;

    let mut flavours = Vec::new();
    for document in &documents.all {
        if is_flavour(document, types)? {
            flavours.extend(document.topology());
        }
    }
    if flavours.is_empty() {
        flavours.push(top_topology.clone());
    }

    let mut read: Vec<Flavour> = Vec::new();
    let mut sources = Vec::new();
    for topology in &flavours {
        let outer = top.vnf()?.map(|vnf| &vnf.given.node);
        let topology = Topology::read(topology, types, outer, notes)?;
        let properties = Properties::gather(&top, &topology, types)?;
        let flavour = flavour(&top, &topology, &properties, types, &mut artifacts, notes)?;
        if read.iter().any(|other| other.id == flavour.id) {
            let reason = format!("the flavour {} is described twice", printable(&flavour.id));
            return Err(topology.item.refuse(reason));
        }
        read.push(flavour);
        sources.push(properties);
    }

    // Every flavour inherits the VNF's identity from the entry, so the first one knows it.
    let identity = &sources[0];
    let product_description = identity.text("product_info_description")?;
    let description = match product_description {
        Some(description) => Some(description),
        None => entry.root.field("description").map(|description| description.text()).transpose()?,
    };
    let vnfd = Vnfd {
        id: identity.need("descriptor_id", "the VNFD's identifier, such as a UUID")?,
        version: identity.need("descriptor_version", "the VNFD's version")?,
        provider: identity.need("provider", "the name of who made the VNF")?,
        product_name: identity.need("product_name", "the product's name")?,
        software_version: identity.need("software_version", "the version of the VNF's software")?,
        description,
        vnfm_info: identity.texts("vnfm_info")?,
        flavours: read,
        configurable_properties: identity.map("configurable_properties")?,
        modifiable_attributes: identity.map("modifiable_attributes")?,
        inputs,
    };
    Ok(Described { vnfd, promises: artifacts.promises, kinds: artifacts.kinds })
}

/// One flavour.
fn flavour(
    top: &Topology,
    topology: &Topology,
    properties: &Properties,
    types: &Types,
    artifacts: &mut Artifacts<'_>,
    notes: &mut Notes,
) -> Result<Flavour, Rejection> {
    for template in &topology.templates {
        refuse_or_note(template, notes)?;
    }
    let storages = topology
        .of(&[NodeKind::BlockStorage, NodeKind::ObjectStorage, NodeKind::FileStorage, NodeKind::AnyStorage])
        .map(|template| compute::storage(template, artifacts, notes))
        .collect::<Result<Vec<_>, _>>()?;
    let mut vdus = topology
        .of(&[NodeKind::Compute])
        .map(|template| compute::vdu(template, topology, artifacts, notes))
        .collect::<Result<Vec<_>, _>>()?;
    if vdus.is_empty() {
        let reason = "describes no machines; expected a node template of type tosca.nodes.nfv.Vdu.Compute";
        return Err(topology.item.refuse(reason));
    }
    let connected = connect::read(topology, notes)?;
    let policies = topology.policies()?;
    let scaling = scaling::read(&policies, &mut vdus, notes)?;
    let placement = placement::read(&policies, topology, &vdus, notes)?;
    let lcm = lcm::read(top, topology, types, artifacts, notes)?;
    Ok(Flavour {
        id: properties.need("flavour_id", "the flavour's identifier")?,
        description: properties.text("flavour_description")?.filter(|text| !text.is_empty()),
        vdus,
        cps: connected.cps,
        ext_cps: connected.ext_cps,
        vls: connected.vls,
        storages,
        aspects: scaling.aspects,
        levels: scaling.levels,
        default_level: scaling.default_level,
        placement,
        lcm,
    })
}

/// Containers are not machines: better to say so than to leave them out.
fn refuse_or_note(template: &Template, notes: &mut Notes) -> Result<(), Rejection> {
    match template.kind {
        NodeKind::Container => Err(template.item.refuse(format!(
            "{} is for containers, which are not supported yet; expected VDUs of type tosca.nodes.nfv.Vdu.Compute",
            printable(&template.type_name)
        ))),
        NodeKind::Ignored => {
            notes.at(&template.item, &format!("nodes of type {} are passed over", printable(&template.type_name)));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn inputs(topology: &Item) -> Result<BTreeMap<String, Input>, Rejection> {
    let mut inputs = BTreeMap::new();
    let Some(declared) = topology.field("inputs") else { return Ok(inputs) };
    for (name, item) in declared.entries()? {
        let kind = item.field("type").map(|kind| kind.word()).transpose()?;
        let description = item.field("description").map(|text| text.text()).transpose()?;
        let default = item.field("default").map(|default| default.node.json());
        let kind = kind.unwrap_or_else(|| "string".into());
        inputs.insert(name.to_owned(), Input { kind, description, default });
    }
    Ok(inputs)
}

/// A mapping as JSON, entry by entry.
fn json_map(item: &Item) -> Result<BTreeMap<String, Value>, Rejection> {
    Ok(item.entries()?.into_iter().map(|(name, item)| (name.to_owned(), item.node.json())).collect())
}

/// Whether a value is there and known.
fn is_given(node: &Node) -> bool {
    !node.is_null() && !matches!(node.kind(), Kind::Unresolved(_))
}
