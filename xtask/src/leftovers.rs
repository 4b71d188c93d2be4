//! Looking for what a lab left on this host, without asking the program that should have removed it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process;
use crate::sweep::{data_dir_of, marked_links};

/// How long the kernel may take to clear away processes that were killed, on a busy host.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a data directory's labs are known on this host.
#[derive(Debug)]
pub struct Traces {
    data: PathBuf,
    ids: BTreeSet<String>,
}

impl Traces {
    /// What [`Traces::left_after_a_moment`] looks for.
    pub const CHECKED: [&'static str; 6] = [
        "process in a lab's control groups or on its disks",
        "mount below the data directory",
        "control group",
        "bridge, cable or tap",
        "nftables table",
        "file outside the data directory (/run, /tmp, /var/tmp, /run/netns), and no lab inside it",
    ];

    /// Learns the ids of the labs, which are in the names of their interfaces, before they go down.
    pub fn of(data: &Path) -> Result<Self> {
        let data = std::fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
        let ours = |(link, alias): &(String, String)| {
            (data_dir_of(alias).as_ref() == Some(&data)).then(|| link.get(2..10).map(str::to_owned)).flatten()
        };
        let ids = marked_links()?.iter().filter_map(ours).collect();
        Ok(Self { data, ids })
    }

    /// Everything that is still there once what was killed has had time to go.
    pub fn left_after_a_moment(&self) -> Result<Vec<String>> {
        let begin = Instant::now();
        loop {
            let left = self.left()?;
            if left.is_empty() || begin.elapsed() > PATIENCE {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Everything that is there now.
    fn left(&self) -> Result<Vec<String>> {
        let mut left = self.processes()?;
        left.extend(self.mounts()?);
        left.extend(self.cgroups()?);
        for (link, alias) in marked_links()? {
            if self.has(&link) || data_dir_of(&alias).as_ref() == Some(&self.data) {
                left.push(format!("interface {link}"));
            }
        }
        let tables = process::answer(Command::new("nft").args(["list", "tables"]))?;
        left.extend(tables.lines().filter(|line| self.has(line)).map(str::to_owned));
        left.extend(self.files()?);
        Ok(left)
    }

    fn has(&self, text: &str) -> bool {
        self.ids.iter().any(|id| text.contains(id.as_str()))
    }

    /// Processes in control groups of ours, or with a disk of ours mounted.
    fn processes(&self) -> Result<Vec<String>> {
        let labs = self.data.join("labs").display().to_string();
        let mut left = Vec::new();
        for entry in std::fs::read_dir("/proc").context("reading /proc")? {
            let dir = entry?.path();
            // A process may end while we look.
            let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
            if read("cgroup").lines().any(|line| line.contains("/guywire/") && self.has(line))
                || read("mountinfo").contains(&labs)
            {
                left.push(format!("process {} {}", dir.display(), read("comm").trim()));
            }
        }
        Ok(left)
    }

    fn mounts(&self) -> Result<Vec<String>> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
        let point = |line: &str| line.split(' ').nth(4).map(PathBuf::from);
        let ours = mounts.lines().filter_map(point).filter(|point| point.starts_with(&self.data));
        // The data directory itself may be a file system of its own.
        Ok(ours
            .filter(|point| *point != self.data)
            .map(|point| format!("mount {}", point.display()))
            .collect())
    }

    fn cgroups(&self) -> Result<Vec<String>> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
        let mut left = Vec::new();
        for line in mounts.lines().filter(|line| line.contains(" - cgroup")) {
            let Some(point) = line.split(' ').nth(4) else { continue };
            for name in names(&Path::new(point).join("guywire"))? {
                if self.has(&name) {
                    left.push(format!("control group {point}/guywire/{name}"));
                }
            }
        }
        Ok(left)
    }

    fn files(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for dir in ["/run", "/tmp", "/var/tmp", "/run/netns"].map(Path::new) {
            for name in names(dir)? {
                if self.has(&name) {
                    left.push(dir.join(name).display().to_string());
                }
            }
        }
        let labs = self.data.join("labs");
        left.extend(names(&labs)?.into_iter().map(|name| labs.join(name).display().to_string()));
        Ok(left)
    }
}

/// The names in a directory; none if it is not there.
fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| format!("reading {}", dir.display()))?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
