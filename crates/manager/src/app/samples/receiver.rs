//! A real HTTP server on loopback that plays the other side: subscriber, token endpoint, NFVO.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    response::Response,
};
use http::{HeaderMap, Method, StatusCode, Uri, header};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The server; it ends with this value.
pub(crate) struct Receiver {
    pub(crate) url: String,
    desk: Arc<Desk>,
    task: JoinHandle<()>,
}

/// A request that came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

/// What to do with a request.
#[derive(Debug, Clone)]
pub(crate) enum Mood {
    /// Answer with this status, these headers and this body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// Never answer.
    Hang,
}

#[derive(Default)]
struct Desk {
    seen: Mutex<Vec<Seen>>,
    mood: Mutex<Option<Mood>>,
    /// Answers for the next requests, before the mood has its say again.
    next: Mutex<VecDeque<Mood>>,
    /// The `Authorization` without which requests are answered with 401; not at the token endpoint.
    wanted: Mutex<Option<String>>,
    tokens: Mutex<u32>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let desk = Arc::new(Desk::default());
        let router = Router::new().fallback(answer).with_state(desk.clone());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, desk, task }
    }

    pub(crate) fn hook(&self) -> String {
        format!("{}/hook", self.url)
    }

    pub(crate) fn status(&self, status: u16) {
        self.mood(Mood::Answer(status, Vec::new(), String::new()));
    }

    pub(crate) fn mood(&self, mood: Mood) {
        *self.desk.mood.lock().unwrap() = Some(mood);
    }

    pub(crate) fn then(&self, mood: Mood) {
        self.desk.next.lock().unwrap().push_back(mood);
    }

    pub(crate) fn wants(&self, authorization: &str) {
        *self.desk.wanted.lock().unwrap() = Some(authorization.to_owned());
    }

    /// All requests save those for tokens.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let seen = self.desk.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.path != "/token").cloned().collect()
    }

    /// Requests for tokens.
    pub(crate) fn asked_for_tokens(&self) -> Vec<Seen> {
        let seen = self.desk.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.path == "/token").cloned().collect()
    }

    /// Waits until so many requests have come.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<Seen> {
        let begin = Instant::now();
        loop {
            let seen = self.seen();
            if seen.len() >= count {
                return seen;
            }
            assert!(begin.elapsed() < Duration::from_secs(40), "{} of {count} requests came", seen.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    State(desk): State<Arc<Desk>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    let authorization = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    desk.seen.lock().unwrap().push(Seen { method: method.clone(), path: path.clone(), headers, body, text });
    if path == "/token" {
        let number = {
            let mut tokens = desk.tokens.lock().unwrap();
            *tokens += 1;
            *tokens
        };
        let body =
            json!({ "access_token": format!("t{number}"), "token_type": "Bearer", "expires_in": 3600 });
        return response(200, &[], body.to_string());
    }
    let wanted = desk.wanted.lock().unwrap().clone();
    if wanted.is_some() && wanted != authorization {
        return response(401, &[], String::new());
    }
    let next = desk.next.lock().unwrap().pop_front();
    let mood = next.or_else(|| desk.mood.lock().unwrap().clone());
    match mood {
        None => response(204, &[], String::new()),
        Some(Mood::Answer(status, headers, body)) => response(status, &headers, body),
        Some(Mood::Hang) => std::future::pending().await,
    }
}

fn response(status: u16, headers: &[(&'static str, String)], body: String) -> Response {
    let mut building = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        building = building.header(*name, value);
    }
    building.body(Body::from(body)).unwrap()
}
