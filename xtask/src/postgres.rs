//! A `PostgreSQL` server for the tests: on a socket of its own, without TCP, gone afterwards.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::process::{self, pid};
use crate::progress::say;
use crate::{host, interrupt, places};

/// How long a server may take to come up or to go.
const PATIENCE: Duration = Duration::from_secs(30);
/// The user that Debian's package makes; the server refuses to run as root.
const USER: &str = "postgres";

/// A running server; dropping it stops it and removes its files.
#[derive(Debug)]
pub struct Server {
    child: Child,
    dir: PathBuf,
}

impl Server {
    /// Starts a server with an empty database cluster.
    pub fn start() -> Result<Self> {
        let dir = places::postgres_dir();
        stop_stale(&dir)?;
        let programs = programs()?;
        make_dir(&dir)?;
        let data = dir.join("data");
        let mut initdb = as_user(&programs.join("initdb"));
        // Trust lets in whoever reaches the socket: its directory is the tests' own.
        initdb.args([
            "--username=guywire",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]);
        process::quiet(initdb.arg("-D").arg(&data)).context("making a database cluster")?;
        let log = std::fs::File::create(dir.join("log")).context("making the server's log")?;
        let mut command = as_user(&programs.join("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(&dir);
        command.args(["-c", "listen_addresses=", "-c", "max_connections=200"]);
        // The tests kill clients, never the server or the host: what fsync protects from cannot happen.
        command.args(["-c", "fsync=off", "-c", "full_page_writes=off"]);
        command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log));
        let child = process::spawn(&mut command)?;
        let mut server = Self { child, dir };
        server.wait_until_ready(&programs)?;
        Ok(server)
    }

    /// The address that tests are given.
    pub fn url(&self) -> String {
        format!("postgres:///postgres?host={}&user=guywire", self.dir.display())
    }

    fn wait_until_ready(&mut self, programs: &Path) -> Result<()> {
        let begin = Instant::now();
        loop {
            let mut ready = Command::new(programs.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(&self.dir);
            if ready.status().context("running pg_isready")?.success() {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || begin.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                bail!("PostgreSQL does not come up in {}: {}", self.dir.display(), log.trim());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = interrupt::while_cleaning(|| {
            // A fast shutdown, then one without any ceremony.
            for signal in [Signal::INT, Signal::QUIT] {
                rustix::process::kill_process(pid(self.child.id())?, signal)?;
                let begin = Instant::now();
                while begin.elapsed() < PATIENCE {
                    if self.child.try_wait()?.is_some() {
                        return remove(&self.dir);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            bail!("it does not end")
        });
        if let Err(error) = stopped {
            say(format!("stopping PostgreSQL ({}): {error:#}", self.child.id()));
        }
    }
}

/// Stops a server that an interrupted run left in `dir`, and removes its files. Whether it found any.
pub fn stop_stale(dir: &Path) -> Result<bool> {
    if !dir.exists() {
        return Ok(false);
    }
    let data = dir.join("data");
    let begin = Instant::now();
    while let Some(server) = running(&data) {
        let signal = if begin.elapsed() < PATIENCE { Signal::INT } else { Signal::QUIT };
        if let Err(error) = rustix::process::kill_process(pid(server)?, signal)
            && error != rustix::io::Errno::SRCH
        {
            return Err(error).with_context(|| format!("stopping PostgreSQL ({server})"));
        }
        if begin.elapsed() > 2 * PATIENCE {
            bail!("PostgreSQL ({server}) of an earlier run does not end: end it by hand");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    remove(dir)?;
    Ok(true)
}

/// The server on `data`, by its own word and by its command line: a number may have a new owner.
fn running(data: &Path) -> Option<u32> {
    let file = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let number: u32 = file.lines().next()?.trim().parse().ok()?;
    let words = std::fs::read(format!("/proc/{number}/cmdline")).ok()?;
    let mut words = words.split(|byte| *byte == 0);
    words.any(|word| word == data.as_os_str().as_encoded_bytes()).then_some(number)
}

/// The newest server that is installed.
fn programs() -> Result<PathBuf> {
    let top = Path::new("/usr/lib/postgresql");
    let entries = std::fs::read_dir(top).with_context(|| format!("{}: install postgresql", top.display()))?;
    let version =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u32>().ok();
    let versions = entries.filter_map(version);
    let newest = versions.filter(|version| top.join(format!("{version}/bin/postgres")).exists()).max();
    let newest = newest.with_context(|| format!("{} has no server: install postgresql", top.display()))?;
    Ok(top.join(format!("{newest}/bin")))
}

/// A command as the server's user, if we are root.
fn as_user(program: &Path) -> Command {
    let mut command = if host::is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    // The server wants a directory that its user may enter.
    command.current_dir("/").env("LC_ALL", "C");
    command
}

/// A directory that is ours alone: in a shared place, one that is there may be somebody's trap.
fn make_dir(dir: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(dir);
    made.with_context(|| format!("making {}", dir.display()))?;
    if host::is_root() {
        let account = process::answer(Command::new("id").args(["-u", USER]))?;
        let owner: u32 = account.trim().parse().context("the number of the user postgres")?;
        chown(dir, Some(owner), None).with_context(|| format!("giving {} to {USER}", dir.display()))?;
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn remove(dir: &Path) -> Result<()> {
    if !std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir()) {
        bail!("{} is not the directory that tests make: look at it and remove it", dir.display());
    }
    std::fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))
}
