//! VDUs, their images and their volumes.

use super::{
    artifacts::{Artifacts, Declared, checksum, is_elsewhere},
    topology::{Template, Topology},
};
use crate::{
    item::{Item, Notes},
    package::ArtifactKind,
    rejection::{Rejection, printable},
    tosca::NodeKind,
    vnfd::{Compute, Image, Storage, StorageKind, Vdu},
    yaml::Kind,
};

/// More machines of one kind than this is a slip of the pen, not a site.
pub const MOST_MACHINES: u32 = 10_000;

const STORAGES: &[NodeKind] =
    &[NodeKind::BlockStorage, NodeKind::ObjectStorage, NodeKind::FileStorage, NodeKind::AnyStorage];

/// A `tosca.nodes.nfv.Vdu.Compute`.
pub fn vdu(
    template: &Template,
    topology: &Topology,
    artifacts: &mut Artifacts<'_>,
    notes: &mut Notes,
) -> Result<Vdu, Rejection> {
    let properties = &template.properties;
    let known = [
        "name",
        "description",
        "boot_order",
        "nfvi_constraints",
        "monitoring_parameters",
        "configurable_properties",
        "vdu_profile",
        "sw_image_data",
        "boot_data",
    ];
    if template.type_name.starts_with("tosca.nodes.nfv.") {
        properties.note_unknown(&known, notes)?;
    }
    let profile = properties.need("vdu_profile", "the fewest and the most machines of this kind")?;
    profile.note_unknown(
        &["min_number_of_instances", "max_number_of_instances", "affinity_rules", "anti_affinity_rules"],
        notes,
    )?;
    let expected = format!("a whole number from 0 to {MOST_MACHINES}");
    let least = profile.need("min_number_of_instances", &expected)?;
    let most = profile.need("max_number_of_instances", &expected)?;
    let (min, max) = (least.number(0, MOST_MACHINES)?, most.number(0, MOST_MACHINES)?);
    if min > max || max == 0 {
        let reason =
            format!("expected at least 1 and no less than min_number_of_instances ({min}), found {max}");
        return Err(most.refuse(reason));
    }
    let name = properties.field("name").map(|name| name.word()).transpose()?;
    let image = image(template, properties.field("sw_image_data"), artifacts, notes)?;
    artifacts.claim_others(template)?;
    Ok(Vdu {
        id: template.name.clone(),
        name: name.unwrap_or_else(|| template.name.clone()),
        description: properties.field("description").map(|text| text.text()).transpose()?,
        min,
        max,
        initial: min,
        compute: compute(template, notes)?,
        storages: storages(template, topology)?,
        image,
        boot_data: properties.field("boot_data").map(|data| boot_data(&data)).transpose()?,
    })
}

/// A volume of any of SOL001's types.
pub fn storage(
    template: &Template,
    artifacts: &mut Artifacts<'_>,
    notes: &mut Notes,
) -> Result<Storage, Rejection> {
    let properties = &template.properties;
    let (kind, data, size) = match template.kind {
        NodeKind::ObjectStorage => {
            (StorageKind::Object, "virtual_object_storage_data", "max_size_of_storage")
        }
        NodeKind::FileStorage => (StorageKind::File, "virtual_file_storage_data", "size_of_storage"),
        NodeKind::AnyStorage => (storage_kind(properties)?, "", "size_of_storage"),
        _ => (StorageKind::Block, "virtual_block_storage_data", "size_of_storage"),
    };
    let data = match (data, kind) {
        ("", _) => Some(properties.clone()),
        (data, StorageKind::Object) => properties.field(data),
        (data, _) => Some(properties.need(data, "the volume's size in size_of_storage")?),
    };
    let size = match (data, kind) {
        (Some(data), StorageKind::Object) => data.field(size),
        (Some(data), _) => Some(data.need(size, "a size such as '10 GB'")?),
        (None, _) => None,
    };
    let image = image(template, properties.field("sw_image_data"), artifacts, notes)?;
    artifacts.claim_others(template)?;
    Ok(Storage {
        id: template.name.clone(),
        kind,
        size_bytes: size.map(|size| size.size()).transpose()?,
        image,
    })
}

fn storage_kind(properties: &Item) -> Result<StorageKind, Rejection> {
    let Some(kind) = properties.field("type_of_storage") else { return Ok(StorageKind::Block) };
    match kind.text()?.as_str() {
        "volume" | "block" | "ephemeral" => Ok(StorageKind::Block),
        "object" => Ok(StorageKind::Object),
        "file" => Ok(StorageKind::File),
        _ => Err(kind.expected("volume, object or file")),
    }
}

