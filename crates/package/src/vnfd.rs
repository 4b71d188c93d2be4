//! The VNFD as the rest of Guywire sees it: resolved, checked, and stored as JSON once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A VNF's descriptor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vnfd {
    /// `descriptor_id`: SOL003's `vnfdId`.
    pub id: String,
    /// `descriptor_version`.
    pub version: String,
    /// Who made the VNF.
    pub provider: String,
    /// The product's name.
    pub product_name: String,
    /// The version of the VNF's software.
    pub software_version: String,
    /// `product_info_description`, or the description of the entry definition.
    pub description: Option<String>,
    /// `vnfm_info`: the managers that the VNF says it works with.
    pub vnfm_info: Vec<String>,
    /// The deployment flavours, in the order in which the package names them. Never empty.
    pub flavours: Vec<Flavour>,
    /// `configurable_properties` as written.
    pub configurable_properties: BTreeMap<String, Value>,
    /// `modifiable_attributes` as written: `extensions` and `metadata`.
    pub modifiable_attributes: BTreeMap<String, Value>,
    /// The inputs of the entry definition.
    pub inputs: BTreeMap<String, Input>,
}

/// A value that whoever instantiates may give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The TOSCA type, such as `string`.
    pub kind: String,
    /// What it is for.
    pub description: Option<String>,
    /// The value when none is given.
    pub default: Option<Value>,
}

/// One deployment flavour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flavour {
    /// `flavour_id`.
    pub id: String,
    /// `flavour_description`.
    pub description: Option<String>,
    /// The kinds of machines. Never empty.
    pub vdus: Vec<Vdu>,
    /// The machines' connection points.
    pub cps: Vec<Cp>,
    /// The connection points that are seen from outside.
    pub ext_cps: Vec<ExtCp>,
    /// The networks inside the VNF.
    pub vls: Vec<VirtualLink>,
    /// The volumes that VDUs refer to.
    pub storages: Vec<Storage>,
    /// What can be scaled.
    pub aspects: Vec<Aspect>,
    /// The sizes at which it can be instantiated.
    pub levels: Vec<Level>,
    /// The level that is taken when a request names none.
    pub default_level: Option<String>,
    /// Who may and may not stand beside whom.
    pub placement: Vec<AffinityRule>,
    /// What the package does at a point of an operation: `instantiate_end` and so on. A missing one does nothing.
    pub lcm: BTreeMap<String, Implementation>,
}

/// One kind of machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vdu {
    /// The name of the node template: SOL003's `vduId`.
    pub id: String,
    /// The `name` property, for people.
    pub name: String,
    /// The `description` property.
    pub description: Option<String>,
    /// The fewest machines of this kind.
    pub min: u32,
    /// The most machines of this kind.
    pub max: u32,
    /// Machines when every aspect is at level 0: the VDU's initial delta, or else `min`.
    pub initial: u32,
    /// What each machine needs.
    pub compute: Compute,
    /// The volumes of each machine: ids in [`Flavour::storages`].
    pub storages: Vec<String>,
    /// What the machine's disk starts from.
    pub image: Option<Image>,
    /// Text for the machine's first boot.
    pub boot_data: Option<String>,
}

/// What a machine needs. A missing figure leaves the choice to the place that makes the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    /// Virtual CPUs.
    pub cpus: Option<u32>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// The machine's own disk, all `virtual_local_storage` together.
    pub disk_bytes: Option<u64>,
    /// The name of a flavour of the VIM that the package asks for (`requested_additional_capabilities`).
    pub vim_flavour: Option<String>,
}

/// A software image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// The artifact's name in the VNFD, or the node template's where the image is not in the package:
    /// SOL003's `vnfSoftwareImageId`.
    pub id: String,
    /// The image's own name.
    pub name: String,
    /// The image's version.
    pub version: Option<String>,
    /// Its path inside the package.
    pub file: Option<String>,
    /// Where it is if not in the package.
    pub uri: Option<String>,
    /// `bare`, `ovf` and so on.
    pub container_format: Option<String>,
    /// `qcow2`, `raw` and so on.
    pub disk_format: Option<String>,
    /// The hash that the VNFD gives.
    pub checksum: Option<Checksum>,
    /// The smallest disk that it fits on.
    pub min_disk_bytes: Option<u64>,
    /// The least memory that it runs in.
    pub min_ram_bytes: Option<u64>,
    /// Its size as the VNFD says.
    pub size_bytes: Option<u64>,
}

/// A hash and how it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// `sha-256` and so on, in lower case with the hyphen.
    pub algorithm: String,
    /// Lower-case hexadecimal.
    pub hash: String,
}

/// A connection point of a VDU (`VduCp`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cp {
    /// The name of the node template: SOL003's `cpdId`.
    pub id: String,
    /// The VDU that it belongs to.
    pub vdu: String,
    /// Its place among the VDU's interfaces.
    pub order: Option<u32>,
    /// The internal virtual link that it is on, if any.
    pub virtual_link: Option<String>,
    /// `layer_protocols`.
    pub protocols: Vec<String>,
}

/// A connection point that is seen from outside: a `VnfExtCp`, or a `VduCp` that is exposed as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtCp {
    /// The name of the node template: SOL003's `cpdId`.
    pub id: String,
    /// The VDU's connection point that is exposed.
    pub cp: Option<String>,
    /// The internal virtual link that a `VnfExtCp` leads to.
    pub virtual_link: Option<String>,
    /// The requirement of the VNF that it is mapped to, such as `virtual_link_external`.
    pub requirement: Option<String>,
    /// `layer_protocols`.
    pub protocols: Vec<String>,
}

