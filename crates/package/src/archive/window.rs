//! A part of a file that reads like a file of its own: an archive inside an archive is read where it stands.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    sync::Arc,
};

/// A range of a file, with a position of its own.
#[derive(Debug, Clone)]
pub struct Window {
    file: Arc<File>,
    start: u64,
    len: u64,
    position: u64,
}

impl Window {
    /// The whole of a file.
    pub fn whole(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), start: 0, len, position: 0 })
    }

    /// A range of this window, or nothing where it reaches outside.
    pub fn part(&self, offset: u64, len: u64) -> Option<Self> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| Self {
            file: Arc::clone(&self.file),
            start: self.start + offset,
            len,
            position: 0,
        })
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The bytes at an offset, exactly as many as asked for.
    pub fn bytes<const N: usize>(&self, offset: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        let mut part = self.part(offset, N as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        part.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len - self.position).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        let read = self.file.read_at(&mut buffer[..wanted], self.start + self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}
