//! The ZIP's central directory, read strictly.
//!
//! Readers that tolerate a malformed archive disagree with each other about what is in it, and that
//! disagreement is how a file passes a check and another one is used. So there is one reading here:
//! every local header must repeat its directory entry, entries must not overlap, and names are unique.

use std::{
    collections::{BTreeMap, HashSet},
    io::{self, BufReader, Read},
};

use super::{name, window::Window};
use crate::{policy::Limits, rejection::printable};

/// One file or directory of the archive.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    pub is_directory: bool,
    pub deflated: bool,
    pub executable: bool,
    pub crc: u32,
    pub packed: u64,
    pub size: u64,
    pub data: u64,
}

/// What is wrong with a directory: the entry, where it is one, and the reason.
#[derive(Debug)]
pub struct Fault {
    pub entry: Option<String>,
    pub reason: String,
    /// Whether the disk is to blame, not the archive.
    pub ours: bool,
}

/// Where the directory stands and how many entries it has.
struct Located {
    entries: u64,
    offset: u64,
    size: u64,
}

/// A directory entry as written, before its local header was looked at.
struct Record {
    entry: Entry,
    header: u64,
    method: u16,
    raw_name: Vec<u8>,
}

const END: u32 = 0x0605_4b50;
const END_BYTES: usize = 22;
const END64: u32 = 0x0606_4b50;
const END64_BYTES: usize = 56;
const LOCATOR64: u32 = 0x0706_4b50;
const LOCATOR64_BYTES: usize = 20;
const CENTRAL: u32 = 0x0201_4b50;
const CENTRAL_BYTES: usize = 46;
const LOCAL: u32 = 0x0403_4b50;
const LOCAL_BYTES: usize = 30;
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;

/// Reads and checks the directory of an archive.
pub fn read(archive: &Window, limits: &Limits) -> Result<Vec<Entry>, Fault> {
    let located = locate(archive)?;
    if located.entries > u64::from(limits.entries) {
        return whole(format!("has {} entries; at most {} are taken", located.entries, limits.entries));
    }
    let Some(part) = archive.part(located.offset, located.size) else {
        return whole("its directory lies outside the file: it is cut short or damaged");
    };
    let mut directory = BufReader::new(part);
    let mut records = Vec::new();
    let mut unpacked: u64 = 0;
    let mut left = located.size;
    for _ in 0..located.entries {
        let record = record(&mut directory, &mut left, limits)?;
        unpacked = unpacked.saturating_add(record.entry.size);
        if unpacked > limits.unpacked_bytes {
            return whole(format!("unpacks to more than the {} bytes that are taken", limits.unpacked_bytes));
        }
        records.push(record);
    }
    if left != 0 {
        return whole("its directory has more in it than the number of entries that it gives");
    }
    unique(&records)?;
    place(archive, located.offset, records)
}

/// Finds the end record, which closes the file, and with it the directory.
fn locate(archive: &Window) -> Result<Located, Fault> {
    let not_zip =
        || Fault::whole("is not a ZIP archive, or is cut short: the end of its directory is not there");
    let longest = END_BYTES as u64 + u64::from(u16::MAX);
    let from = archive.len().saturating_sub(longest);
    let mut tail = Vec::new();
    let mut part = archive.part(from, archive.len() - from).ok_or_else(not_zip)?;
    part.read_to_end(&mut tail).map_err(|error| Fault::io(&error))?;
    // The last record whose comment reaches exactly to the end is the one; a comment may contain another.
    let at = (0..=tail.len().checked_sub(END_BYTES).ok_or_else(not_zip)?)
        .rev()
        .find(|&at| {
            u32_at(&tail, at) == END && at + END_BYTES + usize::from(u16_at(&tail, at + 20)) == tail.len()
        })
        .ok_or_else(not_zip)?;
    let end = &tail[at..];
    let end_offset = from + at as u64;
    let (disk, directory_disk) = (u16_at(end, 4), u16_at(end, 6));
    let (here, entries) = (u16_at(end, 8), u16_at(end, 10));
    let (size, offset) = (u32_at(end, 12), u32_at(end, 16));

    let located;
    let closes_at;
    if entries == u16::MAX || size == u32::MAX || offset == u32::MAX {
        (located, closes_at) = locate64(archive, end_offset)?;
    } else {
        if disk != 0 || directory_disk != 0 || here != entries {
            return whole("is one part of an archive in several parts; upload it in one");
        }
        located = Located { entries: entries.into(), offset: offset.into(), size: size.into() };
        closes_at = end_offset;
    }
    if located.offset.checked_add(located.size) != Some(closes_at) {
        return whole(
            "its directory does not end where the end record says: it is damaged or was prepended to",
        );
    }
    Ok(located)
}

