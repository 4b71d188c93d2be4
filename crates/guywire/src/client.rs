//! A client of the manager's interface: one connection, one way to ask, one way to complain.

pub mod context;
pub mod follow;
pub mod params;
pub mod resolve;
pub mod sse;
pub mod transfer;

use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{Method, StatusCode, header};
use serde_json::Value;
use url::Url;

use self::context::Found;
use crate::cli::{Global, target::Target};

/// The longest answer that is read into memory; a list of ten thousand instances fits.
const MOST: usize = 64 << 20;
/// How long an answer may take; uploads, downloads and event streams have no such bound.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks one manager.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    found: Found,
}

/// What a manager answered.
#[derive(Debug)]
pub struct Answer {
    /// Where to look for what becomes of it.
    pub location: Option<String>,
    /// The next page.
    next: Option<String>,
    /// What it says; null if nothing.
    pub body: Value,
}

/// A manager said no.
#[derive(Debug, thiserror::Error)]
#[error("{detail} ({status})")]
pub struct Refused {
    /// The status.
    pub status: StatusCode,
    /// What was wrong and what to do, in the manager's words.
    pub detail: String,
}

impl Client {
    /// A client of the manager that the options, the environment, the contexts or the data directory name.
    pub fn find(target: &Target, global: &Global) -> anyhow::Result<Self> {
        Self::of(context::find(target, global)?)
    }

    /// A client of this manager.
    pub fn of(found: Found) -> anyhow::Result<Self> {
        install_crypto();
        let base = address(&found.url)?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("guywire/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            // A token goes where it was meant to go and nowhere else.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(file) = &found.ca {
            let pem = crate::output::read_bounded(file, 1 << 20)?;
            let roots = reqwest::Certificate::from_pem_bundle(pem.as_bytes()).with_context(|| {
                format!("{}: holds no certificate that can be read as PEM", file.display())
            })?;
            if roots.is_empty() {
                bail!("{}: holds no certificate; it must be PEM (BEGIN CERTIFICATE)", file.display());
            }
            builder = builder.tls_certs_merge(roots);
        }
        Ok(Self { http: builder.build().context("no HTTP client can be made")?, base, found })
    }

    /// The manager's address.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Asks for something.
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        Ok(self.ask(Method::GET, path, query, None).await?.body)
    }

    /// Asks for a list, page after page, up to `limit` entries.
    pub async fn list(&self, path: &str, query: &[(&str, &str)], limit: u32) -> anyhow::Result<Vec<Value>> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut answer = self.ask(Method::GET, path, query, None).await?;
        let mut items = Vec::new();
        loop {
            match answer.body {
                Value::Array(page) => items.extend(page),
                other => bail!("{}{path} answers with no list: {}", self.url(), shorten(&other.to_string())),
            }
            let Some(next) = answer.next.filter(|_| items.len() < limit) else { break };
            let next = self.base.join(&next).context("the manager names a next page that is no address")?;
            // Only the query counts: behind a proxy the manager may know itself by another name.
            let pairs: Vec<(String, String)> = next.query_pairs().into_owned().collect();
            let pairs: Vec<(&str, &str)> =
                pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            answer = self.ask(Method::GET, path, &pairs, None).await?;
        }
        items.truncate(limit);
        Ok(items)
    }

    /// Sends something.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.ask(Method::POST, path, &[], Some(body)).await
    }

    /// Replaces something.
    pub async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.ask(Method::PUT, path, &[], Some(body)).await
    }

    /// Changes something.
    pub async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.ask(Method::PATCH, path, &[], Some(body)).await
    }

    /// Deletes something.
    pub async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.ask(Method::DELETE, path, &[], None).await.map(drop)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = self.request(method, path, query)?.timeout(PATIENCE);
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, media).body(serde_json::to_vec(body)?);
        }
        let response = self.send(request).await?;
        let text =
            |name| response.headers().get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
        let location = text(header::LOCATION).map(str::to_owned);
        let next = text(header::LINK).and_then(next_link);
        let url = response.url().clone();
        let bytes = self.read(response).await?;
        let body = match bytes.as_slice() {
            [] => Value::Null,
            bytes => serde_json::from_slice(bytes)
                .with_context(|| format!("{url} does not answer with JSON; is that a manager?"))?,
        };
        Ok(Answer { location, next, body })
    }

    /// A request with everything that all requests have.
    pub fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<reqwest::RequestBuilder> {
        let mut url = self.base.clone();
        let joined = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(&joined);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.request(method, url);
        if let Some(version) = version(path) {
            request = request.header("Version", version);
        }
        if let Some(token) = self.found.token()? {
            request = request.bearer_auth(token.trim());
        }
        Ok(request)
    }

    /// Sends a request; anything but a success is an error in the manager's words.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<reqwest::Response> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = self.read(response).await.unwrap_or_default();
        let mut detail = problem(&bytes);
        if status == StatusCode::UNAUTHORIZED {
            detail = format!("{detail}; {}", self.found.advice());
        }
        Err(Refused { status, detail }.into())
    }

    async fn read(&self, mut response: reqwest::Response) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if bytes.len() + chunk.len() > MOST {
                bail!(
                    "{}: the answer is longer than {MOST} bytes; ask for less with --limit or --filter",
                    self.url()
                );
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn unreachable(&self, error: &reqwest::Error) -> anyhow::Error {
        // The library's own words begin with the address; the innermost cause is what tells.
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let url = self.url();
        let text =
            if error.is_timeout() { "it takes too long to answer".to_owned() } else { cause.to_string() };
        let advice = self.found.absent();
        anyhow::anyhow!("no manager can be reached at {url}: {text}; {advice}")
    }
}

