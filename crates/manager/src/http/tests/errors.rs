//! Whatever is wrong with a request, the answer says what.

use std::time::Duration;

use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::world::{Setup, World, read};
use crate::{
    domain::{AppError, ErrorKind},
    http::{Access, Answer, Call, LCM_V2, Reply, Route, page},
    sol013::Resource,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what is read is not looked at")]
struct Thing {
    #[serde(default)]
    name: String,
    #[serde(default)]
    inner: Vec<Inner>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what is read is not looked at")]
struct Inner {
    count: u32,
}

static THING: Resource = Resource {
    name: "Thing",
    mandatory: &["id"],
    optional: &["name", "body"],
    excluded: &["body"],
    heavy: &["body"],
};

fn routes() -> Vec<Route> {
    vec![
        Route::get("/things", Access::Reader, list)
            .api(LCM_V2)
            .doc("t", "t")
            .listing()
            .answers::<Vec<serde_json::Value>>(200, "All"),
        Route::post("/things", Access::Reader, take)
            .doc("t", "t")
            .takes::<Thing>()
            .answers_nothing(204, "Taken"),
        Route::patch("/things/{thingId}", Access::Reader, change)
            .doc("t", "t")
            .takes::<Thing>()
            .answers_nothing(204, "Taken"),
        Route::post("/things/{thingId}/go", Access::Reader, go)
            .doc("t", "t")
            .may_take::<Thing>()
            .answers_nothing(202, "Taken"),
        Route::get("/tagged", Access::Reader, tagged)
            .doc("t", "t")
            .answers::<serde_json::Value>(200, "Tagged"),
        Route::get("/panic", Access::Reader, slip).doc("t", "t").answers_nothing(204, "Never"),
        Route::get("/broken", Access::Reader, broken).doc("t", "t").answers_nothing(204, "Never"),
        Route::get("/slow", Access::Reader, slow).doc("t", "t").answers_nothing(204, "Later"),
    ]
}

async fn list(call: Call) -> Answer {
    let listing = call.listing(&THING)?;
    page(&call, &listing, |after, limit| {
        let after: u32 = after.map_or(0, |id| id.parse().unwrap_or(0));
        let rows = (after + 1..=250).take(limit as usize);
        let rows =
            rows.map(|n| (format!("{n:04}"), json!({"id": format!("{n:04}"), "name": "n", "body": n})));
        std::future::ready(Ok(rows.collect()))
    })
    .await
}

async fn take(mut call: Call) -> Answer {
    let _: Thing = call.json().await?;
    Ok(Reply::no_content())
}

async fn change(mut call: Call) -> Answer {
    let _: uuid::Uuid = call.id("thingId")?;
    call.if_match("seven")?;
    let _: Thing = call.json().await?;
    Ok(Reply::no_content())
}

async fn go(mut call: Call) -> Answer {
    let _: Thing = call.json_or_empty().await?;
    Ok(Reply::accepted(&call.url("/things/1")))
}

async fn tagged(_: Call) -> Answer {
    Ok(Reply::ok(&json!({"a": 1})).with_etag("seven"))
}

async fn slip(_: Call) -> Answer {
    panic!("the secret reason")
}

async fn broken(_: Call) -> Answer {
    Err(AppError::new(ErrorKind::Unavailable, "the disk is full; make room")
        .because("ENOSPC in /secret/place"))
}

async fn slow(_: Call) -> Answer {
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(Reply::no_content())
}

async fn world() -> World {
    World::with(Setup { routes: Some(routes()), ..Setup::default() }).await
}

#[tokio::test]
async fn wrong_bodies_are_told_with_their_place() {
    let world = world().await;
    let json = "application/json";
    let cases: &[(&str, &str, u16, &str)] = &[
        (json, r#"{"name": "x"}"#, 204, ""),
        ("application/json; charset=utf-8", r#"{"name": "x"}"#, 204, ""),
        (json, "", 400, "the body is empty"),
        (json, "{\n  \"name\": }", 400, "the body is no JSON: expected value at line 2 column 11"),
        (json, "{} {}", 400, "the body is no JSON: trailing characters"),
        (json, r#"{"name": 7}"#, 400, "name: invalid type: integer `7`, expected a string"),
        (json, r#"{"nam": "x"}"#, 400, "unknown field `nam`, expected `name` or `inner`"),
        (
            json,
            r#"{"inner": [{"count": 1}, {"count": -1}]}"#,
            400,
            "inner[1].count: invalid value: integer `-1`",
        ),
        (json, r#"{"inner": [{}]}"#, 400, "inner[0]: missing field `count`"),
        ("text/plain", "{}", 415, "Content-Type is \"text/plain\"; send application/json"),
        ("", "{}", 415, "the body has no Content-Type"),
    ];
    for (media, body, status, expected) in cases {
        let mut request = world.request(Method::POST, "/things").body((*body).to_owned());
        if !media.is_empty() {
            request = request.header("content-type", *media);
        }
        let (got, problem) = read(request.send().await.expect("an answer")).await;
        assert_eq!(got, *status, "{body}: {problem}");
        if *status >= 400 {
            assert!(
                problem["detail"].as_str().is_some_and(|text| text.contains(expected)),
                "{body}: {problem}"
            );
        }
    }
    let request = world.request(Method::POST, "/things").header("content-type", json);
    let (status, problem) = read(request.body(vec![b'"', 0xff, b'"']).send().await.expect("an answer")).await;
    assert_eq!((status, &problem["detail"]), (400, &json!("the body is no UTF-8 text: byte 2 is wrong")));
    let long = format!("{{\"name\": \"{}\"}}", "x".repeat(1024 * 1024));
    let request = world.request(Method::POST, "/things").header("content-type", json).body(long.clone());
    assert_eq!(read(request.send().await.expect("an answer")).await.0, 413);
    // Without a length it is counted as it comes.
    let chunks = futures::stream::iter(
        long.into_bytes()
            .chunks(65536)
            .map(|part| Ok::<_, std::io::Error>(part.to_vec()))
            .collect::<Vec<_>>(),
    );
    let request = world.request(Method::POST, "/things").header("content-type", json);
    let request = request.body(reqwest::Body::wrap_stream(chunks));
    assert_eq!(read(request.send().await.expect("an answer")).await.0, 413);
}

#[tokio::test]
async fn a_body_that_is_not_needed_may_be_anything_empty() {
    let world = world().await;
    let path = "/things/0197f3a0-0000-7000-8000-000000000000/go";
    for (media, body, status) in [
        ("", "", 202),
        ("application/json", "", 202),
        ("application/json", "{}", 202),
        ("application/x-www-form-urlencoded", " { } ", 202),
        ("", "{}", 202),
        ("application/x-www-form-urlencoded", "{\"name\": \"x\"}", 415),
        ("application/json", "{\"nope\": 1}", 400),
        ("application/json", "[]", 400),
    ] {
        let mut request = world.request(Method::POST, path).body(body);
        if !media.is_empty() {
            request = request.header("content-type", media);
        }
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), status, "{media} {body}");
        if status == 202 {
            assert_eq!(response.headers()["location"], format!("{}/things/1", world.url).as_str());
            assert_eq!(response.bytes().await.expect("a body").len(), 0);
        }
    }
}

#[tokio::test]
async fn versions_accept_and_queries_are_checked() {
    let world = world().await;
    let send = |version: Option<&'static str>, accept: &'static str, query: &'static str| {
        let mut request =
            world.bare(Method::GET, &format!("/things{query}")).header("x-auth-token", &world.admin);
        request = request.header("accept", accept);
        if let Some(version) = version {
            request = request.header("version", version);
        }
        async move {
            let response = request.send().await.expect("an answer");
            assert_eq!(response.headers()["version"], "2.0.0", "every answer says its version");
            read(response).await
        }
    };
    assert_eq!(send(Some("2.0.0"), "*/*", "").await.0, 200);
    assert_eq!(
        send(Some("2.0.0"), "application/json", "?all_records=yes").await.1.as_array().map(Vec::len),
        Some(250)
    );
    for (version, accept, query, status, expected) in [
        (None, "*/*", "", 400, "no Version header"),
        (Some("two"), "*/*", "", 400, "no version"),
        (Some("3.0.0"), "*/*", "", 406, "Version 3.0.0 is not served"),
        (Some("2.0.0"), "application/xml", "", 406, "application/json"),
        (Some("2.0.0"), "*/*", "?nope=1", 400, "\"nope\" is not known; there are filter"),
        (Some("2.0.0"), "*/*", "?filter=(eq,nope,1)", 400, "Thing has no attribute \"nope\""),
        (Some("2.0.0"), "*/*", "?fields=nope/x", 400, "Thing has no attribute \"nope\""),
        (Some("2.0.0"), "*/*", "?exclude_fields=nope", 400, "Thing has no attribute \"nope\""),
        (Some("2.0.0"), "*/*", "?nextpage_opaque_marker=garbage", 400, "none of ours"),
    ] {
        let (got, problem) = send(version, accept, query).await;
        assert_eq!(got, status, "{query}: {problem}");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains(expected)), "{problem}");
    }
}

#[tokio::test]
async fn links_lead_through_all_pages() {
    let world = world().await;
    let mut next = Some(format!("{}/things?all_fields", world.url));
    let mut seen = 0;
    while let Some(url) = next.take() {
        let request = world.client.get(&url).bearer_auth(&world.admin).header("version", "2.0.0");
        let response = request.send().await.expect("an answer");
        let link = response.headers().get("link").map(|value| value.to_str().expect("text").to_owned());
        let (status, entries) = read(response).await;
        assert_eq!(status, 200);
        let entries = entries.as_array().expect("a list").clone();
        assert!(entries.iter().all(|entry| entry["body"].is_number()), "all_fields is kept");
        seen += entries.len();
        next =
            link.map(|link| link.trim_start_matches('<').split('>').next().expect("an address").to_owned());
    }
    assert_eq!(seen, 250);
}

#[tokio::test]
async fn entity_tags_are_heeded() {
    let world = world().await;
    let get = |unless: &'static str| {
        let request = world.request(Method::GET, "/tagged").header("if-none-match", unless);
        async move { request.send().await.expect("an answer") }
    };
    for (unless, status) in
        [("\"seven\"", 304), ("W/\"seven\"", 304), ("\"x\", \"seven\"", 304), ("*", 304), ("\"x\"", 200)]
    {
        let response = get(unless).await;
        assert_eq!(response.status(), status, "{unless}");
        assert_eq!(response.headers()["etag"], "\"seven\"");
        assert_eq!(response.bytes().await.expect("a body").is_empty(), status == 304);
    }
    let patch = |tag: Option<&'static str>, media: &'static str| {
        let path = "/things/0197f3a0-0000-7000-8000-000000000000";
        let mut request = world.request(Method::PATCH, path).header("content-type", media).body("{}");
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        async move { read(request.send().await.expect("an answer")).await.0 }
    };
    let media = "application/merge-patch+json";
    assert_eq!(patch(None, media).await, 204);
    assert_eq!(patch(None, "text/plain").await, 204, "Tacker's clients send that");
    assert_eq!(patch(None, "text/html").await, 415);
    assert_eq!(patch(Some("\"seven\""), media).await, 204);
    assert_eq!(patch(Some("*"), media).await, 204);
    assert_eq!(patch(Some("\"six\""), media).await, 412);
    assert_eq!(patch(Some("W/\"seven\""), media).await, 412, "a weak tag proves nothing");
}

#[tokio::test]
async fn our_own_faults_tell_nothing_of_the_inside() {
    let world = world().await;
    let (status, problem) = world.get("/panic").await;
    assert_eq!(status, 500);
    assert!(!problem.to_string().contains("secret"), "{problem}");
    let (status, problem) = world.get("/broken").await;
    assert_eq!((status, &problem["detail"]), (503, &json!("the disk is full; make room")));
    assert!(!problem.to_string().contains("secret"), "{problem}");
    assert_eq!(world.get("/tagged").await.0, 200, "others are not touched");
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_told_apart() {
    let world = world().await;
    let (status, problem) = world.get("/nothing/here").await;
    assert_eq!(status, 404, "{problem}");
    let (status, problem) =
        read(world.request(Method::PATCH, "/things/7").body("{}").send().await.expect("an answer")).await;
    assert_eq!(status, 404);
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains("an id is a UUID")), "{problem}");
    let response = world.request(Method::DELETE, "/things").send().await.expect("an answer");
    assert_eq!(response.headers()["allow"], "GET, POST");
    assert_eq!(read(response).await.0, 405);
    let (status, problem) = world.get("/things/%zz/go").await;
    assert_eq!(status, 405, "the method is looked at first: {problem}");
    let response = world.request(Method::HEAD, "/tagged").send().await.expect("an answer");
    assert_eq!(response.status(), 200);
}

