//! Real clients from `PyPI` for the tests: a virtual environment in the cache, made once for each list of them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::progress::say;
use crate::{places, process};

/// The client of `OpenStack` with Tacker's commands, in versions that the tests know.
const OPENSTACK: &[&str] = &["python-openstackclient==10.5.0", "python-tackerclient==2.6.0"];
/// What makes and mutates requests from our interface's document.
const SCHEMATHESIS: &[&str] = &["schemathesis==4.32.5"];
/// Written last: an environment without it was interrupted while it was made.
const WHOLE: &str = "whole";

/// The `openstack` program, in an environment that is made if it is not there.
pub fn openstack() -> Result<PathBuf> {
    program("openstack", OPENSTACK)
}

/// The `schemathesis` program, likewise.
pub fn schemathesis() -> Result<PathBuf> {
    program("schemathesis", SCHEMATHESIS)
}

fn program(name: &str, requirements: &[&str]) -> Result<PathBuf> {
    let list = requirements.join("\n");
    let dir = places::cache()?.join(format!("python-{}", places::fnv(list.as_bytes())));
    let program = dir.join("bin").join(name);
    if dir.join(WHOLE).exists() {
        return Ok(program);
    }
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    say(format!("installing {} into {}", requirements.join(", "), dir.display()));
    // Debian's own Python: whatever else is called python3 here may lack what the environment needs.
    process::quiet(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&dir))
        .context("making a Python environment; the package python3-venv is needed")?;
    let mut pip = Command::new(dir.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(requirements);
    process::quiet(&mut pip).context("installing clients from PyPI; is it reachable from here?")?;
    std::fs::write(dir.join(WHOLE), list).context("marking the environment as whole")?;
    Ok(program)
}
