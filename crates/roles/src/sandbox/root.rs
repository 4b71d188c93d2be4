//! Inside the sandbox's first process, before it becomes the script.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::symlink,
    },
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::{CWD, StatVfsMountFlags},
    mount::{MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags},
    process::{Resource, Rlimit, Signal},
    thread::{CapabilitySet, CapabilitySets, Gid, Uid},
};

use super::{PACKAGE, SandboxError, Spec, Who, doing};

/// Directories of programs and libraries. On most systems all but the first are links into it.
const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// What programs need of the system's configuration to start at all.
const CONFIGURATION: [&str; 2] = ["etc/ld.so.cache", "etc/alternatives"];
const DEVICES: [&str; 3] = ["null", "zero", "urandom"];
/// The largest file that a script may write; there is no more room in its `/tmp` either.
const SCRATCH: u64 = 16 << 20;
/// How many files it may have open.
const FILES: u64 = 128;

/// Something of the host that is taken into the sandbox.
enum Taken {
    Directory(OwnedFd),
    File(OwnedFd),
    Link(std::path::PathBuf),
}

/// Builds the root, moves into it and gives up every privilege.
pub(super) fn enter(spec: &Spec, who: Who, supervisor: BorrowedFd<'_>) -> Result<(), SandboxError> {
    rustix::process::setsid().map_err(doing("leaving the session"))?;
    rustix::system::sethostname(b"sandbox").map_err(doing("naming the sandbox"))?;
    build(&spec.package)?;
    limit(spec)?;
    drop_privileges(who)?;
    // Changing the user has taken this away, so it comes last; whoever died before it is seen.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(doing("watching the supervisor"))?;
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut [PollFd::new(&supervisor, PollFlags::IN)], Some(&at_once)) {
        Ok(0) => Ok(()),
        Ok(_) => Err(doing("watching the supervisor")(io::Error::other("it is gone"))),
        Err(error) => Err(doing("watching the supervisor")(error)),
    }
}

fn build(package: &Path) -> Result<(), SandboxError> {
    // All of the host is taken hold of before the root changes: the package may be beneath the place
    // that is about to be covered.
    let mut taken = Vec::new();
    for name in SYSTEM.iter().chain(&CONFIGURATION) {
        if let Some(one) = take(&Path::new("/").join(name))? {
            taken.push((*name, one));
        }
    }
    for name in DEVICES {
        let node = take(&Path::new("/dev").join(name))?;
        taken.extend(node.map(|node| (name, node)));
    }
    let package = hold(package)?;

    let plain = MountFlags::NOSUID | MountFlags::NODEV;
    // Any directory will do: it is covered in this namespace only.
    mount("tmpfs", "/tmp", "tmpfs", plain, "mode=755,size=1m")?;
    std::env::set_current_dir("/tmp").map_err(doing("entering the new root"))?;
    for name in ["etc", "dev", "proc", "tmp"] {
        make_dir(Path::new(name))?;
    }
    for (name, one) in &taken {
        let is_device = DEVICES.contains(name);
        let target = if is_device { Path::new("dev").join(name) } else { Path::new(name).to_owned() };
        match one {
            Taken::Link(to) => symlink(to, &target).map_err(doing(format!("linking {name}")))?,
            Taken::Directory(tree) => {
                make_dir(&target)?;
                put(tree, &target)?;
                make_read_only(&target, plain)?;
            }
            Taken::File(tree) => {
                File::create(&target).map_err(doing(format!("making {name}")))?;
                put(tree, &target)?;
                // A device is written to; who may do so is up to its mode.
                if !is_device {
                    make_read_only(&target, plain)?;
                }
            }
        }
    }
    let inside = Path::new(PACKAGE.trim_start_matches('/'));
    make_dir(inside)?;
    put(&package, inside)?;
    make_read_only(inside, plain)?;
    mount_proc(plain | MountFlags::NOEXEC)?;

    // With both at one place, the old root is stacked upon the new one and can be taken off there.
    rustix::process::pivot_root(".", ".").map_err(doing("changing the root"))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(doing("leaving the old root"))?;
    std::env::set_current_dir("/").map_err(doing("entering the new root"))?;
    mount("tmpfs", "/tmp", "tmpfs", plain, &format!("mode=1777,size={SCRATCH},nr_inodes=4096"))?;
    make_read_only(Path::new("/"), plain)?;
    std::env::set_current_dir(PACKAGE).map_err(doing("entering the package"))
}

