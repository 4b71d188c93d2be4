//! How a process becomes a machine: the hidden `machine-init` subcommand.
//!
//! The starter joins the machine's cgroups, makes its namespaces, says `ready`, and waits until its
//! parent has plugged the cable in and says `go`. Then it sets the addresses, and its child builds the
//! root out of mounts and becomes systemd. The starter ends: nobody keeps watch over a machine but the
//! kernel. If the parent dies before `go`, the starter sees its end of the pipe and goes too.

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::cgroup::{Layout, Version};
use super::{process, tool};

/// What the starter says when the machine has a network namespace to plug a cable into.
pub(super) const READY: &str = "ready\n";
/// What the parent says when the cable is in.
pub(super) const GO: &str = "go\n";
/// What the starter says when systemd runs.
pub(super) const STARTED: &str = "started\n";

/// All that a starter needs to know to become a machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BootSpec {
    /// The machine's host name.
    pub(super) hostname: String,
    /// The files to write oneself to, to be in the machine's cgroups.
    pub(super) doors: Vec<PathBuf>,
    /// The host's hierarchies, shown in the machine in the same layout.
    pub(super) cgroups: Layout,
    /// Read-only layers of the root, the uppermost first.
    pub(super) layers: Vec<PathBuf>,
    /// The machine's directory, which holds `up`, `work` and `root`.
    pub(super) dir: PathBuf,
    /// Directories that appear in the machine.
    pub(super) binds: Vec<Bind>,
    /// Commands for `ip -batch` inside the machine's network.
    pub(super) network: String,
    /// Where words go that have no journal yet.
    pub(super) console: PathBuf,
}

/// A directory of the host inside the machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bind {
    /// On the host.
    pub(super) source: PathBuf,
    /// In the machine.
    pub(super) target: PathBuf,
    /// Whether the machine may only read it.
    pub(super) read_only: bool,
}

/// Why a process did not become a machine.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct InitError {
    what: String,
    #[source]
    source: io::Error,
}

/// Becomes the machine that the file at `spec_path` describes; run by a lab as `STARTER machine-init FILE`.
///
/// The process must have a single thread. It never returns in success: it exits when the machine's
/// systemd has been started. What goes wrong is told to the lab on standard output, and returned.
pub fn machine_init(spec_path: &Path) -> Result<Infallible, InitError> {
    let mut said = io::stdout();
    let outcome = start(spec_path, &mut said);
    let word = match &outcome {
        Ok(()) => STARTED.to_owned(),
        Err(error) => format!("{}: {}\n", error.what, error.source),
    };
    said.write_all(word.as_bytes()).and_then(|()| said.flush()).map_err(doing("answering the lab"))?;
    outcome?;
    std::process::exit(0)
}

fn start(spec_path: &Path, said: &mut io::Stdout) -> Result<(), InitError> {
    let text = fs::read(spec_path).map_err(doing(format!("reading {}", spec_path.display())))?;
    let spec: BootSpec = serde_json::from_slice(&text)
        .map_err(|error| doing(format!("reading {}", spec_path.display()))(io::Error::from(error)))?;
    process::close_all_on_exec().map_err(doing("closing inherited descriptors"))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    for door in &spec.doors {
        fs::write(door, "0").map_err(doing(format!("entering the cgroup at {}", door.display())))?;
    }
    let spaces = UnshareFlags::NEWNS
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWCGROUP
        | UnshareFlags::NEWNET;
    process::unshare(spaces).map_err(doing("making namespaces; is the kernel built with them?"))?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(doing("making the mounts private"))?;

    said.write_all(READY.as_bytes()).and_then(|()| said.flush()).map_err(doing("answering the lab"))?;
    let mut word = String::new();
    io::stdin().read_to_string(&mut word).map_err(doing("waiting for the lab"))?;
    if word != GO {
        return Err(doing("waiting for the lab")(io::Error::other("it ended before the cable was in")));
    }

    // Before the pid namespace: the first child in there becomes its process 1, and takes all with it.
    tool::run("iproute2", Command::new("ip").args(["-batch", "-"]), &spec.network)
        .map_err(|error| doing("setting the machine's addresses")(io::Error::other(error.message)))?;
    process::unshare(UnshareFlags::NEWPID).map_err(doing("making a pid namespace"))?;
    let console = OpenOptions::new()
        .append(true)
        .open(&spec.console)
        .map_err(doing(format!("opening {}", spec.console.display())))?;
    let errors = console.try_clone().map_err(doing("sharing the console"))?;
    let complaints = said.as_fd().try_clone_to_owned().map_err(doing("sharing the pipe to the lab"))?;
    let complaints = File::from(complaints);

    let mut systemd = Command::new("/lib/systemd/systemd");
    // Not to the kernel's log, where it would talk by default: that is the host's.
    systemd
        .args(["--log-target=journal", "--show-status=no"])
        .env_clear()
        .env("container", "guywire")
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors);
    let prepare = move || {
        build(&spec).map_err(|error| {
            // The parent of a failed exec learns a number only, so the words go their own way.
            let said = writeln!(&complaints, "{}: {}", error.what, error.source);
            said.err().unwrap_or(error.source)
        })
    };
    process::prepare_child(&mut systemd, prepare).spawn().map_err(doing("starting systemd"))?;
    Ok(())
}

