//! The one HTTP client with which the manager calls others: subscribers, token endpoints, an NFVO, a place that
//! packages are fetched from.
//!
//! Redirects are not followed: a request that carries credentials goes where it was meant to go or nowhere. Proxies
//! that the environment names are not used for the same reason.

mod identity;
#[cfg(test)]
mod tests;
mod token;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use guywire_secrets::{Secret, Store as Secrets};
use http::{HeaderMap, Method, StatusCode};

use crate::domain::CallbackAuth;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long one request may take in all.
const TOTAL: Duration = Duration::from_secs(30);
/// The least that somebody must send in this time while a body is read.
const SILENCE: Duration = Duration::from_secs(30);
/// How much of an answer is kept that nobody asked to be larger.
const ANSWER: usize = 64 * 1024;
/// The file names in the data directory under which our own certificate and key are looked for.
const CERTIFICATE: (&str, &str) = ("client.pem", "client.key");

/// How the manager calls others.
#[derive(Debug, Clone)]
pub struct Outbound {
    /// Whether a subscription's callback must answer before the subscription is made, as SOL003 says.
    pub test_callback: bool,
    /// Our own certificate and its key, PEM; else `client.pem` and `client.key` of the data directory, if they exist.
    /// They are read again when they change.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Certificates of authorities that are trusted besides the system's own, PEM.
    pub ca: Option<PathBuf>,
    /// How often machines are asked whether they are still there.
    pub watch_every: Duration,
}

impl Default for Outbound {
    fn default() -> Self {
        Self { test_callback: true, identity: None, ca: None, watch_every: Duration::from_secs(10) }
    }
}

/// Calls others. Cheap to clone.
#[derive(Clone)]
pub struct Callbacks(Arc<Inner>);

struct Inner {
    plain: reqwest::Client,
    identity: identity::Identity,
    secrets: Arc<Secrets>,
    tokens: token::Tokens,
}

/// What we prove with who we are, secrets in hand.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// User and password.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A token, fetched when it is needed.
    OAuth2 {
        /// The client's id.
        client: String,
        /// Its secret; none where our certificate proves who we are.
        secret: Option<Secret>,
        /// Where tokens come from.
        endpoint: String,
    },
    /// Our certificate.
    Certificate,
}

/// A request to somebody.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The method.
    pub method: Method,
    /// Where to.
    pub url: &'a str,
    /// The `Version` of the interface that is called, if it wants one.
    pub version: Option<&'static str>,
    /// A JSON document.
    pub body: Option<String>,
    /// How much of the answer is kept.
    pub limit: usize,
}

/// What came back.
#[derive(Debug)]
pub struct Incoming {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, or its beginning.
    pub body: Vec<u8>,
    /// Whether there was more of it.
    pub cut: bool,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct CallbackError {
    /// What was wrong, where, what to do. Never a secret.
    pub reason: String,
    /// Whether another try can help.
    pub retry: bool,
}

impl Callbacks {
    /// Reads certificates and makes the client.
    pub fn new(outbound: &Outbound, data: &Path, secrets: Arc<Secrets>) -> Result<Self, CallbackError> {
        // Whoever was first has installed the same one: there is only ring in this program.
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            tracing::trace!("the cryptography is installed already");
        }
        let roots = outbound.ca.as_deref().map(authorities).transpose()?.unwrap_or_default();
        let given = outbound.identity.clone();
        let must_be_there = given.is_some();
        let found = || (data.join(CERTIFICATE.0), data.join(CERTIFICATE.1));
        let identity = identity::Identity::new(given.unwrap_or_else(found), roots.clone());
        // What is wrong with it is better known now than when the first notification does not go out.
        if must_be_there || identity.exists() {
            identity.known()?;
        }
        let plain = client(&roots, None)
            .map_err(|error| fatal(format!("no HTTP client can be made: {}", why(error))))?;
        let tokens = token::Tokens::default();
        Ok(Self(Arc::new(Inner { plain, identity, secrets, tokens })))
    }

    /// The client itself, for what is too large for [`Callbacks::send`]: it has no bound on the time in all, only on
    /// connecting and on silence.
    pub fn client(&self) -> &reqwest::Client {
        &self.0.plain
    }

    /// The SHA-256 of our certificate in base64url (`x5t#S256`), or why we have none.
    pub fn fingerprint(&self) -> Result<String, CallbackError> {
        Ok(self.0.identity.known()?.fingerprint)
    }

    /// Fetches the secrets that `auth` refers to.
    pub fn credentials(&self, auth: &CallbackAuth) -> Result<Credentials, CallbackError> {
        let secret = |reference| self.0.secrets.get(reference).map_err(|error| retry(error.to_string()));
        Ok(match auth {
            CallbackAuth::Basic { user, password } => {
                Credentials::Basic { user: user.clone(), password: secret(password)? }
            }
            CallbackAuth::OAuth2 { client, secret: reference, endpoint } => Credentials::OAuth2 {
                client: client.clone(),
                secret: reference.as_ref().map(secret).transpose()?,
                endpoint: endpoint.clone(),
            },
            CallbackAuth::Mtls => Credentials::Certificate,
        })
    }