fn locate64(archive: &Window, end: u64) -> Result<(Located, u64), Fault> {
    let broken = |error: io::Error| {
        Fault::or_io(|| Fault::whole("its ZIP64 end record is not where it should be"), &error)
    };
    let missing = || Fault::whole("it gives sizes of ZIP64 without a ZIP64 end record");
    let locator_at = end.checked_sub(LOCATOR64_BYTES as u64).ok_or_else(missing)?;
    let locator: [u8; LOCATOR64_BYTES] = archive.bytes(locator_at).map_err(broken)?;
    if u32_at(&locator, 0) != LOCATOR64 {
        return Err(missing());
    }
    let at = u64_at(&locator, 8);
    let record: [u8; END64_BYTES] = archive.bytes(at).map_err(broken)?;
    let length = u64_at(&record, 4).checked_add(12);
    if u32_at(&record, 0) != END64 || length.and_then(|length| at.checked_add(length)) != Some(locator_at) {
        return whole("its ZIP64 end record is damaged");
    }
    if u32_at(&locator, 4) != 0 || u32_at(&locator, 16) > 1 || u64_at(&record, 24) != u64_at(&record, 32) {
        return whole("is one part of an archive in several parts; upload it in one");
    }
    let located =
        Located { entries: u64_at(&record, 32), size: u64_at(&record, 40), offset: u64_at(&record, 48) };
    Ok((located, at))
}

/// One entry of the directory, with everything in it that needs no look at the file's data.
fn record(directory: &mut impl Read, left: &mut u64, limits: &Limits) -> Result<Record, Fault> {
    let mut fixed = [0; CENTRAL_BYTES];
    take(directory, left, &mut fixed)?;
    if u32_at(&fixed, 0) != CENTRAL {
        return whole("its directory is damaged: an entry does not begin with its signature");
    }
    let mut raw_name = vec![0; usize::from(u16_at(&fixed, 28))];
    take(directory, left, &mut raw_name)?;
    let mut extra = vec![0; usize::from(u16_at(&fixed, 30))];
    take(directory, left, &mut extra)?;
    let mut comment = vec![0; usize::from(u16_at(&fixed, 32))];
    take(directory, left, &mut comment)?;

    let shown = printable(&String::from_utf8_lossy(&raw_name));
    let refuse = |reason: String| Err(Fault { entry: Some(shown.clone()), reason, ours: false });
    let name = match name::check(&raw_name, limits.path_bytes) {
        Ok(name) => name,
        Err(reason) => return refuse(reason),
    };
    let (flags, method) = (u16_at(&fixed, 8), u16_at(&fixed, 10));
    if flags & ENCRYPTED != 0 {
        return refuse("is encrypted; packages are taken unencrypted only".into());
    }
    if method != 0 && method != 8 {
        return refuse(format!("is compressed by method {method}; expected stored (0) or deflate (8)"));
    }
    let mut large = Zip64::find(&extra);
    let sizes = (large.or(u32_at(&fixed, 24)), large.or(u32_at(&fixed, 20)), large.or(u32_at(&fixed, 42)));
    let (Some(size), Some(packed), Some(header)) = sizes else {
        return refuse("gives sizes of ZIP64 without its ZIP64 field".into());
    };
    let is_directory = name.ends_with('/');
    let unix = matches!(fixed[5], 3 | 19);
    let mode = if unix { u32_at(&fixed, 38) >> 16 } else { 0 };
    match mode & 0o170_000 {
        0o120_000 => {
            return refuse("is a symbolic link; packages hold plain files and directories only".into());
        }
        0 | 0o100_000 if !is_directory => {}
        0 | 0o040_000 if is_directory => {}
        _ => return refuse("is a special file; packages hold plain files and directories only".into()),
    }
    if is_directory && (size != 0 || packed > 2) {
        return refuse("is a directory with content".into());
    }
    if method == 0 && size != packed {
        return refuse(format!(
            "is stored, but gives {packed} bytes inside and {size} bytes outside the archive"
        ));
    }
    if size > limits.ratio_from_bytes && size / limits.ratio.max(1) > packed {
        return refuse(format!(
            "unpacks from {packed} to {size} bytes, more than {} times its size: it is refused as a ZIP bomb",
            limits.ratio
        ));
    }
    let entry = Entry {
        name,
        is_directory,
        deflated: method == 8,
        executable: mode & 0o111 != 0,
        crc: u32_at(&fixed, 16),
        packed,
        size,
        data: 0,
    };
    Ok(Record { entry, header, method, raw_name })
}

