//! Every route of the table is asked for.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use super::world::{World, read};
use crate::{
    app::access::Role,
    http::{Access, Route, all, openapi},
};

/// All that answers without credentials.
const OPEN: &[&str] = &[
    "GET /",
    "GET /healthz",
    "GET /readyz",
    "GET /vnflcm/api_versions",
    "GET /vnflcm/v1/api_versions",
    "GET /vnflcm/v2/api_versions",
    "GET /vnfpkgm/api_versions",
    "GET /vnfpkgm/v1/api_versions",
    "GET /vnffm/api_versions",
    "GET /vnffm/v1/api_versions",
    "POST /oauth2/token",
    "POST /console/session",
];
/// The console's static files.
const STATIC: &str = "GET /console/";

fn path(route: &Route) -> String {
    let parts = route.path.split('/').map(|part| match part.strip_prefix('{') {
        Some(_) => "0197f3a0-0000-7000-8000-000000000000",
        None => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn nothing_answers_without_credentials_but_what_is_written_here() {
    let world = World::new().await;
    let mut open = BTreeSet::new();
    // All at once, since each that is refused waits for its answer.
    let asked = all().into_iter().map(|route| async {
        let answer = world.bare(route.method.clone(), &path(&route)).send().await.expect("an answer");
        (route, answer)
    });
    for (route, answer) in futures::future::join_all(asked).await {
        let name = format!("{} {}", route.method, route.path);
        let written = OPEN.contains(&name.as_str())
            || (name.starts_with(STATIC) && !name.ends_with("/session") && route.doc.request.is_none());
        if route.access == Access::Open {
            assert!(written, "{name} is open and not in the list");
            open.insert(name);
            continue;
        }
        assert!(!written, "{name} is in the list and not open");
        assert_eq!(answer.headers()["www-authenticate"], "Bearer realm=\"guywire\"", "{name}");
        let (status, _) = read(answer).await;
        assert_eq!(status, 401, "{name}");
    }
    for name in OPEN {
        assert!(open.contains(*name), "{name} is in the list and no route");
    }
}

#[tokio::test]
async fn a_role_may_do_what_it_may_and_no_more() {
    let world = World::new().await;
    let tokens = [
        (Role::Reader, world.token("r", Role::Reader).await),
        (Role::Operator, world.token("o", Role::Operator).await),
    ];
    for route in all() {
        let Some(needed) = route.access.role() else { continue };
        if route.method == Method::GET {
            assert!(
                needed != Role::Operator,
                "{route:?}: who may look may look at it, or only administrators may"
            );
        } else {
            let own_session = route.path == "/console/session";
            assert!(needed > Role::Reader || own_session, "{route:?}: a reader changes nothing");
        }
        for (role, token) in &tokens {
            if *role >= needed {
                continue;
            }
            let request = world.bare(route.method.clone(), &path(&route)).header("x-auth-token", token);
            let (status, problem) = read(request.send().await.expect("an answer")).await;
            assert_eq!(status, 403, "{route:?}");
            assert!(
                problem["detail"].as_str().is_some_and(|text| text.contains(needed.as_str())),
                "{problem}"
            );
        }
    }
}

#[tokio::test]
async fn no_malformed_request_is_our_fault() {
    let world = World::new().await;
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("application/json", b"{".to_vec()),
        ("application/json", b"[]".to_vec()),
        ("application/json", b"null".to_vec()),
        ("application/json", b"\"text\"".to_vec()),
        ("application/json", br#"{"nope": {"a": [1, 2, {"b": null}]}}"#.to_vec()),
        ("application/json", vec![0xff, 0xfe, 0x00]),
        ("application/json", "[".repeat(100_000).into_bytes()),
        ("application/json", br#"{"a": 1e999, "a": -0}"#.to_vec()),
        ("text/html", b"<p>".to_vec()),
        ("application/x-www-form-urlencoded", b"a=%zz&grant_type=x".to_vec()),
        ("application/merge-patch+json", b"{}".to_vec()),
    ];
    for route in all() {
        // Streams without end are not for this test, nor is what logs the administrator out.
        if route.path.contains("/events") {
            continue;
        }
        for (media, body) in &bodies {
            if route.method == Method::GET {
                continue;
            }
            let request = world.request(route.method.clone(), &path(&route));
            let request = request.header("content-type", *media).body(body.clone());
            let (status, value) = read(request.send().await.expect("an answer")).await;
            assert!(status < 500, "{route:?} {media}: {status} {value}");
        }
        let queries = [
            "?nope=1",
            "?filter=(",
            "?filter=%ff",
            "?fields=nope",
            "?nextpage_opaque_marker=x",
            "?a=%",
            "?&&=&",
        ];
        for query in queries {
            let request = world.request(route.method.clone(), &format!("{}{query}", path(&route)));
            let (status, value) = read(request.send().await.expect("an answer")).await;
            assert!((400..500).contains(&status), "{route:?} {query}: {status} {value}");
        }
    }
}

#[test]
fn every_route_is_described() {
    let document = openapi(&all());
    let mut ids = BTreeSet::new();
    for route in all() {
        assert!(
            !route.doc.summary.is_empty() && !route.doc.tag.is_empty(),
            "{route:?} says not what it is for"
        );
        assert!(!route.doc.answers.is_empty(), "{route:?} says not what it answers");
        let described =
            &document["paths"][route.path.replace("{*", "{")][route.method.as_str().to_lowercase()];
        assert!(described.is_object(), "{route:?}");
        assert!(ids.insert(described["operationId"].to_string()), "{route:?}: the id is there twice");
    }
    follow(&document, &document);
    assert_eq!(document["openapi"], "3.1.0");
}

/// `GUYWIRE_BLESS=1` writes the document down again.
#[test]
fn the_committed_document_is_the_present_one() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/openapi.json");
    let text = format!("{:#}\n", openapi(&all()));
    if std::env::var_os("GUYWIRE_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        std::fs::write(&file, text).expect("written");
        return;
    }
    let committed = std::fs::read_to_string(&file).expect("deploy/openapi.json");
    assert!(
        committed == text,
        "deploy/openapi.json is stale; run the test with GUYWIRE_BLESS=1 and commit it"
    );
}

#[tokio::test]
async fn the_interfaces_tell_their_versions() {
    let world = World::new().await;
    let versions = |path: &'static str| {
        let request = world.bare(Method::GET, path).header("version", "2.0.0");
        async move {
            let (status, value) = read(request.send().await.expect("an answer")).await;
            assert_eq!(status, 200, "{path}");
            let all = value["apiVersions"].as_array().expect("a list").clone();
            all.into_iter().map(|one| one["version"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(versions("/vnflcm/api_versions").await, ["1.3.0", "2.0.0"]);
    assert_eq!(versions("/vnflcm/v1/api_versions").await, ["1.3.0"]);
    assert_eq!(versions("/vnflcm/v2/api_versions").await, ["2.0.0"]);
    assert_eq!(versions("/vnfpkgm/api_versions").await, ["1.3.0"]);
    assert_eq!(versions("/vnffm/v1/api_versions").await, ["1.3.0"]);
    let (status, root) = read(world.bare(Method::GET, "/").send().await.expect("an answer")).await;
    assert_eq!((status, root["versions"].as_array().map(Vec::len)), (200, Some(5)));
}

#[tokio::test]
async fn health_and_metrics_say_how_it_goes() {
    let world = World::new().await;
    let alive = world.bare(Method::GET, "/healthz").send().await.expect("an answer");
    assert_eq!(alive.text().await.expect("text"), "ok\n");
    let (status, ready) = read(world.bare(Method::GET, "/readyz").send().await.expect("an answer")).await;
    assert_eq!((status, &ready["ready"]), (200, &json!(true)), "{ready}");
    assert_eq!(ready["checks"].as_array().map(Vec::len), Some(3));
    assert_eq!(world.get("/v1.0/vims/0197f3a0-0000-7000-8000-000000000000").await.0, 404);
    let metrics = world.request(Method::GET, "/metrics").send().await.expect("an answer");
    assert_eq!(metrics.status(), 200);
    let text = metrics.text().await.expect("text");
    for expected in [
        "guywire_http_requests_total{route=\"/v1.0/vims/{vimId}\",method=\"GET\",status=\"404\"} 1",
        "guywire_http_request_duration_seconds_count{route=\"/healthz\",method=\"GET\"} 1",
        "guywire_notification_backlog 0",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert_eq!(text.matches("# EOF").count(), 1, "one document");

    world.app.store.db().close().await;
    let (status, ready) = read(world.bare(Method::GET, "/readyz").send().await.expect("an answer")).await;
    // Readers are gone and the writer is not: the journal and the disk are as well as before.
    assert_eq!((status, ready["checks"].as_array().map(Vec::len)), (200, Some(3)), "{ready}");
    let (status, problem) =
        read(world.request(Method::GET, "/v1.0/vims").send().await.expect("an answer")).await;
    assert_eq!(status, 503, "a database that is away is our fault: {problem}");
}

/// Every reference leads somewhere.
fn follow(value: &Value, document: &Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(to)) = map.get("$ref") {
                let pointer = to.strip_prefix('#').expect("inside the document");
                assert!(document.pointer(pointer).is_some(), "{to} leads nowhere");
            }
            map.values().for_each(|inner| follow(inner, document));
        }
        Value::Array(all) => all.iter().for_each(|inner| follow(inner, document)),
        _ => {}
    }
}
