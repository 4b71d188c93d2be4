//! The archive of a package: a checked directory, and files that are streamed out of it.

mod directory;
pub(crate) mod name;
mod window;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use flate2::{Crc, bufread::DeflateDecoder};

use self::{directory::Entry, window::Window};
use crate::{policy::Limits, rejection::Rejection};

/// An open package.
#[derive(Debug)]
pub struct Archive {
    window: Window,
    entries: Vec<Entry>,
    by_name: BTreeMap<String, usize>,
    envelope: Option<Envelope>,
}

/// The outer ZIP of SOL004's second option: the package, and a signature over all of it.
#[derive(Debug)]
pub(crate) struct Envelope {
    /// The name of the package inside.
    pub package: String,
    /// The name and content of the signature.
    pub signature: (String, Vec<u8>),
    /// The certificates that come with it.
    pub certificates: Vec<(String, Vec<u8>)>,
}

/// The content of one file, which ends in an error where it is not what the directory promised.
#[derive(Debug)]
pub struct EntryReader {
    content: Content,
    crc: Crc,
    expected_crc: u32,
    left: u64,
}

#[derive(Debug)]
enum Content {
    Stored(Window),
    Deflated(Box<DeflateDecoder<BufReader<Window>>>),
}

/// Opens a package with the default limits.
pub fn open(csar: &Path) -> Result<Archive, Rejection> {
    Archive::open(csar, &Limits::default())
}

impl Archive {
    /// Opens a package: checks the archive's directory, and steps into the inner one where it is signed from outside.
    pub fn open(csar: &Path, limits: &Limits) -> Result<Self, Rejection> {
        let shown = file_name(csar);
        let unreadable = |error: io::Error| Rejection::io(&shown, "cannot be read", &error);
        let file = File::open(csar).map_err(unreadable)?;
        let outer = Self::read(Window::whole(file).map_err(unreadable)?, &shown, limits)?;
        let Some((package, mut envelope)) = outer.find_envelope(limits)? else {
            return Ok(outer);
        };
        let entry = &outer.entries[package];
        envelope.package.clone_from(&entry.name);
        let window = if entry.deflated {
            outer.spool(package, csar)?
        } else {
            let part = outer.window.part(entry.data, entry.packed);
            part.ok_or_else(|| Rejection::file(&entry.name, "reaches past the end of the archive"))?
        };
        let mut inner = Self::read(window, &envelope.package, limits)?;
        inner.envelope = Some(envelope);
        Ok(inner)
    }

    /// A file's content, or nothing where there is no such file.
    pub fn entry(&mut self, path: &str) -> Result<Option<EntryReader>, Rejection> {
        self.by_name.get(path).map(|&index| self.reader(index)).transpose()
    }

    /// A file's size.
    pub fn size(&self, path: &str) -> Option<u64> {
        self.by_name.get(path).map(|&index| self.entries[index].size)
    }

    /// The files' paths, in order.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Whether the file carries an executable bit.
    pub(crate) fn is_executable(&self, path: &str) -> bool {
        self.by_name.get(path).is_some_and(|&index| self.entries[index].executable)
    }

    /// The outer ZIP that the package came in.
    pub(crate) fn envelope(&self) -> Option<&Envelope> {
        self.envelope.as_ref()
    }

    /// The bytes of the package itself, without the outer ZIP.
    pub(crate) fn content(&self) -> impl Read + use<> {
        let whole = self.window.part(0, self.window.len());
        whole.unwrap_or_else(|| self.window.clone())
    }

