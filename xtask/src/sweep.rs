//! Taking away what an interrupted run of the tests left: processes, labs, mounts, databases, files.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::mount::UnmountFlags;
use rustix::process::Signal;

use crate::progress::say;
use crate::{bench, interrupt, places, postgres, process};

/// The tests' directory, for one run at a time. Dropping it sweeps it.
#[derive(Debug)]
pub struct TestDir {
    /// The directory.
    pub path: PathBuf,
    _lock: File,
}

impl TestDir {
    /// Takes the directory and removes what an earlier run left in it.
    pub fn take() -> Result<Self> {
        let path = places::test_dir()?;
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        let lock = File::create(path.join("lock")).context("making a lock")?;
        if lock.try_lock().is_err() {
            bail!(
                "another `cargo xtask` runs tests or benchmarks of this checkout: wait for it ({})",
                path.display()
            );
        }
        let dir = Self { path, _lock: lock };
        if sweep(&dir.path)? | postgres::stop_stale(&places::postgres_dir())? {
            say("removed what an interrupted run had left");
        }
        std::fs::create_dir_all(dir.temporary()).context("making a directory for temporary files")?;
        Ok(dir)
    }

    /// Where tests put temporary files and labs, as `TMPDIR`; it marks their processes too.
    pub fn temporary(&self) -> PathBuf {
        self.path.join("tmp")
    }

    /// A data directory for one purpose.
    pub fn data(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        if let Err(error) = interrupt::while_cleaning(|| sweep(&self.path)) {
            say(format!("cleaning up: {error:#}; the next run tries again"));
        }
    }
}

/// Removes everything below the tests' directory but its lock. Whether there was anything.
fn sweep(dir: &Path) -> Result<bool> {
    let mut found = end_processes(&dir.join("tmp"))?;
    for data in data_dirs(dir)? {
        sweep_labs(&data)?;
        found = true;
    }
    found |= bench::sweep(dir)? | unmount(dir)?;
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            // An empty one is left by every run that was not interrupted.
            found |= std::fs::read_dir(&path)?.next().is_some();
            std::fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(found)
}

/// Removes all labs under a data directory.
pub fn sweep_labs(data: &Path) -> Result<()> {
    let mut guywire = places::debug_guywire();
    if !guywire.exists() {
        guywire = places::release_guywire();
    }
    if !guywire.exists() {
        say("building guywire to remove the labs of an interrupted run");
        process::shown(process::cargo().args(["build", "--quiet", "--package", "guywire"]))?;
        guywire = places::debug_guywire();
    }
    process::quiet(Command::new(guywire).args(["lab", "sweep", "--data"]).arg(data))
        .with_context(|| format!("removing the labs under {}", data.display()))?;
    Ok(())
}

/// The data directories that have a lab: by their files, and by what the kernel's interfaces are
/// marked with.
fn data_dirs(dir: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let below = |dir: &Path| -> Result<Vec<PathBuf>> {
        if !dir.is_dir() {
            return Ok(Vec::new());
        }
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
    };
    for path in below(dir)?.into_iter().chain(below(&dir.join("tmp"))?) {
        if path.join("labs").is_dir() {
            found.insert(path);
        }
    }
    for (_, alias) in marked_links()? {
        found.extend(data_dir_of(&alias).filter(|data| data.starts_with(dir)));
    }
    Ok(found)
}

/// Interfaces of labs, and what they are marked with.
pub fn marked_links() -> Result<Vec<(String, String)>> {
    let mut links = Vec::new();
    for entry in std::fs::read_dir("/sys/class/net").context("reading /sys/class/net")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("gw") {
            // It may go while we look.
            let alias = std::fs::read_to_string(entry.path().join("ifalias")).unwrap_or_default();
            links.push((name, alias.trim().to_owned()));
        }
    }
    Ok(links)
}

/// The data directory in an interface's mark, which is `guywire DIRECTORY/labs/NAME`.
pub fn data_dir_of(alias: &str) -> Option<PathBuf> {
    Some(PathBuf::from(alias.strip_prefix("guywire ")?.rsplit_once("/labs/")?.0))
}

/// Ends processes that were started with the tests' directory for temporary files.
fn end_processes(temporary: &Path) -> Result<bool> {
    let mark = format!("TMPDIR={}", temporary.display());
    let mut found = false;
    for entry in std::fs::read_dir("/proc").context("reading /proc")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that ends meanwhile, or is not ours to look at, is none of the tests'.
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        let marked = environment.split(|byte| *byte == 0).any(|word| word == mark.as_bytes());
        if marked && number != std::process::id() {
            found = true;
            if let Err(error) = rustix::process::kill_process(process::pid(number)?, Signal::KILL)
                && error != rustix::io::Errno::SRCH
            {
                return Err(error).with_context(|| format!("ending process {number}"));
            }
        }
    }
    Ok(found)
}

/// Unmounts what is mounted below a directory, the last mount first.
fn unmount(dir: &Path) -> Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    let points: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(4)).collect();
    let mut found = false;
    for point in points.into_iter().rev().filter(|point| Path::new(point).starts_with(dir)) {
        rustix::mount::unmount(point, UnmountFlags::DETACH).with_context(|| format!("unmounting {point}"))?;
        found = true;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_data_directory() {
        let expected = Some(PathBuf::from("/srv/labs/my data"));
        assert_eq!(data_dir_of("guywire /srv/labs/my data/labs/demo"), expected);
        assert_eq!(data_dir_of("lab demo"), None);
    }
}