/// Refuses names that stand twice, and files that other entries use as a directory.
fn unique(records: &[Record]) -> Result<(), Fault> {
    let mut seen = BTreeMap::new();
    for Record { entry, .. } in records {
        if seen.insert(entry.name.trim_end_matches('/'), entry.is_directory).is_some() {
            return Err(Fault::entry(
                &entry.name,
                "stands twice in the archive; which one is meant is not clear",
            ));
        }
    }
    let files: HashSet<_> =
        seen.iter().filter(|(_, is_directory)| !**is_directory).map(|(name, _)| *name).collect();
    for name in seen.keys() {
        let parents = name.match_indices('/').map(|(at, _)| &name[..at]);
        if let Some(parent) = parents.into_iter().find(|parent| files.contains(parent)) {
            return Err(Fault::entry(name, &format!("lies below {}, which is a file", printable(parent))));
        }
    }
    Ok(())
}

/// Follows every entry to its local header, which must say the same, and refuses entries that share bytes.
fn place(archive: &Window, directory: u64, mut records: Vec<Record>) -> Result<Vec<Entry>, Fault> {
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|&index| records[index].header);
    let mut free_from = 0;
    for index in order {
        let Record { entry, header, method, raw_name } = &mut records[index];
        let damaged =
            || Fault::entry(&entry.name, "its header in the archive is not where the directory says");
        if *header < free_from {
            return Err(Fault::entry(&entry.name, "overlaps another entry: it is refused as a ZIP bomb"));
        }
        let local: [u8; LOCAL_BYTES] =
            archive.bytes(*header).map_err(|error| Fault::or_io(damaged, &error))?;
        let name_len = u64::from(u16_at(&local, 26));
        let mut name = Vec::new();
        archive
            .part(*header + LOCAL_BYTES as u64, name_len)
            .ok_or_else(damaged)?
            .read_to_end(&mut name)
            .map_err(|error| Fault::io(&error))?;
        if u32_at(&local, 0) != LOCAL {
            return Err(damaged());
        }
        if name != *raw_name || u16_at(&local, 8) != *method || u16_at(&local, 6) & ENCRYPTED != 0 {
            return Err(Fault::entry(&entry.name, "its header says something else than the directory does"));
        }
        entry.data = *header + LOCAL_BYTES as u64 + name_len + u64::from(u16_at(&local, 28));
        free_from = entry.data.checked_add(entry.packed).ok_or_else(damaged)?;
        if free_from > directory {
            return Err(Fault::entry(&entry.name, "reaches past the end of the archive's data"));
        }
    }
    Ok(records.into_iter().map(|record| record.entry).collect())
}

impl Fault {
    fn whole(reason: impl Into<String>) -> Self {
        Self { entry: None, reason: reason.into(), ours: false }
    }

    fn entry(name: &str, reason: &str) -> Self {
        Self { entry: Some(name.into()), reason: reason.into(), ours: false }
    }

    /// A range that is not there is the archive's fault; a disk that fails is not.
    fn or_io(missing: impl FnOnce() -> Self, error: &io::Error) -> Self {
        if error.raw_os_error().is_some() { Self::io(error) } else { missing() }
    }

    fn io(error: &io::Error) -> Self {
        Self { ours: error.raw_os_error().is_some(), ..Self::whole(format!("cannot be read: {error}")) }
    }
}

fn whole<T>(reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::whole(reason))
}

/// The 64-bit sizes of an entry, which stand in a fixed order and only for fields that are all ones.
struct Zip64<'a>(&'a [u8]);

impl<'a> Zip64<'a> {
    fn find(mut extra: &'a [u8]) -> Self {
        while extra.len() >= 4 {
            let (tag, len) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
            let Some(body) = extra.get(4..4 + len) else { break };
            if tag == 1 {
                return Self(body);
            }
            extra = &extra[4 + len..];
        }
        Self(&[])
    }

    fn or(&mut self, short: u32) -> Option<u64> {
        if short != u32::MAX {
            return Some(short.into());
        }
        let (value, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*value))
    }
}

fn take(directory: &mut impl Read, left: &mut u64, into: &mut [u8]) -> Result<(), Fault> {
    *left = left
        .checked_sub(into.len() as u64)
        .ok_or_else(|| Fault::whole("its directory is shorter than its entries"))?;
    directory.read_exact(into).map_err(|error| Fault::io(&error))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