/// Builds the machine's root and moves into it.
fn build(spec: &BootSpec) -> Result<(), InitError> {
    rustix::process::setsid().map_err(doing("leaving the session"))?;
    let root = spec.dir.join("root");
    let layers: Vec<String> = spec.layers.iter().map(|layer| layer.display().to_string()).collect();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        layers.join(":"),
        spec.dir.join("up").display(),
        spec.dir.join("work").display()
    );
    mount("overlay", &root, "overlay", MountFlags::empty(), &options)?;

    // Everything of the host is taken hold of before the root changes and put in its place after:
    // so a symbolic link in the machine's disk can lead to the machine's own files only.
    let binds: Vec<OwnedFd> =
        spec.binds.iter().map(|bind| take_hold(&bind.source)).collect::<Result<_, _>>()?;
    let devices = ["null", "zero", "full", "random", "urandom", "tty", "kmsg"];
    let nodes: Vec<OwnedFd> =
        devices.iter().map(|name| take_hold(&Path::new("/dev").join(name))).collect::<Result<_, _>>()?;

    std::env::set_current_dir(&root).map_err(doing("entering the new root"))?;
    // With both at one place, the old root is stacked upon the new one and can be taken off there.
    rustix::process::pivot_root(".", ".").map_err(doing("changing the root"))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(doing("leaving the old root"))?;
    std::env::set_current_dir("/").map_err(doing("entering the new root"))?;

    let nothing_special = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", Path::new("/proc"), "proc", nothing_special, "")?;
    mount("sysfs", Path::new("/sys"), "sysfs", nothing_special, "")?;
    mount("tmpfs", Path::new("/dev"), "tmpfs", MountFlags::NOSUID, "mode=755,size=4m")?;
    for (name, node) in devices.iter().zip(&nodes) {
        let target = Path::new("/dev").join(name);
        File::create(&target).map_err(doing(format!("making {}", target.display())))?;
        put(node, &target)?;
    }
    make_dir(Path::new("/dev/pts"))?;
    make_dir(Path::new("/dev/shm"))?;
    let terminals = "newinstance,ptmxmode=0666,mode=620,gid=5";
    mount("devpts", Path::new("/dev/pts"), "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, terminals)?;
    mount("tmpfs", Path::new("/dev/shm"), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, "mode=1777")?;
    let links = [("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0")];
    for (name, target) in
        links.into_iter().chain([("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")])
    {
        symlink(target, Path::new("/dev").join(name)).map_err(doing(format!("making /dev/{name}")))?;
    }
    mount("tmpfs", Path::new("/run"), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, "mode=755")?;
    mount("tmpfs", Path::new("/tmp"), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, "mode=1777")?;
    mount_cgroups(&spec.cgroups)?;
    for (bind, tree) in spec.binds.iter().zip(&binds) {
        make_dir(&bind.target)?;
        put(tree, &bind.target)?;
        if bind.read_only {
            make_read_only(&bind.target)?;
        }
    }
    // The host's own emergency brake; a machine must not reach it.
    let brake = Path::new("/proc/sysrq-trigger");
    if brake.exists() {
        put(&take_hold(brake)?, brake)?;
        make_read_only(brake)?;
    }
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::SHARED)
        .map_err(doing("sharing the machine's mounts"))?;
    rustix::system::sethostname(spec.hostname.as_bytes()).map_err(doing("setting the host name"))
}

/// Shows the machine its cgroups the way the host has them.
fn mount_cgroups(layout: &Layout) -> Result<(), InitError> {
    let top = Path::new("/sys/fs/cgroup");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if layout.unified_only() {
        return mount("cgroup2", top, "cgroup2", flags, "");
    }
    mount("tmpfs", top, "tmpfs", flags, "mode=755")?;
    for hierarchy in &layout.0 {
        let names = hierarchy.controllers.join(",");
        let (dir, kind, options) = match (hierarchy.version, names.strip_prefix("name=")) {
            (Version::V2, _) => ("unified", "cgroup2", String::new()),
            (Version::V1, Some(name)) => (name, "cgroup", format!("none,{names}")),
            (Version::V1, None) => (names.as_str(), "cgroup", names.clone()),
        };
        let point = top.join(dir);
        make_dir(&point)?;
        mount(kind, &point, kind, flags, &options)?;
        for name in hierarchy.controllers.iter().filter(|_| hierarchy.controllers.len() > 1) {
            symlink(dir, top.join(name)).map_err(doing(format!("linking {}", top.join(name).display())))?;
        }
    }
    Ok(())
}

fn mount(source: &str, target: &Path, kind: &str, flags: MountFlags, options: &str) -> Result<(), InitError> {
    let options = std::ffi::CString::new(options).map_err(doing("mounting"))?;
    rustix::mount::mount(source, target, kind, flags, options.as_c_str())
        .map_err(doing(format!("mounting {kind} on {} with {options:?}", target.display())))
}

/// A mount of a file or directory that is not anywhere yet.
fn take_hold(source: &Path) -> Result<OwnedFd, InitError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(CWD, source, flags).map_err(doing(format!("binding {}", source.display())))
}

/// Puts a mount in its place.
fn put(tree: &OwnedFd, target: &Path) -> Result<(), InitError> {
    rustix::mount::move_mount(tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(doing(format!("mounting on {}", target.display())))
}

fn make_read_only(target: &Path) -> Result<(), InitError> {
    rustix::mount::mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "")
        .map_err(doing(format!("making {} read-only", target.display())))
}

fn make_dir(path: &Path) -> Result<(), InitError> {
    fs::create_dir_all(path).map_err(doing(format!("making {}", path.display())))
}

fn doing<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> InitError {
    move |error| InitError { what: what.into(), source: error.into() }
}
