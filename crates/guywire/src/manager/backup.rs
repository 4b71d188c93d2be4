//! Backups of a manager, running or not, in one file: databases, packages, secrets and keys.
//!
//! The manager's database is copied before the journal: an operation then never refers to a plan that the journal does
//! not have, and a plan that the manager does not know of yet is found again under its key. Disks of lab machines are
//! not part of it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use guywire_manager::store::copy_sqlite;
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

use crate::installation::Installation;

/// Databases in the order in which they are copied.
const DATABASES: [&str; 2] = ["manager.db", "journal.db"];
/// What else lies in a data directory and is needed to go on elsewhere.
const FILES: [&str; 8] = [
    "admin-token",
    "secrets",
    "secrets.key",
    "id_ed25519",
    "id_ed25519.pub",
    "known_hosts",
    "client.pem",
    "client.key",
];
/// The entry that says what the file is.
const MARK: &str = "guywire-backup";
const FORMAT: &str = "1\n";

/// Writes a backup to a new file that nobody else can read.
pub async fn write(installation: &Installation, file: &Path) -> anyhow::Result<ExitCode> {
    let data = installation.data();
    if installation.database().is_some() {
        bail!(
            "the databases are in PostgreSQL: back them up with pg_dump, and copy {} beside it",
            data.display()
        );
    }
    if !data.join(DATABASES[0]).exists() {
        bail!("{}: no manager has worked here; name its data directory with --data", data.display());
    }
    // First of all: whatever else fails, a file that was there before is not ours to remove.
    let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).with_context(|| {
        format!("{}: cannot be made; choose a file that is not there yet", file.display())
    })?;
    let scratch = data.join(format!(".backup-{}", std::process::id()));
    let written = match fs::create_dir(&scratch) {
        Ok(()) => gather(data, &scratch, out).await,
        Err(error) => Err(error).with_context(|| format!("{}: cannot be made", scratch.display())),
    };
    fs::remove_dir_all(&scratch)
        .or_else(ignore_missing)
        .with_context(|| format!("{}: cannot be removed", scratch.display()))?;
    if written.is_err() {
        // A file that is no backup must not look like one.
        fs::remove_file(file).or_else(ignore_missing)?;
    }
    let (entries, bytes) = written?;
    println!("{}: {entries} files, {bytes} bytes", file.display());
    Ok(ExitCode::SUCCESS)
}

async fn gather(data: &Path, scratch: &Path, out: File) -> anyhow::Result<(usize, u64)> {
    let mut zip = ZipWriter::new(out);
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .large_file(true)
        .unix_permissions(0o600);
    zip.start_file(MARK, options)?;
    zip.write_all(FORMAT.as_bytes())?;
    let (mut entries, mut bytes) = (0, 0);
    let mut put = |name: &str, path: &Path| -> anyhow::Result<()> {
        let mut source = File::open(path).with_context(|| format!("{}: cannot be read", path.display()))?;
        zip.start_file(name, options)?;
        bytes += io::copy(&mut source, &mut zip)?;
        entries += 1;
        Ok(())
    };
    // Packages come and go meanwhile. Whatever the copied database refers to was there before the copy or after it.
    let packages = scratch.join("packages");
    fs::create_dir(&packages).with_context(|| format!("{}: cannot be made", packages.display()))?;
    hold(&data.join("packages"), &packages)?;
    for database in DATABASES {
        let (from, to) = (data.join(database), scratch.join(database));
        if from.exists() {
            copy_sqlite(&from, &to).await?;
            put(database, &to)?;
        }
    }
    hold(&data.join("packages"), &packages)?;
    for name in FILES {
        let path = data.join(name);
        if path.exists() {
            put(name, &path)?;
        }
    }
    for path in contents(&packages)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        put(&format!("packages/{name}"), &path)?;
    }
    let out = zip.finish()?;
    out.sync_all()?;
    Ok((entries, bytes))
}

