//! A manager that listens, for one test.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use guywire_model::{MachineName, Observed};
use guywire_package::Policy;
use guywire_plan::{Engine, Handlers, Options, Plan, journal::SqliteJournal};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    app::{
        App, Config,
        callback::{Callbacks, Outbound},
        works::{MachineOrder, Place, PointOrder, PointPlan, Works, WorksError},
    },
    domain::Vim,
    http::{ServeOptions, all, bind},
    store::Store,
};

/// A manager and its directory.
pub(super) struct Site {
    pub(super) app: App,
    pub(super) dir: Arc<TempDir>,
    pub(super) url: String,
    pub(super) client: reqwest::Client,
    _stop: DropGuard,
}

impl Site {
    pub(super) async fn start() -> Self {
        Self::start_with(Arc::new(tempfile::tempdir().unwrap()), Policy::default()).await
    }

    /// A manager on a directory that may have been another one's.
    pub(super) async fn start_with(dir: Arc<TempDir>, policy: Policy) -> Self {
        let store = Arc::new(Store::sqlite(&dir.path().join("manager.db")).await.unwrap());
        Self::start_on(dir, store, policy).await
    }

    pub(super) async fn start_on(dir: Arc<TempDir>, store: Arc<Store>, policy: Policy) -> Self {
        let bound = bind(ServeOptions {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            tls: None,
            no_auth: true,
            grace: Duration::from_secs(1),
        })
        .unwrap();
        let url = bound.url();
        let data = dir.path();
        let journal = SqliteJournal::open(&data.join("journal.db")).await.unwrap();
        let secrets = Arc::new(guywire_secrets::Store::open_with(data, None).unwrap());
        let outbound = Outbound { test_callback: false, ..Outbound::default() };
        let app = App {
            store,
            engine: Engine::new(Arc::new(journal), Handlers::new(), Options::default()),
            works: Arc::new(NoMachines),
            callbacks: Callbacks::new(&outbound, data, secrets.clone()).unwrap(),
            secrets,
            config: Arc::new(Config {
                data: data.to_owned(),
                url: url.clone(),
                nfvo: None,
                outbound,
                packages: policy,
            }),
        };
        let stop = CancellationToken::new();
        tokio::spawn(bound.serve(app.clone(), all(), stop.clone()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { app, dir, url, client, _stop: stop.drop_guard() }
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
        self.dir.path().join("packages")
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

pub(super) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    crate::http::hex(&Sha256::digest(bytes))
}

/// A place without machines.
struct NoMachines;

#[async_trait]
impl Works for NoMachines {
    async fn place(&self, _: &Vim) -> Result<Place, WorksError> {
        Err(none())
    }

    async fn observe(&self, _: &str) -> Result<Observed, WorksError> {
        Err(none())
    }

    async fn plan_machines(&self, _: &MachineOrder) -> Result<Option<Plan>, WorksError> {
        Err(none())
    }

    async fn plan_point(&self, _: &PointOrder) -> Result<PointPlan, WorksError> {
        Err(none())
    }

    async fn answers(&self, _: &str, _: &MachineName) -> Result<bool, WorksError> {
        Err(none())
    }
}

fn none() -> WorksError {
    WorksError { reason: "there are no machines here".to_owned(), retry: false }
}
