//! The key pair of this installation.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use guywire_secrets::{Secret, private};
use russh::keys::{
    PrivateKey, decode_secret_key,
    ssh_key::{LineEnding, private::Ed25519Keypair},
};

use super::Auth;

const FILE: &str = "id_ed25519";

/// The key that opens the machines that we make. Made once per installation.
#[derive(Debug, Clone)]
pub struct Identity {
    file: PathBuf,
    public: String,
}

/// Why the installation has no usable key.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Others may have read it.
    #[error("key file {path}: mode {mode:04o} lets others read it; run `chmod 600 {path}`", path = .file.display())]
    OpenPermissions {
        /// The key file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is not a key.
    #[error("key file {}: it is not an OpenSSH private key; restore it from a backup, or remove it and a new one is made, which the machines do not know", .file.display())]
    Malformed {
        /// The key file.
        file: PathBuf,
        /// What the parser said.
        #[source]
        source: russh::keys::Error,
    },
    /// It cannot be read or made.
    #[error("key file {}: cannot {what} it; check the data directory", .file.display())]
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

impl Identity {
    /// The key pair of a data directory, made with mode 0600 on first use.
    pub fn ensure(data: &Path) -> Result<Self, IdentityError> {
        let file = data.join(FILE);
        let io = |what| {
            let file = file.clone();
            move |source| IdentityError::Io { file, what, source }
        };
        if !file.exists() {
            let pair = PrivateKey::from(Ed25519Keypair::random(&mut rand::rng()));
            let text = pair.to_openssh(LineEnding::LF).map_err(io::Error::other).map_err(io("make"))?;
            private::create(&file, text.as_bytes()).map_err(io("make"))?;
        }
        if let Some(mode) = private::open_to_others(&file).map_err(io("read"))? {
            return Err(IdentityError::OpenPermissions { file, mode });
        }
        let text = fs::read(&file).map(Secret::new).map_err(io("read"))?;
        let public = decode_secret_key(text.expose_str().unwrap_or_default(), None)
            .and_then(|key| Ok(key.public_key().to_openssh()?))
            .map_err(|source| IdentityError::Malformed { file: file.clone(), source })?;
        Ok(Self { file, public: format!("{} guywire", public.trim_end()) })
    }

    /// The public half in OpenSSH's format, for `authorized_keys`.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Where the private half is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The way to show it at a door.
    pub fn auth(&self) -> Auth {
        Auth::KeyFile(self.file.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn one_key_pair_is_made_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let first = Identity::ensure(&data).unwrap();
        assert!(first.public().starts_with("ssh-ed25519 AAAA"), "{}", first.public());
        assert_eq!(fs::metadata(first.file()).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(Identity::ensure(&data).unwrap().public(), first.public());
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn an_open_or_broken_key_is_refused_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::ensure(dir.path()).unwrap();
        fs::set_permissions(identity.file(), fs::Permissions::from_mode(0o644)).unwrap();
        let error = Identity::ensure(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("run `chmod 600 {}`", identity.file().display())), "{error}");
        fs::set_permissions(identity.file(), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(identity.file(), "nonsense").unwrap();
        let error = Identity::ensure(dir.path()).unwrap_err().to_string();
        assert!(error.contains("restore it from a backup"), "{error}");
    }
}
