//! The host keys that machines showed the first time.
//!
//! One text file per installation, a line for each machine: `NAME@ADDRESS:PORT TYPE BASE64`. People may
//! read it and remove lines.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use guywire_secrets::private;
use russh::keys::{HashAlg, PublicKey};

use super::{Door, HostKey, SshError, SshErrorKind};

const FILE: &str = "known_hosts";

/// The pinned host keys of one installation. Processes may share it.
#[derive(Debug, Clone)]
pub struct KnownHosts {
    file: PathBuf,
}

impl KnownHosts {
    /// Those of a data directory; the file appears with the first machine.
    pub fn new(data: &Path) -> Self {
        Self { file: data.join(FILE) }
    }

    /// Forgets a machine that is gone for good, at whatever address, so that a new one of that name is
    /// let in.
    pub fn forget(&self, machine: &str) -> io::Result<()> {
        let of = |line: &str| line.split_once('@').is_some_and(|(name, _)| name == machine);
        self.edit(|lines| lines.retain(|line| !of(line)))
    }

    /// The key that `door` must show, if it is known.
    pub(super) fn expected(&self, door: &Door) -> Result<Option<PublicKey>, SshError> {
        if let HostKey::Known(text) = &door.host_key {
            return PublicKey::from_openssh(text).map(Some).map_err(|error| {
                let message = "its host key in the inventory is not a public key; copy the line from /etc/ssh/ssh_host_ed25519_key.pub there";
                SshError::new(SshErrorKind::Invalid, door, message).because(error)
            });
        }
        Ok(self.pinned(door)?.map(|(_, key)| key))
    }

    /// Lets `shown` in, and pins it where nothing was known.
    pub(super) fn check(&self, door: &Door, shown: &PublicKey) -> Result<(), SshError> {
        if let HostKey::Known(_) = door.host_key {
            let expected = self.expected(door)?;
            return match expected {
                Some(key) if key.key_data() == shown.key_data() => Ok(()),
                known => Err(mismatch(door, "the inventory", known.as_ref(), shown)),
            };
        }
        if self.matches(door, shown)? {
            return Ok(());
        }
        let line = format!("{} {}", entry(door), bare(shown));
        self.edit(|lines| {
            // Somebody else may have pinned it since we looked.
            if !lines.iter().any(|known| is_of(known, door)) {
                lines.push(line);
            }
        })
        .map_err(|error| self.io(door, "write", error))?;
        self.matches(door, shown)?;
        Ok(())
    }

    fn matches(&self, door: &Door, shown: &PublicKey) -> Result<bool, SshError> {
        match self.pinned(door)? {
            None => Ok(false),
            Some((_, key)) if key.key_data() == shown.key_data() => Ok(true),
            Some((line, key)) => {
                let place = format!("{}:{line}", self.file.display());
                Err(mismatch(door, &place, Some(&key), shown))
            }
        }
    }

    fn pinned(&self, door: &Door) -> Result<Option<(usize, PublicKey)>, SshError> {
        let text = read(&self.file).map_err(|error| self.io(door, "read", error))?;
        let Some((index, line)) = text.lines().enumerate().find(|(_, line)| is_of(line, door)) else {
            return Ok(None);
        };
        let key = line.split_once(' ').map_or("", |(_, key)| key);
        PublicKey::from_openssh(key).map(|key| Some((index + 1, key))).map_err(|error| {
            let message = format!(
                "{}:{}: its pinned host key cannot be read; remove that line if you trust the machine, and the key is pinned anew",
                self.file.display(),
                index + 1
            );
            SshError::new(SshErrorKind::HostKeyMismatch, door, message).because(error)
        })
    }

    /// Old or new, never a mixture, and one writer at a time.
    fn edit(&self, change: impl FnOnce(&mut Vec<String>)) -> io::Result<()> {
        let lock = private::lock(&self.file)?;
        let old = read(&self.file)?;
        let mut lines: Vec<String> = old.lines().map(str::to_owned).collect();
        change(&mut lines);
        let new: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        if new != old {
            private::replace(&self.file, new.as_bytes())?;
        }
        drop(lock);
        Ok(())
    }

