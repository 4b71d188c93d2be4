//! An NFVO that grants, refuses or thinks about it: a real HTTP server, as small as it can be, with TLS if need be.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// What it says to a request for a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mood {
    /// Granted at once.
    Grant,
    /// Refused, with this reason.
    Refuse(String),
    /// Accepted; so many questions later it is granted.
    Think(usize),
    /// It fails by its own fault.
    Fail,
}

/// A request that it got.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Method and path.
    pub what: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// The body.
    pub body: Value,
}

/// A running NFVO, for as long as the test runs.
pub struct Nfvo {
    /// The root of its interface.
    pub url: String,
    state: Arc<Mutex<State>>,
}

struct State {
    mood: Mood,
    asked: usize,
    heard: Vec<Heard>,
    /// With it, grants need the token that `/token` gives to this client.
    client: Option<String>,
}

const TOKEN: &str = "a-token-of-the-nfvo";

impl Nfvo {
    /// Starts one without encryption.
    pub fn start(mood: Mood) -> Self {
        Self::serve(mood, None, None)
    }

    /// One that grants to whoever shows the token that `client` (`user:password`) gets at `/token`.
    pub fn with_tokens(client: &str) -> Self {
        Self::serve(Mood::Grant, Some(client.to_owned()), None)
    }

    /// One that speaks TLS as this says.
    pub fn with_tls(config: ServerConfig) -> Self {
        Self::serve(Mood::Grant, None, Some(Arc::new(config)))
    }

    fn serve(mood: Mood, client: Option<String>, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let url = if tls.is_some() {
            format!("https://localhost:{port}")
        } else {
            format!("http://127.0.0.1:{port}")
        };
        let state = Arc::new(Mutex::new(State { mood, asked: 0, heard: Vec::new(), client }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, tls) = (shared.clone(), tls.clone());
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
                    match tls {
                        None => talk(stream, &state),
                        Some(config) => {
                            let connection = ServerConnection::new(config).expect("a connection");
                            talk(StreamOwned::new(connection, stream), &state);
                        }
                    }
                });
            }
        });
        Self { url, state }
    }

    /// Changes its mind.
    pub fn set(&self, mood: Mood) {
        self.state.lock().expect("nobody panics with it").mood = mood;
    }

    /// All that it was asked so far.
    pub fn heard(&self) -> Vec<Heard> {
        self.state.lock().expect("nobody panics with it").heard.clone()
    }

    /// The requests for grants among that.
    pub fn requests(&self) -> Vec<Value> {
        let all = self.heard().into_iter().filter(|heard| heard.what == "POST /grant/v1/grants");
        all.map(|heard| heard.body).collect()
    }
}

/// Answers requests of one connection until it ends.
fn talk(stream: impl Read + Write, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    while let Some(heard) = read(&mut reader) {
        let said = answer(&heard, &mut state.lock().expect("nobody panics with it"));
        let stream = reader.get_mut();
        if stream.write_all(said.as_bytes()).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

/// The next request; `None` at the end, which the other side may choose at any time.
fn read(reader: &mut impl BufRead) -> Option<Heard> {
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return None;
    }
    let what = line.rsplit_once(' ').map_or(line.trim(), |(what, _)| what).to_owned();
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        let Some((name, value)) = line.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().expect("a length"),
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Heard { what, authorization, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}

fn answer(heard: &Heard, state: &mut State) -> String {
    state.heard.push(heard.clone());
    if heard.what == "POST /token" {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let expected = state.client.as_ref().map(|client| format!("Basic {}", STANDARD.encode(client)));
        return if expected.is_some() && heard.authorization == expected {
            let token = json!({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600});
            reply("200 OK", "", &token)
        } else {
            reply("401 Unauthorized", "", &json!({"error": "invalid_client"}))
        };
    }
    if state.client.is_some() && heard.authorization != Some(format!("Bearer {TOKEN}")) {
        return reply("401 Unauthorized", "", &json!({"status": 401, "detail": "who asks?"}));
    }
    let asks = heard.what.starts_with("POST");
    if asks {
        state.asked = 0;
    }
    match &state.mood {
        Mood::Grant => reply(if asks { "201 Created" } else { "200 OK" }, "", &grant(heard)),
        Mood::Refuse(reason) => reply("403 Forbidden", "", &json!({"status": 403, "detail": reason})),
        Mood::Fail => {
            reply("500 Internal Server Error", "", &json!({"status": 500, "detail": "out of order"}))
        }
        Mood::Think(questions) if !asks && state.asked >= *questions => reply("200 OK", "", &grant(heard)),
        Mood::Think(_) => {
            state.asked += usize::from(!asks);
            "HTTP/1.1 202 Accepted\r\nLocation: /grant/v1/grants/one\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n".to_owned()
        }
    }
}

fn grant(heard: &Heard) -> Value {
    let (instance, operation) = (&heard.body["vnfInstanceId"], &heard.body["vnfLcmOpOccId"]);
    json!({
        "id": "8a1c3a2e-9e0b-4a57-8d51-3a5ad1a0a001",
        "vnfInstanceId": instance, "vnfLcmOpOccId": operation,
        "_links": {"self": {"href": "/grant/v1/grants/one"}},
    })
}

fn reply(status: &str, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nVersion: 1.4.0\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}
