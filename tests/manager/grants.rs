//! Grants from a real NFVO over HTTP: given, thought about, refused, late, and with proof of who asks.

use std::{path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, crypto::ring, pki_types::PrivateKeyDer, server::WebPkiClientVerifier,
};
use serde_json::Value;

use crate::{
    harness::{Guywire, until},
    manager::Manager,
    nfvo::{Mood, Nfvo},
};

/// One machine is enough to see that something was made.
const SMALL: &[&str] = &["--level", "small"];

fn manager(nfvo: &Nfvo) -> Manager {
    Manager::start_with(Guywire::new(), &["--nfvo", &nfvo.url])
}

/// Starts to instantiate an instance of hello; ids of the instance and the operation.
fn instantiate(manager: &Manager) -> (String, String) {
    let text = |value: &Value| value.as_str().expect("an id").to_owned();
    if manager.json(&["package", "list"]) == Value::Array(Vec::new()) {
        manager.upload_hello();
    }
    let vnf = text(&manager.json(&["vnf", "create", "Hello"])["id"]);
    let words: Vec<&str> = ["vnf", "instantiate", &vnf].iter().chain(SMALL).copied().collect();
    let operation = text(&manager.json(&words)["operation"]);
    (vnf, operation)
}

#[test]
fn an_operation_waits_for_its_grant() {
    let nfvo = Nfvo::start(Mood::Grant);
    let manager = manager(&nfvo);
    let (vnf, operation) = instantiate(&manager);
    let done = manager.until_state(&operation, "COMPLETED");
    let asked = nfvo.requests();
    assert_eq!(asked.len(), 1, "{asked:#?}");
    assert_eq!(asked[0]["vnfLcmOpOccId"], operation.as_str());
    assert_eq!(asked[0]["vnfInstanceId"], vnf.as_str());
    assert_eq!(asked[0]["operation"], "INSTANTIATE");
    let added = asked[0]["addResources"].as_array().expect("resources").clone();
    assert_eq!(added.iter().filter(|resource| resource["type"] == "COMPUTE").count(), 1, "{added:#?}");
    assert!(done["grantId"].is_string(), "{done:#}");

    // The next one is thought about: questions follow until the answer is there.
    nfvo.set(Mood::Think(2));
    let words = ["vnf", "scale", &vnf, "--aspect", "hello_instance", "--out", "1", "--wait"];
    manager.ok(&words);
    assert_eq!(manager.guywire.machines().len(), 2);
    let questions = nfvo.heard().iter().filter(|heard| heard.what.starts_with("GET ")).count();
    assert_eq!(questions, 3, "two answers of 202 and the grant");

    // A refusal ends in ROLLED_BACK with its reason, and changes nothing.
    nfvo.set(Mood::Refuse("there is no room in rack 7".to_owned()));
    let words = ["vnf", "scale", &vnf, "--aspect", "hello_instance", "--out", "1"];
    let refused = manager.json(&words)["operation"].as_str().expect("an id").to_owned();
    let record = manager.until_state(&refused, "ROLLED_BACK");
    let detail = record["error"]["detail"].as_str().expect("a reason");
    assert!(detail.contains("there is no room in rack 7"), "{record:#}");
    assert_eq!(manager.guywire.machines().len(), 2);
    let (unborn, refused) = instantiate(&manager);
    manager.until_state(&refused, "ROLLED_BACK");
    assert_eq!(manager.json(&["vnf", "show", &unborn])["instantiationState"], "NOT_INSTANTIATED");
    manager.ok(&["vnf", "delete", &unborn]);

    nfvo.set(Mood::Grant);
    manager.ok(&["vnf", "terminate", &vnf, "--wait"]);
    assert_eq!(manager.guywire.machines().len(), 0);
}

