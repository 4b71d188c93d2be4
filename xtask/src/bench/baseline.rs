//! The other side of the lab's benchmark: a shell script that makes the same machines.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::progress::say;
use crate::{interrupt, places, process};

/// How long a machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The script's network, which no lab of ours takes: they are all in 10.250.0.0/16.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 251, 7, 11);

/// Machines made by the script; dropping it removes them.
#[derive(Debug)]
pub struct Baseline {
    dir: PathBuf,
    base: PathBuf,
}

impl Baseline {
    /// Prepares a directory for the script; `base` is the root that all machines start from.
    pub fn new(dir: PathBuf, base: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let baseline = Self { dir, base };
        baseline.remove()?;
        let key = baseline.dir.join("key");
        if !key.exists() {
            let mut keygen = Command::new("ssh-keygen");
            process::quiet(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key))?;
        }
        Ok(baseline)
    }

    /// Boots machines one after the other without waiting, then waits until SSH lets us into each. How
    /// long that took.
    pub fn up(&self, machines: u8) -> Result<Duration> {
        let begin = Instant::now();
        for at in 0..machines {
            // Waited for without looking for interrupts, which would add to the script's time.
            let booted = self.script().args(["boot", &name(at), &address(at).to_string()]).status();
            if !booted.context("starting the baseline's script")?.success() {
                bail!(
                    "the baseline's script failed; it knows hosts with version 1 control groups, mounted one by one"
                );
            }
        }
        for at in 0..machines {
            self.wait_for(address(at), begin)?;
        }
        Ok(begin.elapsed())
    }

    /// Removes every machine, and the bridge.
    pub fn remove(&self) -> Result<()> {
        process::quiet(self.script().arg("sweep")).map(drop).context("removing the baseline's machines")
    }

    fn wait_for(&self, address: Ipv4Addr, begin: Instant) -> Result<()> {
        while begin.elapsed() < PATIENCE {
            // Knocking is cheap; the client is started once somebody is there.
            if TcpStream::connect_timeout(&(address, 22).into(), Duration::from_secs(1)).is_ok()
                && self.lets_us_in(address)
            {
                return Ok(());
            }
            if interrupt::pending() {
                bail!("interrupted");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the baseline's machine at {address} does not answer; see {}/m/*/log", self.dir.display())
    }

    fn lets_us_in(&self, address: Ipv4Addr) -> bool {
        let mut ssh = Command::new("ssh");
        ssh.arg("-i").arg(self.dir.join("key"));
        for option in
            ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "LogLevel=ERROR"]
        {
            ssh.args(["-o", option]);
        }
        process::quiet(ssh.arg(format!("root@{address}")).arg("true")).is_ok()
    }

    fn script(&self) -> Command {
        let mut bash = Command::new("bash");
        bash.arg(places::root().join("xtask/baseline/lab.sh"));
        bash.env("GW", &self.dir).env("BASE", &self.base);
        bash
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        if let Err(error) = interrupt::while_cleaning(|| self.remove()) {
            say(format!("{error:#}"));
        }
    }
}

/// The newest base root in the templates' directory: guywire's own.
pub fn base_root(templates: &Path) -> Result<PathBuf> {
    let mut roots = Vec::new();
    for entry in std::fs::read_dir(templates).with_context(|| format!("reading {}", templates.display()))? {
        let path = entry?.path();
        if path.extension().is_none() && path.join("lib/systemd/systemd").exists() {
            roots.push((path.metadata()?.modified()?, path));
        }
    }
    roots.sort();
    roots.pop().map(|(_, path)| path).with_context(|| format!("{} has no base root", templates.display()))
}

fn name(at: u8) -> String {
    format!("gwb{}", at + 1)
}

fn address(at: u8) -> Ipv4Addr {
    let [a, b, c, d] = FIRST.octets();
    Ipv4Addr::new(a, b, c, d + at)
}
