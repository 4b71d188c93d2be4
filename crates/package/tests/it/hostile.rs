//! Archives that attack their reader.

use flate2::{Compression, Crc, write::DeflateEncoder};
use guywire_package::{Limits, Policy, extract, open, read};
use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
};

use crate::builder::{Csar, on_disk, read_bytes};

/// An entry whose every field can lie.
#[derive(Clone)]
struct Raw {
    name: Vec<u8>,
    local_name: Option<Vec<u8>>,
    data: Vec<u8>,
    crc: u32,
    size: u32,
    packed: Option<u32>,
    method: u16,
    flags: u16,
    mode: u32,
    header: Option<u32>,
    extra: Vec<u8>,
}

impl Raw {
    fn new(name: &str, content: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(content);
        Self {
            name: name.as_bytes().to_vec(),
            local_name: None,
            data: content.to_vec(),
            crc: crc.sum(),
            size: u32::try_from(content.len()).expect("it is small"),
            packed: None,
            method: 0,
            flags: 0,
            mode: 0o100_644,
            header: None,
            extra: Vec::new(),
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

fn archive(entries: &[Raw]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let header = entry.header.unwrap_or(u32::try_from(out.len()).expect("it is small"));
        let packed = entry.packed.unwrap_or(u32::try_from(entry.data.len()).expect("it is small"));
        let local_name = entry.local_name.as_ref().unwrap_or(&entry.name);
        let mut fields = Vec::new();
        fields.extend(entry.flags.to_le_bytes());
        fields.extend(entry.method.to_le_bytes());
        fields.extend([0; 4]);
        fields.extend(entry.crc.to_le_bytes());
        fields.extend(packed.to_le_bytes());
        fields.extend(entry.size.to_le_bytes());
        out.extend(b"PK\x03\x04\x14\0");
        out.extend(&fields);
        out.extend(u16::try_from(local_name.len()).expect("it is short").to_le_bytes());
        out.extend([0; 2]);
        out.extend(local_name);
        out.extend(&entry.data);
        directory.extend(b"PK\x01\x02\x14\x03\x14\0");
        directory.extend(&fields);
        directory.extend(u16::try_from(entry.name.len()).expect("it is short").to_le_bytes());
        directory.extend(u16::try_from(entry.extra.len()).expect("it is short").to_le_bytes());
        directory.extend([0; 6]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(header.to_le_bytes());
        directory.extend(&entry.name);
        directory.extend(&entry.extra);
    }
    let count = u16::try_from(entries.len()).expect("they are few");
    end(&mut out, count, &directory);
    out
}

fn end(out: &mut Vec<u8>, count: u16, directory: &[u8]) {
    let offset = u32::try_from(out.len()).expect("it is small");
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(u32::try_from(directory.len()).expect("it is small").to_le_bytes());
    out.extend(offset.to_le_bytes());
    out.extend([0; 2]);
}

fn good() -> Vec<Raw> {
    Csar::hello().files.iter().map(|(name, content)| Raw::new(name, content)).collect()
}

fn complaint(bytes: &[u8]) -> String {
    match read_bytes(bytes, &Policy::default()) {
        Err(rejection) => rejection.to_string(),
        Ok(_) => "taken".into(),
    }
}

fn with(entry: Raw) -> String {
    let mut entries = good();
    entries.push(entry);
    complaint(&archive(&entries))
}

#[test]
fn the_archive_that_cases_start_from_is_right() {
    assert_eq!(complaint(&archive(&good())), "taken");
}

#[test]
fn entries_that_attack() {
    let file = |name: &str| Raw::new(name, b"x");
    for (entry, expected) in [
        (file("../escape"), "../escape: its name has the part '..', which could lead out of the package"),
        (
            file("a/../../escape"),
            "a/../../escape: its name has the part '..', which could lead out of the package",
        ),
        (file("/etc/passwd"), "/etc/passwd: its name is absolute; names are relative to the package"),
        (file("C:/x"), "C:/x: its name is absolute; names are relative to the package"),
        (file("a\\b"), "a\\b: its name contains a backslash; parts of a name are separated by '/'"),
        (file("a\0b"), "a\u{fffd}b: its name contains a control character"),
        (file("a//b"), "a//b: its name has an empty part"),
        (
            file("Scripts/hello.py"),
            "Scripts/hello.py: stands twice in the archive; which one is meant is not clear",
        ),
        (file("Scripts/hello.py/x"), "Scripts/hello.py/x: lies below Scripts/hello.py, which is a file"),
        (
            file("link").change(|entry| entry.mode = 0o120_777),
            "link: is a symbolic link; packages hold plain files and directories only",
        ),
        (
            file("pipe").change(|entry| entry.mode = 0o010_644),
            "pipe: is a special file; packages hold plain files and directories only",
        ),
        (
            file("locked").change(|entry| entry.flags = 1),
            "locked: is encrypted; packages are taken unencrypted only",
        ),
        (
            file("bzip2").change(|entry| entry.method = 12),
            "bzip2: is compressed by method 12; expected stored (0) or deflate (8)",
        ),
        (
            file("two-faced").change(|entry| entry.local_name = Some(b"other-one".to_vec())),
            "two-faced: its header says something else than the directory does",
        ),
        (
            file("overlap").change(|entry| entry.header = Some(0)),
            "overlap: overlaps another entry: it is refused as a ZIP bomb",
        ),
        (
            file("nowhere").change(|entry| entry.header = Some(u32::MAX - 1)),
            "nowhere: its header in the archive is not where the directory says",
        ),
        (
            file("huge").change(|entry| entry.header = Some(u32::MAX)),
            "huge: gives sizes of ZIP64 without its ZIP64 field",
        ),
        (
            file("long").change(|entry| entry.packed = Some(1 << 30)),
            "long: is stored, but gives 1073741824 bytes inside and 1 bytes outside the archive",
        ),
        (
            file("bomb").change(|entry| (entry.method, entry.size) = (8, 1 << 30)),
            "bomb: unpacks from 1 to 1073741824 bytes, more than 200 times its size: it is refused as a ZIP bomb",
        ),
        (
            file("damaged").change(|entry| entry.crc ^= 1),
            "damaged: cannot be unpacked: its checksum (CRC-32) is not the one in the archive's directory: the upload is damaged",
        ),
        (file(&"n".repeat(600)), "its name has 600 bytes; at most 512 are taken"),
        (file("x").change(|entry| entry.name = vec![0xff]), "\u{fffd}: its name is not UTF-8"),
        (Raw::new("dir/", b"x"), "dir/: is a special file; packages hold plain files and directories only"),
    ] {
        let found = with(entry);
        // The name of the long one is cut in the middle of the message.
        assert!(
            found == expected || found.ends_with(&format!("…: {expected}")),
            "expected {expected}\n   found {found}"
        );
    }
}

#[test]
fn sizes_that_lie() {
    let deflated = |content: &[u8]| {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).expect("memory can be written");
        encoder.finish().expect("memory can be written")
    };
    let lying = |size: u32| {
        Raw::new("lie", &vec![0; 1 << 20]).change(|entry| {
            entry.data = deflated(&vec![0; 1 << 20]);
            (entry.method, entry.size) = (8, size);
        })
    };
    assert_eq!(with(lying(1 << 20)), "taken");
    assert_eq!(with(lying(100)), "lie: cannot be unpacked: it is longer than the archive's directory says");
    assert_eq!(
        with(lying(2 << 20)),
        "lie: cannot be unpacked: it is shorter than the archive's directory says"
    );
    let garbage = Raw::new("garbage", b"\xff\xff\xff\xff").change(|entry| entry.method = 8);
    assert!(with(garbage).starts_with("garbage: cannot be unpacked: "));
}

#[test]
fn archives_that_are_none() {
    let whole = archive(&good());
    assert!(complaint(b"").contains("test.csar: is not a ZIP archive, or is cut short"));
    assert!(complaint(&vec![0; 100_000]).contains("is not a ZIP archive"));
    assert!(complaint(&whole[..whole.len() - 1]).contains("is not a ZIP archive, or is cut short"));
    let mut prefixed = b"#!/bin/sh\n".to_vec();
    prefixed.extend(&whole);
    assert!(complaint(&prefixed).contains("was prepended to"), "{}", complaint(&prefixed));
    let mut many = whole.clone();
    let at = many.len() - 14;
    many[at..at + 4].copy_from_slice(&[0xfe, 0xff, 0xfe, 0xff]);
    assert!(complaint(&many).contains("has 65534 entries; at most 20000 are taken"), "{}", complaint(&many));
}

#[test]
fn faults_of_this_machine_are_told_from_the_packages() {
    let (dir, file) = on_disk(b"no archive");
    assert!(!read(&file, &Policy::default()).expect_err("it is none").ours);
    let gone = read(&dir.path().join("gone.csar"), &Policy::default()).expect_err("it is not there");
    assert!(gone.ours && gone.to_string().starts_with("gone.csar: cannot be read: "), "{gone}");
    let (dir, file) = on_disk(&archive(&good()));
    std::fs::write(dir.path().join("out"), "in the way").expect("it can be written");
    let blocked =
        extract(&file, &dir.path().join("out"), &Policy::default()).expect_err("a file is in the way");
    assert!(blocked.ours, "{blocked}");
    let damaged = archive(&[Raw::new("a.yaml", b"x").change(|entry| entry.crc ^= 1)]);
    assert!(!read_bytes(&damaged, &Policy::default()).expect_err("it is damaged").ours);
}

#[test]
fn limits_are_the_policys() {
    let zip = Csar::hello().with("Files/big", vec![7; 1 << 20]).zip();
    let policy = |change: fn(&mut Limits)| {
        let mut policy = Policy::default();
        change(&mut policy.limits);
        policy
    };
    let refused = |policy: Policy| read_bytes(&zip, &policy).expect_err("it is over the limit").reason;
    assert!(refused(policy(|limits| limits.entries = 3)).contains("has 5 entries; at most 3 are taken"));
    let unpacked = refused(policy(|limits| limits.unpacked_bytes = 1 << 20));
    assert!(unpacked.contains("unpacks to more than the 1048576 bytes that are taken"), "{unpacked}");
    let ratio = refused(policy(|limits| limits.ratio_from_bytes = 1000));
    assert!(ratio.contains("it is refused as a ZIP bomb"), "{ratio}");
    let nodes = refused(policy(|limits| limits.yaml_nodes = 100));
    assert!(nodes.contains("100 values"), "{nodes}");
    let files = refused(policy(|limits| limits.definitions = 1));
    assert!(files.contains("is one definition file too many"), "{files}");
}

#[test]
fn hostile_archives_are_not_unpacked() {
    for entry in
        [Raw::new("../escape", b"x"), Raw::new("link", b"/etc").change(|entry| entry.mode = 0o120_777)]
    {
        let (dir, file) = on_disk(&archive(&[entry]));
        let out = dir.path().join("out");
        extract(&file, &out, &Policy::default()).expect_err("it is refused");
        assert!(!out.exists() && !dir.path().join("escape").exists());
    }
    let odd = Raw::new("run", b"x").change(|entry| entry.mode = 0o106_777);
    let (dir, file) = on_disk(&archive(&[odd]));
    extract(&file, &dir.path().join("out"), &Policy::default()).expect("it is plain");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &dir.path().join("out/run").metadata().expect("it is there").permissions(),
    );
    assert_eq!(mode & 0o7000, 0, "no set-user-id, no sticky bit: {mode:o}");
}

/// Five gigabytes of nothing, stored, in a sparse file: more than 32 bits can say, so with the fields of ZIP64.
#[test]
#[ignore = "hashes 10 GB; cargo test --release -p guywire-package -- --ignored"]
fn large_content_is_streamed() {
    const SIZE: u64 = 5 << 30;
    let zeros = vec![0; 1 << 20];
    let mut crc = Crc::new();
    (0..SIZE >> 20).for_each(|_| crc.update(&zeros));

    let (_dir, path) = on_disk(&archive(&good()));
    let mut head = Vec::new();
    File::open(&path).and_then(|mut file| file.read_to_end(&mut head)).expect("it is there");
    let old_end = head.split_off(head.len() - 22);
    let number =
        |at: usize| u32::from_le_bytes([old_end[at], old_end[at + 1], old_end[at + 2], old_end[at + 3]]);
    let mut directory = head.split_off(number(16) as usize);
    let header = head.len() as u64;
    let sizes: Vec<u8> = [SIZE, SIZE].iter().flat_map(|size| size.to_le_bytes()).collect();
    let mut fields = vec![0; 8];
    fields.extend(crc.sum().to_le_bytes());
    fields.extend([0xff; 8]);
    fields.extend([3, 0, 20, 0]);
    head.extend(b"PK\x03\x04\x2d\0");
    head.extend(&fields);
    head.extend(b"big\x01\0\x10\0");
    head.extend(&sizes);
    directory.extend(b"PK\x01\x02\x2d\x03\x2d\0");
    directory.extend(&fields);
    directory.extend([0; 10]);
    directory.extend(u32::try_from(header).expect("it is small").to_le_bytes());
    directory.extend(b"big\x01\0\x10\0");
    directory.extend(&sizes);

    let offset = head.len() as u64 + SIZE;
    let end64 = offset + directory.len() as u64;
    let entries = good().len() as u64 + 1;
    let mut tail = directory.clone();
    tail.extend(b"PK\x06\x06");
    tail.extend(44_u64.to_le_bytes());
    tail.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for number in [entries, entries, directory.len() as u64, offset] {
        tail.extend(number.to_le_bytes());
    }
    tail.extend(b"PK\x06\x07\0\0\0\0");
    tail.extend(end64.to_le_bytes());
    tail.extend([1, 0, 0, 0]);
    tail.extend(b"PK\x05\x06\0\0\0\0");
    tail.extend([0xff; 12]);
    tail.extend([0; 2]);
    let mut file = File::create(&path).expect("it can be written");
    file.write_all(&head).expect("it can be written");
    file.seek(SeekFrom::Start(offset)).expect("it can be written");
    file.write_all(&tail).expect("it can be written");
    drop(file);

    let before = peak_memory();
    let package = read(&path, &Policy::default()).expect("it is right");
    let grown = peak_memory() - before;
    println!("read {} bytes, peak memory grew by {grown} KiB", package.size);
    assert_eq!(
        package.artifacts.iter().find(|artifact| artifact.path == "big").map(|big| big.size),
        Some(SIZE)
    );
    assert_eq!(open(&path).expect("it is right").size("big"), Some(SIZE));
    assert!(grown < 32 << 10, "{grown} KiB");
}

/// The most memory that this process ever had, in KiB.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux has it");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("it is a number")
}
