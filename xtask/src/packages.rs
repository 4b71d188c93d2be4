//! The Debian packages that guywire needs on this host, and why. This is the one list of them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::progress::say;
use crate::{host, interrupt, process};

/// A package and the reason that it is needed.
pub type Package = (&'static str, &'static str);

/// What `cargo xtask lab` needs.
pub const LAB: &[Package] = &[
    ("gcc", "builds SQLite and ring, which are C"),
    ("libc6-dev", "headers for the same"),
    ("make", "build scripts of C libraries call it"),
    ("ca-certificates", "cargo and apt talk TLS"),
    ("mmdebstrap", "makes the base root of lab machines"),
    ("iproute2", "makes bridges and cables"),
    ("nftables", "the wall around a lab"),
    ("openssh-client", "`guywire lab ssh` without a command opens a terminal with it"),
    ("util-linux", "unshare, setpriv and mount"),
];

/// What `cargo xtask test` and `cargo xtask bench` need besides.
pub const TEST: &[Package] = &[
    ("openssh-server", "SSH is tested against the real server"),
    ("postgresql", "the journal is tested against the real database"),
    ("procps", "tests look at processes"),
    ("git", "checks look at tracked files only"),
    ("python3-venv", "the OpenStack client, which our interface is tested with, is a Python program"),
    ("chromium", "the console is tested in a real browser"),
    ("fonts-dejavu-core", "a browser without any font shows no text"),
    ("curl", "the commands of docs/nfvo.md are run as they stand there"),
    ("jq", "likewise"),
];

/// Keeps packages from starting their services while they are installed.
const POLICY: &str = "/usr/sbin/policy-rc.d";
const POLICY_TEXT: &str =
    "#!/bin/sh\n# guywire's cargo xtask: no service starts while packages are installed\nexit 101\n";

/// Installs what is missing; quiet when nothing is.
pub fn ensure(wanted: &[&[Package]]) -> Result<()> {
    let wanted: Vec<Package> = wanted.concat();
    let missing = missing(&wanted)?;
    if missing.is_empty() {
        return Ok(());
    }
    for (name, why) in &missing {
        say(format!("package {name} is missing: {why}"));
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    if !host::is_root() {
        bail!("these packages are missing: install them with `sudo apt-get install {}`", names.join(" "));
    }
    let _policy = Policy::set()?;
    say(format!("installing {}", names.join(" ")));
    if lists_are_empty() || install(&names).is_err() {
        // Lists may be old and name versions that the archive no longer has.
        say("apt-get update");
        process::quiet(apt().arg("update"))?;
        install(&names).context("the packages above could not be installed; see what apt-get says")?;
    }
    Ok(())
}

fn install(names: &[&str]) -> Result<String> {
    process::quiet(apt().args(["install", "--yes", "--no-install-recommends"]).args(names))
}

fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.args(["-q", "-o", "DPkg::Lock::Timeout=120"]).env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

fn missing(wanted: &[Package]) -> Result<Vec<Package>> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${Package} ${db:Status-Status}\\n"]);
    query.args(wanted.iter().map(|(name, _)| *name));
    // It fails when one of them was never heard of; what it prints about the others is what counts.
    let output =
        query.output().context("dpkg-query: guywire's commands know Debian; use Debian 12 or later")?;
    let installed = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(not_installed(wanted, &installed))
}

fn not_installed(wanted: &[Package], installed: &str) -> Vec<Package> {
    let has = |name: &str| installed.lines().any(|line| line == format!("{name} installed"));
    wanted.iter().filter(|(name, _)| !has(name)).copied().collect()
}

fn lists_are_empty() -> bool {
    let is_list = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
    };
    std::fs::read_dir("/var/lib/apt/lists").map_or(true, |mut entries| !entries.any(is_list))
}

/// Our policy file, gone when this is dropped; a host's own stays as it is.
struct Policy;

impl Policy {
    fn set() -> Result<Option<Self>> {
        let path = Path::new(POLICY);
        // One that an interrupted run of ours left is ours to take away.
        if path.exists() && std::fs::read_to_string(path).ok().as_deref() != Some(POLICY_TEXT) {
            return Ok(None);
        }
        std::fs::write(path, POLICY_TEXT).with_context(|| format!("writing {POLICY}"))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
        Ok(Some(Self))
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if let Err(error) = interrupt::while_cleaning(|| std::fs::remove_file(POLICY)) {
            say(format!("{POLICY} could not be removed: {error}; remove it by hand"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_was_removed_is_missing() {
        let wanted = [("gcc", ""), ("make", ""), ("git", "")];
        let missing = not_installed(&wanted, "gcc installed\nmake config-files\n");
        assert_eq!(missing, [("make", ""), ("git", "")]);
    }

    #[test]
    fn each_package_is_listed_once_with_a_reason() {
        let all = [LAB, TEST].concat();
        for (at, (name, why)) in all.iter().enumerate() {
            assert!(!why.is_empty() && all[..at].iter().all(|(other, _)| other != name), "{name}");
        }
    }
}
