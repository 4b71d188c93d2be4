//! Hashes of files: which algorithms are taken, and what a package promised about each file.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::{item::Item, rejection::Rejection};

/// The algorithms that are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// A hash that some file of the package promises for another one.
#[derive(Debug, Clone)]
pub struct Promise {
    /// The file that is promised.
    pub path: String,
    pub algorithm: Algorithm,
    /// Lower-case hexadecimal.
    pub hash: String,
    /// The file and line that say so.
    pub source: (String, u32),
}

/// A hash being computed.
#[derive(Debug)]
pub enum Hasher {
    Sha224(Sha224),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Algorithm {
    /// The algorithm of a name in any of its spellings: `SHA-256`, `sha256`, `SHA_256`.
    pub fn parse(name: &str) -> Result<Self, String> {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        match plain.to_ascii_lowercase().as_str() {
            "sha224" => Ok(Self::Sha224),
            "sha256" => Ok(Self::Sha256),
            "sha384" => Ok(Self::Sha384),
            "sha512" => Ok(Self::Sha512),
            _ => Err(format!(
                "'{}' is not taken; expected sha-256 or sha-512",
                crate::rejection::printable(name)
            )),
        }
    }

    /// The name as SOL004 writes it, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha224 => "sha-224",
            Self::Sha256 => "sha-256",
            Self::Sha384 => "sha-384",
            Self::Sha512 => "sha-512",
        }
    }

    /// Starts a hash.
    pub fn hasher(self) -> Hasher {
        match self {
            Self::Sha224 => Hasher::Sha224(Sha224::new()),
            Self::Sha256 => Hasher::Sha256(Sha256::new()),
            Self::Sha384 => Hasher::Sha384(Sha384::new()),
            Self::Sha512 => Hasher::Sha512(Sha512::new()),
        }
    }

    /// Checks that a hash is one of this algorithm, and gives it in lower case.
    pub fn check(self, hash: &str) -> Result<String, String> {
        let digits = match self {
            Self::Sha224 => 56,
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        };
        if hash.len() != digits || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("expected the {digits} hexadecimal digits of {}", self.name()));
        }
        Ok(hash.to_ascii_lowercase())
    }
}

impl Hasher {
    /// Takes more of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha224(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha384(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The hash.
    pub fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha224(hasher) => hasher.finalize().to_vec(),
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
            Self::Sha384(hasher) => hasher.finalize().to_vec(),
            Self::Sha512(hasher) => hasher.finalize().to_vec(),
        }
    }
}

impl Promise {
    /// A promise in a definition: its algorithm and hash are checked for their form.
    pub fn new(path: &str, algorithm: &str, hash: &Item) -> Result<Self, Rejection> {
        let algorithm = Algorithm::parse(algorithm).map_err(|reason| hash.refuse(reason))?;
        let text = algorithm.check(&hash.text()?).map_err(|reason| hash.refuse(reason))?;
        Ok(Self { path: path.into(), algorithm, hash: text, source: (hash.node.file().into(), hash.line) })
    }

    /// The complaint when the file has another hash.
    pub fn broken(&self, found: &str) -> Rejection {
        let (file, line) = &self.source;
        let reason = format!(
            "{}: its {} is {found}, but {} is promised here: the file was changed, or this hash is out of date",
            self.path,
            self.algorithm.name(),
            self.hash
        );
        Rejection::at(file, *line, reason)
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}