/// The processes of the sandbox. An ordinary user may see them only while the host's are in sight too,
/// and in some containers never: a script does without then.
fn mount_proc(plain: MountFlags) -> Result<(), SandboxError> {
    match rustix::mount::mount("proc", "proc", "proc", plain, None) {
        Ok(()) => {}
        Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => return Ok(()),
        Err(error) => return Err(doing("mounting /proc")(error)),
    }
    // Kernel settings are written by whoever is root outside, whatever their rights.
    let settings = Path::new("proc/sys");
    put(&hold(settings)?, settings)?;
    make_read_only(settings, plain)
}

fn limit(spec: &Spec) -> Result<(), SandboxError> {
    let seconds = spec.time_ms.div_ceil(1000) + 1;
    for (resource, most) in [
        (Resource::Cpu, seconds),
        (Resource::As, spec.memory),
        (Resource::Nproc, spec.processes),
        (Resource::Nofile, FILES),
        (Resource::Fsize, SCRATCH),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
    ] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        rustix::process::setrlimit(resource, limit).map_err(doing(format!("limiting {resource:?}")))?;
    }
    Ok(())
}

fn drop_privileges(who: Who) -> Result<(), SandboxError> {
    let what = "giving up privileges";
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A kernel that is older than a capability.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(doing(what)(error)),
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(doing(what))?;
    if let Who::Private(id) = who {
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::thread::set_thread_groups(&[]).map_err(doing(what))?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(doing(what))?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(doing(what))?;
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(doing(what))?;
    rustix::thread::set_no_new_privs(true).map_err(doing(what))
}

/// Takes hold of a file or directory of the host, or of where a link leads; nothing if it is not there.
fn take(path: &Path) -> Result<Option<Taken>, SandboxError> {
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(doing(format!("looking at {}", path.display()))(error)),
    };
    Ok(Some(if about.is_symlink() {
        Taken::Link(fs::read_link(path).map_err(doing(format!("looking at {}", path.display())))?)
    } else if about.is_dir() {
        Taken::Directory(hold(path)?)
    } else {
        Taken::File(hold(path)?)
    }))
}

/// A mount of a file or directory that is not anywhere yet, with what is mounted beneath: an ordinary
/// user may not uncover what lies under a mount.
fn hold(source: &Path) -> Result<OwnedFd, SandboxError> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(CWD, source, flags).map_err(doing(format!("binding {}", source.display())))
}

/// Puts a mount in its place.
fn put(tree: &OwnedFd, target: &Path) -> Result<(), SandboxError> {
    rustix::mount::move_mount(tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(doing(format!("mounting on {}", target.display())))
}

/// Flags that the mount has already stay: an ordinary user may not take them away.
fn make_read_only(target: &Path, more: MountFlags) -> Result<(), SandboxError> {
    let what = || format!("making {} read-only", target.display());
    let has = rustix::fs::statvfs(target).map_err(doing(what()))?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | more;
    for (is, flag) in [
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if has.contains(is) {
            flags |= flag;
        }
    }
    rustix::mount::mount_remount(target, flags, "").map_err(doing(what()))
}

fn mount(
    source: &str,
    target: &str,
    kind: &str,
    flags: MountFlags,
    options: &str,
) -> Result<(), SandboxError> {
    let options = std::ffi::CString::new(options).map_err(doing("mounting"))?;
    rustix::mount::mount(source, target, kind, flags, options.as_c_str())
        .map_err(doing(format!("mounting {kind} on {target}")))
}

fn make_dir(path: &Path) -> Result<(), SandboxError> {
    fs::create_dir_all(path).map_err(doing(format!("making {}", path.display())))
}
