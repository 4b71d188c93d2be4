//! Requests as bytes: what no client library would send can be sent here.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use serde_json::Value;

/// Far longer than a manager on a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Somebody with a token who talks to one manager.
#[derive(Debug, Clone)]
pub struct Http {
    address: String,
    token: String,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as it came.
    pub body: String,
}

impl Http {
    /// Talks to the manager at `url`.
    pub fn new(url: &str, token: &str) -> Self {
        let address = url.strip_prefix("http://").expect("a plain address").trim_end_matches('/');
        Self { address: address.to_owned(), token: token.to_owned() }
    }

    /// The headers that let a request for `path` in.
    pub fn credentials(&self, path: &str) -> String {
        let version = if path.starts_with("/vnflcm/v2/") { "Version: 2.0.0\r\n" } else { "" };
        format!("Host: {}\r\nX-Auth-Token: {}\r\n{version}", self.address, self.token)
    }

    /// Sends bytes and reads until the other side closes; `None` if it closed without an answer. With `end`, the other
    /// side is told that nothing follows, which it may take for somebody who has gone away.
    pub fn raw(&self, bytes: &[u8], end: bool) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        // It may refuse before it has read all, so that the rest cannot be written: what it said counts.
        let written = stream.write_all(bytes);
        if end && written.is_ok() {
            match stream.shutdown(Shutdown::Write) {
                // It was faster, and has closed the connection.
                Err(error) if error.kind() == ErrorKind::NotConnected => {}
                done => done.expect("it is open"),
            }
        }
        let mut said = Vec::new();
        match stream.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("no end of the answer ({error}, written: {written:?}): {}", shown(&said)),
        }
        (!said.is_empty()).then(|| parse(&said))
    }

    /// A proper request with a JSON body, if there is one.
    pub fn send(&self, method: &str, path: &str, headers: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string);
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let about = body.as_ref().map(|_| format!("Content-Type: {media}\r\n")).unwrap_or_default();
        self.put_bytes(method, path, &format!("{about}{headers}"), body.unwrap_or_default().as_bytes())
    }

    /// A proper request with any body.
    pub fn put_bytes(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut bytes = format!(
            "{method} {path} HTTP/1.1\r\n{}{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.credentials(path),
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes, false).unwrap_or_else(|| panic!("{method} {path}: no answer"))
    }

    /// What a GET shows.
    pub fn get(&self, path: &str) -> Value {
        let answer = self.send("GET", path, "", None);
        assert_eq!(answer.status, 200, "GET {path}: {answer:?}");
        answer.json()
    }

    /// A POST that must succeed; what it answers.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let answer = self.send("POST", path, "", Some(body));
        assert!((200..300).contains(&answer.status), "POST {path} {body}: {answer:?}");
        answer
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn parse(said: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(said);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer of HTTP: {}", shown(said)));
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Answer { status, headers, body: body.to_owned() }
}

fn shown(said: &[u8]) -> String {
    String::from_utf8_lossy(&said[..said.len().min(2_000)]).into_owned()
}
