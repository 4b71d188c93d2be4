//! Subscriptions and alarms over a real connection.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    app::{
        App, alarms,
        samples::{
            self, Ground,
            receiver::{Mood, Receiver},
        },
    },
    domain::{CallbackAuth, SubscriptionId},
    http::{self as ours, ServeOptions},
};

struct Manager {
    app: App,
    url: String,
    client: reqwest::Client,
    stop: tokio_util::sync::DropGuard,
    _ground: Ground,
}

impl Manager {
    async fn start() -> Self {
        let ground = Ground::sqlite();
        let app = ground.app().await;
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let options = ServeOptions { listen, tls: None, no_auth: true, grace: Duration::from_millis(100) };
        let bound = ours::bind(options).unwrap();
        let (url, stop) = (format!("http://{}", bound.addresses()[0]), CancellationToken::new());
        tokio::spawn(bound.serve(app.clone(), ours::all(), stop.clone()));
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        Self { app, url, client, stop: stop.drop_guard(), _ground: ground }
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> (StatusCode, http::HeaderMap, Value) {
        let method = method.parse().unwrap();
        let mut request =
            self.client.request(method, format!("{}{path}", self.url)).header("version", version(path));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let text = answer.text().await.unwrap();
        (status, headers, serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}

fn version(path: &str) -> &'static str {
    if path.starts_with("/vnflcm/v2") { "2.0.0" } else { "1.3.0" }
}

const ROOTS: [&str; 4] = ["/vnflcm/v1", "/vnflcm/v2", "/vnfpkgm/v1", "/vnffm/v1"];

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_subscription_in_every_interface() {
    let (manager, receiver) = (Manager::start().await, Receiver::start().await);
    for root in ROOTS {
        let all = format!("{root}/subscriptions");
        let body = json!({ "callbackUri": receiver.hook() });
        let (status, headers, made) = manager.ask("POST", &all, Some(&body)).await;
        assert_eq!(status, 201, "{root}: {made}");
        let id = made["id"].as_str().unwrap();
        let location = headers["location"].to_str().unwrap();
        assert_eq!(location, format!("http://manager.example:9890{all}/{id}"));
        assert_eq!(made["_links"]["self"]["href"], location);
        assert_eq!(made.get("verbosity").is_some(), root == "/vnflcm/v2");

        let (status, headers, again) = manager.ask("POST", &all, Some(&body)).await;
        if root == "/vnflcm/v2" {
            assert_eq!(status, 201, "v2 makes another one");
            let path = format!("{all}/{}", again["id"].as_str().unwrap());
            assert_eq!(manager.ask("DELETE", &path, None).await.0, 204);
        } else {
            assert_eq!((status, headers["location"].to_str().unwrap()), (StatusCode::SEE_OTHER, location));
        }
        let one = format!("{all}/{id}");
        assert_eq!(manager.ask("GET", &one, None).await.2, made);
        assert_eq!(manager.ask("GET", &all, None).await.2, json!([made]));
        let filtered = format!("{all}?filter=(neq,id,{id})");
        assert_eq!(manager.ask("GET", &filtered, None).await.2, json!([]));
        let (status, _, delivery) =
            manager.ask("GET", &format!("/guywire/v1/subscriptions/{id}"), None).await;
        assert_eq!((status, &delivery["api"]), (StatusCode::OK, &json!(root)));
        assert_eq!(delivery["delivery"]["waiting"], 0);
        for other in ROOTS.into_iter().filter(|other| *other != root) {
            let (status, ..) = manager.ask("GET", &format!("{other}/subscriptions/{id}"), None).await;
            assert_eq!(status, 404, "{other} does not show what belongs to {root}");
        }
        assert_eq!(manager.ask("DELETE", &one, None).await.0, 204);
        let (status, _, problem) = manager.ask("GET", &one, None).await;
        assert_eq!(status, 404);
        assert!(problem["detail"].as_str().unwrap().contains(id));
    }
    assert!(receiver.seen().iter().all(|seen| seen.method == "GET"), "tests of the callback, nothing else");
    drop(manager.stop);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_and_why() {
    let (manager, receiver) = (Manager::start().await, Receiver::start().await);
    let uri = receiver.hook();
    let auth = |auth: Value| json!({ "callbackUri": uri, "authentication": auth });
    let filter = |filter: Value| json!({ "callbackUri": uri, "filter": filter });
    let table = [
        (json!({}), 400, "callbackUri"),
        (json!({ "callbackUri": uri, "more": 1 }), 400, "more"),
        (json!({ "callbackUri": "ftp://host/" }), 400, "its scheme is \"ftp\""),
        (json!({ "callbackUri": "hook" }), 400, "it is no URL"),
        (json!({ "callbackUri": "http://me:pw@host/" }), 400, "put them into `authentication`"),
        (json!({ "callbackUri": format!("http://h/{}", "x".repeat(3000)) }), 400, "2048 are allowed"),
        (json!({ "callbackUri": "http://127.0.0.1:1/" }), 422, "a GET to it must be answered with 204"),
        (filter(json!({ "operationTypes": ["DANCE"] })), 400, "DANCE"),
        (filter(json!({ "notificationTypes": ["AlarmNotification"] })), 400, "known are VnfLcm"),
        (
            filter(json!({ "vnfInstanceSubscriptionFilter": { "vnfdIds": ["x".repeat(70_000)] } })),
            400,
            "65536 are",
        ),
        (auth(json!({ "authType": [] })), 400, "authType: it is empty"),
        (auth(json!({ "authType": ["BASIC"] })), 400, "paramsBasic: it is needed"),
        (
            auth(json!({ "authType": ["BASIC"], "paramsBasic": { "userName": "me" } })),
            400,
            "paramsBasic.password",
        ),
        (auth(json!({ "authType": ["TLS_CERT"] })), 422, "needs a certificate that the manager can show"),
        (
            auth(json!({ "authType": ["OAUTH2_CLIENT_CREDENTIALS"], "paramsOauth2ClientCredentials":
            { "clientId": "a", "clientPassword": "b", "tokenEndpoint": "x" } })),
            400,
            "tokenEndpoint: it is no URL",
        ),
    ];
    for root in ["/vnflcm/v1", "/vnflcm/v2"] {
        for (body, expected, words) in &table {
            let (status, headers, problem) =
                manager.ask("POST", &format!("{root}/subscriptions"), Some(body)).await;
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert_eq!(status, *expected, "{body}: {problem}");
            assert!(detail.contains(words), "{detail:?} should say {words:?}");
            assert_eq!(headers["content-type"], "application/problem+json");
        }
    }
    receiver.mood(Mood::Answer(200, Vec::new(), "hello".to_owned()));
    let body = json!({ "callbackUri": uri });
    let (status, _, problem) = manager.ask("POST", "/vnflcm/v2/subscriptions", Some(&body)).await;
    assert_eq!(status, 422);
    assert!(problem["detail"].as_str().unwrap().ends_with("it answered 200 OK: hello"), "{problem}");
    assert_eq!(manager.ask("GET", "/guywire/v1/subscriptions", None).await.2, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_moved_away_and_never_shown() {
    let (manager, receiver) = (Manager::start().await, Receiver::start().await);
    receiver.wants("Basic bWU6aHVudGVyMi1odW50ZXIy");
    let body = json!({
        "callbackUri": receiver.hook(),
        "verbosity": "SHORT",
        "authentication": {
            "authType": ["BASIC"], "paramsBasic": { "userName": "me", "password": "hunter2-hunter2" },
        },
    });
    let (status, _, made) = manager.ask("POST", "/vnflcm/v2/subscriptions", Some(&body)).await;
    assert_eq!(status, 201, "the test of the callback proves who we are: {made}");
    assert!(made.get("authentication").is_none() && made["verbosity"] == "SHORT");
    let id: SubscriptionId = made["id"].as_str().unwrap().parse().unwrap();
    let (_, _, shown) = manager.ask("GET", &format!("/guywire/v1/subscriptions/{id}"), None).await;
    assert_eq!(shown["authentication"], "BASIC");
    assert!(!shown.to_string().contains("hunter2"));
    let kept = manager.app.store.subscription(id).await.unwrap().unwrap();
    assert!(!serde_json::to_string(&kept).unwrap().contains("hunter2"));
    let Some(CallbackAuth::Basic { password, .. }) = kept.auth else { panic!("{:?}", kept.auth) };
    assert_eq!(password.name(), format!("subscription.{id}.password"));
    assert_eq!(manager.app.secrets.get(&password).unwrap().expose_str(), Some("hunter2-hunter2"));
    let path = format!("/vnflcm/v2/subscriptions/{id}");
    assert_eq!(manager.ask("DELETE", &path, None).await.0, 204);
    assert!(manager.app.secrets.list().unwrap().is_empty(), "the secret goes with its subscription");
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_are_listed_shown_and_acknowledged() {
    let manager = Manager::start().await;
    let vnfcs = vec![samples::vnfc("hello-0", "hello"), samples::vnfc("hello-1", "hello")];
    let instance = samples::stored_instance(&manager.app.store, vnfcs.clone()).await;
    for vnfc in &vnfcs {
        let alarm = alarms::machine_silent(&instance, vnfc, samples::at(1));
        alarms::raise(&manager.app, &alarm, &instance).await.unwrap();
    }
    assert!(alarms::clear(&manager.app, &instance, "machine/hello-1").await.unwrap());
    let (status, _, all) = manager.ask("GET", "/vnffm/v1/alarms", None).await;
    assert_eq!((status, all.as_array().unwrap().len()), (StatusCode::OK, 2));
    let open = "/vnffm/v1/alarms?filter=(neq,perceivedSeverity,CLEARED);(eq,eventType,EQUIPMENT_ALARM)";
    assert_eq!(manager.ask("GET", open, None).await.2, json!([all[0]]));
    let one = format!("/vnffm/v1/alarms/{}", all[0]["id"].as_str().unwrap());
    let (_, headers, shown) = manager.ask("GET", &one, None).await;
    assert_eq!((&shown, headers["etag"].to_str().unwrap()), (&all[0], "\"1\""));
    assert_eq!(shown["rootCauseFaultyResource"]["faultyResource"]["resourceId"], json!(vnfcs[0].resource));

    let seen = json!({ "ackState": "ACKNOWLEDGED" });
    let patch = |tag: &'static str| {
        let request = manager.client.patch(format!("{}{one}", manager.url)).header("if-match", tag);
        request.header("content-type", "application/merge-patch+json").body(seen.to_string()).send()
    };
    assert_eq!(patch("\"7\"").await.unwrap().status(), 412);
    let changed = patch("\"1\"").await.unwrap();
    assert_eq!((changed.status().as_u16(), changed.headers()["etag"].to_str().unwrap()), (200, "\"2\""));
    assert_eq!(changed.text().await.unwrap(), seen.to_string());
    let (status, _, problem) = manager.ask("PATCH", &one, Some(&seen)).await;
    assert_eq!(status, 409, "{problem}");
    let (status, ..) = manager.ask("PATCH", &one, Some(&json!({ "ackState": "MAYBE" }))).await;
    assert_eq!(status, 400);
    let (_, _, shown) = manager.ask("GET", &one, None).await;
    assert!(shown["alarmAcknowledgedTime"].as_str().unwrap().ends_with('Z'));
    let (status, ..) = manager.ask("GET", "/vnffm/v1/alarms/none", None).await;
    assert_eq!(status, 404);
}