    /// Sends a request, and once more with a new token if the one in hand is not taken any longer.
    pub async fn send(
        &self,
        request: &Outgoing<'_>,
        credentials: Option<&Credentials>,
    ) -> Result<Incoming, CallbackError> {
        let answer = self.send_once(request, credentials).await?;
        match credentials {
            Some(Credentials::OAuth2 { client, endpoint, .. })
                if answer.status == StatusCode::UNAUTHORIZED
                    && self.0.tokens.forget(client, endpoint).await =>
            {
                self.send_once(request, credentials).await
            }
            _ => Ok(answer),
        }
    }

    async fn send_once(
        &self,
        request: &Outgoing<'_>,
        credentials: Option<&Credentials>,
    ) -> Result<Incoming, CallbackError> {
        let client = match credentials {
            Some(Credentials::Certificate) => self.identified()?,
            _ => self.0.plain.clone(),
        };
        let mut building = client.request(request.method.clone(), request.url).timeout(TOTAL);
        building = building.header(http::header::ACCEPT, "application/json, application/problem+json");
        if let Some(version) = request.version {
            building = building.header("Version", version);
        }
        if let Some(body) = &request.body {
            building = building.header(http::header::CONTENT_TYPE, "application/json").body(body.clone());
        }
        building = match credentials {
            Some(Credentials::Basic { user, password }) => {
                let password = password.expose_str().ok_or_else(|| {
                    fatal("the password for this address is no text; set it again".to_owned())
                })?;
                building.basic_auth(user, Some(password))
            }
            Some(Credentials::OAuth2 { client, secret, endpoint }) => {
                let token = self.token(client, secret.as_ref(), endpoint).await?;
                building.bearer_auth(token.expose_str().unwrap_or_default())
            }
            Some(Credentials::Certificate) | None => building,
        };
        let answer = building.send().await.map_err(|error| retry(why(error)))?;
        read(answer, request.limit).await
    }

    fn identified(&self) -> Result<reqwest::Client, CallbackError> {
        Ok(self.0.identity.known()?.client)
    }
}

impl<'a> Outgoing<'a> {
    /// Without a body.
    pub fn get(url: &'a str) -> Self {
        Self { method: Method::GET, url, version: None, body: None, limit: ANSWER }
    }

    /// With a JSON document.
    pub fn post(url: &'a str, body: String) -> Self {
        Self { method: Method::POST, url, version: None, body: Some(body), limit: ANSWER }
    }
}

impl Incoming {
    /// What the other says is wrong, in its own words as far as they are short and readable.
    pub fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let problem: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let detail = problem.as_ref().and_then(|problem| {
            ["detail", "error_description", "error", "title"].iter().find_map(|key| problem[key].as_str())
        });
        let text = detail.unwrap_or(&text).trim();
        if text.is_empty() {
            return format!("it answered {}", self.status);
        }
        let short: String = text.chars().filter(|c| !c.is_control()).take(300).collect();
        format!("it answered {}: {short}", self.status)
    }
}

async fn read(mut answer: reqwest::Response, limit: usize) -> Result<Incoming, CallbackError> {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let (mut body, mut cut) = (Vec::new(), false);
    while let Some(chunk) = answer.chunk().await.map_err(|error| retry(why(error)))? {
        let room = limit - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            cut = true;
            break;
        }
    }
    Ok(Incoming { status, headers, body, cut })
}

fn client(
    roots: &[reqwest::Certificate],
    identity: Option<reqwest::Identity>,
) -> Result<reqwest::Client, reqwest::Error> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("guywire/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        // One subscriber is called by one worker; connections that nobody uses are not worth their memory.
        .pool_max_idle_per_host(2)
        .pool_idle_timeout(Duration::from_secs(20));
    if !roots.is_empty() {
        builder = builder.tls_certs_merge(roots.iter().cloned());
    }
    if let Some(identity) = identity {
        builder = builder.identity(identity);
    }
    builder.build()
}

fn authorities(file: &Path) -> Result<Vec<reqwest::Certificate>, CallbackError> {
    let pem = bytes_of(file)?;
    let found = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| {
        fatal(format!("{}: it holds no certificates in PEM: {}", file.display(), why(error)))
    })?;
    if found.is_empty() {
        return Err(fatal(format!("{}: it holds no certificates in PEM", file.display())));
    }
    Ok(found)
}

fn bytes_of(file: &Path) -> Result<Vec<u8>, CallbackError> {
    std::fs::read(file).map_err(|error| fatal(format!("{}: it cannot be read: {error}", file.display())))
}

/// What lies at the bottom of a failed request, without its URL, which may hold more than the host's name.
fn why(error: reqwest::Error) -> String {
    let error = error.without_url();
    let what = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the exchange broke off"
    };
    let mut bottom: &dyn std::error::Error = &error;
    while let Some(source) = bottom.source() {
        bottom = source;
    }
    format!("{what}: {bottom}")
}

fn retry(reason: String) -> CallbackError {
    CallbackError { reason, retry: true }
}

fn fatal(reason: String) -> CallbackError {
    CallbackError { reason, retry: false }
}