    fn io(&self, door: &Door, what: &str, error: io::Error) -> SshError {
        let message = format!(
            "cannot {what} the pinned host keys in {}; check the data directory",
            self.file.display()
        );
        SshError::new(SshErrorKind::Identity, door, message).because(error)
    }
}

fn mismatch(door: &Door, place: &str, known: Option<&PublicKey>, shown: &PublicKey) -> SshError {
    let print = |key: &PublicKey| key.fingerprint(HashAlg::Sha256).to_string();
    let known = known.map_or_else(|| "another".to_owned(), print);
    let message = format!(
        "it shows the host key {}, but {place} says {known}; if the machine was made anew, remove that entry, else somebody stands in its place",
        print(shown)
    );
    SshError::new(SshErrorKind::HostKeyMismatch, door, message)
}

fn entry(door: &Door) -> String {
    format!("{}@{}", door.machine, door.address())
}

fn is_of(line: &str, door: &Door) -> bool {
    line.split_once(' ').is_some_and(|(of, _)| of == entry(door))
}

/// Type and base64 only: a comment could hold anything.
fn bare(key: &PublicKey) -> String {
    let text = key.to_openssh().unwrap_or_default();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

fn read(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use russh::keys::{PrivateKey, ssh_key::private::Ed25519Keypair};

    use super::*;
    use crate::ssh::Auth;

    fn door(machine: &str) -> Door {
        Door {
            machine: machine.into(),
            host: "10.0.0.1".into(),
            port: 22,
            user: "root".into(),
            auth: Auth::KeyFile("k".into()),
            host_key: HostKey::PinOnFirstUse,
        }
    }

    fn key() -> PublicKey {
        PrivateKey::from(Ed25519Keypair::random(&mut rand::rng())).public_key().clone()
    }

    #[test]
    fn the_first_key_is_pinned_and_another_refused_with_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let hosts = KnownHosts::new(dir.path());
        let (first, second) = (key(), key());
        hosts.check(&door("m0"), &key()).unwrap();
        hosts.check(&door("m1"), &first).unwrap();
        hosts.check(&door("m1"), &first).unwrap();
        let error = hosts.check(&door("m1"), &second).unwrap_err();
        assert_eq!(error.kind, SshErrorKind::HostKeyMismatch);
        let message = error.to_string();
        let place = format!("{}:2", dir.path().join(FILE).display());
        for wanted in ["m1 (10.0.0.1:22)", &place, "remove that entry"] {
            assert!(message.contains(wanted), "{message} should contain {wanted}");
        }
        for key in [&first, &second] {
            assert!(message.contains(&key.fingerprint(HashAlg::Sha256).to_string()), "{message}");
        }
        hosts.forget("m1").unwrap();
        hosts.check(&door("m1"), &second).unwrap();
        assert_eq!(hosts.expected(&door("m1")).unwrap().unwrap().key_data(), second.key_data());
    }

    #[test]
    fn a_given_key_is_the_only_one_let_in() {
        let dir = tempfile::tempdir().unwrap();
        let hosts = KnownHosts::new(dir.path());
        let good = key();
        let given = Door { host_key: HostKey::Known(good.to_openssh().unwrap()), ..door("m1") };
        hosts.check(&given, &good).unwrap();
        assert_eq!(hosts.check(&given, &key()).unwrap_err().kind, SshErrorKind::HostKeyMismatch);
        assert!(!dir.path().join(FILE).exists(), "what is given is not pinned");
        let broken = Door { host_key: HostKey::Known("nonsense".into()), ..door("m1") };
        assert_eq!(hosts.expected(&broken).unwrap_err().kind, SshErrorKind::Invalid);
    }

    #[test]
    fn many_machines_at_once_are_all_pinned() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for index in 0..8 {
                let hosts = KnownHosts::new(dir.path());
                scope.spawn(move || hosts.check(&door(&format!("m{index}")), &key()).unwrap());
            }
        });
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap().lines().count(), 8);
    }
}
