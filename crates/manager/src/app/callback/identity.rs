//! Our own certificate: read when it is needed, and read again when its files have changed.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
    time::SystemTime,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use x509_cert::der::{DecodePem as _, Encode as _};
use zeroize::Zeroizing;

use super::{CallbackError, bytes_of, client, fatal, retry, why};

const END: &[u8] = b"-----END CERTIFICATE-----";

/// A certificate and its key on disk, and what was made of them last.
pub(super) struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    roots: Vec<reqwest::Certificate>,
    read: Mutex<Option<Read>>,
}

#[derive(Clone)]
struct Read {
    /// When the files were written that it comes from.
    written: [SystemTime; 2],
    known: Known,
}

/// A client that shows our certificate to whoever asks for one.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) client: reqwest::Client,
    /// The certificate's SHA-256 in base64url.
    pub(super) fingerprint: String,
}

impl Identity {
    pub(super) fn new((certificate, key): (PathBuf, PathBuf), roots: Vec<reqwest::Certificate>) -> Self {
        Self { certificate, key, roots, read: Mutex::new(None) }
    }

    /// Whether there is a certificate.
    pub(super) fn exists(&self) -> bool {
        self.certificate.exists()
    }

    /// The client of the present certificate. While the files are being replaced, they may not fit: the one that was
    /// read before is good until they do.
    pub(super) fn known(&self) -> Result<Known, CallbackError> {
        if !self.exists() {
            return Err(retry(format!(
                "the manager has no client certificate; put it into {} and its key into {}",
                self.certificate.display(),
                self.key.display()
            )));
        }
        let mut read = self.read.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let written = [written(&self.certificate)?, written(&self.key)?];
        if let Some(read) = read.as_ref().filter(|read| read.written == written) {
            return Ok(read.known.clone());
        }
        match (self.read(), read.as_ref()) {
            (Ok(known), _) => {
                *read = Some(Read { written, known: known.clone() });
                Ok(known)
            }
            (Err(error), Some(before)) => {
                tracing::warn!(%error, "the client certificate was replaced by one that cannot be used");
                Ok(before.known.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    fn read(&self) -> Result<Known, CallbackError> {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let mut pem = Zeroizing::new(bytes_of(&self.certificate)?);
        // The first certificate of the file is our own; those after it lead to the authority.
        let end =
            pem.windows(END.len()).position(|window| window == END).map_or(pem.len(), |at| at + END.len());
        let own = x509_cert::Certificate::from_pem(&pem[..end])
            .and_then(|certificate| certificate.to_der())
            .map_err(|error| {
                fatal(format!("{certificate}: it begins with no certificate in PEM: {error}"))
            })?;
        pem.push(b'\n');
        pem.extend_from_slice(&Zeroizing::new(bytes_of(&self.key)?));
        let unusable = |error| {
            fatal(format!(
                "{certificate} and {key}: they are no certificate and its key in PEM: {}",
                why(error)
            ))
        };
        let identity = reqwest::Identity::from_pem(&pem).map_err(unusable)?;
        let client = client(&self.roots, Some(identity)).map_err(unusable)?;
        Ok(Known { client, fingerprint: BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&own)) })
    }
}

fn written(file: &Path) -> Result<SystemTime, CallbackError> {
    let written = std::fs::metadata(file).and_then(|data| data.modified());
    written.map_err(|error| fatal(format!("{}: it cannot be read: {error}", file.display())))
}
