//! Where and how a machine is entered.

use std::{fmt, fs, path::PathBuf};

use guywire_secrets::{Secret, private};
use russh::keys::{PrivateKey, decode_secret_key};

use super::{SshError, SshErrorKind};

/// One machine's SSH server, who goes in and how each proves itself to the other.
#[derive(Debug, Clone)]
pub struct Door {
    /// The machine's name, for messages and for its pinned key.
    pub machine: String,
    /// An address or a DNS name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Who logs in. Anybody but root runs commands through `sudo -n`.
    pub user: String,
    /// How we prove who we are.
    pub auth: Auth,
    /// How the machine proves who it is.
    pub host_key: HostKey,
}

/// How we prove who we are.
#[derive(Debug, Clone)]
pub enum Auth {
    /// A private key in a file of mode 0600.
    KeyFile(PathBuf),
    /// A private key in OpenSSH's text format.
    Key(Secret),
    /// A password.
    Password(Secret),
}

/// How a machine proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostKey {
    /// By this key, in OpenSSH's format (`ssh-ed25519 AAAA…`).
    Known(String),
    /// By whatever it shows the first time, and the same ever after.
    PinOnFirstUse,
}

impl Door {
    /// The address with its port, as people write it.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether commands need `sudo`.
    pub(super) fn unprivileged(&self) -> bool {
        self.user != "root"
    }

    /// The key that we log in with, or `None` where it is a password.
    pub(super) fn private_key(&self) -> Result<Option<PrivateKey>, SshError> {
        let trouble = |message: String| SshError::new(SshErrorKind::Identity, self, message);
        let decode = |text: &str, whence: &dyn fmt::Display| {
            decode_secret_key(text, None).map(Some).map_err(|error| {
                let what = match error {
                    russh::keys::Error::KeyIsEncrypted => "it has a passphrase, which nobody could type here",
                    _ => "it is not a private key that we can use",
                };
                let message = format!("key {whence}: {what}; make one with `ssh-keygen -t ed25519 -N ''`");
                trouble(message).because(error)
            })
        };
        match &self.auth {
            Auth::Password(_) => Ok(None),
            Auth::Key(secret) => decode(secret.expose_str().unwrap_or_default(), &"in memory"),
            Auth::KeyFile(path) => {
                let path_text = path.display();
                let unreadable = |error| {
                    trouble(format!("key file {path_text}: cannot read it; check its path")).because(error)
                };
                if let Some(mode) = private::open_to_others(path).map_err(unreadable)? {
                    let message = format!(
                        "key file {path_text}: mode {mode:04o} lets others read it; run `chmod 600 {path_text}`"
                    );
                    return Err(trouble(message));
                }
                let text = fs::read(path).map(Secret::new).map_err(unreadable)?;
                decode(text.expose_str().unwrap_or_default(), &path_text)
            }
        }
    }
}