    /// The whole of a small file, or nothing where there is no such file.
    pub(crate) fn bytes(&mut self, path: &str, most: u64) -> Result<Option<Vec<u8>>, Rejection> {
        let Some(size) = self.size(path) else { return Ok(None) };
        if size > most {
            let reason = format!("has {size} bytes; at most {most} are taken for a file that is parsed");
            return Err(Rejection::file(path, reason));
        }
        let Some(mut reader) = self.entry(path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
        Ok(Some(bytes))
    }

    /// The whole of a small text file, or nothing where there is no such file.
    pub(crate) fn text(&mut self, path: &str, most: u64) -> Result<Option<String>, Rejection> {
        let Some(bytes) = self.bytes(path, most)? else { return Ok(None) };
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))),
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = good.split(|&byte| byte == b'\n').count();
                let reason = "is not UTF-8 from here on; save the file as UTF-8";
                Err(Rejection::at(path, u32::try_from(line).unwrap_or(u32::MAX), reason))
            }
        }
    }

    fn read(window: Window, shown: &str, limits: &Limits) -> Result<Self, Rejection> {
        let entries = directory::read(&window, limits).map_err(|fault| {
            let file = fault.entry.unwrap_or_else(|| shown.to_owned());
            Rejection { ours: fault.ours, ..Rejection::file(file, fault.reason) }
        })?;
        let files = entries.iter().enumerate().filter(|(_, entry)| !entry.is_directory);
        let by_name = files.map(|(index, entry)| (entry.name.clone(), index)).collect();
        Ok(Self { window, entries, by_name, envelope: None })
    }

    fn reader(&self, index: usize) -> Result<EntryReader, Rejection> {
        let entry = &self.entries[index];
        let part = self.window.part(entry.data, entry.packed);
        let window =
            part.ok_or_else(|| Rejection::file(&entry.name, "reaches past the end of the archive"))?;
        let content = if entry.deflated {
            Content::Deflated(Box::new(DeflateDecoder::new(BufReader::with_capacity(64 << 10, window))))
        } else {
            Content::Stored(window)
        };
        Ok(EntryReader { content, crc: Crc::new(), expected_crc: entry.crc, left: entry.size })
    }

    /// Recognises the outer ZIP: one package, its signature and perhaps certificates, all at the root.
    fn find_envelope(&self, limits: &Limits) -> Result<Option<(usize, Envelope)>, Rejection> {
        let mut package = None;
        let mut signature = None;
        let mut certificates = Vec::new();
        for (path, &index) in &self.by_name {
            let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
            match extension.to_ascii_lowercase().as_str() {
                _ if path.contains('/') => return Ok(None),
                "csar" | "zip" if package.is_none() => package = Some(index),
                "cms" | "p7s" | "p7m" if signature.is_none() => signature = Some(index),
                "cert" | "crt" | "cer" | "pem" => certificates.push(index),
                _ => return Ok(None),
            }
        }
        let (Some(package), Some(signature)) = (package, signature) else { return Ok(None) };
        let small = |index: usize| -> Result<(String, Vec<u8>), Rejection> {
            let entry = &self.entries[index];
            let mut bytes = Vec::new();
            if entry.size > limits.text_bytes {
                let reason = format!("has {} bytes; at most {} are taken", entry.size, limits.text_bytes);
                return Err(Rejection::file(&entry.name, reason));
            }
            self.reader(index)?.read_to_end(&mut bytes).map_err(|error| unreadable(&entry.name, &error))?;
            Ok((entry.name.clone(), bytes))
        };
        let envelope = Envelope {
            package: String::new(),
            signature: small(signature)?,
            certificates: certificates.into_iter().map(small).collect::<Result<_, _>>()?,
        };
        Ok(Some((package, envelope)))
    }

    /// Unpacks an inner archive that is compressed once more, beside the upload, into a file without a name.
    fn spool(&self, index: usize, beside: &Path) -> Result<Window, Rejection> {
        let entry = &self.entries[index];
        let directory = beside.parent().filter(|parent| !parent.as_os_str().is_empty());
        // The error of `tempfile` tells where on this machine; its kind is what a person can use.
        let mut file =
            tempfile::tempfile_in(directory.unwrap_or(Path::new("."))).map_err(|error| Rejection {
                ours: true,
                ..Rejection::file(&entry.name, format!("cannot be unpacked: {}", error.kind()))
            })?;
        io::copy(&mut self.reader(index)?, &mut file).map_err(|error| unreadable(&entry.name, &error))?;
        Window::whole(file).map_err(|error| unreadable(&entry.name, &error))
    }
}

impl Read for EntryReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = match &mut self.content {
            Content::Stored(window) => window.read(buffer)?,
            Content::Deflated(decoder) => decoder.read(buffer)?,
        };
        let invalid = |reason| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        self.crc.update(&buffer[..read]);
        match self.left.checked_sub(read as u64) {
            None => invalid("it is longer than the archive's directory says"),
            Some(left) if read == 0 && left > 0 => invalid("it is shorter than the archive's directory says"),
            Some(0) if read == 0 && self.crc.sum() != self.expected_crc => invalid(
                "its checksum (CRC-32) is not the one in the archive's directory: the upload is damaged",
            ),
            Some(left) => {
                self.left = left;
                Ok(read)
            }
        }
    }
}

/// A failure while reading a file of the package.
pub(crate) fn unreadable(file: &str, error: &io::Error) -> Rejection {
    Rejection::io(file, "cannot be unpacked", error)
}

/// A file's own name, for messages: where it lies on this machine is nobody's business.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "package".to_owned(), |name| name.to_string_lossy().into_owned())
}
