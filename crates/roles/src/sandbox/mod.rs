//! A process that can read its package and the system's programs, and do nothing else.
//!
//! The supervisor makes namespaces and waits; its child builds a root out of read-only mounts, gives up
//! every privilege and becomes the script, as process 1 of a pid namespace: when it ends, or is killed
//! because its time is over or its memory too much, all that it started ends with it. If the supervisor
//! is killed, the kernel kills the child. So nothing outlives whoever asked.

mod root;

use std::{
    convert::Infallible,
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    os::{fd::AsFd, unix::process::ExitStatusExt},
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

use guywire_machines::process;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    mount::MountPropagationFlags,
    process::{Pid, PidfdFlags},
    thread::UnshareFlags,
};
use serde::{Deserialize, Serialize};

/// Where the package is in the sandbox.
pub const PACKAGE: &str = "/package";
/// What the supervisor's own last line on standard error begins with. Nobody can write after it, since
/// all processes of the script are dead by then.
pub(crate) const MARK: &str = "guywire-sandbox: ";
/// The pause between two looks at the memory.
const LOOK: Duration = Duration::from_millis(50);
/// Who an ordinary user is inside.
const NOBODY: u32 = 65_534;

/// What a sandbox runs, and what that may use. It is on a command line, so nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// The extracted package on the host.
    pub package: PathBuf,
    /// The program and its arguments, as they are called inside.
    pub command: Vec<String>,
    /// How long it may take, in milliseconds.
    pub time_ms: u64,
    /// The memory of each of its processes, and of all together, in bytes.
    pub memory: u64,
    /// How many processes and threads it may have.
    pub processes: u64,
}

/// How it went, as the supervisor tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The script ended by itself, with this code.
    Ended(i32),
    /// A signal killed it.
    Killed(i32),
    /// Its time was over.
    Late,
    /// It used too much memory.
    Large,
    /// There was no sandbox.
    Cannot(String),
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct SandboxError {
    what: String,
    #[source]
    source: io::Error,
}

/// Who the script is, on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// We are root, and it becomes a user that nobody else is.
    Private(u32),
    /// We are anybody; in a user namespace of its own it is us without any rights.
    Ourselves,
}

/// Becomes the sandbox that `spec` describes; run by [`decide`](crate::script::decide) as
/// `STARTER sandbox SPEC`.
///
/// The process must have a single thread. It never returns in success: it exits when the script has
/// ended, and its last line on standard error says how.
pub fn sandbox(spec: &OsStr) -> Result<Infallible, SandboxError> {
    let outcome =
        supervise(spec).unwrap_or_else(|error| Outcome::Cannot(format!("{}: {}", error.what, error.source)));
    let line = serde_json::to_string(&outcome).expect("plain data that JSON can hold");
    writeln!(io::stderr(), "\n{MARK}{line}").map_err(doing("telling how it went"))?;
    std::process::exit(0)
}

fn supervise(spec: &OsStr) -> Result<Outcome, SandboxError> {
    let text =
        spec.to_str().ok_or_else(|| doing("reading the specification")(io::Error::other("not text")))?;
    let spec: Spec = serde_json::from_str(text).map_err(doing("reading the specification"))?;
    let Some((program, arguments)) = spec.command.split_first() else {
        return Err(doing("reading the specification")(io::Error::other("no command")));
    };
    process::close_all_on_exec().map_err(doing("closing inherited descriptors"))?;
    let who = make_namespaces()?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(doing("making the mounts private"))?;

    let (mut said, complaints) = io::pipe().map_err(doing("making a pipe"))?;
    let supervisor = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .map_err(doing("watching oneself"))?;
    let mut script = Command::new(program);
    script.args(arguments).env_clear().envs([
        ("HOME", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ]);
    let limits = spec.clone();
    process::prepare_child(&mut script, move || {
        root::enter(&limits, who, supervisor.as_fd()).map_err(|error| {
            // The parent of a failed exec learns a number only, so the words go their own way.
            let said = write!(&complaints, "{}: {}", error.what, error.source);
            said.err().unwrap_or(error.source)
        })
    });
    let spawned = script.spawn();
    // Our own end of the pipe goes with the closure that holds it.
    drop(script);
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            let mut words = String::new();
            said.read_to_string(&mut words).map_err(doing("listening to the sandbox"))?;
            if words.is_empty() {
                return Err(doing(format!("starting {program}"))(error));
            }
            return Ok(Outcome::Cannot(words));
        }
    };
    watch(&mut child, &spec)
}

/// Makes all namespaces: as root directly, otherwise with a user namespace around them.
fn make_namespaces() -> Result<Who, SandboxError> {
    let spaces = UnshareFlags::NEWNS
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWPID;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() {
        match process::unshare(spaces) {
            // Limits on processes count per user, so each sandbox is another user while it runs.
            Ok(()) => return Ok(Who::Private(0x6777_0000 | (std::process::id() & 0xffff))),
            // Root in a container without rights may still do what anybody may.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(doing("making namespaces")(error)),
        }
    }
    process::unshare(spaces | UnshareFlags::NEWUSER).map_err(doing(
        "this host lets us make no sandbox; run guywire as root, or allow user namespaces \
         (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)",
    ))?;
    for (file, map) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{NOBODY} {} 1", uid.as_raw())),
        ("gid_map", format!("{NOBODY} {} 1", gid.as_raw())),
    ] {
        let path = format!("/proc/self/{file}");
        fs::write(&path, map).map_err(doing(format!("writing {path}")))?;
    }
    Ok(Who::Ourselves)
}

/// Waits until the script ends or has used up what it may.
fn watch(child: &mut Child, spec: &Spec) -> Result<Outcome, SandboxError> {
    let end = Instant::now() + Duration::from_millis(spec.time_ms);
    let handle = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty())
        .map_err(doing("watching the script"))?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let pause = left.min(LOOK);
        let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
        match rustix::event::poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&pause)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => {
                let status = child.wait().map_err(doing("waiting for the script"))?;
                let signal = || Outcome::Killed(status.signal().unwrap_or_default());
                return Ok(status.code().map_or_else(signal, Outcome::Ended));
            }
            Err(error) => return Err(doing("watching the script")(error)),
        }
        let verdict = match () {
            () if left.is_zero() => Outcome::Late,
            () if resident() > spec.memory => Outcome::Large,
            () => continue,
        };
        child.kill().and_then(|()| child.wait()).map_err(doing("killing the script"))?;
        return Ok(verdict);
    }
}

/// The memory that all processes of the sandbox hold. The supervisor's root has moved with the child's,
/// so `/proc` shows these processes only. One that ends while we look counts nothing.
fn resident() -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let of = |entry: fs::DirEntry| -> Option<u64> {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        let text = fs::read_to_string(entry.path().join("status")).ok()?;
        let held = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        held.trim().strip_suffix(" kB")?.parse().ok()
    };
    entries.flatten().filter_map(of).sum::<u64>() * 1024
}

fn doing<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> SandboxError {
    move |error| SandboxError { what: what.into(), source: error.into() }
}