#[test]
fn an_nfvo_that_is_away_and_a_manager_that_dies_delay_a_grant_only() {
    let nfvo = Nfvo::start(Mood::Fail);
    let mut manager = manager(&nfvo);
    let (_, operation) = instantiate(&manager);
    until("it was asked in vain", || (nfvo.requests().len() >= 2).then_some(()));
    assert_eq!(manager.json(&["op", "show", &operation])["operationState"], "STARTING");
    nfvo.set(Mood::Think(usize::MAX));
    until("it was accepted", || {
        nfvo.heard().iter().any(|heard| heard.what.starts_with("GET ")).then_some(())
    });
    manager.kill();
    let before = nfvo.requests();
    nfvo.set(Mood::Grant);
    manager.restart();
    manager.until_state(&operation, "COMPLETED");
    let after = nfvo.requests();
    assert!(after.len() > before.len(), "the request came again: {}", after.len());
    assert!(after.iter().all(|request| *request == after[0]), "and says the same: {after:#?}");
    assert_eq!(manager.guywire.machines().len(), 1);
}

#[test]
fn an_nfvo_that_wants_a_token_gets_one() {
    let nfvo = Nfvo::with_tokens("guywire:hunter2-of-the-nfvo");
    let guywire = Guywire::new();
    put_secret(&guywire, "nfvo", "hunter2-of-the-nfvo");
    let endpoint = format!("{}/token", nfvo.url);
    let words = ["--nfvo", &nfvo.url, "--nfvo-user", "guywire", "--nfvo-password", "secret:nfvo"];
    let words: Vec<&str> = words.iter().chain(&["--nfvo-token-url", &endpoint]).copied().collect();
    let manager = Manager::start_with(guywire, &words);
    let (vnf, operation) = instantiate(&manager);
    manager.until_state(&operation, "COMPLETED");
    manager.ok(&["vnf", "terminate", &vnf, "--wait"]);
    let tokens = nfvo.heard().iter().filter(|heard| heard.what == "POST /token").count();
    assert_eq!(tokens, 1, "a token serves until it runs out");
    assert!(!manager.said().contains("hunter2") && !manager.guywire.transcript().contains("hunter2"));
}

#[test]
fn an_nfvo_that_wants_a_certificate_sees_ours() {
    let guywire = Guywire::new();
    let dir = guywire.data().with_file_name("files");
    let config = certificates(&dir);
    let nfvo = Nfvo::with_tls(config);
    let file = |name: &str| dir.join(name).display().to_string();
    let (trust, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let words = ["--nfvo", &nfvo.url, "--trust", &trust, "--client-cert", &cert, "--client-key", &key];
    let manager = Manager::start_with(guywire, &words);
    let (_, operation) = instantiate(&manager);
    manager.until_state(&operation, "COMPLETED");
    assert_eq!(nfvo.requests().len(), 1);

    // Without a certificate it is not let in: the operation says so and goes on waiting.
    let stranger = Manager::start_with(Guywire::new(), &["--nfvo", &nfvo.url, "--trust", &trust]);
    let (_, operation) = instantiate(&stranger);
    until("the NFVO's answer is known", || {
        let plan = stranger.ok(&["op", "show", &operation]).stdout;
        plan.contains("the NFVO cannot be asked for a grant").then_some(())
    });
    assert_eq!(nfvo.requests().len(), 1, "nothing was asked");
}

/// Writes an authority, and a client's certificate; what a server needs that trusts only them.
fn certificates(dir: &Path) -> ServerConfig {
    let write = |name: &str, text: String| std::fs::write(dir.join(name), text).expect("it is written");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "a test's authority");
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    write("ca.pem", ca.pem());
    let sign = |name: &str| {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (params.signed_by(&key, &ca).expect("a certificate"), key)
    };
    let (client, client_key) = sign("manager");
    write("client.pem", client.pem());
    write("client.key", client_key.serialize_pem());
    let (server, server_key) = sign("localhost");
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).expect("an authority");
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let key = PrivateKeyDer::try_from(server_key.serialize_der()).expect("a key");
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![server.der().clone()], key)
        .expect("a configuration")
}

fn put_secret(guywire: &Guywire, name: &str, value: &str) {
    use std::io::Write as _;
    let mut command = guywire.command(&["secret", "set", name]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("it is piped").write_all(value.as_bytes()).expect("it is read");
    assert!(child.wait().expect("it ends").success());
}
