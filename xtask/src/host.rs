//! What this host must be before anything is begun: each check says what is missing and what to do.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// Room that a lab or the tests need: base roots, machines, builds.
const ROOM: u64 = 6 << 30;

/// Fails unless this is Linux and we are root there.
pub fn root_on_linux(what: &str) -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!("{what} makes machines out of Linux namespaces: run it on Linux");
    }
    if !is_root() {
        bail!(
            "{what} needs root (it makes namespaces, bridges and cgroups): run it again as root, or with sudo"
        );
    }
    Ok(())
}

/// Whether we are root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Fails unless there is room on the file system that `dir` is on or will be on.
pub fn room(dir: &Path) -> Result<()> {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let space = rustix::fs::statvfs(there).with_context(|| format!("looking at {}", there.display()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < ROOM {
        bail!(
            "{}: {:.1} GB are free and {} GB are needed; make room there, or choose another directory",
            dir.display(),
            gigabytes(free),
            ROOM >> 30
        );
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // For people to read, with one digit.
fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
