//! The key that the store is encrypted with, and where it comes from.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, aead::Generate as _};
use zeroize::Zeroizing;

use crate::private;

/// The name of the systemd credential that holds the key.
const CREDENTIAL: &str = "guywire-key";
/// The name of the key file in the data directory.
const KEY_FILE: &str = "secrets.key";

/// A 256-bit key, kept as base64 in its file so that a person can carry it with `cat` and a pipe.
pub struct Key {
    cipher: XChaCha20Poly1305,
    file: PathBuf,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Others could read it.
    #[error("key file {}: mode {mode:04o} lets others in; run `chmod 600 {}` and consider the key known to them", .file.display(), .file.display())]
    OpenPermissions {
        /// The key file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is not 32 bytes in base64.
    #[error(
        "key file {}: it does not hold 32 bytes in base64; restore it from a backup, or make one with `head -c 32 /dev/urandom | base64`",
        .0.display()
    )]
    Malformed(PathBuf),
    /// There are secrets but not what they were encrypted with.
    #[error(
        "key file {}: it is gone, and {} cannot be read without it; restore it from a backup, or remove both and set the secrets again",
        .file.display(), .store.display()
    )]
    Missing {
        /// Where the key should be.
        file: PathBuf,
        /// The store that needs it.
        store: PathBuf,
    },
    /// The file cannot be read or made.
    #[error("key file {}: cannot {what} it; check that the directory is there and yours", .file.display())]
    Io {
        /// The key file.
        file: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Key {
    /// The key for `store` in `data`: systemd's credential where the service was given one
    /// (`credentials` is the value of `$CREDENTIALS_DIRECTORY`), else the key file beside the store,
    /// made on first use.
    pub fn find(data: &Path, store: &Path, credentials: Option<&Path>) -> Result<Self, KeyError> {
        if let Some(file) = credentials.map(|dir| dir.join(CREDENTIAL)).filter(|file| file.exists()) {
            // systemd guards the directory and may show group bits for its ACLs: no look at the mode.
            return Self::parse(&file);
        }
        let file = data.join(KEY_FILE);
        if !file.exists() {
            if store.exists() {
                return Err(KeyError::Missing { file, store: store.to_owned() });
            }
            let key = Zeroizing::new(<[u8; 32]>::generate());
            let text = Zeroizing::new(BASE64_STANDARD.encode(*key) + "\n");
            private::create(&file, text.as_bytes()).map_err(io("make", &file))?;
        }
        if let Some(mode) = private::open_to_others(&file).map_err(io("read", &file))? {
            return Err(KeyError::OpenPermissions { file, mode });
        }
        Self::parse(&file)
    }

    /// Where it came from, for messages.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn cipher(&self) -> &XChaCha20Poly1305 {
        &self.cipher
    }

    fn parse(file: &Path) -> Result<Self, KeyError> {
        let text = fs::read(file).map(Zeroizing::new).map_err(|source| KeyError::Io {
            file: file.to_owned(),
            what: "read",
            source,
        })?;
        let raw = BASE64_STANDARD
            .decode(text.trim_ascii())
            .map(Zeroizing::new)
            .map_err(|_| KeyError::Malformed(file.to_owned()))?;
        let cipher =
            XChaCha20Poly1305::new_from_slice(&raw).map_err(|_| KeyError::Malformed(file.to_owned()))?;
        Ok(Self { cipher, file: file.to_owned() })
    }
}

fn io(what: &'static str, file: &Path) -> impl FnOnce(io::Error) -> KeyError {
    let file = file.to_owned();
    move |source| KeyError::Io { file, what, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_key_is_made_once_with_mode_0600() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let store = data.join("secrets");
        Key::find(&data, &store, None).unwrap();
        let first = fs::read(data.join(KEY_FILE)).unwrap();
        assert_eq!(fs::metadata(data.join(KEY_FILE)).unwrap().mode() & 0o7777, 0o600);
        Key::find(&data, &store, None).unwrap();
        assert_eq!(fs::read(data.join(KEY_FILE)).unwrap(), first);
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn each_bad_key_file_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let (file, store) = (dir.path().join(KEY_FILE), dir.path().join("secrets"));
        let message = || Key::find(dir.path(), &store, None).err().unwrap().to_string();
        fs::write(&store, "x").unwrap();
        assert!(message().contains("restore it from a backup"), "{}", message());
        fs::write(&file, "short\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(message().contains(&format!("run `chmod 600 {}`", file.display())), "{}", message());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(message().contains("32 bytes in base64"), "{}", message());
    }

    #[test]
    fn a_systemd_credential_comes_first() {
        let (data, credentials) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(credentials.path().join(CREDENTIAL), BASE64_STANDARD.encode([7; 32])).unwrap();
        let key = Key::find(data.path(), &data.path().join("secrets"), Some(credentials.path())).unwrap();
        assert!(key.file().starts_with(credentials.path()));
        assert!(!data.path().join(KEY_FILE).exists(), "none is made where one is given");
    }
}
