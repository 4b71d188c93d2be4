//! Node types: which of SOL001's a template's type is, and what it inherits on the way there.

use std::collections::BTreeMap;

use super::documents::Documents;
use crate::{
    item::{Item, Notes},
    rejection::{Rejection, printable},
    yaml::Kind,
};

/// What a node template is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    Vnf,
    Compute,
    VduCp,
    VirtualLink,
    ExtCp,
    BlockStorage,
    ObjectStorage,
    FileStorage,
    /// `Vdu.VirtualStorage` of SOL001 2.5.1, whose kind is a property.
    AnyStorage,
    /// Containers and what belongs to them.
    Container,
    /// Known to be harmless, and passed over.
    Ignored,
}

/// The node types that the package defines.
#[derive(Debug, Default)]
pub struct Types {
    defined: BTreeMap<String, Item>,
}

/// The longest derivation that is followed.
const DEEPEST: usize = 32;

impl Types {
    /// Gathers the node types of all files.
    pub fn collect(documents: &Documents, notes: &mut Notes) -> Result<Self, Rejection> {
        let mut types = Self::default();
        for document in &documents.all {
            let Some(node_types) = document.root.field("node_types") else { continue };
            for (name, item) in node_types.entries()? {
                let item = item.relabelled(printable(name));
                if !matches!(item.node.kind(), Kind::Map(_)) {
                    return Err(item.expected("the definition of a node type"));
                }
                if types.defined.contains_key(name) {
                    notes.at(&item, "is defined twice; the first definition counts");
                } else {
                    types.defined.insert(name.to_owned(), item);
                }
            }
        }
        Ok(types)
    }

    /// What a type is, by the SOL001 type that it is or is derived from.
    pub fn kind(&self, named_at: &Item) -> Result<NodeKind, Rejection> {
        let name = named_at.word()?;
        let mut current = name.clone();
        for _ in 0..DEEPEST {
            if let Some(kind) = known(&current) {
                return Ok(kind);
            }
            let Some(definition) = self.defined.get(&current) else {
                let reason = format!("no file of the package defines the type {}", printable(&current));
                return Err(named_at.refuse(reason));
            };
            match definition.field("derived_from") {
                Some(parent) => current = parent.word()?,
                None => return Ok(NodeKind::Ignored),
            }
        }
        let reason = "is derived from itself, or over more than";
        Err(named_at.refuse(format!("the type {} {reason} {DEEPEST} types", printable(&name))))
    }

    /// The definitions that a type consists of, itself first.
    pub fn chain(&self, name: &str) -> Vec<&Item> {
        let mut chain = Vec::new();
        let mut current = self.defined.get(name);
        while let Some(definition) = current.filter(|_| chain.len() < DEEPEST) {
            chain.push(definition);
            let parent = definition.field("derived_from").and_then(|parent| parent.text().ok());
            current = parent.and_then(|parent| self.defined.get(&parent));
        }
        chain
    }
}

/// The types of SOL001, in the spellings of its versions.
fn known(name: &str) -> Option<NodeKind> {
    let short = name.strip_prefix("tosca.nodes.nfv.");
    Some(match short {
        Some("VNF") => NodeKind::Vnf,
        Some("Vdu.Compute") => NodeKind::Compute,
        Some("VduCp") => NodeKind::VduCp,
        Some("VnfVirtualLink") => NodeKind::VirtualLink,
        Some("VnfExtCp") => NodeKind::ExtCp,
        Some("Vdu.VirtualBlockStorage" | "VirtualBlockStorage") => NodeKind::BlockStorage,
        Some("Vdu.VirtualObjectStorage" | "VirtualObjectStorage") => NodeKind::ObjectStorage,
        Some("Vdu.VirtualFileStorage" | "VirtualFileStorage") => NodeKind::FileStorage,
        Some("Vdu.VirtualStorage" | "VirtualStorage") => NodeKind::AnyStorage,
        Some("Vdu.OsContainerDeployableUnit" | "Vdu.OsContainer" | "Mciop" | "VirtualCp") => {
            NodeKind::Container
        }
        _ if name.starts_with("tosca.nodes.") => NodeKind::Ignored,
        _ => return None,
    })
}
