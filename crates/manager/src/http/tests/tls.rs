//! TLS: who is asked, who asks, and certificates that change while we run.

use std::{fs, path::Path, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use reqwest::{Certificate, Client, Identity};

use super::world::{Setup, World, provider, read};
use crate::{
    app::access::{CredentialKind, Role},
    http::{ServeError, ServeOptions, TlsFiles, bind},
};

type Ca = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "a CA for tests");
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA")
}

/// A certificate with its key, in PEM.
fn issue(ca: &Ca, common: &str, names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name.push(DnType::CommonName, common);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, ca).expect("signed");
    (certificate.pem(), key.serialize_pem())
}

fn files(dir: &Path, ca: &Ca, clients: &Ca) -> TlsFiles {
    let (cert, key) = issue(ca, "first", &["127.0.0.1"]);
    let files = TlsFiles {
        cert: dir.join("cert.pem"),
        key: dir.join("key.pem"),
        client_ca: Some(dir.join("clients.pem")),
    };
    fs::write(&files.cert, cert).expect("written");
    fs::write(&files.key, key).expect("written");
    fs::write(dir.join("clients.pem"), clients.pem()).expect("written");
    files
}

fn client(ca: &Ca, identity: Option<&(String, String)>) -> Client {
    let root = Certificate::from_pem(ca.pem().as_bytes()).expect("a certificate");
    let mut builder = Client::builder().no_proxy().tls_certs_only([root]);
    if let Some((cert, key)) = identity {
        let both = format!("{cert}{key}");
        builder = builder.identity(Identity::from_pem(both.as_bytes()).expect("an identity"));
    }
    builder.build().expect("a client")
}

#[tokio::test]
async fn certificates_prove_who_asks() {
    provider();
    let dir = tempfile::tempdir().expect("a directory");
    let (ca, clients) = (authority(), authority());
    let tls = files(dir.path(), &ca, &clients);
    let world = World::with(Setup { tls: Some(tls), ..Setup::default() }).await;
    assert!(world.url.starts_with("https://127.0.0.1:"));
    let vims = format!("{}/v1.0/vims", world.url);

    let plain = client(&ca, None);
    let status = |response: reqwest::Response| async { read(response).await.0 };
    assert_eq!(status(plain.get(&vims).send().await.expect("an answer")).await, 401);
    let answer = plain.get(&vims).bearer_auth(&world.admin).send().await.expect("an answer");
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    assert_eq!(status(answer).await, 200);

    let known = issue(&clients, "nfvo.example", &[]);
    let with = client(&ca, Some(&known));
    let (got, problem) = read(with.get(&vims).send().await.expect("an answer")).await;
    assert_eq!(got, 401);
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains("nfvo.example")), "{problem}");
    world.gate.create("nfvo.example", CredentialKind::Certificate, Role::Reader, None).await.expect("made");
    assert_eq!(status(with.get(&vims).send().await.expect("an answer")).await, 200);
    assert_eq!(status(with.post(&vims).send().await.expect("an answer")).await, 403, "a reader");
    let by_other_name = client(&ca, Some(&issue(&clients, "x", &["nfvo.example"])));
    assert_eq!(status(by_other_name.get(&vims).send().await.expect("an answer")).await, 200);

    let stranger = client(&ca, Some(&issue(&authority(), "nfvo.example", &[])));
    assert!(
        stranger.get(&vims).send().await.is_err(),
        "a certificate of somebody else's CA ends the handshake"
    );

    let login = plain.post(format!("{}/console/session", world.url));
    let login = login.json(&serde_json::json!({"token": world.admin})).send().await.expect("an answer");
    assert!(login.headers()["set-cookie"].to_str().expect("text").contains("; Secure"));
}

#[tokio::test]
async fn certificates_are_read_again_when_they_change() {
    provider();
    let dir = tempfile::tempdir().expect("a directory");
    let (old, new) = (authority(), authority());
    let tls = files(dir.path(), &old, &old);
    let world = World::with(Setup { tls: Some(tls.clone()), ..Setup::default() }).await;
    let health = format!("{}/healthz", world.url);
    let before = client(&old, None);
    assert_eq!(before.get(&health).send().await.expect("an answer").status(), 200);

    // A certificate without its key: the one before stays in use.
    let (cert, key) = issue(&new, "second", &["127.0.0.1"]);
    fs::write(&tls.cert, cert).expect("written");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(client(&old, None).get(&health).send().await.expect("an answer").status(), 200);
    fs::write(&tls.key, key).expect("written");
    let mut tries = 0;
    while client(&new, None).get(&health).send().await.is_err() {
        tries += 1;
        assert!(tries < 50, "the new certificate is not served");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(before.get(&health).send().await.expect("an answer").status(), 200, "its connection goes on");
    assert!(
        client(&old, None).get(&health).send().await.is_err(),
        "a new connection gets the new certificate"
    );
}

#[tokio::test]
async fn files_that_are_not_right_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = authority();
    let good = files(dir.path(), &ca, &ca);
    let wrong = dir.path().join("wrong.pem");
    fs::write(&wrong, "nonsense").expect("written");
    let missing = dir.path().join("missing.pem");
    let cases = [
        (TlsFiles { cert: wrong.clone(), ..good.clone() }, "wrong.pem: it holds no certificate"),
        (TlsFiles { cert: missing.clone(), ..good.clone() }, "missing.pem: it cannot be read"),
        (TlsFiles { key: wrong.clone(), ..good.clone() }, "wrong.pem: it holds no private key"),
        (TlsFiles { client_ca: Some(wrong), ..good.clone() }, "wrong.pem: it holds no certificate"),
    ];
    for (tls, expected) in cases {
        let options = ServeOptions {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            tls: Some(tls),
            no_auth: false,
            grace: Duration::ZERO,
        };
        let Err(error @ ServeError::Tls { .. }) = bind(options) else { panic!("{expected}") };
        assert!(error.to_string().contains(expected), "{error}");
    }
}
