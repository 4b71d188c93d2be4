//! What a package does at the points of an operation: the interface `Vnflcm`.

use std::collections::BTreeMap;

use super::{
    artifacts::{Artifacts, Declared, is_elsewhere},
    topology::{Template, Topology},
};
use crate::{
    archive::name::base,
    item::{Item, Notes},
    package::ArtifactKind,
    rejection::{Rejection, printable},
    tosca::Types,
    vnfd::{Implementation, Role},
    yaml::Kind,
};

const OPERATIONS: &[&str] = &[
    "instantiate",
    "terminate",
    "modify_information",
    "change_flavour",
    "change_external_connectivity",
    "change_current_package",
    "operate",
    "heal",
    "scale",
    "scale_to_level",
    "create_snapshot",
    "revert_to_snapshot",
];

/// Reads the implementations of a flavour. The flavour's own node outweighs the entry's, and both their type.
pub fn read(
    top: &Topology,
    flavour: &Topology,
    types: &Types,
    artifacts: &mut Artifacts<'_>,
    notes: &mut Notes,
) -> Result<BTreeMap<String, Implementation>, Rejection> {
    let vnfs: Vec<&Template> = [top.vnf()?, flavour.vnf()?].into_iter().flatten().collect();
    let mut places: Vec<Item> = Vec::new();
    if let Some(vnf) = vnfs.first() {
        places.extend(types.chain(&vnf.type_name).into_iter().rev().cloned());
    }
    places.extend(vnfs.iter().map(|vnf| vnf.item.clone()));

    let mut declared = BTreeMap::new();
    for place in &places {
        declared.extend(Declared::all(place)?.into_iter().map(|artifact| (artifact.name.clone(), artifact)));
    }
    let mut points = BTreeMap::new();
    for place in &places {
        for (point, item) in vnflcm(place, notes)? {
            match implementation(&item)? {
                Some(primary) => points.insert(point, primary),
                None => points.remove(&point),
            };
        }
    }
    let mut lcm = BTreeMap::new();
    for (point, primary) in points {
        lcm.insert(point, resolve(&primary, &declared, artifacts)?);
    }
    // An artifact that no point names must be there all the same, unless our own roles stand in for it.
    for artifact in declared.values() {
        let reference = artifact.reference.text()?;
        if role(&artifact.name, &reference) == Role::Script && !is_elsewhere(&artifact.reference) {
            let known =
                artifacts.find(&artifact.reference).and_then(|path| artifacts.kinds.get(&path).copied());
            artifacts.claim(artifact, known.unwrap_or(ArtifactKind::Other))?;
        }
    }
    Ok(lcm)
}

/// The points of a node's or type's `Vnflcm` interface that say anything.
fn vnflcm(place: &Item, notes: &mut Notes) -> Result<Vec<(String, Item)>, Rejection> {
    let Some(interfaces) = place.field("interfaces") else { return Ok(Vec::new()) };
    let mut points = Vec::new();
    for (name, interface) in interfaces.relabelled(&place.label).entries()? {
        let kind = interface.field("type").map(|kind| kind.word()).transpose()?;
        if name != "Vnflcm" && kind.as_deref() != Some("tosca.interfaces.nfv.Vnflcm") {
            notes.at(&interface, "interfaces other than Vnflcm are passed over");
            continue;
        }
        let operations = interface.field("operations");
        for (point, item) in interface.entries()?.into_iter().chain(match &operations {
            Some(operations) => operations.entries()?,
            None => Vec::new(),
        }) {
            if matches!(
                point,
                "type" | "inputs" | "operations" | "notifications" | "description" | "derived_from"
            ) {
                continue;
            }
            let operation = point.strip_suffix("_start").or_else(|| point.strip_suffix("_end"));
            let bare = operation.unwrap_or(point);
            let bare = bare.strip_suffix("_rollback").unwrap_or(bare);
            if !OPERATIONS.contains(&bare) {
                notes.at(&item, "is no point of a lifecycle operation, and is passed over");
                continue;
            }
            if operation.is_none() && implementation(&item)?.is_some() {
                let note = format!(
                    "only {point}_start and {point}_end are run; the operation itself is done by the manager"
                );
                notes.at(&item, &note);
                continue;
            }
            points.push((point.to_owned(), item));
        }
    }
    Ok(points)
}

/// The implementation of a point, in any notation; `[]`, `{}` and nothing mean that nothing is done.
fn implementation(point: &Item) -> Result<Option<Item>, Rejection> {
    let value = match point.node.kind() {
        _ if point.node.is_null() => return Ok(None),
        Kind::List(items) if items.is_empty() => return Ok(None),
        Kind::Map(_) => match point.field("implementation") {
            Some(implementation) => implementation,
            None => return Ok(None),
        },
        _ => point.clone(),
    };
    let value = match value.node.kind() {
        Kind::Map(_) => value.need("primary", "the name of an artifact")?,
        _ => value,
    };
    if value.node.text().is_none() {
        return Err(value.expected("the name of an artifact"));
    }
    Ok(Some(value))
}

fn resolve(
    primary: &Item,
    declared: &BTreeMap<String, Declared>,
    artifacts: &mut Artifacts<'_>,
) -> Result<Implementation, Rejection> {
    let name = primary.word()?;
    let inline;
    let artifact = match declared.get(&name) {
        Some(artifact) => Some(artifact),
        None if artifacts.find(primary).is_some() => {
            inline = Declared::read(&name, primary.clone())?;
            Some(&inline)
        }
        None => None,
    };
    let reference = artifact.map(|artifact| artifact.reference.text()).transpose()?;
    let role = role(&name, reference.as_deref().unwrap_or(&name));
    let file = match (artifact, role) {
        (Some(artifact), Role::Script) if is_elsewhere(&artifact.reference) => {
            let reason = "is outside the package; a script is run only if the package ships it";
            return Err(artifact.reference.refuse(reason));
        }
        (Some(artifact), Role::Script) => Some(artifacts.claim(artifact, ArtifactKind::Script)?),
        // The package's copy of a driver that is ours is never run, so it need not be there.
        (Some(artifact), _) => match artifacts.find(&artifact.reference) {
            Some(_) => Some(artifacts.claim(artifact, ArtifactKind::Script)?),
            None => None,
        },
        (None, Role::Script) => {
            let known: Vec<_> = declared.keys().map(|name| printable(name)).collect();
            let known = if known.is_empty() {
                "none is declared".into()
            } else {
                format!("declared: {}", known.join(", "))
            };
            let reason = format!(
                "{} is neither an artifact of the VNF ({known}) nor a file of the package",
                printable(&name)
            );
            return Err(primary.refuse(reason));
        }
        (None, _) => None,
    };
    let artifact_type = artifact.and_then(|artifact| artifact.kind.clone());
    Ok(Implementation { name, file, artifact_type, role })
}

/// Which of our own roles an artifact stands for, by its name or its file's.
fn role(name: &str, file: &str) -> Role {
    match (name, base(file)) {
        ("mgmt-drivers-kubernetes", _) | (_, "kubernetes_mgmt.py" | "kubernetes_mgmt_v2.py") => {
            Role::Kubernetes
        }
        ("mgmt-drivers-private-registry", _) | (_, "private_registry_mgmt.py") => Role::PrivateRegistry,
        _ => Role::Script,
    }
}
