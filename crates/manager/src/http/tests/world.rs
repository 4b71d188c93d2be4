//! A manager that listens on loopback and keeps everything in a directory of its own.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use guywire_model::{MachineName, Observed};
use guywire_plan::{Engine, Handlers, Options, Plan, journal::SqliteJournal};
use http::Method;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    app::{
        App, Config,
        access::{self, CredentialKind, Gate, Role},
        callback::{Callbacks, Outbound},
        works::{MachineOrder, Place, PointOrder, PointPlan, Works, WorksError},
    },
    domain::Vim,
    http::{Route, ServeOptions, TlsFiles, bind},
    store::Store,
};

/// A manager for one test.
pub struct World {
    /// Removed with the world.
    pub _dir: TempDir,
    pub url: String,
    pub app: App,
    pub admin: String,
    pub client: Client,
    pub gate: Gate,
    pub stop: CancellationToken,
    pub served: Option<JoinHandle<()>>,
}

/// How the manager of a test is started.
#[derive(Default)]
pub struct Setup {
    pub routes: Option<Vec<Route>>,
    pub tls: Option<TlsFiles>,
    pub no_auth: bool,
}

/// No machines anywhere: these tests stop before.
struct Nowhere;

#[async_trait]
impl Works for Nowhere {
    async fn place(&self, _: &Vim) -> Result<Place, WorksError> {
        Err(nowhere())
    }
    async fn observe(&self, _: &str) -> Result<Observed, WorksError> {
        Err(nowhere())
    }
    async fn plan_machines(&self, _: &MachineOrder) -> Result<Option<Plan>, WorksError> {
        Err(nowhere())
    }
    async fn plan_point(&self, _: &PointOrder) -> Result<PointPlan, WorksError> {
        Err(nowhere())
    }
    async fn answers(&self, _: &str, _: &MachineName) -> Result<bool, WorksError> {
        Err(nowhere())
    }
}

fn nowhere() -> WorksError {
    WorksError { reason: "there are no machines in this test".to_owned(), retry: false }
}

impl World {
    pub async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        provider();
        let dir = tempfile::tempdir().expect("a directory");
        let bound = bind(ServeOptions {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            tls: setup.tls,
            no_auth: setup.no_auth,
            grace: Duration::from_secs(5),
        })
        .expect("a listener");
        let url = bound.url();
        let app = app(dir.path(), &url).await;
        access::ensure_admin(&app.store, dir.path()).await.expect("an administrator");
        let admin = std::fs::read_to_string(dir.path().join(access::ADMIN_TOKEN)).expect("a token");
        let stop = CancellationToken::new();
        let routes = setup.routes.unwrap_or_else(crate::http::all);
        let served = tokio::spawn(bound.serve(app.clone(), routes, stop.clone()));
        let gate = Gate::new(app.store.clone(), false);
        let admin = admin.trim().to_owned();
        let client = Client::builder().no_proxy().build().expect("a client");
        Self { _dir: dir, url, app, admin, client, gate, stop, served: Some(served) }
    }

    /// A request without credentials.
    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// A request of the administrator, with a version that suits.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.bare(method, path).bearer_auth(&self.admin);
        if path.starts_with("/vnflcm/v2") { request.header("version", "2.0.0") } else { request }
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        read(self.request(Method::GET, path).send().await.expect("an answer")).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        read(self.request(Method::POST, path).json(body).send().await.expect("an answer")).await
    }

    /// A new token of a role.
    pub async fn token(&self, name: &str, role: Role) -> String {
        let made = self.gate.create(name, CredentialKind::Token, role, None).await.expect("a credential");
        made.1.expect("a token has a secret").to_string()
    }

    /// Stops the manager and waits for it.
    pub async fn end(mut self) {
        self.stop.cancel();
        self.served.take().expect("not ended before").await.expect("it ended well");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Status and JSON of an answer; whatever is no success is a problem with status and detail.
pub async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let media = response.headers().get("content-type").map(|value| value.to_str().expect("text").to_owned());
    let bytes = response.bytes().await.expect("a body");
    let value: Value = if bytes.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
    };
    if status >= 400 && value.get("error").is_none() && value.get("ready").is_none() {
        assert_eq!(media.as_deref(), Some("application/problem+json"), "{status} {value}");
        assert_eq!(value["status"], status, "{value}");
        assert!(value["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{value}");
    }
    (status, value)
}

/// The provider of cryptography that clients of these tests use; whoever was first has set the same one.
pub fn provider() {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }
}

async fn app(data: &Path, url: &str) -> App {
    let store = Arc::new(Store::sqlite(&data.join("manager.db")).await.expect("a store"));
    let journal = Arc::new(SqliteJournal::open(&data.join("journal.db")).await.expect("a journal"));
    let secrets = Arc::new(guywire_secrets::Store::open_with(data, None).expect("a store of secrets"));
    let outbound = Outbound::default();
    let callbacks = Callbacks::new(&outbound, data, secrets.clone()).expect("a client");
    App {
        store,
        engine: Engine::new(journal, Handlers::new(), Options::default()),
        works: Arc::new(Nowhere),
        secrets,
        callbacks,
        config: Arc::new(Config {
            data: data.to_owned(),
            url: url.to_owned(),
            nfvo: None,
            outbound,
            packages: guywire_package::Policy::default(),
        }),
    }
}
