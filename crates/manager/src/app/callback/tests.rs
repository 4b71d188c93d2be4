//! Each way to prove who we are, against real servers.

use std::sync::Arc;

use guywire_secrets::{Secret, Store as Secrets};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Callbacks, Credentials, Outbound, Outgoing};
use crate::app::samples::receiver::{Mood, Receiver};

fn callbacks(dir: &TempDir, outbound: &Outbound) -> Result<Callbacks, super::CallbackError> {
    let secrets = Arc::new(Secrets::open_with(dir.path(), None).unwrap());
    Callbacks::new(outbound, dir.path(), secrets)
}

fn oauth(receiver: &Receiver) -> Credentials {
    Credentials::OAuth2 {
        client: "me & you".to_owned(),
        secret: Some(Secret::new("s3cret:")),
        endpoint: format!("{}/token", receiver.url),
    }
}

#[tokio::test]
async fn user_and_password() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    receiver.wants("Basic bWU6aHVudGVyMg==");
    let callbacks = callbacks(&dir, &Outbound::default()).unwrap();
    let me = Credentials::Basic { user: "me".to_owned(), password: Secret::new("hunter2") };
    let url = receiver.hook();
    assert_eq!(callbacks.send(&Outgoing::get(&url), Some(&me)).await.unwrap().status, 204);
    let answer = callbacks.send(&Outgoing::get(&url), None).await.unwrap();
    assert_eq!(answer.complaint(), "it answered 401 Unauthorized");
}

#[tokio::test]
async fn a_token_is_kept_until_it_is_not_taken_any_more() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let callbacks = callbacks(&dir, &Outbound::default()).unwrap();
    let (me, url) = (oauth(&receiver), receiver.hook());
    receiver.wants("Bearer t1");
    for _ in 0..3 {
        assert_eq!(callbacks.send(&Outgoing::get(&url), Some(&me)).await.unwrap().status, 204);
    }
    let asked = receiver.asked_for_tokens();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].text, "grant_type=client_credentials");
    // RFC 6749: `me+%26+you:s3cret%3A`.
    assert_eq!(asked[0].headers["authorization"], "Basic bWUrJTI2K3lvdTpzM2NyZXQlM0E=");

    receiver.wants("Bearer t2");
    assert_eq!(callbacks.send(&Outgoing::get(&url), Some(&me)).await.unwrap().status, 204);
    assert_eq!(receiver.asked_for_tokens().len(), 2);

    // A server that takes no token at all is asked twice and not for ever.
    receiver.wants("Bearer none");
    assert_eq!(callbacks.send(&Outgoing::get(&url), Some(&me)).await.unwrap().status, 401);
    assert_eq!(receiver.asked_for_tokens().len(), 3);
}

#[tokio::test]
async fn redirects_are_not_followed_and_answers_are_bounded() {
    let (dir, receiver) = (tempfile::tempdir().unwrap(), Receiver::start().await);
    let callbacks = callbacks(&dir, &Outbound::default()).unwrap();
    let elsewhere = format!("{}/elsewhere", receiver.url);
    receiver.then(Mood::Answer(307, vec![("location", elsewhere)], String::new()));
    receiver.then(Mood::Answer(200, Vec::new(), "x".repeat(1_000_000)));
    let url = receiver.hook();
    assert_eq!(callbacks.send(&Outgoing::get(&url), None).await.unwrap().status, 307);
    let long = callbacks.send(&Outgoing::get(&url), None).await.unwrap();
    assert_eq!((long.body.len(), long.cut), (super::ANSWER, true));
    assert!(receiver.seen().iter().all(|seen| seen.path == "/hook"));
}

#[tokio::test]
async fn what_failed_is_said_without_the_address_query() {
    let dir = tempfile::tempdir().unwrap();
    let callbacks = callbacks(&dir, &Outbound::default()).unwrap();
    let gone = format!("{}/hook?key=hunter2", { Receiver::start().await.url.clone() });
    let error = callbacks.send(&Outgoing::get(&gone), None).await.unwrap_err();
    assert!(error.retry && error.reason.starts_with("no connection: "), "{error}");
    assert!(!error.reason.contains("hunter2"));
    let error = callbacks.send(&Outgoing::get(&gone), Some(&Credentials::Certificate)).await.unwrap_err();
    assert!(
        error.reason.contains("no client certificate; put it into ") && error.reason.contains("client.pem"),
        "{error}"
    );
}

#[tokio::test]
async fn certificates_of_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        (certificate, key)
    };
    let write = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let ca = write("ca.pem", &authority.pem());
    let url = serve_tls(&authority, issue("localhost")).await;

    let stranger = callbacks(&dir, &Outbound::default()).unwrap();
    let error = stranger.send(&Outgoing::get(&url), None).await.unwrap_err();
    assert!(error.reason.contains("no connection"), "an unknown authority is not trusted: {error}");

    let trusting = Outbound { ca: Some(ca), ..Outbound::default() };
    let known = callbacks(&dir, &trusting).unwrap();
    assert!(known.fingerprint().is_err());
    let mut prints = Vec::new();
    // Put there while the manager runs, and then renewed.
    for _ in 0..2 {
        let (certificate, key) = issue("manager.example");
        write("client.pem", &certificate.pem());
        write("client.key", &key.serialize_pem());
        prints.push(known.fingerprint().unwrap());
        let answer = known.send(&Outgoing::get(&url), Some(&Credentials::Certificate)).await.unwrap();
        assert_eq!(answer.status, 204);
    }
    assert!(prints[0].len() == 43 && prints[0] != prints[1], "{prints:?}");
    assert!(known.send(&Outgoing::get(&url), None).await.is_err(), "the server wants to see a certificate");

    write("client.pem", "nothing");
    assert_eq!(known.fingerprint().unwrap(), prints[1], "what was good stays good");
    let error = callbacks(&dir, &trusting).err().unwrap();
    assert!(error.reason.contains("client.pem: it begins with no certificate in PEM"), "{error}");
}

/// A server that takes whoever shows a certificate of the authority, and answers with 204.
async fn serve_tls(
    authority: &CertifiedIssuer<'static, KeyPair>,
    (certificate, key): (rcgen::Certificate, KeyPair),
) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Whoever is refused goes away; that is what the test looks at from the other side.
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut bytes = [0; 4096];
                if stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
                    stream.write_all(answer).await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            });
        }
    });
    format!("https://localhost:{port}/hook")
}
