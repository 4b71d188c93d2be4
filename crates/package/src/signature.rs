//! CMS signatures, as SOL004 puts them into manifests or beside packages.
//!
//! The structures are taken apart by `cms` and `x509-cert`; keys, signatures and chains are judged by `webpki` on ring.

use base64::{Engine, engine::general_purpose::STANDARD};
use cms::{
    cert::CertificateChoices,
    content_info::ContentInfo,
    signed_data::{SignedData, SignerIdentifier, SignerInfo},
};
use der::{Decode, Encode, asn1::ObjectIdentifier, asn1::OctetString};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{
    EndEntityCert, Error, ExtendedKeyUsageValidator, KeyPurposeIdIter, anchor_from_trusted_cert,
    ring as algorithms,
};
use x509_cert::{Certificate, ext::pkix::SubjectKeyIdentifier};

use crate::hash::Algorithm;

/// Who signed.
#[derive(Debug, PartialEq, Eq)]
pub struct Signer {
    /// The subject of the certificate.
    pub subject: String,
    /// Whether it leads to a certificate that the policy trusts.
    pub is_trusted: bool,
}

/// What was signed.
pub trait Content {
    /// The hashes that the signature may be over: text is also signed with the line ends of mail.
    fn digests(&mut self, algorithm: Algorithm) -> Result<Vec<Vec<u8>>, String>;
    /// The content itself, where it is small enough to be held.
    fn bytes(&self) -> Option<&[u8]>;
}

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const CONTENT_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.3");
const MESSAGE_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");

/// Verifies a detached signature (PEM or DER) over some content. The reason says what is wrong with the signature.
pub fn verify(
    signature: &[u8],
    content: &mut dyn Content,
    certificates: &[Vec<u8>],
    trust: &[Vec<u8>],
) -> Result<Signer, String> {
    let der = single(pem_or_der(signature, &["CMS", "PKCS7", "PKCS #7 SIGNED DATA"])?, "signature")?;
    let data = signed_data(&der)?;
    if data.encap_content_info.econtent.is_some() {
        return Err("the signature carries content of its own; expected a detached one".into());
    }
    let [info] = data.signer_infos.0.as_slice() else {
        return Err(format!("expected one signer, found {}", data.signer_infos.0.len()));
    };

    let mut pool: Vec<Vec<u8>> = Vec::new();
    for choice in data.certificates.iter().flat_map(|set| set.0.iter()) {
        if let CertificateChoices::Certificate(certificate) = choice {
            pool.push(
                certificate.to_der().map_err(|error| format!("a certificate in it is malformed: {error}"))?,
            );
        }
    }
    for file in certificates {
        pool.extend(pem_or_der(file, &["CERTIFICATE", "X509 CERTIFICATE"])?);
    }
    let trust = roots(trust)?;
    pool.extend(trust.iter().cloned());
    let (signer_der, signer) = find_signer(info, &pool)?;

    verify_content(info, &signer_der, content, &data)?;
    let subject = signer.tbs_certificate.subject.to_string();
    let is_trusted = match trust.as_slice() {
        [] => false,
        _ => chain(&signer_der, &signer, &pool, &trust)
            .map(|()| true)
            .map_err(|reason| format!("the signer {subject} is not trusted: {reason}"))?,
    };
    Ok(Signer { subject, is_trusted })
}

fn signed_data(der: &[u8]) -> Result<SignedData, String> {
    let malformed = |error: der::Error| format!("the signature is not CMS in DER: {error}");
    let info = ContentInfo::from_der(der).map_err(malformed)?;
    if info.content_type != SIGNED_DATA {
        return Err("the signature is CMS, but not signed data".into());
    }
    info.content.decode_as().map_err(malformed)
}

