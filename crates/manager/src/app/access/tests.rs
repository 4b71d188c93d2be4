//! Secrets are shown once, kept as hashes, and end.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::app::samples::Ground;

async fn store(dir: &Path) -> Arc<Store> {
    Arc::new(Store::sqlite(&dir.join("manager.db")).await.expect("a store"))
}

#[tokio::test]
async fn the_first_start_makes_an_administrator_that_only_the_owner_can_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store(dir.path()).await;
    ensure_admin(&store, dir.path()).await.expect("an administrator");
    let file = dir.path().join(ADMIN_TOKEN);
    let first = std::fs::read_to_string(&file).expect("the token");
    let mode = std::fs::metadata(&file).expect("the file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    ensure_admin(&store, dir.path()).await.expect("again");
    assert_eq!(std::fs::read_to_string(&file).expect("the token"), first, "a second start changes nothing");

    let gate = Gate::new(store.clone(), false);
    let caller = gate.token(first.trim()).await.expect("let in");
    assert_eq!(caller, Caller { name: "admin".to_owned(), role: Role::Admin });

    renew_admin(&store, dir.path()).await.expect("a new token");
    let second = std::fs::read_to_string(&file).expect("the token");
    assert_ne!(first, second);
    let fresh = Gate::new(store, false);
    assert!(fresh.token(first.trim()).await.is_err(), "the old one is gone");
    fresh.token(second.trim()).await.expect("let in");
}

#[tokio::test]
async fn nothing_secret_is_kept_in_the_clear() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store(dir.path()).await;
    let gate = Gate::new(store.clone(), false);
    let (_, token) = gate.create("t", CredentialKind::Token, Role::Reader, None).await.expect("a token");
    let (client, secret) =
        gate.create("c", CredentialKind::Client, Role::Reader, None).await.expect("a client");
    let (token, secret) = (token.expect("shown once"), secret.expect("shown once"));
    let (access, _) =
        gate.access_token(&client.id.to_string(), &secret).await.expect("answered").expect("fits");
    let (cookie, _) = gate.log_in(&token).await.expect("logged in");
    store.db().close().await;
    let mut bytes = std::fs::read(dir.path().join("manager.db")).expect("the file");
    bytes.extend(std::fs::read(dir.path().join("manager.db-wal")).unwrap_or_default());
    for secret in [&token, &secret, &access, &cookie] {
        assert_eq!(secret.len(), 47, "256 bits and a prefix");
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "a secret is in the database");
    }
}

#[tokio::test]
async fn each_secret_serves_for_its_purpose_alone() {
    for ground in Ground::both().await {
        each_secret_serves_for_its_purpose_alone_in(&ground).await;
    }
}

async fn each_secret_serves_for_its_purpose_alone_in(ground: &Ground) {
    let gate = Gate::new(Arc::new(ground.store().await), false);
    let (_, token) = gate.create("t", CredentialKind::Token, Role::Operator, None).await.expect("a token");
    let (client, secret) =
        gate.create("c", CredentialKind::Client, Role::Reader, None).await.expect("a client");
    let (token, secret) = (token.expect("shown"), secret.expect("shown"));
    assert_eq!(gate.token(&token).await.expect("let in").role, Role::Operator);
    assert!(gate.token(&secret).await.is_err(), "a client's secret is no token");
    assert!(gate.session(&token).await.is_err(), "a token is no cookie, from the cache neither");
    assert!(gate.log_in(&secret).await.is_err());
    for (id, secret) in [("c", "wrong"), ("none", secret.as_str()), ("t", token.as_str()), ("", "")] {
        assert!(gate.access_token(id, secret).await.expect("answered").is_none(), "{id}");
    }
    let by_name = gate.access_token("c", &secret).await.expect("answered");
    assert!(by_name.is_some(), "a client may use its name for its id");
    let (access, caller) =
        gate.access_token(&client.id.to_string(), &secret).await.expect("answered").expect("fits");
    assert_eq!(caller.name, "c");
    assert_eq!(gate.token(&access).await.expect("let in").role, Role::Reader);
    assert!(gate.log_in(&access).await.is_err(), "a session lasts longer than an access token");
    let (cookie, _) = gate.log_in(&token).await.expect("logged in");
    gate.session(&cookie).await.expect("let in");
    assert!(gate.token(&cookie).await.is_err(), "a cookie is no token");
    gate.log_out(&cookie).await.expect("logged out");
    assert!(gate.session(&cookie).await.is_err());
}

#[tokio::test]
async fn deleted_and_ended_credentials_let_nobody_in() {
    for ground in Ground::both().await {
        deleted_and_ended_credentials_let_nobody_in_in(&ground).await;
    }
}

async fn deleted_and_ended_credentials_let_nobody_in_in(ground: &Ground) {
    let store = Arc::new(ground.store().await);
    let gate = Gate::new(store.clone(), false);
    ensure_admin(&store, ground.dir.path()).await.expect("an administrator");
    let (_, token) = gate.create("t", CredentialKind::Token, Role::Reader, None).await.expect("a token");
    let token = token.expect("shown");
    let (cookie, _) = gate.log_in(&token).await.expect("logged in");
    gate.token(&token).await.expect("let in, and remembered");
    gate.delete("t").await.expect("deleted");
    assert!(gate.token(&token).await.is_err(), "also from the cache");
    assert!(gate.session(&cookie).await.is_err(), "what it gave out goes with it");
    assert_eq!(gate.delete("t").await.expect_err("gone").kind, ErrorKind::NotFound);
    assert_eq!(gate.delete("admin").await.expect_err("the last one").kind, ErrorKind::Conflict);

    let now = Timestamp::now();
    let past = now.saturating_sub(SignedDuration::from_secs(1)).expect("a time");
    let refused = gate.create("p", CredentialKind::Token, Role::Reader, Some(past)).await;
    assert_eq!(refused.expect_err("over").kind, ErrorKind::Invalid);
    let soon = now.saturating_add(SignedDuration::from_millis(300)).expect("a time");
    let (_, brief) =
        gate.create("b", CredentialKind::Token, Role::Reader, Some(soon)).await.expect("a token");
    let brief = brief.expect("shown");
    gate.token(&brief).await.expect("let in");
    // The end has to pass: that is what is tested.
    tokio::time::sleep(std::time::Duration::from_millis(350)).await;
    assert!(gate.token(&brief).await.is_err(), "the cache heeds the end too");
}

#[tokio::test]
async fn names_are_unique_and_sane() {
    for ground in Ground::both().await {
        names_are_unique_and_sane_in(&ground).await;
    }
}

async fn names_are_unique_and_sane_in(ground: &Ground) {
    let gate = Gate::new(Arc::new(ground.store().await), false);
    gate.create("twice", CredentialKind::Certificate, Role::Reader, None).await.expect("made");
    let again = gate.create("twice", CredentialKind::Token, Role::Reader, None).await;
    assert_eq!(again.expect_err("taken").kind, ErrorKind::Conflict);
    for bad in ["", " x", "x\n", &"x".repeat(256)] {
        let refused = gate.create(bad, CredentialKind::Token, Role::Reader, None).await;
        assert_eq!(refused.expect_err("bad").kind, ErrorKind::Invalid, "{bad:?}");
    }
    let known = gate.certificate(&["other".to_owned(), "twice".to_owned()]).await.expect("known");
    assert_eq!(known.name, "twice");
    assert!(gate.certificate(&["other".to_owned()]).await.is_err());
}
