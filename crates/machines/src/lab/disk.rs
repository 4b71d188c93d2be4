//! Files that are whole or not there, locks that end with their holder, and trees that go entirely.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use serde::{Serialize, de::DeserializeOwned};

use super::error::{Result, unavailable, while_doing};
use super::mountinfo;

/// The largest state file that is read; ours are a few kilobytes.
const MAX_STATE: u64 = 4 << 20;

/// A lock that is held until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock at `path`, waiting at most `patience` for another holder.
    pub(super) fn take(path: &Path, patience: Duration) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)
            .map_err(while_doing(format_args!("opening the lock {}", path.display())))?;
        let end = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { file }),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if Instant::now() < end => {
                    // flock cannot wait with an end, so we ask again, less and less often.
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(unavailable(format!(
                        "{}: another guywire has been changing this for {} s; wait for it or end it",
                        path.display(),
                        patience.as_secs()
                    )));
                }
                Err(error) => return Err(while_doing(format_args!("locking {}", path.display()))(error)),
            }
        }
    }

    /// The open file, for a child that shall hold the lock too.
    pub(super) fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Writes `bytes` to `path` so that a reader, or a crash, sees the old or the new whole.
pub(super) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(unavailable(format!("{}: not a path of a file", path.display())));
    };
    let temporary = dir.join(format!(".{}.new", name.to_string_lossy()));
    let attempt = || -> io::Result<()> {
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&temporary)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_dir(dir)
    };
    attempt().map_err(while_doing(doing()))
}

/// Writes `value` as JSON, whole or not at all.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|error| unavailable(format!("writing {}", path.display())).because(error))?;
    text.push(b'\n');
    write(path, &text, 0o600)
}

/// Reads a file that may not be there.
pub(super) fn read(path: &Path) -> Result<Option<String>> {
    let doing = || format!("reading {}", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(while_doing(doing())(error)),
    };
    let mut text = String::new();
    file.take(MAX_STATE).read_to_string(&mut text).map_err(while_doing(doing()))?;
    Ok(Some(text))
}

/// Reads a JSON file that may not be there. What does not parse is an error that names the file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let Some(text) = read(path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let message = format!(
            "{}:{}: not a state file of this guywire; restore it, or remove the lab and make it anew",
            path.display(),
            error.line()
        );
        unavailable(message).because(error)
    })
}

/// Makes a directory and those above it.
pub(super) fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(while_doing(format_args!("making the directory {}", path.display())))
}

/// Makes a directory that only its owner may enter: a machine's disk can hold programs that make
/// whoever runs them root.
pub(super) fn make_private_dir(path: &Path) -> Result<()> {
    let make = || fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    path.parent().map_or(Ok(()), make_dir)?;
    make().map_err(while_doing(format_args!("making the directory {}", path.display())))
}

/// Makes a rename or a removal in `dir` survive a crash.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Renames a finished thing to its final name.
pub(super) fn publish(from: &Path, to: &Path) -> Result<()> {
    let attempt = || -> io::Result<()> {
        fs::rename(from, to)?;
        to.parent().map_or(Ok(()), sync_dir)
    };
    attempt().map_err(while_doing(format_args!("renaming {} to {}", from.display(), to.display())))
}

/// Removes a file or a tree; what is not there is success. Mounts that an interrupted build left
/// inside are taken off first: without that, the removal would go on into what they show.
pub(super) fn remove_tree(path: &Path) -> Result<()> {
    let doing = || format!("removing {}", path.display());
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.is_dir() {
        return fs::remove_file(path).map_err(while_doing(doing()));
    }
    mountinfo::unmount_below(path)?;
    // A container runtime may still be letting go of its files when the first pass comes along.
    for _ in 0..3 {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) => return Err(while_doing(doing())(error)),
        }
    }
    fs::remove_dir_all(path).map_err(while_doing(doing()))
}

/// The names in a directory that may not be there, sorted.
pub(super) fn entries(dir: &Path) -> Result<Vec<String>> {
    let doing = || format!("listing {}", dir.display());
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(while_doing(doing())(error)),
    };
    let mut names = Vec::new();
    for entry in listing {
        let entry = entry.map_err(while_doing(doing()))?;
        // A name that is not UTF-8 is none of ours.
        if let Ok(name) = entry.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The path with `suffix` after its last component; names of ours have no dots, so it is never taken.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_replaces_the_whole_and_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        write_json(&path, &[1, 2]).unwrap();
        write_json(&path, &[3]).unwrap();
        assert_eq!(read_json::<Vec<u8>>(&path).unwrap(), Some(vec![3]));
        assert_eq!(entries(dir.path()).unwrap(), ["state.json"]);
        assert_eq!(read_json::<Vec<u8>>(&dir.path().join("none")).unwrap(), None);
    }

    #[test]
    fn a_broken_state_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("network.json");
        fs::write(&path, "[\n}").unwrap();
        let error = read_json::<Vec<u8>>(&path).unwrap_err();
        assert!(error.message.contains("network.json:2:"), "{error}");
    }

    #[test]
    fn a_lock_is_refused_while_it_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::take(&path, Duration::ZERO).unwrap();
        assert!(Lock::take(&path, Duration::from_millis(5)).unwrap_err().retry());
        drop(held);
        Lock::take(&path, Duration::ZERO).unwrap();
    }
}