/// The signature must be over the content, by the signer's key.
fn verify_content(
    info: &SignerInfo,
    signer: &[u8],
    content: &mut dyn Content,
    data: &SignedData,
) -> Result<(), String> {
    let digest = digest_algorithm(info.digest_alg.oid)?;
    let message = match &info.signed_attrs {
        Some(attributes) => {
            let find = |oid| {
                attributes.iter().find(|attribute| attribute.oid == oid).and_then(|found| found.values.get(0))
            };
            let promised: OctetString = find(MESSAGE_DIGEST)
                .ok_or("the signature has no message digest")?
                .decode_as()
                .map_err(|error| format!("its message digest is malformed: {error}"))?;
            let kind: ObjectIdentifier = find(CONTENT_TYPE)
                .ok_or("the signature has no content type")?
                .decode_as()
                .map_err(|error| format!("its content type is malformed: {error}"))?;
            if kind != data.encap_content_info.econtent_type {
                return Err("the signature contradicts itself about its content type".into());
            }
            if !content.digests(digest)?.iter().any(|found| found == promised.as_bytes()) {
                return Err("the signature is over other content: what it signs was changed".into());
            }
            attributes.to_der().map_err(|error| format!("its attributes are malformed: {error}"))?
        }
        None => content
            .bytes()
            .ok_or("a signature over a whole package needs signed attributes; sign again without -noattr")?
            .to_vec(),
    };
    let certificate = CertificateDer::from(signer);
    let certificate = EndEntityCert::try_from(&certificate)
        .map_err(|error| format!("the signer's certificate is malformed: {error}"))?;
    let oid = info.signature_algorithm.oid.to_string();
    let candidates = signature_algorithms(&oid, digest);
    if candidates.is_empty() {
        return Err(format!("signatures of algorithm {oid} with {} are not taken", digest.name()));
    }
    let right = candidates.iter().any(|algorithm| {
        certificate.verify_signature(*algorithm, &message, info.signature.as_bytes()).is_ok()
    });
    if right { Ok(()) } else { Err("the signature is not by the key of the signer's certificate".into()) }
}

/// The certificate of the key that signed.
fn find_signer(info: &SignerInfo, pool: &[Vec<u8>]) -> Result<(Vec<u8>, Certificate), String> {
    for der in pool {
        let certificate = Certificate::from_der(der)
            .map_err(|error| format!("a certificate that comes with it is malformed: {error}"))?;
        let body = &certificate.tbs_certificate;
        let is_signer = match &info.sid {
            SignerIdentifier::IssuerAndSerialNumber(id) => {
                id.issuer == body.issuer && id.serial_number == body.serial_number
            }
            SignerIdentifier::SubjectKeyIdentifier(id) => {
                matches!(body.get::<SubjectKeyIdentifier>(), Ok(Some((_, own))) if own.0 == id.0)
            }
        };
        if is_signer {
            return Ok((der.clone(), certificate));
        }
    }
    Err("the signer's certificate is neither in the signature nor in the package".into())
}

/// The signer is trusted if the policy names its certificate, or one that leads to it.
fn chain(
    signer: &[u8],
    certificate: &Certificate,
    pool: &[Vec<u8>],
    trust: &[Vec<u8>],
) -> Result<(), String> {
    let now = UnixTime::now();
    if trust.iter().any(|trusted| trusted == signer) {
        let validity = &certificate.tbs_certificate.validity;
        let from = validity.not_before.to_unix_duration().as_secs();
        let until = validity.not_after.to_unix_duration().as_secs();
        return match now.as_secs() {
            now if now < from => Err("its certificate is not valid yet".into()),
            now if now > until => Err("its certificate has expired".into()),
            _ => Ok(()),
        };
    }
    let roots: Vec<CertificateDer<'_>> =
        trust.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
    let anchors: Vec<TrustAnchor<'_>> = roots
        .iter()
        .map(|root| {
            anchor_from_trusted_cert(root)
                .map_err(|error| format!("a trusted certificate is malformed: {error}"))
        })
        .collect::<Result<_, _>>()?;
    let between: Vec<CertificateDer<'_>> =
        pool.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
    let end = CertificateDer::from(signer);
    let end = EndEntityCert::try_from(&end).map_err(|error| error.to_string())?;
    end.verify_for_usage(algorithms_for_chains(), &anchors, &between, now, SignsPackages, None, None)
        .map(|_| ())
        .map_err(|error| chain_fault(&error))
}

/// What a person can do something about, in words.
fn chain_fault(error: &Error) -> String {
    match error {
        Error::UnknownIssuer | Error::InvalidSignatureForPublicKey => {
            "its certificate leads to none that is trusted".into()
        }
        Error::CertExpired { .. } => "its certificate has expired".into(),
        Error::CertNotValidYet { .. } => "its certificate is not valid yet".into(),
        Error::RequiredEkuNotFoundContext(_) => "its certificate is not one for signing".into(),
        other => other.to_string(),
    }
}

/// Certificates for web servers do not sign packages, even if they come from the same authority.
struct SignsPackages;

