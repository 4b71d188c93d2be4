//! A machine's power switch, seen from the host.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use guywire_model::{MachineName, Power};
use guywire_plan::Fence;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;

use super::error::{Result, unavailable, while_doing};
use super::init::{Bind, BootSpec, GO, READY, STARTED};
use super::store::{Key, Record};
use super::{Inner, disk, link, names, network, process, tool};

/// How long a machine may take to stop by itself before its power is cut.
const HALT: Duration = Duration::from_secs(20);
/// How long a starter may take for a step that needs milliseconds on an idle host.
const STEP: Duration = Duration::from_secs(30);
/// The longest complaint of a starter that is read.
const MAX_WORDS: usize = 4096;

/// Directories that are plain ones of the host: overlayfs, which containerd and kubelet use, does not
/// take another overlay as its upper layer, and etcd wants a disk without one beneath.
pub(super) const PLAIN: [&str; 3] = ["var/lib/containerd", "var/lib/kubelet", "var/lib/etcd"];

impl Inner {
    pub(super) fn power(&self, fence: Fence, machine: &MachineName, power: Power) -> Result<()> {
        let _key = self.store.change(Key::Machine(machine), fence)?;
        let record = self.store.existing(machine)?;
        match power {
            Power::On => self.boot(&record),
            Power::Off => self.halt(machine),
            Power::Cut => self.cut(machine),
        }
    }

    /// Starts a machine unless it runs.
    fn boot(&self, record: &Record) -> Result<()> {
        let name = &record.spec.name;
        if self.really_runs(name)? {
            return Ok(());
        }
        // Whatever an interrupted start or an end from inside left: cgroups, a cable.
        self.cut(name)?;
        let outcome = self.start(record);
        if outcome.is_err() {
            self.cut(name)?;
        }
        outcome
    }

    fn start(&self, record: &Record) -> Result<()> {
        let name = &record.spec.name;
        let networks = self.store.networks()?;
        let (index, site) = networks.site(&record.spec.site)?;
        let pair = network::address(site, record.spec.number)?;
        let bridge = self.id.bridge(index);
        if !link::exists(&bridge) {
            return Err(unavailable(format!(
                "machine {name}: bridge {bridge} of site {} is not there, as after a restart of the host; ensure the networks first",
                site.name
            )));
        }
        let dir = self.store.machine(name);
        let cgroup = self.layout.machine(&self.id, name.as_str());
        let mut binds: Vec<Bind> = PLAIN
            .iter()
            .map(|path| Bind {
                source: dir.join("data").join(path),
                target: Path::new("/").join(path),
                read_only: false,
            })
            .collect();
        binds.extend(record.spec.volumes.iter().map(|mount| Bind {
            source: self.store.volume(&mount.volume),
            target: mount.path.clone(),
            read_only: false,
        }));
        let shared = self.store.shared();
        binds.push(Bind { source: shared, target: names::IN_MACHINE.into(), read_only: true });
        let spec = BootSpec {
            hostname: name.to_string(),
            doors: cgroup.doors(),
            cgroups: self.layout.clone(),
            layers: record.layers.iter().map(|layer| self.layer(layer)).collect::<Result<_>>()?,
            dir: dir.clone(),
            binds,
            network: link::machine_side(site, pair),
            console: dir.join("console.log"),
        };
        let spec_path = dir.join("boot.json");
        disk::write_json(&spec_path, &spec)?;
        cgroup.create()?;
        let mut starter = Starter::run(&self.starter, &spec_path, &spec.console)?;
        starter.expect(READY)?;
        let cable = self.id.cable(name);
        link::plug(&cable, &self.owner(), &bridge, &self.id.hardware_address(name.as_str()), starter.pid())?;
        starter.go()?;
        starter.expect(STARTED)?;
        starter.end()
    }

