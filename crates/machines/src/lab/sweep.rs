//! Cleaning up after runs that were interrupted, from what the kernel and the directory names tell:
//! files may be half written, or gone.

use std::path::Path;

use guywire_model::LabName;

use super::cgroup::Layout;
use super::disk;
use super::error::{Result, while_doing};
use super::ident::{DataId, LabId};
use super::{firewall, link, network};

/// What a sweep took away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Machines that had control groups, running or not.
    pub machines: Vec<String>,
    /// Bridges and cables.
    pub links: Vec<String>,
    /// Firewall tables.
    pub tables: Vec<String>,
    /// Directories of labs.
    pub labs: Vec<String>,
}

impl Swept {
    /// Whether there was nothing to take away.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Removes everything of all labs under the data directory `data`: machines, networks and files, also
/// what is half made or damaged, and what the kernel still has of labs whose files are gone.
///
/// Templates stay. Nothing of other data directories is touched.
pub fn sweep(data: &Path) -> Result<Swept> {
    let data = match std::fs::canonicalize(data) {
        Ok(data) => data,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::path::absolute(data).map_err(while_doing(format_args!("finding {}", data.display())))?
        }
        Err(error) => return Err(while_doing(format_args!("finding {}", data.display()))(error)),
    };
    let mut swept = sweep_kernel(&DataId::of(&data))?;
    let labs = data.join("labs");
    swept.labs = disk::entries(&labs)?;
    disk::remove_tree(&labs)?;
    Ok(swept)
}

fn sweep_kernel(id: &DataId) -> Result<Swept> {
    let mut swept = Swept::default();
    let ours = |link: &String| id.lab_of_link(link).is_some();
    let links: Vec<String> = link::all()?.into_iter().filter(ours).collect();
    // As in a power cut: off the network first.
    for name in &links {
        link::down(name)?;
    }
    let layout = Layout::of_host()?;
    for (lab, machine) in layout.machines()? {
        if let Some(lab) = id.lab_of(&lab) {
            let cgroup = layout.machine(&lab, &machine);
            cgroup.kill()?;
            cgroup.remove()?;
            swept.machines.push(machine);
        }
    }
    for lab in layout.labs()?.iter().filter_map(|lab| id.lab_of(lab)) {
        layout.remove_lab(&lab)?;
    }
    for name in &links {
        link::remove(name)?;
    }
    swept.links = links;
    let mut ways_out = false;
    for (table, out) in firewall::tables()? {
        if let Some(lab) = id.lab_of_table(&table) {
            firewall::remove(&lab)?;
            swept.tables.push(table);
            ways_out |= out;
        }
    }
    if ways_out {
        network::stop_forwarding()?;
    }
    Ok(swept)
}

/// Whether the kernel has anything of one lab.
pub(super) fn leftovers(id: &LabId, name: &LabName) -> Result<Option<String>> {
    let prefix = format!("gw{}", id.as_str());
    if let Some(link) = link::all()?.into_iter().find(|link| link.starts_with(&prefix)) {
        return Ok(Some(format!("lab {name} still has interface {link}")));
    }
    let has = |(lab, _): &&(String, String)| lab == id.as_str();
    let machines = Layout::of_host()?.machines()?;
    Ok(machines.iter().find(has).map(|(_, machine)| format!("lab {name} still has machine {machine}")))
}
