//! Machines for the tests that need some: a lab of their own, with doors, a key and a power switch.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::sweep::TestDir;
use crate::{places, process};

/// How many machines the tests ask for.
const MACHINES: &str = "4";

/// A lab that tests may do anything to; it goes with the tests' directory.
#[derive(Debug)]
pub struct Doors {
    /// `NAME=ADDRESS` of each machine, with commas between.
    list: String,
    key: PathBuf,
    power: PathBuf,
}

/// A machine as `guywire lab list -o json` tells it.
#[derive(Debug, Deserialize)]
pub struct Listed {
    /// Its name.
    pub machine: String,
    /// Its address.
    pub ipv4: String,
}

impl Doors {
    /// Brings the machines up.
    pub fn open(dir: &TestDir) -> Result<Self> {
        let data = dir.data("doors");
        // Shown, as making the base root takes a minute the first time.
        process::shown(guywire(&data)?.args(["lab", "up", "--machines", MACHINES]))?;
        let machines = machines(guywire(&data)?)?;
        let list: Vec<String> =
            machines.iter().map(|machine| format!("{}={}", machine.machine, machine.ipv4)).collect();
        let power = data.join("power");
        let program = places::debug_guywire();
        // The tests say `boot NAME ADDRESS`; a machine here has kept its address.
        let script = format!(
            "#!/bin/sh\nGUYWIRE_DATA='{}' exec '{}' lab \"$1\" \"$2\"\n",
            data.display(),
            program.display()
        );
        std::fs::write(&power, script).context("writing the power switch")?;
        std::fs::set_permissions(&power, std::fs::Permissions::from_mode(0o700))?;
        Ok(Self { list: list.join(","), key: data.join("id_ed25519"), power })
    }

    /// Tells a test where the machines are.
    pub fn tell(&self, command: &mut Command) {
        command.env("GUYWIRE_TEST_DOORS", &self.list);
        command.env("GUYWIRE_TEST_KEY", &self.key);
        command.env("GUYWIRE_TEST_POWER", &self.power);
    }
}

/// What is in the labs of a data directory.
pub fn machines(mut guywire: Command) -> Result<Vec<Listed>> {
    let text = process::answer(guywire.args(["lab", "list", "-o", "json"]))?;
    serde_json::from_str(&text).context("what guywire lab list printed")
}

fn guywire(data: &Path) -> Result<Command> {
    let mut command = Command::new(places::debug_guywire());
    command.env("GUYWIRE_DATA", data).env("GUYWIRE_TEMPLATES", places::templates()?);
    Ok(command)
}
