//! Managers that die at every step, and others that go on.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    detail,
    site::{Site, hello, sha256},
};
use crate::{
    app::{packages::recover, samples::Ground},
    domain::OnboardingState,
};

/// Leaves a package as a manager does that dies.
async fn left(site: &Site, state: OnboardingState, upload: Option<&[u8]>) -> String {
    let id = site.create().await;
    let mut record = site.app.store.package(id.parse().unwrap()).await.unwrap().unwrap();
    record.onboarding = state;
    site.app.store.update_package(&record, &[]).await.unwrap();
    if let Some(bytes) = upload {
        std::fs::create_dir_all(site.packages()).unwrap();
        std::fs::write(site.packages().join(format!(".upload-{id}")), bytes).unwrap();
    }
    id
}

fn state(package: &Value) -> &str {
    package["onboardingState"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_manager_left_is_put_right_at_the_start() {
    for ground in Ground::both().await {
        let site = Site::start(&ground).await;
        let csar = hello();
        let cut = left(&site, OnboardingState::Uploading, Some(&csar[..50])).await;
        let bare = left(&site, OnboardingState::Uploading, None).await;
        let lost = left(&site, OnboardingState::Processing, None).await;
        let whole = left(&site, OnboardingState::Processing, Some(&csar)).await;
        // It died after it gave the content its name, and before it wrote that down.
        std::fs::write(site.packages().join(format!("{}.csar", sha256(&csar))), &csar).unwrap();
        let over = left(&site, OnboardingState::Created, Some(b"over")).await;
        let orphan = site.packages().join(format!("{}.csar", "0".repeat(64)));
        std::fs::write(&orphan, b"nobody's").unwrap();
        let gone = site.packages().join(".upload-0197f3a0-0000-7000-8000-000000000000");
        std::fs::write(&gone, b"nobody's").unwrap();

        recover(&site.app).await.unwrap();
        for (id, words) in [(&cut, "cut"), (&bare, "cut"), (&lost, "lost")] {
            let shown = site.show(id).await;
            assert_eq!(state(&shown), "CREATED");
            assert!(detail(&shown["onboardingFailureDetails"]).contains(words), "{shown}");
        }
        let shown = site.read(&whole).await;
        assert_eq!(state(&shown), "ONBOARDED", "{shown}");
        let shown = site.show(&over).await;
        assert_eq!((state(&shown), shown.get("onboardingFailureDetails")), ("CREATED", None));
        assert_eq!(site.files(), [format!("{}.csar", sha256(&csar))]);

        // Once more, with all in order, changes nothing.
        recover(&site.app).await.unwrap();
        assert_eq!(site.files(), [format!("{}.csar", sha256(&csar))]);
        assert_eq!(state(&site.show(&whole).await), "ONBOARDED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_starts_leaves_the_uploads_of_another_alone() {
    for ground in Ground::both().await.into_iter().filter(Ground::is_postgres) {
        let (one, other) = (Site::start(&ground).await, Site::start(&ground).await);
        let id = one.create().await;
        let csar = hello();
        let mut slow = one.begin(&id, csar.len(), &csar[..100]).await;
        recover(&other.app).await.unwrap();
        assert_eq!(state(&other.show(&id).await), "UPLOADING");
        assert_eq!(other.upload(&id, csar.clone()).await.0.as_u16(), 409);
        slow.write_all(&csar[100..]).await.unwrap();
        let mut reply = String::new();
        slow.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 202"), "{reply}");
        recover(&other.app).await.unwrap();
        assert_eq!(state(&other.read(&id).await), "ONBOARDED");

        // One that died without any other's start is put right as soon as somebody looks.
        let dead = left(&one, OnboardingState::Uploading, Some(b"half")).await;
        let shown = other.show(&dead).await;
        assert_eq!(state(&shown), "CREATED");
        assert!(detail(&shown["onboardingFailureDetails"]).contains("cut"), "{shown}");
    }
}
