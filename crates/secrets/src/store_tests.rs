use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn reference(name: &str) -> SecretRef {
    format!("secret:{name}").parse().unwrap()
}

fn store(dir: &tempfile::TempDir) -> Store {
    Store::open_with(dir.path(), None).unwrap()
}

fn error(dir: &tempfile::TempDir) -> StoreError {
    Store::open_with(dir.path(), None).err().expect("it should be refused")
}

#[test]
fn what_is_set_is_there_for_the_next_process_and_not_in_clear() {
    let dir = tempfile::tempdir().unwrap();
    store(&dir).set(&reference("db/password"), Secret::new("correct horse")).unwrap();
    store(&dir).set(&reference("binary"), Secret::new(vec![0, 255, 1])).unwrap();
    let again = store(&dir);
    assert_eq!(again.get(&reference("db/password")).unwrap().expose(), b"correct horse");
    assert_eq!(again.get(&reference("binary")).unwrap().expose(), [0, 255, 1]);
    assert_eq!(again.list().unwrap(), ["binary", "db/password"]);
    let file = fs::read(dir.path().join(STORE_FILE)).unwrap();
    for clear in [&b"correct horse"[..], b"db/password"] {
        assert!(!file.windows(clear.len()).any(|window| window == clear));
    }
    assert!(again.remove(&reference("binary")).unwrap());
    assert!(!again.remove(&reference("binary")).unwrap());
    let error = again.get(&reference("binary")).unwrap_err().to_string();
    assert!(error.contains("guywire secret set binary"), "{error}");
}

#[test]
fn each_change_has_a_nonce_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        store.set(&reference("a"), Secret::new("same")).unwrap();
        let file = fs::read(dir.path().join(STORE_FILE)).unwrap();
        assert!(seen.insert(file[HEADER - NONCE..HEADER].to_vec()));
    }
}

#[test]
fn every_single_changed_byte_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    store(&dir).set(&reference("a"), Secret::new("value")).unwrap();
    let path = dir.path().join(STORE_FILE);
    let good = fs::read(&path).unwrap();
    for index in 0..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 1;
        fs::write(&path, &bad).unwrap();
        let message = error(&dir).to_string();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
    }
    for size in 0..good.len() {
        fs::write(&path, &good[..size]).unwrap();
        assert!(matches!(error(&dir), StoreError::Truncated { .. }), "{size} bytes");
    }
    fs::write(&path, [&good[..], b"x"].concat()).unwrap();
    assert!(matches!(error(&dir), StoreError::Tampered(_)));
}

#[test]
fn each_bad_store_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    store(&dir).set(&reference("a"), Secret::new("value")).unwrap();
    let path = dir.path().join(STORE_FILE);
    let good = fs::read(&path).unwrap();

    let mut newer = good.clone();
    newer[11] = 2;
    fs::write(&path, newer).unwrap();
    assert!(error(&dir).to_string().contains("its format is 2"), "{}", error(&dir));

    fs::write(&path, "a text that somebody put here, long enough to be a header of sixty bytes").unwrap();
    assert!(matches!(error(&dir), StoreError::NotAStore(_)));

    fs::write(&path, &good).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(error(&dir).to_string().contains("chmod 600"), "{}", error(&dir));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

    let other = tempfile::tempdir().unwrap();
    store(&other);
    fs::copy(other.path().join("secrets.key"), dir.path().join("secrets.key")).unwrap();
    assert!(error(&dir).to_string().contains("not written with the key in"), "{}", error(&dir));
}

#[test]
fn concurrent_writers_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    store(&dir);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let dir = &dir;
            scope.spawn(move || {
                // A store of its own each, as two processes would have.
                let store = store(dir);
                for index in 0..10 {
                    store.set(&reference(&format!("{writer}-{index}")), Secret::new("value")).unwrap();
                }
            });
        }
    });
    assert_eq!(store(&dir).list().unwrap().len(), 40);
}
