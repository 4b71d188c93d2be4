//! Where a lab keeps what it knows, and who may change it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use guywire_model::{
    AddressName, Egress, HostNumber, LabName, MachineName, MachineSpec, SiteName, SiteNetwork, TemplateName,
    VolumeName,
};
use guywire_plan::Fence;
use serde::{Deserialize, Serialize};

use super::disk::{self, Lock};
use super::error::{Result, not_found};
use crate::{InfraError, InfraErrorKind};

/// How long a change waits for another one of the same thing: longer than a machine takes to stop.
const PATIENCE: Duration = Duration::from_secs(90);

/// The files of one lab.
#[derive(Debug, Clone)]
pub(super) struct Store {
    /// The lab's name.
    pub(super) name: LabName,
    /// The lab's own directory.
    pub(super) dir: PathBuf,
    /// Where templates are cached, shared with other labs.
    pub(super) templates: PathBuf,
}

/// What can be changed on its own, each with a lock and a fence.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key<'a> {
    /// The networks, and everything about addresses that must be looked at together.
    Network,
    /// A machine.
    Machine(&'a MachineName),
    /// A volume.
    Volume(&'a VolumeName),
    /// A reserved address.
    Address(&'a AddressName),
    /// A template's entry in this lab.
    Template(&'a TemplateName),
    /// The lab as a whole.
    Lab,
}

/// What is kept of a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// What it was made from.
    pub(super) spec: MachineSpec,
    /// The template's layers as they were then, the uppermost first: a template that is made anew
    /// under the same name must not change beneath a machine's disk.
    pub(super) layers: Vec<String>,
}

/// What is kept of the networks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Networks {
    /// The sites in the order of their bridges' numbers.
    pub(super) sites: Vec<SiteNetwork>,
    /// Whether machines reach the world outside.
    pub(super) egress: Egress,
    /// Addresses that were reserved.
    #[serde(default)]
    pub(super) reserved: BTreeMap<AddressName, Reserved>,
}

/// A reserved address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reserved {
    /// The site it is in.
    pub(super) site: SiteName,
    /// Its number there.
    pub(super) number: HostNumber,
}

impl Networks {
    /// A site and the number of its bridge.
    pub(super) fn site(&self, name: &SiteName) -> Result<(usize, &SiteNetwork)> {
        let found = self.sites.iter().enumerate().find(|(_, site)| site.name == *name);
        found.map(|(index, site)| (index + 1, site)).ok_or_else(|| {
            let known: Vec<&str> = self.sites.iter().map(|site| site.name.as_str()).collect();
            not_found(if known.is_empty() {
                format!("site {name}: the lab has no networks yet; make them first")
            } else {
                format!("site {name}: not in this lab; its sites are {}", known.join(", "))
            })
        })
    }
}

impl Store {
    /// Takes the lock of `key` and shows it `fence`; a lower one than it has seen is refused.
    pub(super) fn change(&self, key: Key<'_>, fence: Fence) -> Result<Lock> {
        let lock = self.lock(key)?;
        let path = self.keys().join(format!("{}.fence", key.file()));
        let seen: Option<Fence> = disk::read_json(&path)?;
        match seen {
            Some(seen) if seen > fence => {
                return Err(InfraError::new(
                    InfraErrorKind::Fenced,
                    format!(
                        "{}: a later caller (fence {seen}) has changed it; this one (fence {fence}) must stop",
                        key.words()
                    ),
                ));
            }
            Some(seen) if seen == fence => {}
            _ => disk::write_json(&path, &fence)?,
        }
        Ok(lock)
    }

    /// Takes the lock of `key` for a look that must not see a change half done.
    pub(super) fn lock(&self, key: Key<'_>) -> Result<Lock> {
        disk::make_private_dir(&self.dir)?;
        disk::make_dir(&self.keys())?;
        Lock::take(&self.keys().join(format!("{}.lock", key.file())), PATIENCE)
    }

    // Apart from the machines' own directories: what a fence has seen must outlive what it guards,
    // or a late caller could make again what was destroyed.
    fn keys(&self) -> PathBuf {
        self.dir.join("keys")
    }

    /// The directory above all machines.
    pub(super) fn machines(&self) -> PathBuf {
        self.dir.join("machines")
    }

    /// A machine's directory.
    pub(super) fn machine(&self, name: &MachineName) -> PathBuf {
        self.machines().join(name.as_str())
    }

