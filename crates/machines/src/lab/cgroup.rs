//! A machine's control groups: what holds all of its processes, tells whether it runs, and kills it.
//!
//! A machine has a cgroup of its own in every hierarchy of the host, under the same path. Its init
//! process makes a cgroup namespace there, so that systemd and kubelet see a tree that is theirs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use super::error::{Result, unavailable, unsupported, while_doing};
use super::ident::LabId;
use super::mountinfo::{self, Mount};

/// The directory above all labs in every hierarchy.
const TOP: &str = "guywire";
/// How long processes may take to go after they were killed, and cgroups after their processes.
const PATIENCE: Duration = Duration::from_secs(15);
/// Options of a mount that are not controllers.
const NOT_CONTROLLERS: [&str; 8] =
    ["rw", "ro", "xattr", "none", "noprefix", "clone_children", "relatime", "cpuset_v2_mode"];

/// One hierarchy of control groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hierarchy {
    /// Where the host has it.
    pub(super) point: PathBuf,
    /// Its version.
    pub(super) version: Version,
    /// The controllers of a version 1 hierarchy as mount options; `name=systemd` stands alone.
    pub(super) controllers: Vec<String>,
}

/// The kernel's two kinds of hierarchies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Version {
    /// One hierarchy for some controllers.
    V1,
    /// The one hierarchy for everything.
    V2,
}

/// The hierarchies of this host, the one that tells whether a machine runs first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Layout(pub(super) Vec<Hierarchy>);

/// The control groups of one machine.
#[derive(Debug)]
pub(super) struct MachineCgroup<'a> {
    layout: &'a Layout,
    path: PathBuf,
}

impl Layout {
    /// Looks at what the host has mounted.
    pub(super) fn of_host() -> Result<Self> {
        Self::from_mounts(&mountinfo::read()?)
    }

    /// The layout that these mounts make.
    pub(super) fn from_mounts(mounts: &[Mount]) -> Result<Self> {
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        for mount in mounts {
            let (version, controllers) = match mount.kind.as_str() {
                "cgroup2" => (Version::V2, Vec::new()),
                "cgroup" => (Version::V1, controllers(&mount.options)),
                _ => continue,
            };
            let known = |have: &Hierarchy| have.version == version && have.controllers == controllers;
            if !hierarchies.iter().any(known) {
                hierarchies.push(Hierarchy { point: mount.point.clone(), version, controllers });
            }
        }
        // The second version knows at once whether anything is left in a tree, and kills it at once.
        hierarchies.sort_by_key(|hierarchy| hierarchy.version == Version::V1);
        let layout = Self(hierarchies);
        let systemd = |hierarchy: &Hierarchy| hierarchy.controllers == ["name=systemd"];
        if layout.0.is_empty() || !(layout.unified_only() || layout.0.iter().any(systemd)) {
            return Err(unsupported(
                "systemd in a lab machine needs cgroup2, or version 1 with a name=systemd hierarchy; mount one below /sys/fs/cgroup",
            ));
        }
        Ok(layout)
    }

    /// Whether there is nothing but the second version.
    pub(super) fn unified_only(&self) -> bool {
        self.0.iter().all(|hierarchy| hierarchy.version == Version::V2)
    }

