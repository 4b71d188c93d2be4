//! What is mounted where: `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;

use super::error::{Result, while_doing};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where it is.
    pub(super) point: PathBuf,
    /// The file system's type.
    pub(super) kind: String,
    /// The options of the file system itself.
    pub(super) options: Vec<String>,
}

/// Reads the text of `mountinfo`. Lines that say too little are left out: the kernel writes none.
pub(super) fn parse(text: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mut back = back.split(' ');
        Some(Mount {
            point: unescape(front.split(' ').nth(4)?),
            kind: back.next()?.to_owned(),
            options: back.nth(1)?.split(',').map(str::to_owned).collect(),
        })
    };
    text.lines().filter_map(mount).collect()
}

/// The mounts that this process sees.
pub(super) fn read() -> Result<Vec<Mount>> {
    let path = "/proc/self/mountinfo";
    let text = std::fs::read_to_string(path).map_err(while_doing(format_args!("reading {path}")))?;
    Ok(parse(&text))
}

/// Takes off every mount at or below `path`, the latest first.
pub(super) fn unmount_below(path: &Path) -> Result<()> {
    for mount in read()?.iter().rev().filter(|mount| mount.point.starts_with(path)) {
        rustix::mount::unmount(&mount.point, UnmountFlags::DETACH)
            .map_err(while_doing(format_args!("unmounting {}", mount.point.display())))?;
    }
    Ok(())
}

/// Undoes the kernel's escapes: space, tab, newline and backslash appear as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let code = (bytes[index] == b'\\')
            .then(|| text.get(index + 1..index + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok()))
            .flatten();
        plain.push(code.unwrap_or(bytes[index]));
        index += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes_is_read() {
        let text =
            "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n";
        let wanted = Mount {
            point: "/mnt 2".into(),
            kind: "ext3".into(),
            options: vec!["rw".into(), "errors=continue".into()],
        };
        assert_eq!(parse(text), [wanted]);
    }
}