/// Bytes on the wire and the first line that comes back.
async fn raw(world: &World, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(world.url.trim_start_matches("http://")).await.expect("connected");
    stream.write_all(bytes).await.expect("sent");
    let mut answer = vec![0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut answer)).await;
    let length = read.expect("in time").unwrap_or(0);
    String::from_utf8_lossy(&answer[..length]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn hostile_bytes_are_answered_and_others_served() {
    let world = world().await;
    assert!(raw(&world, b"NONSENSE\r\n\r\n").await.contains(" 400 "));
    assert!(raw(&world, b"GET /things HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n").await.contains(" 400 "));
    let long = format!("GET /tagged HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(70_000));
    assert!(raw(&world, long.as_bytes()).await.contains(" 431 "));
    let longer = format!("GET /tagged HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(300_000));
    assert!(raw(&world, longer.as_bytes()).await.contains(" 431 "));
    assert!(raw(&world, b"GET /tag%ged HTTP/1.1\r\nHost: x\r\n\r\n").await.contains(" 404 "));
    assert!(raw(&world, b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").await.contains(" 404 "));
    assert_eq!(world.get("/tagged").await.0, 200);
}

#[tokio::test]
async fn many_requests_at_once_are_all_answered() {
    let world = world().await;
    let requests = (0..500).map(|_| {
        let request = world.request(Method::GET, "/slow");
        async move { request.send().await.expect("an answer").status().as_u16() }
    });
    let all = futures::future::join_all(requests).await;
    assert!(all.iter().all(|status| *status == 204));
}

#[tokio::test]
async fn a_stop_lets_requests_end() {
    let world = world().await;
    let request = world.request(Method::GET, "/slow");
    let answer = tokio::spawn(async move { request.send().await.expect("an answer").status().as_u16() });
    // The request has to be under way.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let url = world.url.clone();
    world.end().await;
    assert_eq!(answer.await.expect("no panic"), 204);
    assert!(TcpStream::connect(url.trim_start_matches("http://")).await.is_err(), "nobody listens any more");
}
