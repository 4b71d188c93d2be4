//! Files of a package on their way to machines.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use sha2::{Digest as _, Sha256};

use super::{Action, Content, Step};

/// The largest file that a step may put.
pub(super) const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Whether `file` names something inside a package.
pub(super) fn check_name(file: &str) -> Result<(), String> {
    let good = !file.is_empty()
        && file.len() <= 1_000
        && !file.chars().any(char::is_control)
        && file.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if good {
        return Ok(());
    }
    Err(format!("file {file:?}: name a file of the package, such as \"Files/hello.conf\""))
}

/// Notes what the package's files are now, so that another content is refused later.
pub(super) fn seal(package: &Path, steps: &mut [Step]) -> Result<(), String> {
    for step in steps {
        if let Action::Put(put) = &mut step.action
            && let Content::File { file, sha256, size } = &mut put.content
        {
            let content = read(package, file).map_err(|what| format!("step {:?}: put: {what}", step.name))?;
            *sha256 = digest(&content);
            *size = content.len() as u64;
        }
    }
    Ok(())
}

/// A package's file, if it is still what it was.
pub(super) fn sealed(package: &Path, file: &str, sha256: &str) -> Result<Vec<u8>, String> {
    let content = read(package, file)?;
    if digest(&content) == sha256 {
        return Ok(content);
    }
    Err(format!(
        "file {file:?} of the package is not what it was when the plan was made; restore it, or upload the package anew"
    ))
}

/// The SHA-256 in hexadecimal digits.
pub(super) fn digest(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// Opens a plain file of a package.
pub(super) fn open(package: &Path, file: &str) -> Result<File, String> {
    check_name(file)?;
    let said = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("file {file:?} is not in the package"),
        _ => format!("file {file:?} of the package cannot be read: {error}"),
    };
    let root = package.canonicalize().map_err(said)?;
    let path = root.join(file).canonicalize().map_err(said)?;
    if !path.starts_with(&root) {
        return Err(format!("file {file:?} leads out of the package"));
    }
    if !path.metadata().map_err(said)?.is_file() {
        return Err(format!("file {file:?} of the package is not a plain file"));
    }
    File::open(&path).map_err(said)
}

fn read(package: &Path, file: &str) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let read = open(package, file)?.take(MAX_FILE + 1).read_to_end(&mut content);
    read.map_err(|error| format!("file {file:?} of the package cannot be read: {error}"))?;
    if content.len() as u64 > MAX_FILE {
        return Err(format!("file {file:?} has more than the {} MiB that a step may put", MAX_FILE >> 20));
    }
    Ok(content)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}
