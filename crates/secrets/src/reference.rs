//! What stands in plans, events and files in the place of a secret.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The name of a secret in the store, written `secret:NAME`. It tells nothing about the value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretRef(String);

/// Why a text is not a reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret is named by reference: write secret:NAME with a-z, A-Z, 0-9 and any of ._/- in NAME, and put the value in with `guywire secret set NAME`"
)]
pub struct InvalidReference;

impl SecretRef {
    /// The name under which the store keeps it.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretRef {
    type Err = InvalidReference;

    // The text is not repeated in the error: somebody may have put the secret itself there.
    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let name = text.strip_prefix("secret:").ok_or(InvalidReference)?;
        let good = |c: u8| c.is_ascii_alphanumeric() || b"._/-".contains(&c);
        if name.is_empty() || name.len() > 200 || !name.bytes().all(good) {
            return Err(InvalidReference);
        }
        Ok(Self(name.to_owned()))
    }
}

impl TryFrom<String> for SecretRef {
    type Error = InvalidReference;

    fn try_from(text: String) -> Result<Self, InvalidReference> {
        text.parse()
    }
}

impl From<SecretRef> for String {
    fn from(reference: SecretRef) -> Self {
        reference.to_string()
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "secret:{}", self.0)
    }
}