    /// Whether the machine has a process 1. A starter whose lab died is about to go by itself, so a
    /// machine with processes but without that one is given a moment.
    fn really_runs(&self, name: &MachineName) -> Result<bool> {
        let cgroup = self.layout.machine(&self.id, name.as_str());
        let end = Instant::now() + Duration::from_secs(1);
        while cgroup.populated()? {
            if cgroup.init()?.is_some() {
                return Ok(true);
            }
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(false)
    }

    /// Asks the machine to stop, and cuts the power when it has, or has not in time.
    fn halt(&self, name: &MachineName) -> Result<()> {
        let cgroup = self.layout.machine(&self.id, name.as_str());
        if let Some(init) = cgroup.init()? {
            let doing = || format!("asking machine {name} to stop");
            let handle = rustix::process::pidfd_open(init, PidfdFlags::empty());
            match handle.and_then(|handle| rustix::process::pidfd_send_signal(handle, process::halt_signal()))
            {
                Ok(()) => {
                    cgroup.wait_empty(HALT)?;
                }
                Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(while_doing(doing())(error)),
            }
        }
        self.cut(name)
    }

    /// Off the network first, then every process at once, then what the kernel kept for them. The
    /// order matters: a namespace without processes still answers ARP and resets connections.
    pub(super) fn cut(&self, name: &MachineName) -> Result<()> {
        let cable = self.id.cable(name);
        if link::exists(&cable) {
            link::down(&cable)?;
        }
        let cgroup = self.layout.machine(&self.id, name.as_str());
        cgroup.kill()?;
        link::remove(&cable)?;
        cgroup.remove()
    }
}

/// A process on its way to become a machine.
struct Starter {
    child: Child,
    heard: String,
}

impl Starter {
    fn run(program: &Path, spec: &Path, console: &Path) -> Result<Self> {
        let console = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(console);
        let console = console.map_err(while_doing("making the machine's console"))?;
        // Its words come on standard output, its cue on standard input; nothing else is shared with it.
        let child = Command::new(program)
            .arg("machine-init")
            .arg(spec)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(console)
            .spawn()
            .map_err(|error| tool::missing(&program.display().to_string(), "guywire", error))?;
        Ok(Self { child, heard: String::new() })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a word; anything else that it says is its complaint.
    fn expect(&mut self, word: &str) -> Result<()> {
        let end = Instant::now() + STEP;
        while !self.heard.starts_with(word) {
            let left = end.saturating_duration_since(Instant::now());
            let more = if left.is_zero() { None } else { self.hear(left)? };
            if more == Some(0) || self.heard.len() > MAX_WORDS {
                let said = if self.heard.trim().is_empty() {
                    "it ended without a word; console.log in its directory may tell more"
                } else {
                    self.heard.trim()
                };
                return Err(unavailable(format!("starting the machine: {said}")));
            }
            if more.is_none() {
                return Err(unavailable(format!(
                    "starting the machine: its starter did not get ready in {} s; is the host overloaded?",
                    STEP.as_secs()
                )));
            }
        }
        self.heard.drain(..word.len());
        Ok(())
    }

    /// Reads what it says: the number of bytes, 0 at its end, nothing when time is up.
    fn hear(&mut self, patience: Duration) -> Result<Option<usize>> {
        let doing = "listening to a machine's starter";
        let stdout = self.child.stdout.as_mut().expect("it was asked for");
        let timeout = Timespec { tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
        let mut ready = [PollFd::new(stdout, PollFlags::IN)];
        match rustix::event::poll(&mut ready, Some(&timeout)) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Some(1)),
            Err(error) => return Err(while_doing(doing)(error)),
        }
        let mut buffer = [0; 512];
        let count = stdout.read(&mut buffer).map_err(while_doing(doing))?;
        self.heard.push_str(&String::from_utf8_lossy(&buffer[..count]));
        Ok(Some(count))
    }

    fn go(&mut self) -> Result<()> {
        let mut stdin = self.child.stdin.take().expect("it was asked for, and go is said once");
        match stdin.write_all(GO.as_bytes()) {
            // It ended; what it said last tells why, and is read next.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(while_doing("telling a machine's starter to go on")),
        }
    }

    fn end(mut self) -> Result<()> {
        let status = self.child.wait().map_err(while_doing("waiting for a machine's starter"))?;
        if status.success() {
            Ok(())
        } else {
            Err(unavailable(format!("a machine's starter failed: {status}")))
        }
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        // Only after a failure is it still there; without its end of the pipe it goes by itself, too.
        if !matches!(self.child.try_wait(), Ok(Some(_)))
            && let Err(error) = self.child.kill().and_then(|()| self.child.wait())
        {
            tracing::warn!(%error, "a machine's starter could not be ended");
        }
    }
}
