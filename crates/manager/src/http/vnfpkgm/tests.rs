//! A real listener, a real package, real requests.

mod content;
mod crash;
mod site;

use guywire_package::{Limits, Policy};
use reqwest::{Method, StatusCode};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::site::{Site, altered, answer, hello};
use crate::{
    app::samples::{self, Ground},
    domain::{InstantiationState, PackageId},
};

const VNFD: &str = "5f3a8c0e-6b1d-4d57-9c55-2f0e0b9a7d11";

fn detail(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_lives_from_nothing_to_its_end() {
    for ground in Ground::both().await {
        let site = Site::start(&ground).await;
        let subscriptions = format!("{}/vnfpkgm/v1/subscriptions", site.url);
        let subscription = json!({"callbackUri": "http://127.0.0.1:9/nobody"});
        let subscribed = reqwest::Client::new().post(subscriptions).json(&subscription);
        assert_eq!(answer(subscribed).await.0, StatusCode::CREATED);
        let told = async || site.app.store.notification_backlog().await.unwrap().0;

        let id = site.create().await;
        let shown = site.show(&id).await;
        assert_eq!(shown["onboardingState"], "CREATED");
        assert_eq!(shown["operationalState"], "DISABLED");
        assert_eq!(shown["usageState"], "NOT_IN_USE");
        assert!(shown.get("vnfdId").is_none() && shown["_links"].get("vnfd").is_none(), "{shown}");
        assert_eq!(told().await, 0);

        let csar = hello();
        assert_eq!(site.upload(&id, csar.clone()).await, (StatusCode::ACCEPTED, Value::Null));
        let shown = site.read(&id).await;
        assert_eq!(shown["onboardingState"], "ONBOARDED", "{shown}");
        assert_eq!(shown["operationalState"], "ENABLED");
        assert_eq!(shown["vnfdId"], VNFD);
        assert_eq!(shown["vnfProvider"], "Guywire");
        assert_eq!(shown["vnfProductName"], "Hello");
        assert_eq!(shown["checksum"], json!({"algorithm": "SHA-256", "hash": site::sha256(&csar)}));
        let artifacts = shown["additionalArtifacts"].as_array().unwrap();
        assert!(artifacts.iter().any(|one| one["artifactPath"] == "Scripts/hello.py"), "{shown}");
        assert!(shown["_links"]["vnfd"]["href"].as_str().unwrap().ends_with(&format!("/{id}/vnfd")));
        assert_eq!(told().await, 1);
        assert_eq!(site.files(), [format!("{}.csar", site::sha256(&csar))]);
        let (status, problem) = site.upload(&id, csar).await;
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(detail(&problem).contains("ONBOARDED"), "{problem}");

        // It stays until it is disabled, and then goes with all its files.
        let (status, problem) = site.send(Method::DELETE, &format!("/{id}"), None).await;
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(detail(&problem).contains("ENABLED"), "{problem}");
        let off = json!({"operationalState": "DISABLED"});
        assert_eq!(site.patch(&id, &off).await, (StatusCode::OK, off.clone()));
        assert_eq!(site.patch(&id, &off).await.0, StatusCode::CONFLICT);
        assert_eq!(told().await, 2);
        let unpacked = site.packages().join("unpacked").join(shown["checksum"]["hash"].as_str().unwrap());
        std::fs::create_dir_all(unpacked.join("Scripts")).unwrap();
        assert_eq!(site.send(Method::DELETE, &format!("/{id}"), None).await.0, StatusCode::NO_CONTENT);
        assert_eq!(site.send(Method::GET, &format!("/{id}"), None).await.0, StatusCode::NOT_FOUND);
        assert_eq!(site.files(), ["unpacked"]);
        assert!(!unpacked.exists());
        assert_eq!(told().await, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_told_with_file_and_line_and_can_be_sent_again() {
    let ground = Ground::sqlite();
    let site = Site::start(&ground).await;
    let id = site.create().await;
    let wrong = altered("Definitions/hello.yaml", "flavour_description: Machines", "flavour_description: [");
    assert_eq!(site.upload(&id, wrong).await.0, StatusCode::ACCEPTED);
    let shown = site.read(&id).await;
    assert_eq!(shown["onboardingState"], "CREATED");
    let failure = &shown["onboardingFailureDetails"];
    assert_eq!(failure["status"], 422, "{failure}");
    assert_eq!(failure["file"], "Definitions/hello.yaml", "{failure}");
    let line = failure["line"].as_u64().expect("a line");
    assert!(detail(failure).starts_with(&format!("Definitions/hello.yaml:{line}: ")), "{failure}");
    assert_eq!(site.files(), Vec::<String>::new());

    // What is no archive at all is told without a name of ours.
    assert_eq!(site.upload(&id, b"no archive".to_vec()).await.0, StatusCode::ACCEPTED);
    let failure = &site.read(&id).await["onboardingFailureDetails"];
    assert!(detail(failure).starts_with("package: "), "{failure}");
    assert!(failure.get("file").is_none(), "{failure}");

    assert_eq!(site.upload(&id, hello()).await.0, StatusCode::ACCEPTED);
    let shown = site.read(&id).await;
    assert_eq!(shown["onboardingState"], "ONBOARDED", "{shown}");
    assert!(shown.get("onboardingFailureDetails").is_none(), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_is_onboarded_once_and_again_when_it_is_gone() {
    for ground in Ground::both().await {
        let site = Site::start(&ground).await;
        let first = site.onboarded(hello()).await;
        let second = site.create().await;
        // Other content with the same descriptor, and the very same content.
        let other = altered("Scripts/answer.sh", "\n", "\n\n");
        for bytes in [other, hello()] {
            assert_eq!(site.upload(&second, bytes).await.0, StatusCode::ACCEPTED);
            let shown = site.read(&second).await;
            assert_eq!(shown["onboardingState"], "CREATED", "{shown}");
            let failure = &shown["onboardingFailureDetails"];
            assert_eq!(failure["status"], 409, "{failure}");
            assert!(detail(failure).contains(&first) && detail(failure).contains(VNFD), "{failure}");
            assert_eq!(site.files(), [format!("{}.csar", site::sha256(&hello()))]);
        }
        assert_eq!(site.patch(&first, &json!({"operationalState": "DISABLED"})).await.0, StatusCode::OK);
        assert_eq!(site.send(Method::DELETE, &format!("/{first}"), None).await.0, StatusCode::NO_CONTENT);
        assert_eq!(site.upload(&second, hello()).await.0, StatusCode::ACCEPTED);
        assert_eq!(site.read(&second).await["onboardingState"], "ONBOARDED");

        // Many at once: one of them gets it, and its content stays.
        assert_eq!(site.patch(&second, &json!({"operationalState": "DISABLED"})).await.0, StatusCode::OK);
        assert_eq!(site.send(Method::DELETE, &format!("/{second}"), None).await.0, StatusCode::NO_CONTENT);
        let race = futures::future::join_all((0..6).map(|_| async {
            let id = site.create().await;
            assert_eq!(site.upload(&id, hello()).await.0, StatusCode::ACCEPTED);
            site.read(&id).await
        }));
        let states: Vec<Value> = race.await.into_iter().map(|one| one["onboardingState"].clone()).collect();
        assert_eq!(states.iter().filter(|state| **state == "ONBOARDED").count(), 1, "{states:?}");
        assert_eq!(site.files(), [format!("{}.csar", site::sha256(&hello()))]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_uploads_one_wins_and_one_that_is_cut_is_told() {
    let ground = Ground::sqlite();
    let site = Site::start(&ground).await;
    let id = site.create().await;
    let csar = hello();
    let (first, rest) = csar.split_at(100);
    let mut slow = site.begin(&id, csar.len(), first).await;
    let (status, problem) = site.upload(&id, csar.clone()).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(detail(&problem).contains("UPLOADING"), "{problem}");
    slow.write_all(rest).await.unwrap();
    let mut reply = String::new();
    slow.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 202"), "{reply}");
    assert_eq!(site.read(&id).await["onboardingState"], "ONBOARDED");

    let id = site.create().await;
    let cut = site.begin(&id, csar.len(), first).await;
    // The package is marked before its first bytes are read: time to read them, since how many came is what is told.
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(cut);
    let shown = site.read(&id).await;
    assert_eq!(shown["onboardingState"], "CREATED");
    let failure = &shown["onboardingFailureDetails"];
    assert!(detail(failure).contains("cut after 100 bytes"), "{failure}");
    assert_eq!(site.files(), [format!("{}.csar", site::sha256(&csar))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_deleted_while_it_arrives_leaves_nothing() {
    let ground = Ground::sqlite();
    let site = Site::start(&ground).await;
    let id = site.create().await;
    let csar = hello();
    let mut slow = site.begin(&id, csar.len(), &csar[..100]).await;
    assert_eq!(site.send(Method::DELETE, &format!("/{id}"), None).await.0, StatusCode::NO_CONTENT);
    slow.write_all(&csar[100..]).await.unwrap();
    let mut reply = String::new();
    slow.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 404"), "{reply}");
    assert_eq!(site.files(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_before_and_while_it_arrives() {
    let limits = Limits { unpacked_bytes: 100_000, ..Limits::default() };
    let ground = Ground::sqlite();
    let site = Site::start_with(&ground, Policy { limits, ..Policy::default() }).await;
    let id = site.create().await;
    let (status, problem) = site.upload(&id, vec![0; 100_001]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{problem}");
    assert!(detail(&problem).contains("100001") && detail(&problem).contains("100000"), "{problem}");
    let shown = site.show(&id).await;
    assert_eq!(shown["onboardingState"], "CREATED");
    assert!(shown.get("onboardingFailureDetails").is_none(), "nothing was begun: {shown}");

    let pieces = futures::stream::iter((0..30).map(|_| Ok::<_, std::io::Error>(vec![0_u8; 4000])));
    let request = site.request(Method::PUT, &format!("/{id}/package_content"));
    let request = request.header("content-type", "application/zip").body(reqwest::Body::wrap_stream(pieces));
    assert_eq!(answer(request).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let shown = site.show(&id).await;
    assert_eq!(shown["onboardingFailureDetails"]["status"], 413, "{shown}");
    assert_eq!(site.files(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_disk_has_no_room_for_is_refused_and_the_rest_goes_on() {
    let ground = Ground::sqlite();
    let limits = Limits { unpacked_bytes: u64::MAX, ..Limits::default() };
    let site = Site::start_with(&ground, Policy { limits, ..Policy::default() }).await;
    let id = site.create().await;
    let address = site.url.strip_prefix("http://").unwrap();
    // Who asks first is told at once, and sends nothing.
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "PUT /vnfpkgm/v1/vnf_packages/{id}/package_content HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/zip\r\nContent-Length: 900000000000000000\r\nExpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 503") && reply.contains("disk full"), "{reply}");
    assert_eq!(site.show(&id).await["onboardingState"], "CREATED");
    assert_eq!(site.upload(&id, hello()).await.0, StatusCode::ACCEPTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_make_no_sense_are_refused_with_the_reason() {
    let ground = Ground::sqlite();
    let site = Site::start(&ground).await;
    let id = site.create().await;
    let one = format!("/{id}");
    let from = format!("/{id}/package_content/upload_from_uri");
    let cases = [
        (Method::POST, "", json!({"userDefined": 1}), 400, "userDefined"),
        (Method::POST, "", json!({"userDefinedData": 1}), 400, "userDefinedData"),
        (Method::PATCH, &one, json!({}), 400, "changes nothing"),
        (Method::PATCH, &one, json!({"operationalState": null}), 400, "operationalState"),
        (Method::PATCH, &one, json!({"operationalState": "ON"}), 400, "operationalState"),
        (Method::PATCH, &one, json!({"operationalState": "ENABLED"}), 409, "CREATED"),
        (Method::POST, &from, json!({"addressInformation": "ftp://example.org/a"}), 400, "ftp"),
        (Method::POST, &from, json!({"addressInformation": "hello"}), 400, "no address"),
        (Method::POST, &from, json!({"addressInformation": "http://u:sesame@h/"}), 400, "userName"),
        (
            Method::POST,
            &from,
            json!({"addressInformation": "http://h/", "password": "sesame"}),
            400,
            "userName",
        ),
        (Method::POST, &from, json!({}), 400, "addressInformation"),
    ];
    for (method, rest, body, status, words) in cases {
        let (got, problem) = site.send(method.clone(), rest, Some(&body)).await;
        assert_eq!(got.as_u16(), status, "{method} {rest} {body}: {problem}");
        assert!(detail(&problem).contains(words), "{method} {rest} {body}: {problem}");
        assert!(!problem.to_string().contains("sesame"), "{problem}");
    }
    for rest in ["/package_content", "/vnfd", "/artifacts/Scripts/hello.py"] {
        let (status, problem) = site.send(Method::GET, &format!("/{id}{rest}"), None).await;
        assert_eq!(status, StatusCode::CONFLICT, "{rest}: {problem}");
    }
    let text = site.request(Method::PUT, &format!("/{id}/package_content"));
    let (status, _) = answer(text.header("content-type", "text/plain").body("hello")).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(site.show(&id).await["onboardingState"], "CREATED");
}

#[tokio::test(flavor = "multi_thread")]
async fn free_attributes_are_merged_and_lists_show_what_is_asked_for() {
    let ground = Ground::sqlite();
    let site = Site::start(&ground).await;
    let free = json!({"userDefinedData": {"a": 1, "b": {"c": 2, "d": 3}}});
    let (status, created) = site.send(Method::POST, "", Some(&free)).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(created["userDefinedData"], free["userDefinedData"]);
    let id = created["id"].as_str().unwrap();
    let patch = json!({"userDefinedData": {"a": null, "b": {"c": 5}, "e": [1]}});
    let merged = json!({"userDefinedData": {"b": {"c": 5, "d": 3}, "e": [1]}});
    assert_eq!(site.patch(id, &patch).await, (StatusCode::OK, merged));
    let stale = site.request(Method::PATCH, &format!("/{id}")).header("if-match", "\"1\"").json(&patch);
    assert_eq!(answer(stale).await.0, StatusCode::PRECONDITION_FAILED);
    let cleared = site.patch(id, &json!({"userDefinedData": null})).await;
    assert_eq!(cleared, (StatusCode::OK, json!({"userDefinedData": {}})));

    let other = site.onboarded(hello()).await;
    let (_, all) = site.send(Method::GET, "", None).await;
    assert_eq!(all.as_array().unwrap().len(), 2);
    let (_, some) = site.send(Method::GET, "?filter=(eq,onboardingState,ONBOARDED)", None).await;
    assert_eq!(some[0]["id"], other.as_str());
    assert!(some[0].get("checksum").is_none() && some.as_array().unwrap().len() == 1, "{some}");
    let (_, whole) = site.send(Method::GET, "?all_fields&filter=(neq,onboardingState,CREATED)", None).await;
    assert!(whole[0].get("checksum").is_some(), "{whole}");
    let (_, found) = site.send(Method::GET, &format!("?filter=(eq,vnfdId,{VNFD})"), None).await;
    assert_eq!(found.as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_instances_follow_stays() {
    for ground in Ground::both().await {
        let site = Site::start(&ground).await;
        let id = site.onboarded(hello()).await;
        assert_eq!(site.patch(&id, &json!({"operationalState": "DISABLED"})).await.0, StatusCode::OK);
        let record = site.app.store.package(id.parse::<PackageId>().unwrap()).await.unwrap().unwrap();
        let mut instance = samples::instance(&record, Vec::new());
        instance.state = InstantiationState::NotInstantiated;
        instance.info = None;
        site.app.store.insert_instance(&instance).await.unwrap();
        assert_eq!(site.show(&id).await["usageState"], "IN_USE");
        let (_, list) = site.send(Method::GET, "", None).await;
        assert_eq!(list[0]["usageState"], "IN_USE");
        let (status, problem) = site.send(Method::DELETE, &format!("/{id}"), None).await;
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(detail(&problem).contains("IN_USE"), "{problem}");
        site.app.store.delete_instance(&instance).await.unwrap();

        // Nor goes one that an operation is about to make an instance follow.
        let mut mover = samples::stored_instance(&site.app.store, Vec::new()).await;
        mover.info = None;
        let mut operation = samples::operation(
            &mover,
            crate::domain::OperationType::ChangeVnfpkg,
            crate::domain::OperationState::FailedTemp,
        );
        operation.target.as_mut().unwrap().package = Some((record.id, VNFD.to_owned()));
        site.app.store.accept_operation(&operation, &mover, &[]).await.unwrap();
        let (status, problem) = site.send(Method::DELETE, &format!("/{id}"), None).await;
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        assert!(detail(&problem).contains(&operation.id.to_string()), "{problem}");
    }
}
