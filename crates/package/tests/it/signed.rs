//! Signatures: as OpenSSL makes them (fixtures), and made here to be bent.
//!
//! The fixtures' keys were thrown away. `text.mf` is `openssl cms -sign -nocerts` over the manifest (which signs mail's line
//! ends), `pss.mf` has `-binary -keyid` and RSA-PSS, `noattr.mf` has `-binary -noattr`; each ends with its PEM.

use cms::{
    cert::{CertificateChoices, IssuerAndSerialNumber},
    content_info::{CmsVersion, ContentInfo},
    signed_data::{
        CertificateSet, EncapsulatedContentInfo, SignedData, SignerIdentifier, SignerInfo, SignerInfos,
    },
};
use der::{Any, Decode, Encode, asn1::ObjectIdentifier, asn1::OctetString, asn1::SetOfVec};
use guywire_package::{Package, Policy, Rejection, Signature};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, PublicKeyData, SigningKey, date_time_ymd,
};
use x509_cert::{Certificate, attr::Attribute, spki::AlgorithmIdentifierOwned};

use crate::builder::{Csar, fixture, read_bytes};

fn policy(signature: Signature, trust: &[&[u8]]) -> Policy {
    Policy { signature, trust: trust.iter().map(|root| root.to_vec()).collect(), ..Policy::default() }
}

fn by_openssl(manifest: &str) -> Csar {
    Csar::of(&fixture("kubernetes.yaml"))
        .with("TOSCA-Metadata/TOSCA.meta", fixture("signed/TOSCA.meta"))
        .with("Files/vendor.cert", fixture("signed/vendor.cert"))
        .with("vnfd.mf", manifest)
}

fn complaint(verdict: Result<Package, Rejection>) -> String {
    verdict.expect_err("it must be refused").to_string()
}

#[test]
fn signatures_by_openssl() {
    let authority = fixture("signed/authority.pem");
    let required = policy(Signature::Required, &[authority.as_bytes()]);
    for file in ["text.mf", "pss.mf", "noattr.mf"] {
        let csar = by_openssl(&fixture(&format!("signed/{file}")));
        let package =
            read_bytes(&csar.zip(), &required).unwrap_or_else(|rejection| panic!("{file}: {rejection}"));
        assert_eq!(package.signer.as_deref(), Some("CN=Package signer,O=Company"), "{file}");

        let changed =
            fixture(&format!("signed/{file}")).replace("vnf_provider_id: Company", "vnf_provider_id: Other");
        let found = complaint(read_bytes(&by_openssl(&changed).zip(), &required));
        assert!(found.starts_with("vnfd.mf:15: the signature is "), "{file}: {found}");
        let swapped = csar.with("Definitions/vnfd.yaml", fixture("registry.yaml"));
        let found = complaint(read_bytes(&swapped.zip(), &required));
        assert!(!found.is_empty(), "{file}: {found}");
    }
}

#[test]
fn a_signed_manifest_covers_every_file() {
    let authority = fixture("signed/authority.pem");
    let csar = by_openssl(&fixture("signed/pss.mf")).with("Scripts/added.py", "print('evil')");
    let found = complaint(read_bytes(&csar.zip(), &policy(Signature::Required, &[authority.as_bytes()])));
    assert_eq!(
        found,
        "vnfd.mf: Scripts/added.py is not listed with a hash, so the signature does not cover it"
    );
    let package =
        read_bytes(&csar.zip(), &policy(Signature::IfPresent, &[authority.as_bytes()])).expect("it is taken");
    assert_eq!(package.signer, None);
    assert!(
        package.warnings.iter().any(|warning| warning.contains("counts as unsigned")),
        "{:?}",
        package.warnings
    );
}