/// A network inside the VNF.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VirtualLink {
    /// The name of the node template: SOL003's `vnfVirtualLinkDescId`.
    pub id: String,
    /// What it is for.
    pub description: Option<String>,
    /// `layer_protocols` of its connectivity type.
    pub protocols: Vec<String>,
    /// The layer-3 networks on it.
    pub l3: Vec<L3>,
}

/// A layer-3 network of a virtual link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct L3 {
    /// `ipv4` or `ipv6`.
    pub ip_version: Option<String>,
    /// The addresses, as written.
    pub cidr: Option<String>,
    /// The gateway's address.
    pub gateway: Option<String>,
    /// Whether addresses are given by DHCP.
    pub dhcp: Option<bool>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// The name of the node template: SOL003's `virtualStorageDescId`.
    pub id: String,
    /// What kind of volume.
    pub kind: StorageKind,
    /// Its size; object storage may have none.
    pub size_bytes: Option<u64>,
    /// What it starts from.
    pub image: Option<Image>,
}

/// The kinds of volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageKind {
    /// A disk.
    Block,
    /// An object store.
    Object,
    /// A shared file system.
    File,
}

/// Something that can be scaled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aspect {
    /// SOL003's `aspectId`.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What it scales.
    pub description: Option<String>,
    /// The highest level.
    pub max_level: u32,
    /// The machines by VDU that step k adds, from level k to k + 1. As many as `max_level`.
    pub steps: Vec<BTreeMap<String, u32>>,
}

/// A size at which the VNF can be instantiated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// SOL003's `instantiationLevelId`.
    pub id: String,
    /// What it is for.
    pub description: Option<String>,
    /// The level of every aspect.
    pub scale: BTreeMap<String, u32>,
    /// The machines of every VDU.
    pub counts: BTreeMap<String, u32>,
}

/// Who may and may not stand beside whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AffinityRule {
    /// The policy's name.
    pub id: String,
    /// Whether they must be together or apart.
    pub kind: Affinity,
    /// `nfvi_node`, `zone` and so on.
    pub scope: String,
    /// The VDUs, with placement groups replaced by their members.
    pub vdus: Vec<String>,
}

/// Together or apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// Together.
    Affinity,
    /// Apart.
    AntiAffinity,
}

/// What is done at one point of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Implementation {
    /// The artifact's name as the interface writes it.
    pub name: String,
    /// The artifact's path inside the package. A [`Role::Script`] always has one.
    pub file: Option<String>,
    /// The artifact's type, such as `tosca.artifacts.Implementation.Python`.
    pub artifact_type: Option<String>,
    /// Who does the work.
    pub role: Role,
}

/// Who does the work of an implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Our own Kubernetes role; the package's script is never run.
    Kubernetes,
    /// Our own registry role; the package's script is never run.
    PrivateRegistry,
    /// The script that the package ships.
    Script,
}

impl Vnfd {
    /// The flavour of that id.
    pub fn flavour(&self, id: &str) -> Option<&Flavour> {
        self.flavours.iter().find(|flavour| flavour.id == id)
    }
}

impl Flavour {
    /// The machines of every VDU when the aspects stand at these levels. An aspect that is not named is at 0, one
    /// above its maximum counts as at its maximum, and an unknown one adds nothing.
    pub fn counts(&self, scale: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
        let initial = self.vdus.iter().map(|vdu| (vdu.id.clone(), vdu.initial)).collect();
        scaled(initial, &self.aspects, scale)
    }

    /// The VDU of that id.
    pub fn vdu(&self, id: &str) -> Option<&Vdu> {
        self.vdus.iter().find(|vdu| vdu.id == id)
    }

    /// The aspect of that id.
    pub fn aspect(&self, id: &str) -> Option<&Aspect> {
        self.aspects.iter().find(|aspect| aspect.id == id)
    }

    /// The instantiation level of that id.
    pub fn level(&self, id: &str) -> Option<&Level> {
        self.levels.iter().find(|level| level.id == id)
    }

    /// The level that is taken when a request names none.
    pub fn default_level(&self) -> Option<&Level> {
        self.level(self.default_level.as_deref()?)
    }

    /// The connection points of a VDU, in the order of its interfaces.
    pub fn cps_of<'a>(&'a self, vdu: &'a str) -> Vec<&'a Cp> {
        let mut cps: Vec<_> = self.cps.iter().filter(|cp| cp.vdu == vdu).collect();
        cps.sort_by_key(|cp| cp.order.unwrap_or(u32::MAX));
        cps
    }
}

/// Adds the steps of every aspect up to its level.
pub(crate) fn scaled(
    mut counts: BTreeMap<String, u32>,
    aspects: &[Aspect],
    scale: &BTreeMap<String, u32>,
) -> BTreeMap<String, u32> {
    for aspect in aspects {
        let level = scale.get(&aspect.id).copied().unwrap_or(0);
        for step in aspect.steps.iter().take(usize::try_from(level).unwrap_or(usize::MAX)) {
            for (vdu, added) in step {
                if let Some(count) = counts.get_mut(vdu) {
                    *count = count.saturating_add(*added);
                }
            }
        }
    }
    counts
}
