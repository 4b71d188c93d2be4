//! A manager that listens, for one test.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use guywire_package::Policy;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    app::{
        App, Config,
        callback::Outbound,
        samples::{Ground, Machines},
    },
    http::{ServeOptions, all, bind},
};

/// A manager that listens.
pub(super) struct Site {
    pub(super) app: App,
    pub(super) url: String,
    client: reqwest::Client,
    _stop: DropGuard,
}

impl Site {
    pub(super) async fn start(ground: &Ground) -> Self {
        Self::start_with(ground, Policy::default()).await
    }

    /// A manager on a ground that may have others.
    pub(super) async fn start_with(ground: &Ground, policy: Policy) -> Self {
        let bound = bind(ServeOptions {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            tls: None,
            no_auth: true,
            grace: Duration::from_secs(1),
        })
        .unwrap();
        let url = bound.url();
        let outbound = Outbound { test_callback: false, ..Outbound::default() };
        let mut app = ground.app_with(outbound, Arc::new(Machines::default())).await;
        app.config = Arc::new(Config { url: url.clone(), packages: policy, ..app.config.as_ref().clone() });
        let stop = CancellationToken::new();
        tokio::spawn(bound.serve(app.clone(), all(), stop.clone()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { app, url, client, _stop: stop.drop_guard() }
    }

    /// Begins an upload of so many bytes and sends the first of them.
    pub(super) async fn begin(&self, id: &str, length: usize, first: &[u8]) -> TcpStream {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "PUT /vnfpkgm/v1/vnf_packages/{id}/package_content HTTP/1.1\r\nHost: {address}\r\n\
             Content-Type: application/zip\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(first).await.unwrap();
        for _ in 0..200 {
            if self.show(id).await["onboardingState"] == "UPLOADING" {
                return stream;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the upload of {id} does not begin");
    }

    pub(super) fn request(&self, method: Method, rest: &str) -> RequestBuilder {
        self.client.request(method, format!("{}/vnfpkgm/v1/vnf_packages{rest}", self.url))
    }

    pub(super) async fn send(&self, method: Method, rest: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let mut request = self.request(method, rest);
        if let Some(body) = body {
            request = request.json(body);
        }
        answer(request).await
    }

    pub(super) async fn patch(&self, id: &str, body: &Value) -> (StatusCode, Value) {
        let request = self.request(Method::PATCH, &format!("/{id}"));
        answer(request.header("content-type", "application/merge-patch+json").body(body.to_string())).await
    }

    pub(super) async fn create(&self) -> String {
        let (status, created) = self.send(Method::POST, "", Some(&json!({}))).await;
        assert_eq!(status, StatusCode::CREATED, "{created}");
        created["id"].as_str().unwrap().to_owned()
    }

    pub(super) async fn upload(&self, id: &str, bytes: Vec<u8>) -> (StatusCode, Value) {
        let request = self.request(Method::PUT, &format!("/{id}/package_content"));
        answer(request.header("content-type", "application/zip").body(bytes)).await
    }

    pub(super) async fn show(&self, id: &str) -> Value {
        let (status, shown) = self.send(Method::GET, &format!("/{id}"), None).await;
        assert_eq!(status, StatusCode::OK, "{shown}");
        shown
    }

    /// A package once it is neither uploaded nor read.
    pub(super) async fn read(&self, id: &str) -> Value {
        for _ in 0..600 {
            let shown = self.show(id).await;
            if !["UPLOADING", "PROCESSING"].contains(&shown["onboardingState"].as_str().unwrap()) {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("package {id} is not read in time");
    }

    /// A package with this content, onboarded.
    pub(super) async fn onboarded(&self, bytes: Vec<u8>) -> String {
        let id = self.create().await;
        assert_eq!(self.upload(&id, bytes).await.0, StatusCode::ACCEPTED);
        let shown = self.read(&id).await;
        assert_eq!(shown["onboardingState"], "ONBOARDED", "{shown}");
        id
    }

    /// The files that packages have left, without the one that is only locked.
    pub(super) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.packages()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != ".names").collect();
        names.sort();
        names
    }

    pub(super) fn packages(&self) -> PathBuf {
        self.app.config.data.join("packages")
    }
}

pub(super) async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let answer = request.send().await.unwrap();
    let (status, bytes) = (answer.status(), answer.bytes().await.unwrap());
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
    (status, body)
}

/// The example package, packed.
pub(super) fn hello() -> Vec<u8> {
    packed(&examples().join("hello"))
}

pub(super) fn packed(tree: &Path) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("packed.csar");
    guywire_package::pack(tree, &file).unwrap();
    std::fs::read(file).unwrap()
}

/// The example package with another text in one of its files.
pub(super) fn altered(file: &str, old: &str, new: &str) -> Vec<u8> {
    let tree = copy();
    let path = tree.path().join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{file} has no {old:?}");
    std::fs::write(&path, text.replace(old, new)).unwrap();
    packed(tree.path())
}

/// The example package with its descriptor in one file.
pub(super) fn in_one_file() -> (Vec<u8>, String) {
    let tree = copy();
    let definitions = tree.path().join("Definitions");
    let entry = std::fs::read_to_string(definitions.join("hello.yaml")).unwrap();
    let types = std::fs::read_to_string(definitions.join("hello_types.yaml")).unwrap();
    let nodes = &types[types.find("node_types:").unwrap()..];
    let whole = format!("{}\n{nodes}", entry.replace("  - hello_types.yaml\n", ""));
    std::fs::write(definitions.join("hello.yaml"), &whole).unwrap();
    std::fs::remove_file(definitions.join("hello_types.yaml")).unwrap();
    (packed(tree.path()), whole)
}

fn copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let csar = dir.path().join("whole.csar");
    guywire_package::pack(&examples().join("hello"), &csar).unwrap();
    let tree = tempfile::tempdir().unwrap();
    guywire_package::extract(&csar, tree.path(), &Policy::default()).unwrap();
    tree
}

pub(super) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    crate::domain::hex(&Sha256::digest(bytes))
}
