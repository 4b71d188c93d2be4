//! TLS: certificates from files, read again when the files change; names from clients' certificates.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
    time::{Duration, SystemTime},
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio_util::sync::CancellationToken;
use x509_cert::{
    Certificate,
    der::{
        Decode as _,
        asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef},
        oid::ObjectIdentifier,
    },
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use super::ServeError;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Where certificates lie.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Our certificate and those above it, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Who signs clients' certificates, in PEM. Clients without one may still send tokens.
    pub client_ca: Option<PathBuf>,
}

/// The configuration that new connections get.
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files.
    pub fn new(files: TlsFiles) -> Result<Self, ServeError> {
        let current = RwLock::new(load(&files)?);
        Ok(Self { files, current })
    }

    /// What a new connection gets.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.read().expect("nobody panics while holding it").clone()
    }

    /// Reads the files again whenever they change. Connections that are there go on as they are; files that are
    /// not right are told of and the configuration before stays.
    pub async fn watch(&self, stop: CancellationToken) {
        let mut seen = stamps(&self.files);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = stamps(&self.files);
            if now == seen {
                continue;
            }
            match load(&self.files) {
                Ok(config) => {
                    *self.current.write().expect("nobody panics while holding it") = config;
                    tracing::info!(cert = %self.files.cert.display(), "the certificate was read again");
                    seen = now;
                }
                // A certificate and its key are seldom replaced in one step: what does not fit yet is tried again.
                Err(error) => {
                    tracing::warn!(%error, "the new certificate is not usable; the one before stays in use");
                    seen = now;
                }
            }
        }
    }
}

/// Names in a verified certificate: the subject's common name, then alternative names.
pub fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = Certificate::from_der(certificate) else { return Vec::new() };
    let mut names = Vec::new();
    for attribute in parsed.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter()) {
        if attribute.oid != COMMON_NAME {
            continue;
        }
        let value = &attribute.value;
        let text = Utf8StringRef::try_from(value)
            .map(|text| text.as_str().to_owned())
            .or_else(|_| PrintableStringRef::try_from(value).map(|text| text.as_str().to_owned()))
            .or_else(|_| Ia5StringRef::try_from(value).map(|text| text.as_str().to_owned()));
        names.extend(text);
    }
    if let Ok(Some((_, SubjectAltName(others)))) = parsed.tbs_certificate.get::<SubjectAltName>() {
        for other in others {
            match other {
                GeneralName::DnsName(name)
                | GeneralName::UniformResourceIdentifier(name)
                | GeneralName::Rfc822Name(name) => {
                    names.push(name.as_str().to_owned());
                }
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names.dedup();
    names
}

fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, ServeError> {
    let wrong = |file: &Path, reason: String| ServeError::Tls { file: file.to_owned(), reason };
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| wrong(&files.key, format!("it holds no private key in PEM: {error}")))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&files.cert, error.to_string()))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| wrong(file, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| wrong(file, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| wrong(&files.cert, format!("it does not fit {}: {error}", files.key.display())))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let wrong = |reason: String| ServeError::Tls { file: file.to_owned(), reason };
    let all: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(format!("it cannot be read as PEM: {error}")))?;
    if all.is_empty() { Err(wrong("it holds no certificate in PEM".to_owned())) } else { Ok(all) }
}

type Stamp = Option<(SystemTime, u64)>;

/// When files were changed, and their sizes; `None` for one that is not there.
fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(|file| {
            let data = fs::metadata(file).ok()?;
            Some((data.modified().ok()?, data.len()))
        })
        .collect()
}