    /// The control groups of `machine` in `lab`, there or not.
    pub(super) fn machine(&self, lab: &LabId, machine: &str) -> MachineCgroup<'_> {
        MachineCgroup { layout: self, path: Path::new(TOP).join(lab.as_str()).join(machine) }
    }

    /// Every lab and machine that has a cgroup, by what they are called there.
    pub(super) fn machines(&self) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for hierarchy in &self.0 {
            let top = hierarchy.point.join(TOP);
            for lab in children(&top)? {
                for machine in children(&top.join(&lab))? {
                    found.push((lab.clone(), machine));
                }
            }
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Every lab that has a cgroup.
    pub(super) fn labs(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for hierarchy in &self.0 {
            found.extend(children(&hierarchy.point.join(TOP))?);
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Removes what is above the machines of `lab`, once they are gone.
    pub(super) fn remove_lab(&self, lab: &LabId) -> Result<()> {
        for hierarchy in &self.0 {
            let top = hierarchy.point.join(TOP);
            let lab = top.join(lab.as_str());
            if lab.exists() {
                remove_dir(&lab)
                    .map_err(while_doing(format_args!("removing the cgroup {}", lab.display())))?;
            }
            // Another lab may be in it, or be just making it.
            if children(&top)?.is_empty() {
                match remove_dir(&top) {
                    Err(error) if error.raw_os_error() != Some(rustix::io::Errno::BUSY.raw_os_error()) => {
                        return Err(while_doing(format_args!("removing the cgroup {}", top.display()))(
                            error,
                        ));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl MachineCgroup<'_> {
    /// Makes the control groups, each machine with the same weight as any other.
    pub(super) fn create(&self) -> Result<()> {
        for hierarchy in &self.layout.0 {
            let mut tries = 0;
            while let Err(error) = self.create_in(hierarchy) {
                tries += 1;
                // The last machine of another lab may have taken the parent away under us.
                if error.kind() != io::ErrorKind::NotFound || tries == 10 {
                    let place = hierarchy.point.join(&self.path);
                    return Err(while_doing(format_args!("making the cgroup {}", place.display()))(error));
                }
            }
        }
        Ok(())
    }

    fn create_in(&self, hierarchy: &Hierarchy) -> io::Result<()> {
        let has = |controller: &str| hierarchy.controllers.iter().any(|have| have == controller);
        let mut dir = hierarchy.point.clone();
        let depth = self.path.components().count();
        for (level, component) in self.path.components().enumerate() {
            let parent = dir.clone();
            dir.push(component);
            if hierarchy.version == Version::V2 && self.layout.unified_only() {
                delegate(&parent)?;
            }
            match fs::create_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => other?,
            }
            if has("cpuset") {
                // A cpuset begins empty, and nothing can run in it.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    fs::write(dir.join(file), fs::read(parent.join(file))?)?;
                }
            }
            // Without more weight for what is above them, all machines together would count as one task.
            let above = level + 1 < depth;
            if has("cpu") {
                fs::write(dir.join("cpu.shares"), if above { "10240" } else { "1024" })?;
            } else if dir.join("cpu.weight").exists() {
                fs::write(dir.join("cpu.weight"), if above { "1000" } else { "100" })?;
            }
        }
        Ok(())
    }

    /// The files that a process writes itself to, in order, to be in the machine.
    pub(super) fn doors(&self) -> Vec<PathBuf> {
        self.dirs().map(|dir| dir.join("cgroup.procs")).collect()
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        self.layout.0.iter().map(|hierarchy| hierarchy.point.join(&self.path))
    }

    /// Whether any process is in the machine.
    pub(super) fn populated(&self) -> Result<bool> {
        let dir = self.layout.0[0].point.join(&self.path);
        let events = dir.join("cgroup.events");
        match fs::read_to_string(&events) {
            Ok(text) => Ok(text.lines().any(|line| line == "populated 1")),
            Err(error) if gone(&error) => Ok(!processes(&dir)?.is_empty()),
            Err(error) => Err(while_doing(format_args!("reading {}", events.display()))(error)),
        }
    }

    /// The machine's own process 1, as the host sees it.
    pub(super) fn init(&self) -> Result<Option<Pid>> {
        let depth = pid_depth("self").map_or(1, |pids| pids.len());
        let is_init = |pid: &Pid| {
            let pids = pid_depth(&pid.as_raw_nonzero().to_string());
            pids.is_some_and(|pids| pids.len() == depth + 1 && pids.last() == Some(&1))
        };
        Ok(processes(&self.layout.0[0].point.join(&self.path))?.into_iter().find(is_init))
    }

    /// Waits until no process is left, and says whether that came true in time.
    pub(super) fn wait_empty(&self, patience: Duration) -> Result<bool> {
        let end = Instant::now() + patience;
        while self.populated()? {
            if Instant::now() > end {
                return Ok(false);
            }
            // Short, since a machine's end is what somebody waits for.
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(true)
    }

    /// Kills every process at once and waits until they are gone.
    pub(super) fn kill(&self) -> Result<()> {
        let dir = self.layout.0[0].point.join(&self.path);
        let end = Instant::now() + PATIENCE;
        loop {
            match fs::write(dir.join("cgroup.kill"), "1") {
                Ok(()) => {}
                // An old kernel, version 1, or nothing there at all.
                Err(error) if gone(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
                    kill_all(&dir)?;
                }
                Err(error) => return Err(while_doing(format_args!("killing in {}", dir.display()))(error)),
            }
            if self.wait_empty(Duration::from_secs(1))? {
                return Ok(());
            }
            if Instant::now() > end {
                let left: Vec<String> =
                    processes(&dir)?.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
                return Err(unavailable(format!(
                    "{}: processes {} do not go although they were killed; they may wait for a dead disk",
                    dir.display(),
                    left.join(", ")
                )));
            }
        }
    }

    /// Removes the control groups of a machine without processes.
    pub(super) fn remove(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut left = None;
            for dir in self.dirs() {
                if let Err(error) = remove_tree(&dir) {
                    // A starter that died on its way in can be here without being in the first hierarchy.
                    kill_all(&dir)?;
                    left = Some((dir, error));
                }
            }
            let Some((dir, error)) = left else { return Ok(()) };
            if Instant::now() > end {
                return Err(while_doing(format_args!("removing the cgroup {}", dir.display()))(error));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The controllers among the options of a version 1 mount.
fn controllers(options: &[String]) -> Vec<String> {
    let named = options.iter().find(|option| option.starts_with("name="));
    let is_controller = |option: &&String| {
        !NOT_CONTROLLERS.contains(&option.as_str()) && !option.starts_with("release_agent=")
    };
    named.map_or_else(|| options.iter().filter(is_controller).cloned().collect(), |name| vec![name.clone()])
}

/// Hands every controller of a version 2 cgroup down to its children.
fn delegate(dir: &Path) -> io::Result<()> {
    let available = fs::read_to_string(dir.join("cgroup.controllers"))?;
    let wanted: Vec<String> = available.split_whitespace().map(|name| format!("+{name}")).collect();
    if wanted.is_empty() { Ok(()) } else { fs::write(dir.join("cgroup.subtree_control"), wanted.join(" ")) }
}

/// Names of the cgroups in a cgroup that may not be there.
fn children(dir: &Path) -> Result<Vec<String>> {
    let doing = || format!("listing {}", dir.display());
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(error) if gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(while_doing(doing())(error)),
    };
    let mut names = Vec::new();
    for entry in listing {
        let entry = entry.map_err(while_doing(doing()))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Every process in a cgroup and those below it; none when it is not there.
fn processes(dir: &Path) -> Result<Vec<Pid>> {
    let file = dir.join("cgroup.procs");
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(while_doing(format_args!("reading {}", file.display()))(error)),
    };
    let mut pids: Vec<Pid> =
        text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().unwrap_or(0))).collect();
    for child in children(dir)? {
        pids.extend(processes(&dir.join(child))?);
    }
    Ok(pids)
}

/// Kills each process in a cgroup and below, through a handle that no other process can take over.
fn kill_all(dir: &Path) -> Result<()> {
    for pid in processes(dir)? {
        let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // Between the listing and the handle the number may have gone to another process.
        if processes(dir)?.contains(&pid) {
            match rustix::process::pidfd_send_signal(&handle, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(while_doing(format_args!("killing process {pid:?}"))(error)),
            }
        }
    }
    Ok(())
}

/// A process's numbers in its pid namespace and those above it, from the outside in.
fn pid_depth(pid: &str) -> Option<Vec<u32>> {
    // A process that ended meanwhile is not the one that is looked for.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().map(|number| number.parse().ok()).collect()
}

/// Removes a cgroup and those below it; one that is not there is success.
fn remove_tree(dir: &Path) -> io::Result<()> {
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(error) if gone(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in listing {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    remove_dir(dir)
}

fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir(dir) {
        Err(error) if gone(&error) => Ok(()),
        other => other,
    }
}

/// Whether a cgroup vanished, which shows as one or the other depending on when it was opened.
fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Result<Layout> {
        Layout::from_mounts(&mountinfo::parse(text))
    }

    fn line(point: &str, kind: &str, options: &str) -> String {
        format!("31 23 0:28 / {point} rw,relatime shared:4 - {kind} {kind} rw,{options}\n")
    }

    fn found(layout: &Layout) -> Vec<(&str, String)> {
        let show = |h: &Hierarchy| h.controllers.join(",");
        layout.0.iter().map(|h| (h.point.to_str().unwrap(), show(h))).collect()
    }

    #[test]
    fn controllers_mounted_one_by_one() {
        let text = line("/sys/fs/cgroup/cpu", "cgroup", "cpu")
            + &line("/sys/fs/cgroup/cpuacct", "cgroup", "cpuacct")
            + &line("/sys/fs/cgroup/systemd", "cgroup", "name=systemd")
            + &line("/sys/fs/cgroup/unified", "cgroup2", "nsdelegate")
            + &line("/again", "cgroup", "cpu");
        let layout = layout(&text).unwrap();
        let wanted = [
            ("/sys/fs/cgroup/unified", String::new()),
            ("/sys/fs/cgroup/cpu", "cpu".into()),
            ("/sys/fs/cgroup/cpuacct", "cpuacct".into()),
            ("/sys/fs/cgroup/systemd", "name=systemd".into()),
        ];
        assert_eq!(found(&layout), wanted);
        assert!(!layout.unified_only());
    }

    #[test]
    fn controllers_mounted_together() {
        let text = line("/sys/fs/cgroup/unified", "cgroup2", "nsdelegate")
            + &line("/sys/fs/cgroup/systemd", "cgroup", "xattr,name=systemd")
            + &line("/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct");
        let layout = layout(&text).unwrap();
        assert_eq!(layout.0[2].controllers, ["cpu", "cpuacct"]);
        assert_eq!(layout.0[1].controllers, ["name=systemd"]);
    }

    #[test]
    fn the_second_version_alone_or_nothing_usable() {
        let pure = layout(&line("/sys/fs/cgroup", "cgroup2", "nsdelegate,memory_recursiveprot")).unwrap();
        assert!(pure.unified_only());
        assert!(layout("").unwrap_err().message.contains("name=systemd"));
        assert!(layout(&line("/sys/fs/cgroup/cpu", "cgroup", "cpu")).is_err());
    }
}