impl ExtendedKeyUsageValidator for SignsPackages {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), Error> {
        let mut any = false;
        for purpose in purposes {
            any = true;
            // Code signing, the protection of mail (which is CMS too), and any purpose.
            match purpose?.to_decoded_oid().as_slice() {
                [1, 3, 6, 1, 5, 5, 7, 3, 3 | 4] | [2, 5, 29, 37, 0] => return Ok(()),
                _ => {}
            }
        }
        if any {
            Err(Error::RequiredEkuNotFoundContext(webpki::RequiredEkuNotFoundContext {
                required: webpki::KeyUsage::required(CODE_SIGNING),
                present: Vec::new(),
            }))
        } else {
            Ok(())
        }
    }
}

const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];

fn digest_algorithm(oid: ObjectIdentifier) -> Result<Algorithm, String> {
    match oid.to_string().as_str() {
        "2.16.840.1.101.3.4.2.1" => Ok(Algorithm::Sha256),
        "2.16.840.1.101.3.4.2.2" => Ok(Algorithm::Sha384),
        "2.16.840.1.101.3.4.2.3" => Ok(Algorithm::Sha512),
        other => {
            Err(format!("digests of algorithm {other} are not taken; expected SHA-256, SHA-384 or SHA-512"))
        }
    }
}

/// The ways in which a signature of that algorithm may have been made; the curve is the key's.
fn signature_algorithms(oid: &str, digest: Algorithm) -> Vec<&'static dyn SignatureVerificationAlgorithm> {
    match (oid, digest) {
        ("1.2.840.113549.1.1.1" | "1.2.840.113549.1.1.11", Algorithm::Sha256) => {
            vec![algorithms::RSA_PKCS1_2048_8192_SHA256]
        }
        ("1.2.840.113549.1.1.1" | "1.2.840.113549.1.1.12", Algorithm::Sha384) => {
            vec![algorithms::RSA_PKCS1_2048_8192_SHA384]
        }
        ("1.2.840.113549.1.1.1" | "1.2.840.113549.1.1.13", Algorithm::Sha512) => {
            vec![algorithms::RSA_PKCS1_2048_8192_SHA512]
        }
        ("1.2.840.113549.1.1.10", Algorithm::Sha256) => vec![algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY],
        ("1.2.840.113549.1.1.10", Algorithm::Sha384) => vec![algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY],
        ("1.2.840.113549.1.1.10", Algorithm::Sha512) => vec![algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY],
        ("1.2.840.10045.4.3.2" | "1.2.840.10045.2.1", Algorithm::Sha256) => {
            vec![algorithms::ECDSA_P256_SHA256, algorithms::ECDSA_P384_SHA256]
        }
        ("1.2.840.10045.4.3.3" | "1.2.840.10045.2.1", Algorithm::Sha384) => {
            vec![algorithms::ECDSA_P256_SHA384, algorithms::ECDSA_P384_SHA384]
        }
        ("1.3.101.112", _) => vec![algorithms::ED25519],
        _ => Vec::new(),
    }
}

fn algorithms_for_chains() -> &'static [&'static dyn SignatureVerificationAlgorithm] {
    webpki::ALL_VERIFICATION_ALGS
}

/// The certificates of a policy.
fn roots(trust: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let mut roots = Vec::new();
    for file in trust {
        let read = pem_or_der(file, &["CERTIFICATE", "X509 CERTIFICATE"]);
        roots.extend(
            read.map_err(|reason| format!("a trusted certificate of the policy cannot be read: {reason}"))?,
        );
    }
    Ok(roots)
}

/// The DER in a file: all PEM blocks of these kinds, or the file itself.
fn pem_or_der(file: &[u8], labels: &[&str]) -> Result<Vec<Vec<u8>>, String> {
    let Some(text) = std::str::from_utf8(file).ok().filter(|text| text.contains("-----BEGIN ")) else {
        return Ok(vec![file.to_vec()]);
    };
    let mut blocks = Vec::new();
    for rest in text.split("-----BEGIN ").skip(1) {
        let Some((label, rest)) = rest.split_once("-----") else { continue };
        if !labels.contains(&label) {
            continue;
        }
        let (body, _) =
            rest.split_once("-----END ").ok_or_else(|| format!("the PEM block {label} has no end"))?;
        let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
        blocks.push(
            STANDARD.decode(body).map_err(|error| format!("the PEM block {label} is not base64: {error}"))?,
        );
    }
    Ok(blocks)
}

fn single(mut blocks: Vec<Vec<u8>>, what: &str) -> Result<Vec<u8>, String> {
    match blocks.len() {
        1 => Ok(blocks.remove(0)),
        found => Err(format!("expected one {what}, found {found}")),
    }
}
