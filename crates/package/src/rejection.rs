//! Why a package is refused: the file, the line where there is one, and what was expected there.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

/// The reason for which a package is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// The file inside the package, or the package's own file name where no entry is to blame.
    pub file: String,
    /// The line in that file, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What is wrong and what was expected.
    pub reason: String,
    /// Whether the fault is this machine's (a disk that is full or fails) and not the package's, so that trying again
    /// may help.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ours: bool,
}

impl Rejection {
    /// A reason that concerns a file as a whole.
    pub fn file(file: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { file: printable(&file.into()), line: None, reason: reason.into(), ours: false }
    }

    /// A reason at one line of a file.
    pub fn at(file: impl Into<String>, line: u32, reason: impl Into<String>) -> Self {
        Self { file: printable(&file.into()), line: Some(line), reason: reason.into(), ours: false }
    }

    /// A file that cannot be read or written. What the system says is this machine's fault; what a decoder says is the
    /// package's.
    pub(crate) fn io(file: impl Into<String>, what: &str, error: &io::Error) -> Self {
        let ours = error.raw_os_error().is_some();
        Self { ours, ..Self::file(file, format!("{what}: {error}")) }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for Rejection {}

/// Text from a package as it may be shown: bounded, and without characters that steer a terminal or a log.
pub(crate) fn printable(text: &str) -> String {
    const SHOWN: usize = 200;
    let mut shown: String = text
        .chars()
        .take(SHOWN)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
