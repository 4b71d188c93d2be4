//! Files that only their owner may read, written whole or not at all.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Makes a file of mode 0600 that is not there yet, with its directory. Where another process was
/// faster, its file stays and this is success all the same.
pub fn create(file: &Path, content: &[u8]) -> io::Result<()> {
    let dir = directory(file)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // A name that no other process or thread has.
    let temporary =
        beside(file, &format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))?;
    // A link, unlike a rename, does not replace what somebody else made.
    let made = write(&temporary, content).and_then(|()| match fs::hard_link(&temporary, file) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    });
    let removed = fs::remove_file(&temporary);
    made.and(removed)?;
    fs::File::open(dir)?.sync_all()
}

/// Replaces a file: old or new, never a mixture, whatever happens in between. The caller holds a
/// [`lock`] on it.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = beside(file, "new")?;
    write(&temporary, content)?;
    fs::rename(&temporary, file)?;
    fs::File::open(directory(file)?)?.sync_all()
}

/// Waits for the lock beside `file` and holds it until the answer is dropped. It is a file of its own,
/// since the inode of `file` is another one after each [`replace`].
pub fn lock(file: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    let lock = options.create(true).truncate(false).write(true).mode(0o600).open(beside(file, "lock")?)?;
    lock.lock()?;
    Ok(lock)
}

/// The permission bits of `file`, if they let anybody but its owner in.
pub fn open_to_others(file: &Path) -> io::Result<Option<u32>> {
    let mode = fs::metadata(file)?.mode() & 0o7777;
    Ok((mode & 0o077 != 0).then_some(mode))
}

fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut out = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    // One that a killed process left may have another mode.
    out.set_permissions(fs::Permissions::from_mode(0o600))?;
    out.write_all(content)?;
    out.sync_all()
}

fn directory(file: &Path) -> io::Result<&Path> {
    file.parent().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn beside(file: &Path, suffix: &str) -> io::Result<PathBuf> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    Ok(directory(file)?.join(format!(".{name}.{suffix}")))
}
