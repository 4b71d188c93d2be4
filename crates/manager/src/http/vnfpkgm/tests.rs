//! A real listener, a real package, real requests.

mod site;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use self::site::{Site, hello};

#[tokio::test(flavor = "multi_thread")]
async fn a_package_lives_from_nothing_to_its_end() {
    let site = Site::start().await;
    let id = site.create().await;
    let shown = site.show(&id).await;
    assert_eq!(shown["onboardingState"], "CREATED");
    assert_eq!(shown["operationalState"], "DISABLED");
    assert_eq!(shown["usageState"], "NOT_IN_USE");
    assert!(shown.get("vnfdId").is_none() && shown["_links"].get("vnfd").is_none(), "{shown}");

    let csar = hello();
    assert_eq!(site.upload(&id, csar.clone()).await, (StatusCode::ACCEPTED, Value::Null));
    let shown = site.read(&id).await;
    assert_eq!(shown["onboardingState"], "ONBOARDED", "{shown}");
    assert_eq!(shown["operationalState"], "ENABLED");
    for attribute in ["vnfdId", "vnfProvider", "vnfProductName", "vnfSoftwareVersion", "vnfdVersion"] {
        assert!(shown[attribute].as_str().is_some_and(|text| !text.is_empty()), "{attribute}: {shown}");
    }
    assert_eq!(shown["checksum"], json!({"algorithm": "SHA-256", "hash": site::sha256(&csar)}));
    assert!(shown["_links"]["vnfd"]["href"].as_str().is_some_and(|href| href.ends_with("/vnfd")));

    // It stays until it is disabled, and then goes with all its files.
    let (status, problem) = site.send(Method::DELETE, &format!("/{id}"), None).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("ENABLED")), "{problem}");
    let off = json!({"operationalState": "DISABLED"});
    assert_eq!(site.patch(&id, &off).await, (StatusCode::OK, off.clone()));
    assert_eq!(site.patch(&id, &off).await.0, StatusCode::CONFLICT);
    assert_eq!(site.send(Method::DELETE, &format!("/{id}"), None).await.0, StatusCode::NO_CONTENT);
    assert_eq!(site.send(Method::GET, &format!("/{id}"), None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(site.files(), Vec::<String>::new());
}
