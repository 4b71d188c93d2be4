//! Packages that were bent at random, uploaded over HTTP: each is taken or refused with a reason, and what was refused
//! leaves nothing behind.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Value, json};

use crate::{harness::until, http::Http, manager::Manager, random::Random};

const PACKAGES: &str = "/vnfpkgm/v1/vnf_packages";
const UPLOADS: usize = 300;
/// One in so many is not bent.
const WHOLE: usize = 50;

#[test]
fn bent_packages_are_refused_and_leave_nothing() {
    let manager = Manager::start();
    let http = Http::new(&manager.url, &manager.token);
    let good = std::fs::read(manager.hello()).expect("a package");
    let mut random = Random(11);
    let mut outcomes = BTreeMap::<String, usize>::new();
    for round in 0..UPLOADS {
        // A whole one now and then is taken, so that it is the bending that the others are refused for.
        let whole = round % WHOLE == 0;
        let bent = if whole { good.clone() } else { bend(&good, &mut random) };
        let id = http.post(PACKAGES, &json!({})).json()["id"].as_str().expect("an id").to_owned();
        let path = format!("{PACKAGES}/{id}");
        let media = "Content-Type: application/zip\r\n";
        let put = http.put_bytes("PUT", &format!("{path}/package_content"), media, &bent);
        assert!(put.status < 500, "round {round}: {put:?}\n{}", manager.said());
        if put.status == 202 {
            let shown = until("it is read", || settled(&http, &path));
            assert!(!whole || shown["onboardingState"] == "ONBOARDED", "round {round}: {shown:#}");
            *outcomes.entry(shown["onboardingState"].to_string()).or_default() += 1;
            if shown["onboardingState"] != "ONBOARDED" {
                let detail = &shown["onboardingFailureDetails"]["detail"];
                assert!(detail.as_str().is_some_and(|text| !text.is_empty()), "no reason: {shown:#}");
            }
        } else {
            *outcomes.entry(put.status.to_string()).or_default() += 1;
        }
        // Half of the refused ones stay to be looked at, without their content.
        if round % 2 == 0 || http.get(&path)["onboardingState"] == "ONBOARDED" {
            let disabled = json!({"operationalState": "DISABLED"});
            http.send("PATCH", &path, "", Some(&disabled));
            let deleted = http.send("DELETE", &path, "", None);
            assert_eq!(deleted.status, 204, "round {round}: {deleted:?}");
        }
    }
    println!("{UPLOADS} bent packages: {outcomes:?}");
    let taken = outcomes.get("\"ONBOARDED\"").copied().unwrap_or_default();
    assert!((UPLOADS / WHOLE..UPLOADS / 2).contains(&taken), "{outcomes:?}");
    let said = manager.said();
    assert!(!said.contains("panicked") && !said.contains("our own fault"), "{said}");
    let left = until("what was refused is cleared away", || {
        let left = contents(&manager.guywire.data().join("packages"));
        left.iter().all(|(_, size)| *size == 0).then_some(left)
    });
    assert!(left.len() <= 1, "only the lock of names stays: {left:?}");
}

fn settled(http: &Http, path: &str) -> Option<Value> {
    let shown = http.get(path);
    let state = shown["onboardingState"].as_str().expect("a state");
    (!["UPLOADING", "PROCESSING"].contains(&state)).then_some(shown)
}

/// Changes some bytes, cuts, repeats or inserts.
fn bend(good: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len().max(1));
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => {
                let count = 1 + random.below(16);
                let noise = random.bytes(count);
                bytes.splice(at..at, noise);
            }
            2 => {
                let end = (at + 1 + random.below(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            3 => {
                let end = (at + random.below(200)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                for _ in 0..=random.below(4) {
                    if !bytes.is_empty() {
                        let at = random.below(bytes.len());
                        bytes[at] ^= 1 << random.below(8);
                    }
                }
            }
        }
    }
    bytes
}

/// All files below a directory with their sizes.
pub fn contents(dir: &Path) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return all };
    for entry in entries {
        let path = entry.expect("an entry").path();
        // Files may go while we look.
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => all.extend(contents(&path)),
            Ok(found) => all.push((path.display().to_string(), found.len())),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}", path.display()),
        }
    }
    all
}
