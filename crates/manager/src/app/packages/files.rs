//! The packages' files: where they lie, who works on them, and how much room there is. All of it blocks.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::domain::PackageId;

/// What is left free on the disk whatever is uploaded: the databases need it to end well.
pub const HEADROOM: u64 = 256 * 1024 * 1024;

const UPLOAD: &str = ".upload-";
const CONTENT: &str = ".csar";

/// The directory of packages.
#[derive(Debug, Clone)]
pub struct Shelf(PathBuf);

/// A package's upload, in the hands of one worker. The kernel takes the lock back when the worker dies, however it
/// dies, so that other managers on the same directory know whether anybody still works on it.
#[derive(Debug)]
pub struct Claim {
    /// The file.
    pub file: File,
    /// Where it lies.
    pub path: PathBuf,
}

/// Held while files get or lose their names together with their records.
#[derive(Debug)]
pub struct Names(#[allow(dead_code, reason = "it is held, not read")] File);

impl Shelf {
    /// The shelf of a data directory.
    pub fn new(data: &Path) -> Self {
        Self(data.join("packages"))
    }

    /// Makes the directory, if it is not there yet.
    pub fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)
    }

    /// Where the content of this name lies.
    pub fn content(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The name of a content.
    pub fn content_name(sha256: &str) -> String {
        format!("{sha256}{CONTENT}")
    }

    /// Where a package's upload lies.
    pub fn upload(&self, id: PackageId) -> PathBuf {
        self.0.join(format!("{UPLOAD}{id}"))
    }

    /// Takes a package's upload, making an empty one if need be; `None` if somebody works on it.
    pub fn claim(&self, id: PackageId) -> io::Result<Option<Claim>> {
        let path = self.upload(id);
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // Whoever had it before may have removed the file between our opening and our locking it.
            match fs::metadata(&path) {
                Ok(found) if found.ino() == file.metadata()?.ino() => return Ok(Some(Claim { file, path })),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the right to give or take names. Never held for long.
    pub fn names(&self) -> io::Result<Names> {
        let path = self.0.join(".names");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Names(file))
    }

    /// Gives an upload its name as a content. The same content may be there already.
    pub fn keep(&self, upload: &Path, name: &str) -> io::Result<()> {
        match fs::hard_link(upload, self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => self.sync(),
        }
    }

    /// Makes sure that names outlive a crash.
    pub fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    /// Removes a content and what was unpacked from it.
    pub fn discard(&self, name: &str) -> io::Result<()> {
        let sha256 = name.strip_suffix(CONTENT).unwrap_or(name);
        gone(fs::remove_file(self.0.join(name)))?;
        gone(fs::remove_dir_all(self.0.join("unpacked").join(sha256)))
    }

    /// The bytes that an upload may still fill.
    pub fn room(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.0)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize).saturating_sub(HEADROOM))
    }

    /// Contents that are there, and packages that have an upload.
    pub fn list(&self) -> io::Result<(Vec<String>, Vec<PackageId>)> {
        let (mut contents, mut uploads) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(Ok(id)) = name.strip_prefix(UPLOAD).map(str::parse) {
                uploads.push(id);
            } else if name.ends_with(CONTENT) && !name.starts_with('.') {
                contents.push(name.to_owned());
            }
        }
        Ok((contents, uploads))
    }
}

impl Claim {
    /// How many bytes there are.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Removes the upload while it is still ours.
    pub fn remove(self) -> io::Result<()> {
        gone(fs::remove_file(&self.path))
    }
}

/// What is not there need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
