//! A headless Chromium, spoken to through two pipes in the `DevTools` protocol: no port, no driver program.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page. Gone when dropped.
pub struct Browser {
    process: Child,
    input: File,
    messages: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// Messages that came while an answer was waited for.
    pub events: Vec<Value>,
    _dir: tempfile::TempDir,
}

/// What a page is shown on.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub dark: bool,
}

impl Browser {
    /// Starts one with a profile of its own.
    pub fn start() -> Self {
        let program = std::env::var_os("GUYWIRE_TEST_CHROMIUM").map(PathBuf::from).expect(
            "GUYWIRE_TEST_CHROMIUM is not set; run the tests with `cargo xtask test`, or set it to a Chromium",
        );
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = |name: &str| {
            let path = dir.path().join(name);
            let made = Command::new("mkfifo").arg("-m600").arg(&path).status().expect("mkfifo runs");
            assert!(made.success());
            path
        };
        let (input, output) = (fifo("input"), fifo("output"));
        // The protocol's pipes are descriptors 3 and 4, which a shell can give without any unsafe code.
        let script = "in=$1 out=$2; shift 2; exec \"$@\" 3<\"$in\" 4>\"$out\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&input).arg(&output).arg(program);
        command.args([
            "--headless=new",
            "--remote-debugging-pipe",
            // Tests run as root, which Chromium's own sandbox refuses; all pages are ours.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
        ]);
        command.arg(format!("--user-data-dir={}", dir.path().join("profile").display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("sh runs");
        // Opened in the shell's own order: each waits for the other side.
        let input = File::options().write(true).open(input).expect("the browser reads");
        let output = File::open(output).expect("the browser writes");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for bytes in BufReader::new(output).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&bytes).expect("the browser speaks JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Self { process, input, messages, next: 0, session: None, events: Vec::new(), _dir: dir };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method and gives what it answers.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(message.to_string().as_bytes()).expect("the browser listens");
        self.input.write_all(&[0]).expect("the browser listens");
        loop {
            let mut answer =
                self.messages.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{method}: no answer"));
            if answer["id"] != self.next {
                self.events.push(answer);
                continue;
            }
            assert!(answer.get("error").is_none(), "{method}: {answer}");
            return answer["result"].take();
        }
    }

    /// Shows pages on a screen of this kind from now on.
    pub fn screen(&mut self, screen: Screen) {
        let Screen { width, height, dark } = screen;
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &media);
    }

    /// Goes to an address.
    pub fn go(&mut self, url: &str) {
        let answer = self.call("Page.navigate", &json!({"url": url}));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
    }

    /// What an expression gives in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", &params);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true in the page.
    pub fn until(&mut self, what: &str, expression: &str) {
        let begin = Instant::now();
        while self.evaluate(&format!("Boolean({expression})")) != true {
            let page = || "document.body.innerText";
            assert!(begin.elapsed() < PATIENCE, "{what}: waited in vain: {}", self.evaluate(page()));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key, as a person without a mouse does.
    pub fn press(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let text = if key == "Enter" && kind == "rawKeyDown" { "\r" } else { "" };
            let kind = if text.is_empty() { kind } else { "keyDown" };
            let event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Writes text where the cursor is.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", &json!({"text": text}));
    }

    /// Keeps what is shown as a picture.
    pub fn screenshot(&mut self, file: &Path) {
        let picture = self.call("Page.captureScreenshot", &json!({"format": "png"}));
        let bytes = STANDARD.decode(picture["data"].as_str().expect("a picture")).expect("base64");
        assert!(bytes.len() > 2000, "an empty picture");
        std::fs::write(file, bytes).expect("it is written");
    }

    /// Errors that the page met: exceptions, refused resources, violations of its policy.
    pub fn complaints(&mut self) -> Vec<String> {
        self.evaluate("1");
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.events.iter().filter(is_complaint).map(ToString::to_string).collect()
    }

    /// Every address that was asked for.
    pub fn requests(&self) -> Vec<String> {
        let asked = |event: &Value| {
            (event["method"] == "Network.requestWillBeSent")
                .then(|| event["params"]["request"]["url"].as_str().unwrap_or_default().to_owned())
        };
        self.events.iter().filter_map(asked).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers end when the browser process, which holds their channels, does.
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it ends");
    }
}
