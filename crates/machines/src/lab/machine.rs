//! Machines and volumes on the disk: made whole or not at all.

use std::path::Path;

use guywire_model::{
    HostNumber, MachineName, MachineSpec, Observed, ObservedMachine, PowerState, VolumeName,
};
use guywire_plan::Fence;

use super::boot::PLAIN;
use super::error::{Result, conflict, invalid, not_found};
use super::store::{Key, Networks, Record};
use super::tree::{self, Owner};
use super::{Inner, accounts, disk, identity, names, network};

/// Directories that a volume must not cover: without them a machine does not start, or it would not
/// be seen there.
const NOT_VOLUMES: [&str; 12] =
    ["bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr"];

impl Inner {
    pub(super) fn create(&self, fence: Fence, spec: &MachineSpec) -> Result<ObservedMachine> {
        let name = &spec.name;
        let _key = self.store.change(Key::Machine(name), fence)?;
        if let Some(record) = self.store.record(name)? {
            if record.spec != *spec {
                return Err(conflict(format!(
                    "machine {name} is there with another specification; destroy it first to change it"
                )));
            }
            // The call before this one may have ended between the machine and its name.
            let _lock = self.store.lock(Key::Network)?;
            names::refresh(&self.store, &self.store.networks()?)?;
            return self.observed(&self.store.networks()?, record);
        }
        accounts::check(&spec.login)
            .map_err(|error| invalid(format!("machine {name}: {}", error.message)))?;
        let networks = self.store.networks()?;
        self.check_place(&networks, spec)?;
        let layers = self.store.template(&spec.template)?.ok_or_else(|| {
            not_found(format!("machine {name}: template {} is not made yet; ensure it first", spec.template))
        })?;
        let roots = layers.iter().map(|layer| self.layer(layer)).collect::<Result<Vec<_>>>()?;
        let password = match &spec.login.password {
            Some(reference) => Some(self.password(name, reference)?),
            None => None,
        };

        let dir = self.store.machine(name);
        let partial = disk::beside(&dir, ".partial");
        disk::remove_tree(&partial)?;
        let record = Record { spec: spec.clone(), layers };
        let make = || {
            for part in ["up", "work", "root"] {
                disk::make_dir(&partial.join(part))?;
            }
            for path in PLAIN {
                seed(&roots, &partial.join("data"), Path::new(path))?;
            }
            identity::write(&partial.join("up"), &roots, spec, password.as_ref())?;
            disk::write_json(&partial.join("spec.json"), &record)?;
            // Others may be taking the same address just now: the last look is the one that counts.
            let _lock = self.store.lock(Key::Network)?;
            let networks = self.store.networks()?;
            self.check_place(&networks, spec)?;
            disk::publish(&partial, &dir)?;
            names::refresh(&self.store, &networks)
        };
        if let Err(error) = make() {
            disk::remove_tree(&partial)?;
            return Err(error);
        }
        self.observed(&networks, record)
    }

    /// Whether there is a place for the machine: its site, its address, its volumes.
    fn check_place(&self, networks: &Networks, spec: &MachineSpec) -> Result<()> {
        let name = &spec.name;
        let (_, site) = networks.site(&spec.site)?;
        let pair = network::address(site, spec.number)?;
        if spec.number <= HostNumber::GATEWAY {
            return Err(invalid(format!("machine {name}: {} is the gateway's own address", pair.v4)));
        }
        let takes =
            |other: &(_, &super::store::Reserved)| other.1.site == spec.site && other.1.number == spec.number;
        if let Some((other, _)) = networks.reserved.iter().find(takes) {
            return Err(conflict(format!("machine {name}: address {} is reserved as {other}", pair.v4)));
        }
        for (index, mount) in spec.volumes.iter().enumerate() {
            let path = tree::inside(&mount.path)
                .map_err(|error| invalid(format!("machine {name}: {}", error.message)))?;
            let first = path.components().next().map(|part| part.as_os_str().to_owned());
            let shown = mount.path.display();
            if NOT_VOLUMES.iter().any(|dir| first.as_deref() == Some((*dir).as_ref())) {
                return Err(invalid(format!("machine {name}: {shown} cannot be a volume; use /srv or /var")));
            }
            if !self.store.volume(&mount.volume).is_dir() {
                return Err(not_found(format!(
                    "machine {name}: volume {} is not there; make it first",
                    mount.volume
                )));
            }
            let clash =
                |other: &guywire_model::VolumeMount| other.volume == mount.volume || other.path == mount.path;
            if spec.volumes[..index].iter().any(clash) {
                return Err(invalid(format!(
                    "machine {name}: volume {} or {shown} is there twice",
                    mount.volume
                )));
            }
        }
        for Record { spec: other, .. } in self.store.records()? {
            if other.name == *name {
                continue;
            }
            if other.site == spec.site && other.number == spec.number {
                return Err(conflict(format!(
                    "machine {name}: address {} belongs to machine {}; choose another",
                    pair.v4, other.name
                )));
            }
            if self.id.cable(&other.name) == self.id.cable(name) {
                return Err(conflict(format!(
                    "machine {name}: its interface on the host would be called like that of {}; choose another name",
                    other.name
                )));
            }
            let shared = |mount: &&guywire_model::VolumeMount| {
                other.volumes.iter().any(|theirs| theirs.volume == mount.volume)
            };
            if let Some(mount) = spec.volumes.iter().find(shared) {
                return Err(conflict(format!(
                    "machine {name}: volume {} is in machine {}; destroy that one first",
                    mount.volume, other.name
                )));
            }
        }
        Ok(())
    }

