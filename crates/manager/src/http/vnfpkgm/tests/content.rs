//! What packages hold, whole and in parts; and what the manager fetches itself.

use http::header;
use reqwest::{Method, Response, StatusCode};
use serde_json::json;

use super::{
    detail,
    site::{Site, answer, examples, hello, in_one_file},
};
use crate::app::samples::Ground;

async fn get(site: &Site, rest: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = site.request(Method::GET, rest);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

fn value(response: &Response, name: &header::HeaderName) -> String {
    let found = response.headers().get(name).unwrap_or_else(|| panic!("no {name}: {response:?}"));
    found.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_given_whole_and_in_parts() {
    let ground = Ground::sqlite();
    let site = Site::start(&ground).await;
    let csar = hello();
    let id = site.onboarded(csar.clone()).await;
    let script = std::fs::read(examples().join("hello/Scripts/hello.py")).unwrap();
    let places = [
        (format!("/{id}/package_content"), &csar, "application/zip"),
        (format!("/{id}/artifacts/Scripts/hello.py"), &script, "application/octet-stream"),
    ];
    for (place, bytes, media) in places {
        let length = bytes.len();
        let whole = get(&site, &place, &[]).await;
        assert_eq!(whole.status(), StatusCode::OK);
        assert_eq!(value(&whole, &header::CONTENT_TYPE), media);
        assert_eq!(value(&whole, &header::CONTENT_LENGTH), length.to_string());
        let tag = value(&whole, &header::ETAG);
        assert_eq!(whole.bytes().await.unwrap(), *bytes);

        for (range, from, to) in [
            ("bytes=0-0", 0, 1),
            ("bytes=10-19", 10, 20),
            ("bytes=-7", length - 7, length),
            ("bytes=5-", 5, length),
        ] {
            let part = get(&site, &place, &[("range", range), ("if-range", &tag)]).await;
            assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT, "{place} {range}");
            assert_eq!(value(&part, &header::CONTENT_RANGE), format!("bytes {from}-{}/{length}", to - 1));
            assert_eq!(part.bytes().await.unwrap(), bytes[from..to], "{place} {range}");
        }
        let beyond = get(&site, &place, &[("range", &format!("bytes={length}-"))]).await;
        assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!(value(&beyond, &header::CONTENT_RANGE), format!("bytes */{length}"));
        assert_eq!(value(&beyond, &header::CONTENT_TYPE), "application/problem+json");
        let known = get(&site, &place, &[("if-none-match", &tag), ("range", "bytes=0-1")]).await;
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    }
    let refused = get(&site, &format!("/{id}/package_content"), &[("accept", "application/json")]).await;
    assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_found_by_path_and_never_outside_the_package() {
    let ground = Ground::sqlite();
    let site = Site::start(&ground).await;
    let id = site.onboarded(hello()).await;
    // As the OpenStack client asks.
    let place = format!("/{id}/artifacts/Scripts/answer.sh");
    let found = get(&site, &place, &[("accept", "application/json")]).await;
    assert_eq!(found.status(), StatusCode::OK);
    assert_eq!(value(&found, &header::CONTENT_DISPOSITION), "attachment");
    let escaped = get(&site, &format!("/{id}/artifacts/Scripts/hello%40.service"), &[]).await;
    assert_eq!(escaped.status(), StatusCode::OK);
    for path in ["Scripts", "Scripts/none", "%2e%2e/manager.db", "..%2f..%2fmanager.db", "%2fetc%2fpasswd"] {
        let missing = get(&site, &format!("/{id}/artifacts/{path}"), &[]).await;
        assert!(
            matches!(missing.status(), StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST),
            "{path}: {}",
            missing.status()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_is_text_if_it_is_one_file_and_else_an_archive() {
    let ground = Ground::sqlite();
    let site = Site::start(&ground).await;
    let (csar, text) = in_one_file();
    let single = site.onboarded(csar).await;
    assert_eq!(site.patch(&single, &json!({"operationalState": "DISABLED"})).await.0, StatusCode::OK);
    let cases = [
        (None, 200, "text/plain"),
        (Some("text/plain"), 200, "text/plain"),
        (Some("application/zip"), 200, "application/zip"),
        (Some("text/plain,application/zip"), 200, "text/plain"),
        (Some("application/json"), 406, "application/problem+json"),
    ];
    for (accept, status, media) in cases {
        let headers: Vec<_> = accept.map(|accept| ("accept", accept)).into_iter().collect();
        let found = get(&site, &format!("/{single}/vnfd"), &headers).await;
        assert_eq!(found.status().as_u16(), status, "{accept:?}");
        assert_eq!(value(&found, &header::CONTENT_TYPE), media, "{accept:?}");
        let bytes = found.bytes().await.unwrap();
        match media {
            "text/plain" => assert_eq!(bytes, text),
            "application/zip" => assert!(bytes.starts_with(b"PK"), "{accept:?}"),
            _ => {}
        }
    }
    assert_eq!(site.send(Method::DELETE, &format!("/{single}"), None).await.0, StatusCode::NO_CONTENT);

    let several = site.onboarded(hello()).await;
    let cases = [
        (None, 200, "application/zip"),
        (Some("text/plain"), 406, "application/problem+json"),
        (Some("application/zip"), 200, "application/zip"),
        (Some("text/plain,application/zip"), 200, "application/zip"),
    ];
    for (accept, status, media) in cases {
        let headers: Vec<_> = accept.map(|accept| ("accept", accept)).into_iter().collect();
        let found = get(&site, &format!("/{several}/vnfd"), &headers).await;
        assert_eq!(found.status().as_u16(), status, "{accept:?}");
        assert_eq!(value(&found, &header::CONTENT_TYPE), media, "{accept:?}");
        if status == 200 {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), found.bytes().await.unwrap()).unwrap();
            let archive = guywire_package::open(file.path()).unwrap();
            let mut names: Vec<&str> = archive.files().collect();
            names.sort_unstable();
            let expected =
                ["Definitions/hello.yaml", "Definitions/hello_types.yaml", "TOSCA-Metadata/TOSCA.meta"];
            assert_eq!(names, expected);
        }
    }
    assert_eq!(site.files().len(), 1, "{:?}", site.files());
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_fetched_from_where_it_lies() {
    let (here, there) = (Ground::sqlite(), Ground::sqlite());
    let (site, source) = (Site::start(&here).await, Site::start(&there).await);
    let lies = source.onboarded(hello()).await;
    let base = format!("{}/vnfpkgm/v1/vnf_packages", source.url);
    let id = site.create().await;
    let task = format!("/{id}/package_content/upload_from_uri");
    for (address, words) in [
        (format!("{base}/{id}/package_content"), "404"),
        ("http://127.0.0.1:9/hello.csar".to_owned(), "no connection"),
    ] {
        let body = json!({"addressInformation": address, "userName": "u", "password": "sesame"});
        assert_eq!(site.send(Method::POST, &task, Some(&body)).await.0, StatusCode::ACCEPTED);
        let shown = site.read(&id).await;
        assert_eq!(shown["onboardingState"], "CREATED");
        let failure = &shown["onboardingFailureDetails"];
        assert!(detail(failure).contains(words), "{failure}");
        let kept = site.app.store.package(id.parse().unwrap()).await.unwrap();
        assert!(!format!("{kept:?}").contains("sesame"));
    }
    let body = json!({"addressInformation": format!("{base}/{lies}/package_content")});
    let request = site.request(Method::POST, &task).json(&body);
    assert_eq!(answer(request).await, (StatusCode::ACCEPTED, serde_json::Value::Null));
    assert_eq!(site.read(&id).await["onboardingState"], "ONBOARDED");
}
