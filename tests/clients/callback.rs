//! Somebody who wants to hear: a real HTTP server, as small as it can be.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;

/// A callback on loopback; whatever is sent to it is kept.
pub struct Callback {
    /// Its address.
    pub url: String,
    heard: Arc<Mutex<Vec<Value>>>,
}

impl Callback {
    /// Starts to listen, for as long as the test runs.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/heard", listener.local_addr().expect("an address"));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = heard.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = kept.clone();
                std::thread::spawn(move || serve(stream, &kept));
            }
        });
        Self { url, heard }
    }

    /// All that was heard so far, in order.
    pub fn heard(&self) -> Vec<Value> {
        self.heard.lock().expect("nobody panics with it").clone()
    }
}

/// Answers requests of one connection until it ends.
fn serve(stream: TcpStream, kept: &Mutex<Vec<Value>>) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let mut writer = stream.try_clone().expect("a second handle");
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut first = true;
        loop {
            let mut line = String::new();
            // The other side may close a connection whenever it is done with it.
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() && !first {
                break;
            }
            first = false;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body that was announced");
        if length > 0 {
            let value = serde_json::from_slice(&body).expect("a notification is JSON");
            kept.lock().expect("nobody panics with it").push(value);
        }
        if writer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_err() {
            return;
        }
    }
}
