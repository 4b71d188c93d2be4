//! Packages as trees of files: out of the archive, into one, and the part that is the VNFD.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use thiserror::Error;
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

use crate::{
    archive::{Archive, file_name, unreadable},
    entry::META,
    package::Package,
    policy::Policy,
    rejection::Rejection,
};

/// Why a tree of files cannot be packed.
#[derive(Debug, Error)]
pub enum PackError {
    /// A file cannot be read or written.
    #[error("{}: cannot be packed", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Packages hold plain files only.
    #[error("{}: is neither a file nor a directory; replace it by what it stands for", .0.display())]
    Special(PathBuf),
    /// A name that no package can have.
    #[error("{}: its name is not UTF-8", .0.display())]
    Name(PathBuf),
    /// The directory has no files.
    #[error("{}: is empty; expected TOSCA-Metadata/TOSCA.meta and the files that it names", .0.display())]
    Empty(PathBuf),
    /// The archive cannot be written.
    #[error("{}: cannot be written", path.display())]
    Zip {
        /// The archive.
        path: PathBuf,
        /// What the writer says.
        source: zip::result::ZipError,
    },
}

/// Unpacks a package into a directory, which is made if need be. Files that are already there are not overwritten, links
/// do not exist in packages, and of the modes only "executable" is kept.
pub fn extract(csar: &Path, into: &Path, policy: &Policy) -> Result<(), Rejection> {
    let mut archive = Archive::open(csar, &policy.limits)?;
    let files: Vec<String> = archive.files().map(str::to_owned).collect();
    for name in files {
        let Some(mut reader) = archive.entry(&name)? else { continue };
        let path = into.join(&name);
        let cannot = |error: &io::Error| Rejection::io(&name, "cannot be written", error);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| cannot(&error))?;
        }
        let mode = if archive.is_executable(&name) { 0o755 } else { 0o644 };
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| cannot(&error))?;
        // What a daemon's umask takes away from new files, others who run the package's scripts need.
        file.set_permissions(fs::Permissions::from_mode(mode)).map_err(|error| cannot(&error))?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = reader.read(&mut buffer).map_err(|error| unreadable(&name, &error))?;
            if read == 0 {
                break;
            }
            file.write_all(&buffer[..read]).map_err(|error| cannot(&error))?;
        }
    }
    Ok(())
}

/// Writes a ZIP of just the files that make up the VNFD, with `TOSCA.meta`, so that a reader finds the entry.
pub fn vnfd_zip(csar: &Path, package: &Package, out: impl Write + Seek) -> Result<(), Rejection> {
    let limits = crate::policy::Limits { unpacked_bytes: u64::MAX, ..crate::policy::Limits::default() };
    let mut archive = Archive::open(csar, &limits)?;
    let cannot = |error: io::Error| Rejection::io(file_name(csar), "its VNFD cannot be written", &error);
    let mut writer = ZipWriter::new(out);
    let meta = archive.size(META).map(|_| META.to_owned());
    for name in meta.iter().chain(&package.vnfd_files) {
        let mut reader =
            archive.entry(name)?.ok_or_else(|| Rejection::file(name, "is not in the package"))?;
        writer.start_file(name.as_str(), options(0o644)).map_err(|error| cannot(error.into()))?;
        io::copy(&mut reader, &mut writer).map_err(cannot)?;
    }
    writer.finish().map_err(|error| cannot(error.into()))?;
    Ok(())
}

/// Packs a directory. The same files give the same bytes: names are sorted, with `TOSCA.meta` first, and no time is kept.
pub fn pack(dir: &Path, out: &Path) -> Result<(), PackError> {
    let mut files = Vec::new();
    walk(dir, "", &mut files)?;
    if files.is_empty() {
        return Err(PackError::Empty(dir.to_owned()));
    }
    files.sort_by(|left, right| (left != META, left).cmp(&(right != META, right)));

    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source| PackError::Io { path, source }
    };
    let zip_error = |source| PackError::Zip { path: out.to_owned(), source };
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A half-written package must not be taken for one, so it gets its name when it is whole.
    let partial = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(parent)
        .map_err(io_error(out))?;
    let mut writer = ZipWriter::new(io::BufWriter::new(partial));
    for name in &files {
        let path = dir.join(name);
        let mut file = File::open(&path).map_err(io_error(&path))?;
        let metadata = file.metadata().map_err(io_error(&path))?;
        let mode = if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        let options = options(mode).large_file(metadata.len() >= u64::from(u32::MAX));
        writer.start_file(name.as_str(), options).map_err(zip_error)?;
        io::copy(&mut file, &mut writer).map_err(io_error(&path))?;
    }
    let buffered = writer.finish().map_err(zip_error)?;
    let partial = buffered.into_inner().map_err(|error| io_error(out)(error.into_error()))?;
    partial.persist(out).map_err(|error| io_error(out)(error.error))?;
    Ok(())
}

fn walk(dir: &Path, prefix: &str, files: &mut Vec<String>) -> Result<(), PackError> {
    let io_error = |source| PackError::Io { path: dir.to_owned(), source };
    for entry in fs::read_dir(dir).map_err(io_error)? {
        let entry = entry.map_err(io_error)?;
        let path = entry.path();
        let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}{name}")) else {
            return Err(PackError::Name(path));
        };
        let kind = entry.file_type().map_err(io_error)?;
        if kind.is_dir() {
            walk(&path, &format!("{name}/"), files)?;
        } else if kind.is_file() {
            files.push(name);
        } else {
            return Err(PackError::Special(path));
        }
    }
    Ok(())
}

fn options(mode: u32) -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default())
        .unix_permissions(mode)
}