    /// The directory above all volumes.
    pub(super) fn volumes(&self) -> PathBuf {
        self.dir.join("volumes")
    }

    /// A volume's directory.
    pub(super) fn volume(&self, name: &VolumeName) -> PathBuf {
        self.volumes().join(name.as_str())
    }

    /// The directory that every machine sees: names and name servers.
    pub(super) fn shared(&self) -> PathBuf {
        self.dir.join("net")
    }

    /// What is kept of a machine, if it is there.
    pub(super) fn record(&self, name: &MachineName) -> Result<Option<Record>> {
        disk::read_json(&self.machine(name).join("spec.json"))
    }

    /// What is kept of a machine that must be there.
    pub(super) fn existing(&self, name: &MachineName) -> Result<Record> {
        self.record(name)?.ok_or_else(|| not_found(format!("machine {name}: not in lab {}", self.name)))
    }

    /// All machines.
    pub(super) fn records(&self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for name in disk::entries(&self.machines())? {
            // Half made or half removed ones have a dot in their names.
            let Ok(name) = MachineName::new(name) else { continue };
            records.extend(self.record(&name)?);
        }
        Ok(records)
    }

    /// What is kept of the networks; none before they are first made.
    pub(super) fn networks(&self) -> Result<Networks> {
        Ok(disk::read_json(&self.dir.join("network.json"))?.unwrap_or_default())
    }

    /// Keeps what is known of the networks.
    pub(super) fn keep_networks(&self, networks: &Networks) -> Result<()> {
        disk::write_json(&self.dir.join("network.json"), networks)
    }

    /// Forgets the networks.
    pub(super) fn forget_networks(&self) -> Result<()> {
        disk::remove_tree(&self.dir.join("network.json"))?;
        disk::remove_tree(&self.shared())
    }

    /// The layers of a template by its name in this lab.
    pub(super) fn template(&self, name: &TemplateName) -> Result<Option<Vec<String>>> {
        disk::read_json(&self.template_file(name))
    }

    /// Keeps the layers of a template under its name in this lab.
    pub(super) fn keep_template(&self, name: &TemplateName, layers: &[String]) -> Result<()> {
        disk::make_dir(&self.dir.join("templates"))?;
        disk::write_json(&self.template_file(name), &layers)
    }

    fn template_file(&self, name: &TemplateName) -> PathBuf {
        self.dir.join("templates").join(format!("{name}.json"))
    }

    /// The names of all volumes.
    pub(super) fn volume_names(&self) -> Result<Vec<VolumeName>> {
        let names = disk::entries(&self.volumes())?;
        Ok(names.into_iter().filter_map(|name| VolumeName::new(name).ok()).collect())
    }
}

/// The labs that have a directory under `data`.
pub(super) fn labs(data: &Path) -> Result<Vec<LabName>> {
    let names = disk::entries(&data.join("labs"))?;
    Ok(names.into_iter().filter_map(|name| LabName::new(name).ok()).collect())
}

impl Key<'_> {
    fn file(self) -> String {
        match self {
            Self::Network => "network".into(),
            Self::Lab => "lab".into(),
            Self::Machine(name) => format!("machine.{name}"),
            Self::Volume(name) => format!("volume.{name}"),
            Self::Address(name) => format!("address.{name}"),
            Self::Template(name) => format!("template.{name}"),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Network => "the lab's networks".into(),
            Self::Lab => "the lab".into(),
            Self::Machine(name) => format!("machine {name}"),
            Self::Volume(name) => format!("volume {name}"),
            Self::Address(name) => format!("address {name}"),
            Self::Template(name) => format!("template {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_fence_is_refused_per_key() {
        let dir = tempfile::tempdir().unwrap();
        let name = LabName::new("lab").unwrap();
        let store = Store { name, dir: dir.path().join("lab"), templates: dir.path().join("t") };
        let (m1, m2) = (MachineName::new("m1").unwrap(), MachineName::new("m2").unwrap());
        for fence in [3, 3, 5] {
            store.change(Key::Machine(&m1), Fence(fence)).unwrap();
        }
        let error = store.change(Key::Machine(&m1), Fence(4)).unwrap_err();
        assert_eq!(error.kind, InfraErrorKind::Fenced);
        assert!(error.message.contains("machine m1") && error.message.contains("fence 5"), "{error}");
        store.change(Key::Machine(&m2), Fence(4)).unwrap();
        store.change(Key::Network, Fence(1)).unwrap();
    }
}