/// The address of a manager: http or https, a host, no query; nothing that hides a password.
pub fn address(text: &str) -> anyhow::Result<Url> {
    let example = "write it as http://127.0.0.1:9890 or https://HOST";
    // A password may be in it, so the text is not repeated unless it has no `@`.
    let shown = if text.contains('@') { "the address of the manager" } else { text };
    let url = Url::parse(text).map_err(|error| anyhow::anyhow!("{shown}: {error}; {example}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        bail!("{shown}: this is no address of a manager; {example}");
    }
    if !url.username().is_empty() || url.password().is_some() {
        bail!("{shown}: user and password do not belong here; keep a token with `guywire login`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        bail!("{shown}: an address ends before any ? or #; {example}");
    }
    Ok(url)
}

/// The provider of cryptography, chosen once; whoever was first is as good.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none()
        && rustls::crypto::ring::default_provider().install_default().is_err()
    {
        tracing::debug!("another thread chose the provider of cryptography");
    }
}

/// The version of the interface that we speak, where it wants one.
fn version(path: &str) -> Option<&'static str> {
    let speaks = [("/vnflcm/v2/", "2.0.0"), ("/vnffm/v1/", "1.3.0"), ("/vnfpkgm/v1/", "1.3.0")];
    speaks.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, version)| *version)
}

/// The address in `Link: <…>;rel="next"`.
fn next_link(header: &str) -> Option<String> {
    header.split(',').find_map(|link| {
        let (address, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        rest.replace(' ', "").contains("rel=\"next\"").then(|| address.to_owned())
    })
}

/// What problem details say, or whatever else is there.
fn problem(bytes: &[u8]) -> String {
    let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
    if let Some(detail) = value["detail"].as_str().or_else(|| value["error_description"].as_str()) {
        return detail.to_owned();
    }
    match String::from_utf8_lossy(bytes).trim() {
        "" => "the manager gives no reason".to_owned(),
        text => shorten(text),
    }
}

fn shorten(text: &str) -> String {
    let short: String = text.chars().take(300).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_or_refused_with_a_reason() {
        for good in ["http://127.0.0.1:9890", "https://vnfm.example/base/", "http://[::1]:1"] {
            address(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        let bad = [
            ("", "write it as"),
            ("127.0.0.1:9890", "write it as"),
            ("localhost:9890", "no address of a manager"),
            ("ftp://host", "no address of a manager"),
            ("http://host/?a=b", "before any ?"),
            ("http://host/#a", "before any ?"),
            ("http://root:hunter2@host", "guywire login"),
            ("http://root:hunter2@", "write it as"),
        ];
        for (text, words) in bad {
            let error = address(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn the_next_page_is_found_among_links() {
        assert_eq!(next_link("<http://a/?m=1>;rel=\"next\"").as_deref(), Some("http://a/?m=1"));
        assert_eq!(next_link("<x>; rel=\"prev\", <y>; rel=\"next\"").as_deref(), Some("y"));
        assert_eq!(next_link("<x>; rel=\"prev\""), None);
        assert_eq!(next_link("nonsense"), None);
    }

    #[test]
    fn a_problem_is_told_in_the_managers_words() {
        assert_eq!(problem(br#"{"status": 409, "detail": "it is busy"}"#), "it is busy");
        assert_eq!(problem(br#"{"error": "x", "error_description": "no such client"}"#), "no such client");
        assert_eq!(problem(b""), "the manager gives no reason");
        assert_eq!(problem(b"<html>502</html>"), "<html>502</html>");
        assert!(problem("ä".repeat(1000).as_bytes()).ends_with('…'));
    }
}