/// What the capability `virtual_compute` asks for. Packages for VIMs with flavours of their own leave it out.
fn compute(template: &Template, notes: &mut Notes) -> Result<Compute, Rejection> {
    let capability = template.item.field("capabilities").and_then(|all| all.field("virtual_compute"));
    let Some(properties) = capability.and_then(|capability| capability.field("properties")) else {
        return Ok(Compute::default());
    };
    let properties = properties.relabelled(format!("{}: virtual_compute", template.item.label));
    properties.note_unknown(
        &[
            "logical_node",
            "requested_additional_capabilities",
            "compute_requirements",
            "virtual_memory",
            "virtual_cpu",
            "virtual_local_storage",
        ],
        notes,
    )?;
    let mut compute = Compute::default();
    if let Some(cpu) = properties.field("virtual_cpu") {
        let cpus = cpu.need("num_virtual_cpu", "the number of CPUs")?;
        compute.cpus = Some(cpus.number(1, 4096)?);
    }
    if let Some(memory) = properties.field("virtual_memory") {
        compute.memory_bytes = Some(memory.need("virtual_mem_size", "a size such as '2 GB'")?.size()?);
    }
    if let Some(disks) = properties.field("virtual_local_storage") {
        let disks = match disks.node.kind() {
            Kind::Map(_) => vec![disks],
            _ => disks.items()?,
        };
        let mut all = 0_u64;
        for disk in disks {
            let size = disk.need("size_of_storage", "a size such as '10 GB'")?.size()?;
            all = all.saturating_add(size);
        }
        compute.disk_bytes = Some(all);
    }
    if let Some(requested) = properties.field("requested_additional_capabilities") {
        // One mapping in the samples, a map of such mappings in the standard.
        let direct = requested.field("requested_additional_capability_name");
        let nested = requested
            .entries()?
            .into_iter()
            .find_map(|(_, one)| one.field("requested_additional_capability_name"));
        compute.vim_flavour = direct.or(nested).map(|name| name.word()).transpose()?;
    }
    Ok(compute)
}

fn storages(template: &Template, topology: &Topology) -> Result<Vec<String>, Rejection> {
    let mut names = Vec::new();
    for target in template.requirements("virtual_storage")? {
        let name = target.word()?;
        if !topology.of(STORAGES).any(|storage| storage.name == name) {
            let reason =
                format!("{} is no volume of this flavour; {}", printable(&name), topology.names(STORAGES));
            return Err(target.refuse(reason));
        }
        names.push(name);
    }
    Ok(names)
}

/// The image: described by the node (2.6.1 and later) or by the artifact's own properties (before), and shipped or not.
fn image(
    template: &Template,
    data: Option<Item>,
    artifacts: &mut Artifacts<'_>,
    notes: &mut Notes,
) -> Result<Option<Image>, Rejection> {
    let declared = Declared::all(&template.item)?.into_iter().find(Declared::is_image);
    let data = data.or_else(|| declared.as_ref()?.item.field("properties"));
    if data.is_none() && declared.is_none() {
        return Ok(None);
    }
    let mut image = Image {
        id: declared.as_ref().map_or_else(|| template.name.clone(), |declared| declared.name.clone()),
        name: declared.as_ref().map_or_else(|| template.name.clone(), |declared| declared.name.clone()),
        version: None,
        file: None,
        uri: None,
        container_format: None,
        disk_format: None,
        checksum: None,
        min_disk_bytes: None,
        min_ram_bytes: None,
        size_bytes: None,
    };
    match &declared {
        Some(declared) if is_elsewhere(&declared.reference) => image.uri = Some(declared.reference.text()?),
        Some(declared) => image.file = Some(artifacts.claim(declared, ArtifactKind::SoftwareImage)?),
        None => {}
    }
    if let Some(data) = data {
        data.note_unknown(
            &[
                "name",
                "version",
                "provider",
                "checksum",
                "container_format",
                "disk_format",
                "min_disk",
                "min_ram",
                "size",
                "sw_image",
                "operating_system",
                "supported_virtualisation_environments",
            ],
            notes,
        )?;
        image.name = data.need("name", "the image's name")?.word()?;
        image.version = Some(data.need("version", "the image's version")?.word()?);
        image.container_format = data.field("container_format").map(|format| format.word()).transpose()?;
        image.disk_format = data.field("disk_format").map(|format| format.word()).transpose()?;
        image.min_disk_bytes = data.field("min_disk").map(|size| size.size()).transpose()?;
        image.min_ram_bytes = data.field("min_ram").map(|size| size.size()).transpose()?;
        image.size_bytes = data.field("size").map(|size| size.size()).transpose()?;
        if let Some(given) = data.field("checksum") {
            let (given, hash) = checksum(&given)?;
            if let Some(file) = &image.file {
                artifacts.promise(file, &given.algorithm, &hash)?;
            }
            image.checksum = Some(given);
        }
    }
    Ok(Some(image))
}

/// Text, or one of the shapes of `tosca.datatypes.nfv.BootData`.
fn boot_data(item: &Item) -> Result<String, Rejection> {
    if item.node.text().is_some() {
        return item.text();
    }
    let inner = item.field("content_or_file_data");
    let content = inner.as_ref().and_then(|inner| inner.field("content")).or_else(|| item.field("content"));
    match content {
        Some(content) => content.text(),
        None => Ok(item.node.json().to_string()),
    }
}