#[test]
fn policies_differ() {
    let unsigned = Csar::hello().zip();
    let found = complaint(read_bytes(&unsigned, &policy(Signature::Required, &[])));
    assert!(found.starts_with("test.csar: is not signed; this site takes signed packages only"), "{found}");
    assert!(read_bytes(&unsigned, &policy(Signature::IfPresent, &[])).is_ok());

    let signed = by_openssl(&fixture("signed/text.mf")).zip();
    let package =
        read_bytes(&signed, &policy(Signature::IfPresent, &[])).expect("nobody is trusted, and nobody asks");
    assert_eq!(package.signer, None);
    assert!(package.warnings[0].contains("no trusted certificates are configured"), "{:?}", package.warnings);
    let found = complaint(read_bytes(&signed, &policy(Signature::Required, &[])));
    assert!(found.contains("no trusted certificates are configured"), "{found}");

    let broken =
        by_openssl(&fixture("signed/text.mf").replace("vnf_provider_id: Company", "vnf_provider_id: Other"))
            .zip();
    assert!(read_bytes(&broken, &policy(Signature::Ignore, &[])).is_ok());
    assert!(read_bytes(&broken, &policy(Signature::IfPresent, &[])).is_err());
    let garbage = Csar::hello().with("hello.mf", "-----BEGIN CMS-----\nAAAA\n-----END CMS-----\n").zip();
    let found = complaint(read_bytes(&garbage, &policy(Signature::IfPresent, &[])));
    assert!(found.starts_with("hello.mf:1: the signature is not CMS in DER"), "{found}");
    let found =
        complaint(read_bytes(&signed, &policy(Signature::Required, &[b"-----BEGIN CERTIFICATE-----"])));
    assert!(found.contains("a trusted certificate of the policy cannot be read"), "{found}");
}

/// An authority and somebody that it vouches for.
struct Vendor {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: KeyPair,
}

impl Vendor {
    fn new(change: impl Fn(&mut CertificateParams)) -> Self {
        let name = |text: &str| {
            let mut name = DistinguishedName::new();
            name.push(DnType::CommonName, text);
            name
        };
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = name("authority");
        let authority_key = KeyPair::generate().expect("a key can be made");
        let authority = params.self_signed(&authority_key).expect("it can be signed").der().to_vec();
        let issuer = Issuer::new(params, authority_key);
        let mut params = CertificateParams::default();
        params.distinguished_name = name("vendor");
        change(&mut params);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &issuer).expect("it can be signed").der().to_vec();
        Self { authority, certificate, key }
    }

    /// A detached signature over some bytes.
    fn sign(&self, content: &[u8]) -> Vec<u8> {
        let oid = ObjectIdentifier::new_unwrap;
        let algorithm = |id: &str| AlgorithmIdentifierOwned { oid: oid(id), parameters: None };
        let attribute = |id: &str, value: Any| Attribute { oid: oid(id), values: set(value) };
        let digest = ring::digest::digest(&ring::digest::SHA256, content);
        let digest = OctetString::new(digest.as_ref()).expect("it fits");
        let data = oid("1.2.840.113549.1.7.1");
        let mut attributes = SetOfVec::new();
        let kind = Any::encode_from(&data).expect("it can be encoded");
        attributes.insert(attribute("1.2.840.113549.1.9.3", kind)).expect("it is new");
        let digest = Any::encode_from(&digest).expect("it can be encoded");
        attributes.insert(attribute("1.2.840.113549.1.9.4", digest)).expect("it is new");
        let signature =
            self.key.sign(&attributes.to_der().expect("it can be encoded")).expect("it can be signed");

        let certificate = Certificate::from_der(&self.certificate).expect("it is a certificate");
        let id = IssuerAndSerialNumber {
            issuer: certificate.tbs_certificate.issuer.clone(),
            serial_number: certificate.tbs_certificate.serial_number.clone(),
        };
        let info = SignerInfo {
            version: CmsVersion::V1,
            sid: SignerIdentifier::IssuerAndSerialNumber(id),
            digest_alg: algorithm("2.16.840.1.101.3.4.2.1"),
            signed_attrs: Some(attributes),
            signature_algorithm: algorithm("1.2.840.10045.4.3.2"),
            signature: OctetString::new(signature).expect("it fits"),
            unsigned_attrs: None,
        };
        let signed = SignedData {
            version: CmsVersion::V1,
            digest_algorithms: set(algorithm("2.16.840.1.101.3.4.2.1")),
            encap_content_info: EncapsulatedContentInfo { econtent_type: data, econtent: None },
            certificates: Some(CertificateSet(set(CertificateChoices::Certificate(certificate)))),
            crls: None,
            signer_infos: SignerInfos(set(info)),
        };
        let content = Any::encode_from(&signed).expect("it can be encoded");
        ContentInfo { content_type: oid("1.2.840.113549.1.7.2"), content }
            .to_der()
            .expect("it can be encoded")
    }

    /// The package in a ZIP beside its signature.
    fn envelope(&self, package: &[u8]) -> Csar {
        Csar::default()
            .with("hello.csar", package)
            .with("hello.cms", self.sign(package))
            .with("hello.cert", &self.certificate)
    }
}

