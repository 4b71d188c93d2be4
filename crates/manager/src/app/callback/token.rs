//! Access tokens of others' token endpoints (RFC 6749, client credentials), kept until they run out.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use guywire_secrets::Secret;
use http::{Method, StatusCode};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::form_urlencoded;

use super::{ANSWER, CallbackError, Callbacks, TOTAL, fatal, read, retry, why};

/// A token is not used in its last moments: it could run out on the way.
const MARGIN: Duration = Duration::from_secs(10);
/// How long a token is used whose endpoint does not say how long it lives, and the longest for one that does.
const UNSAID: Duration = Duration::from_secs(300);
const LONGEST: Duration = Duration::from_secs(86_400);
/// How many tokens are kept: a bound on memory.
const MOST: usize = 1_000;

/// Tokens in hand, by client and endpoint.
#[derive(Default)]
pub(super) struct Tokens(Mutex<HashMap<(String, String), Token>>);

#[derive(Clone)]
struct Token {
    value: Secret,
    until: Instant,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Option<u64>,
}

impl Tokens {
    /// Forgets a token that was not taken; whether there was one.
    pub(super) async fn forget(&self, client: &str, endpoint: &str) -> bool {
        self.0.lock().await.remove(&(client.to_owned(), endpoint.to_owned())).is_some()
    }

    async fn get(&self, key: &(String, String)) -> Option<Secret> {
        let tokens = self.0.lock().await;
        tokens.get(key).filter(|token| token.until > Instant::now()).map(|token| token.value.clone())
    }

    async fn put(&self, key: (String, String), token: Token) {
        let mut tokens = self.0.lock().await;
        if tokens.len() >= MOST {
            tokens.retain(|_, token| token.until > Instant::now());
        }
        if tokens.len() < MOST {
            tokens.insert(key, token);
        }
    }
}

impl Callbacks {
    /// A token that is good for a while: the one in hand, or a new one.
    pub(super) async fn token(
        &self,
        client: &str,
        secret: Option<&Secret>,
        endpoint: &str,
    ) -> Result<Secret, CallbackError> {
        let key = (client.to_owned(), endpoint.to_owned());
        if let Some(token) = self.0.tokens.get(&key).await {
            return Ok(token);
        }
        let (answer, asked) = (self.ask(client, secret, endpoint).await?, Instant::now());
        let lives = answer.expires_in.map_or(UNSAID, Duration::from_secs).min(LONGEST);
        let value = Secret::new(answer.access_token);
        let until = asked + lives.saturating_sub(MARGIN);
        self.0.tokens.put(key, Token { value: value.clone(), until }).await;
        Ok(value)
    }

    async fn ask(
        &self,
        client: &str,
        secret: Option<&Secret>,
        endpoint: &str,
    ) -> Result<Answer, CallbackError> {
        let at = |reason: String| retry(format!("token endpoint {endpoint}: {reason}"));
        let mut form = "grant_type=client_credentials".to_owned();
        // RFC 6749, 2.3.1: client and secret are form-encoded before they become user and password.
        let encode = |bytes: &[u8]| form_urlencoded::byte_serialize(bytes).collect::<String>();
        let http = if secret.is_none() { self.identified()? } else { self.client().clone() };
        let mut request = http.request(Method::POST, endpoint).timeout(TOTAL);
        if let Some(secret) = secret {
            request = request.basic_auth(encode(client.as_bytes()), Some(encode(secret.expose())));
        } else {
            // RFC 8705: the certificate proves what the id says.
            form = format!("{form}&client_id={}", encode(client.as_bytes()));
        }
        let answer = request
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(http::header::ACCEPT, "application/json")
            .body(form)
            .send()
            .await
            .map_err(|error| at(why(error)))?;
        let answer = read(answer, ANSWER).await?;
        if answer.status != StatusCode::OK {
            return Err(at(answer.complaint()));
        }
        // The body is not repeated: it may hold a token all the same.
        let token: Answer = serde_json::from_slice(&answer.body)
            .map_err(|_| at("its answer is no JSON object with an access_token".to_owned()))?;
        match &token.token_type {
            Some(kind) if !kind.eq_ignore_ascii_case("bearer") => {
                Err(fatal(format!("token endpoint {endpoint}: it gives tokens of type {kind:?}, not Bearer")))
            }
            _ => Ok(token),
        }
    }
}
