//! The store: one file, encrypted as a whole.
//!
//! Layout: magic (8), format version (4), key check (16), plain length (8), nonce (24), then the
//! ciphertext with its tag. All before the ciphertext is authenticated with it. The plain text is a
//! sequence of name and value, each behind its length. Numbers are big-endian.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use chacha20poly1305::{
    XNonce,
    aead::{Aead as _, Generate as _, Payload},
};
use zeroize::Zeroizing;

use crate::{Key, KeyError, Secret, SecretRef, private};

const MAGIC: &[u8; 8] = b"GWSECRET";
const VERSION: u32 = 1;
const CHECK: usize = 16;
const NONCE: usize = 24;
const TAG: usize = 16;
const HEADER: usize = MAGIC.len() + 4 + CHECK + 8 + NONCE;
const STORE_FILE: &str = "secrets";

/// Secrets by name in one encrypted file. Several processes may have it open: every call looks at the
/// file afresh, and changes take a lock.
pub struct Store {
    file: PathBuf,
    key: Key,
}

/// Why a secret was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no usable key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store was encrypted with another key.
    #[error(
        "secrets store {}: it was not written with the key in {}; put back the key file that belongs to it, or remove the store and set the secrets again",
        .file.display(), .key.display()
    )]
    WrongKey {
        /// The store.
        file: PathBuf,
        /// The key that was tried.
        key: PathBuf,
    },
    /// The end is missing.
    #[error("secrets store {}: it is cut short ({size} bytes of {wanted}); restore it from a backup", .file.display())]
    Truncated {
        /// The store.
        file: PathBuf,
        /// Its size.
        size: usize,
        /// The size that it should have at least.
        wanted: usize,
    },
    /// It is not what we wrote.
    #[error("secrets store {}: it was damaged or changed by somebody else; restore it from a backup", .0.display())]
    Tampered(PathBuf),
    /// It is something else altogether.
    #[error("{}: it is not a secrets store; move it away", .0.display())]
    NotAStore(PathBuf),
    /// A later guywire wrote it.
    #[error(
        "secrets store {}: its format is {found} and this guywire knows up to {VERSION}; use the newer guywire that wrote it",
        .file.display()
    )]
    NewerVersion {
        /// The store.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Others could read or change it.
    #[error("secrets store {}: mode {mode:04o} lets others in; run `chmod 600 {}`", .file.display(), .file.display())]
    OpenPermissions {
        /// The store.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// There is no secret of that name.
    #[error("no secret {0} in the store; set it with `guywire secret set {0}`")]
    NotFound(String),
    /// The file cannot be read or written.
    #[error("secrets store {}: cannot {what} it; check the directory and the free space", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

type Entries = BTreeMap<String, Secret>;

impl Store {
    /// Opens the store of a data directory, with the key from systemd's credentials
    /// (`$CREDENTIALS_DIRECTORY`) or from the key file beside it.
    pub fn open(data: &Path) -> Result<Self, StoreError> {
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        Self::open_with(data, credentials.as_deref())
    }

    /// The same with the credentials directory given.
    pub fn open_with(data: &Path, credentials: Option<&Path>) -> Result<Self, StoreError> {
        let file = data.join(STORE_FILE);
        let key = Key::find(data, &file, credentials)?;
        let store = Self { file, key };
        store.read()?;
        Ok(store)
    }

    /// The secret behind a reference.
    pub fn get(&self, reference: &SecretRef) -> Result<Secret, StoreError> {
        self.read()?.remove(reference.name()).ok_or_else(|| StoreError::NotFound(reference.name().to_owned()))
    }

    /// Puts a secret in, in the place of an earlier one of that name.
    pub fn set(&self, reference: &SecretRef, secret: Secret) -> Result<(), StoreError> {
        self.change(|entries| {
            entries.insert(reference.name().to_owned(), secret);
        })
    }

    /// Takes a secret out; whether it was there.
    pub fn remove(&self, reference: &SecretRef) -> Result<bool, StoreError> {
        let mut was_there = false;
        self.change(|entries| was_there = entries.remove(reference.name()).is_some())?;
        Ok(was_there)
    }

    /// The names of all secrets, in order.
    pub fn list(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.read()?.into_keys().collect())
    }

    /// All secrets, for the masker that must know them.
    pub fn secrets(&self) -> Result<Vec<Secret>, StoreError> {
        Ok(self.read()?.into_values().collect())
    }

    fn change(&self, edit: impl FnOnce(&mut Entries)) -> Result<(), StoreError> {
        let io = |what| move |source| StoreError::Io { file: self.file.clone(), what, source };
        let lock = private::lock(&self.file).map_err(io("lock"))?;
        let mut entries = self.read()?;
        edit(&mut entries);
        private::replace(&self.file, &self.seal(&encode(&entries))).map_err(io("write"))?;
        drop(lock);
        Ok(())
    }

    fn read(&self) -> Result<Entries, StoreError> {
        let io = |source| StoreError::Io { file: self.file.clone(), what: "read", source };
        let sealed = match fs::read(&self.file) {
            Ok(sealed) => sealed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Entries::new()),
            Err(error) => return Err(io(error)),
        };
        if let Some(mode) = private::open_to_others(&self.file).map_err(io)? {
            return Err(StoreError::OpenPermissions { file: self.file.clone(), mode });
        }
        let plain = self.unseal(&sealed)?;
        decode(&plain).ok_or_else(|| StoreError::Tampered(self.file.clone()))
    }

    fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let nonce = XNonce::generate();
        let mut out = Vec::with_capacity(HEADER + plain.len() + TAG);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.check());
        out.extend_from_slice(&(plain.len() as u64).to_be_bytes());
        out.extend_from_slice(&nonce);
        let sealed = self
            .key
            .cipher()
            .encrypt(&nonce, Payload { msg: plain, aad: &out })
            .expect("a store is far below the cipher's limit of 256 GB");
        out.extend_from_slice(&sealed);
        out
    }

    fn unseal(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let truncated =
            |wanted| StoreError::Truncated { file: self.file.clone(), size: sealed.len(), wanted };
        if !sealed.starts_with(&MAGIC[..sealed.len().min(MAGIC.len())]) {
            return Err(StoreError::NotAStore(self.file.clone()));
        }
        let (header, body) = sealed.split_at_checked(HEADER).ok_or_else(|| truncated(HEADER + TAG))?;
        let (version, rest) = header[MAGIC.len()..].split_at(4);
        let version = u32::from_be_bytes(version.try_into().expect("four bytes"));
        if version > VERSION {
            return Err(StoreError::NewerVersion { file: self.file.clone(), found: version });
        }
        let (check, rest) = rest.split_at(CHECK);
        if check != self.check() {
            return Err(StoreError::WrongKey { file: self.file.clone(), key: self.key.file().to_owned() });
        }
        let (length, nonce) = rest.split_at(8);
        let length = usize::try_from(u64::from_be_bytes(length.try_into().expect("eight bytes")))
            .ok()
            .and_then(|length| length.checked_add(TAG))
            .ok_or_else(|| StoreError::Tampered(self.file.clone()))?;
        if body.len() < length {
            return Err(truncated(HEADER.saturating_add(length)));
        }
        let nonce = XNonce::try_from(nonce).expect("the header's last 24 bytes");
        self.key
            .cipher()
            .decrypt(&nonce, Payload { msg: body, aad: header })
            .map(Zeroizing::new)
            .map_err(|_| StoreError::Tampered(self.file.clone()))
    }

    /// The tag of an empty message under a nonce that is used for nothing else. It tells a wrong key
    /// from a damaged file, and tells nothing about the key.
    fn check(&self) -> [u8; CHECK] {
        let payload = Payload { msg: &[], aad: b"guywire key check" };
        let tag = self.key.cipher().encrypt(&XNonce::default(), payload).expect("an empty message");
        tag.try_into().expect("a tag has 16 bytes")
    }
}

fn encode(entries: &Entries) -> Zeroizing<Vec<u8>> {
    let size = entries.iter().map(|(name, secret)| 16 + name.len() + secret.expose().len()).sum();
    // Exact from the start: a buffer that grows leaves copies behind that nobody wipes.
    let mut out = Zeroizing::new(Vec::with_capacity(size));
    for (name, secret) in entries {
        for part in [name.as_bytes(), secret.expose()] {
            out.extend_from_slice(&(part.len() as u64).to_be_bytes());
            out.extend_from_slice(part);
        }
    }
    out
}

fn decode(mut plain: &[u8]) -> Option<Entries> {
    fn part<'a>(plain: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, rest) = plain.split_first_chunk::<8>()?;
        let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
        *plain = rest;
        Some(part)
    }
    let mut entries = Entries::new();
    while !plain.is_empty() {
        let name = String::from_utf8(part(&mut plain)?.to_vec()).ok()?;
        entries.insert(name, Secret::new(part(&mut plain)?));
    }
    Some(entries)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