fn set<T: der::DerOrd>(value: T) -> SetOfVec<T> {
    let mut set = SetOfVec::new();
    set.insert(value).expect("it is new");
    set
}

#[test]
fn packages_signed_from_outside() {
    let vendor = Vendor::new(|_| ());
    let package = Csar::hello().zip();
    let required = policy(Signature::Required, &[&vendor.authority]);
    let envelope = vendor.envelope(&package).zip();
    let read = read_bytes(&envelope, &required).expect("it is signed");
    assert_eq!(read.signer.as_deref(), Some("CN=vendor"));
    assert_eq!(read.vnfd.product_name, "Hello");
    assert_eq!(read.size, envelope.len() as u64, "the upload is measured as it came");

    let other = Csar::hello().with("Scripts/hello.py", "print('evil')").zip();
    let swapped = vendor.envelope(&package).with("hello.csar", other);
    let found = complaint(read_bytes(&swapped.zip(), &required));
    assert_eq!(found, "hello.cms: the signature is over other content: what it signs was changed");
}

#[test]
fn stored_packages_are_read_where_they_stand() {
    use std::io::{Cursor, Write};
    let vendor = Vendor::new(|_| ());
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, content) in vendor.envelope(&Csar::hello().zip()).files {
        writer.start_file(name, options).expect("it can be written");
        writer.write_all(&content).expect("it can be written");
    }
    let bytes = writer.finish().expect("it can be written").into_inner();
    let read = read_bytes(&bytes, &policy(Signature::Required, &[&vendor.authority])).expect("it is signed");
    assert_eq!(read.signer.as_deref(), Some("CN=vendor"));
}

#[test]
fn signers_that_are_not_trusted() {
    let package = Csar::hello().zip();
    let vendor = Vendor::new(|_| ());
    let stranger = Vendor::new(|_| ());
    let found = complaint(read_bytes(
        &vendor.envelope(&package).zip(),
        &policy(Signature::IfPresent, &[&stranger.authority]),
    ));
    assert_eq!(
        found,
        "hello.cms: the signer CN=vendor is not trusted: its certificate leads to none that is trusted"
    );

    let expired = Vendor::new(|params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let found = complaint(read_bytes(
        &expired.envelope(&package).zip(),
        &policy(Signature::Required, &[&expired.authority]),
    ));
    assert!(found.contains("is not trusted: its certificate has expired"), "{found}");
    let found = complaint(read_bytes(
        &expired.envelope(&package).zip(),
        &policy(Signature::Required, &[&expired.certificate]),
    ));
    assert!(found.contains("its certificate has expired"), "{found}");

    let server = Vendor::new(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let found = complaint(read_bytes(
        &server.envelope(&package).zip(),
        &policy(Signature::Required, &[&server.authority]),
    ));
    assert!(found.contains("is not trusted: its certificate is not one for signing"), "{found}");
    let coder = Vendor::new(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning]);
    assert!(
        read_bytes(&coder.envelope(&package).zip(), &policy(Signature::Required, &[&coder.authority]))
            .is_ok()
    );
    assert!(
        read_bytes(&coder.envelope(&package).zip(), &policy(Signature::Required, &[&coder.certificate]))
            .is_ok()
    );
}

#[test]
fn another_key_does_not_pass_for_the_signers() {
    let package = Csar::hello().zip();
    let vendor = Vendor::new(|_| ());
    let forger = Vendor { key: KeyPair::generate().expect("a key can be made"), ..vendor };
    assert!(!forger.key.der_bytes().is_empty());
    let found = complaint(read_bytes(
        &forger.envelope(&package).zip(),
        &policy(Signature::Required, &[&forger.authority]),
    ));
    assert_eq!(found, "hello.cms: the signature is not by the key of the signer's certificate");
}