    pub(super) fn destroy(&self, fence: Fence, name: &MachineName) -> Result<()> {
        let _key = self.store.change(Key::Machine(name), fence)?;
        self.cut(name)?;
        let dir = self.store.machine(name);
        let gone = disk::beside(&dir, ".gone");
        {
            let _lock = self.store.lock(Key::Network)?;
            disk::remove_tree(&gone)?;
            if dir.exists() {
                // All at once for everybody who looks; the files themselves take their time.
                disk::publish(&dir, &gone)?;
            }
            let networks = self.store.networks()?;
            if !networks.sites.is_empty() {
                names::refresh(&self.store, &networks)?;
            }
        }
        disk::remove_tree(&gone)?;
        disk::remove_tree(&disk::beside(&dir, ".partial"))
    }

    pub(super) fn observe(&self) -> Result<Observed> {
        let networks = self.store.networks()?;
        let machines = self.store.records()?.into_iter().map(|record| self.observed(&networks, record));
        let machines = machines.collect::<Result<_>>()?;
        let mut reserved = Vec::new();
        for (name, at) in &networks.reserved {
            let (_, site) = networks.site(&at.site)?;
            reserved.push((name.clone(), network::address(site, at.number)?));
        }
        Ok(Observed { machines, volumes: self.store.volume_names()?, reserved, sites: networks.sites })
    }

    fn observed(&self, networks: &Networks, record: Record) -> Result<ObservedMachine> {
        let (_, site) = networks.site(&record.spec.site)?;
        let addresses = network::address(site, record.spec.number)?;
        let runs = self.layout.machine(&self.id, record.spec.name.as_str()).populated()?;
        let power = if runs { PowerState::Running } else { PowerState::Off };
        Ok(ObservedMachine { spec: record.spec, power, addresses })
    }

    pub(super) fn ensure_volume(&self, fence: Fence, volume: &VolumeName) -> Result<()> {
        let _key = self.store.change(Key::Volume(volume), fence)?;
        disk::make_dir(&self.store.volume(volume))
    }

    pub(super) fn remove_volume(&self, fence: Fence, volume: &VolumeName) -> Result<()> {
        let _key = self.store.change(Key::Volume(volume), fence)?;
        let dir = self.store.volume(volume);
        let gone = disk::beside(&dir, ".gone");
        {
            // A machine that is being made looks at volumes under the same lock.
            let _lock = self.store.lock(Key::Network)?;
            let has = |record: &Record| record.spec.volumes.iter().any(|mount| mount.volume == *volume);
            if let Some(record) = self.store.records()?.iter().find(|record| has(record)) {
                return Err(conflict(format!(
                    "volume {volume} is in machine {}; destroy that one first",
                    record.spec.name
                )));
            }
            disk::remove_tree(&gone)?;
            if dir.exists() {
                disk::publish(&dir, &gone)?;
            }
        }
        disk::remove_tree(&gone)
    }
}

/// Makes one of the plain directories, with what the template has there: a bind mount would hide it.
fn seed(roots: &[std::path::PathBuf], data: &Path, path: &Path) -> Result<()> {
    let target = data.join(path);
    disk::make_dir(&target)?;
    // From the lowest layer up, so that the uppermost wins.
    for root in roots.iter().rev() {
        let source = root.join(path);
        if source.is_dir() {
            tree::copy(&source, &target, Owner::Same)?;
        }
    }
    Ok(())
}