/// Gives contents that are there now a second name, under which they stay.
fn hold(from: &Path, to: &Path) -> anyhow::Result<()> {
    for path in contents(from)? {
        let held = to.join(path.file_name().unwrap_or_default());
        match fs::hard_link(&path, &held) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                return Err(error).with_context(|| format!("{}: cannot be held", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Puts a backup into a data directory in which no manager has worked.
pub async fn restore(installation: &Installation, file: &Path) -> anyhow::Result<ExitCode> {
    let (data, file) = (installation.data().to_owned(), file.to_owned());
    if installation.database().is_some() {
        bail!("a backup of files cannot be put into PostgreSQL; leave --database out");
    }
    tokio::task::spawn_blocking(move || unpack(&data, &file)).await?
}

fn unpack(data: &Path, file: &Path) -> anyhow::Result<ExitCode> {
    if let Some(there) = DATABASES.iter().chain(&FILES).find(|name| data.join(name).exists()) {
        bail!("{}: {there} is there already; restore into an empty directory", data.display());
    }
    let source = File::open(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    let mut zip = ZipArchive::new(source).with_context(|| format!("{}: it is no backup", file.display()))?;
    let mut format = String::new();
    zip.by_name(MARK)
        .with_context(|| format!("{}: it is no backup of a manager", file.display()))?
        .take(16)
        .read_to_string(&mut format)?;
    if format != FORMAT {
        bail!("{}: its format is {:?}; use the guywire that wrote it", file.display(), format.trim());
    }
    // What turns out to be damaged half way must leave no half of a manager behind.
    let scratch = data.join(format!(".restore-{}", std::process::id()));
    fs::create_dir_all(scratch.join("packages"))
        .with_context(|| format!("{}: cannot be made", scratch.display()))?;
    let placed = take_out(&mut zip, file, &scratch).and_then(|names| put_in_place(&scratch, data, names));
    fs::remove_dir_all(&scratch).with_context(|| format!("{}: cannot be removed", scratch.display()))?;
    println!("{}: {} files restored", data.display(), placed?);
    Ok(ExitCode::SUCCESS)
}

/// Unpacks everything into a directory of its own; the names.
fn take_out(zip: &mut ZipArchive<File>, file: &Path, scratch: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for at in 0..zip.len() {
        let damaged = || format!("{}: it is damaged; use another backup", file.display());
        let mut entry = zip.by_index(at).with_context(damaged)?;
        let name = entry.name().with_context(damaged)?.into_owned();
        if name == MARK {
            continue;
        }
        let package = name.strip_prefix("packages/").filter(|rest| !rest.is_empty() && !rest.contains('/'));
        if package.is_none() && !DATABASES.iter().chain(&FILES).any(|known| *known == name) {
            bail!("{}: {name:?} does not belong into a backup", file.display());
        }
        let path = scratch.join(&name);
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("{}: cannot be made", path.display()))?;
        io::copy(&mut entry, &mut out)
            .with_context(|| format!("{}: {name} is damaged, or the disk is full", file.display()))?;
        out.sync_all()?;
        names.push(name);
    }
    Ok(names)
}

/// Gives what was unpacked its place. The databases come last: with them the directory is a manager's.
fn put_in_place(scratch: &Path, data: &Path, mut names: Vec<String>) -> anyhow::Result<usize> {
    names.sort_by_key(|name| DATABASES.contains(&name.as_str()));
    fs::create_dir_all(data.join("packages"))?;
    for name in &names {
        let path = data.join(name);
        fs::rename(scratch.join(name), &path)
            .with_context(|| format!("{}: cannot be made", path.display()))?;
    }
    File::open(data)?.sync_all()?;
    Ok(names.len())
}

/// The packages' contents, not what was unpacked from them.
fn contents(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", dir.display())),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() && !entry.file_name().to_string_lossy().starts_with('.') {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
