//! A request as handlers see it: who asks, for what, with which body.

use std::{
    net::SocketAddr,
    str::FromStr,
    sync::{Arc, Mutex},
};

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, Method, header};
use serde::de::DeserializeOwned;

use super::{ApiVersions, Shared, query};
use crate::{
    app::{App, access::Caller},
    domain::{AppError, ErrorKind},
    sol013::{Listing, Resource},
};

/// A request that was routed, authenticated and checked against what its route says.
pub struct Call {
    /// The application.
    pub app: App,
    /// Who asks.
    pub caller: Caller,
    /// The method.
    pub method: Method,
    /// The path as it was sent.
    pub path: String,
    /// The query as it was sent, without the question mark.
    pub query: String,
    /// Headers.
    pub headers: HeaderMap,
    /// The interface that was called.
    pub api: Option<ApiVersions>,
    /// Where the request came from.
    pub peer: Peer,
    /// Names the request in our log.
    pub request: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) params: Vec<(&'static str, String)>,
    /// Behind a lock that nobody ever waits for: with it a call can be shared between threads.
    pub(super) body: Mutex<Body>,
    pub(super) body_limit: Option<u64>,
}

/// Where a request came from.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The other end.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The names in the client's certificate, which was verified: its common name and its alternative names.
    pub certificate: Arc<[String]>,
}

impl Call {
    /// A parameter of the path, decoded.
    ///
    /// # Panics
    ///
    /// If the route has no such parameter: a slip of ours, that the first test of the route finds.
    pub fn param(&self, name: &str) -> &str {
        let found = self.params.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str()).expect("the route's path names this parameter")
    }

    /// A parameter of the path that is an id. Nothing can have an id that is none, so that is a 404 as well.
    pub fn id<T: FromStr>(&self, name: &str) -> Result<T, AppError> {
        let text = self.param(name);
        text.parse().map_err(|_| {
            AppError::not_found(format!("{name}: there is nothing with the id {text:?}: an id is a UUID"))
        })
    }

    /// The value of a query parameter, decoded; the last one, if it is there several times.
    pub fn query_value(&self, name: &str) -> Result<Option<String>, AppError> {
        let pairs = query::parse(&self.query)?;
        Ok(pairs.into_iter().rev().find(|(key, _)| key == name).map(|(_, value)| value))
    }

    /// What a list is asked for: filter, attributes and page, or a 400 that says what is wrong with them.
    pub fn listing(&self, resource: &'static Resource) -> Result<Listing, AppError> {
        let pairs = query::parse(&self.query)?;
        Listing::parse(resource, &pairs, &self.path).map_err(|error| AppError::invalid(error.to_string()))
    }

    fn take_body(&mut self) -> Body {
        std::mem::take(self.body.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// The whole body, within the route's limit.
    pub async fn bytes(&mut self) -> Result<Bytes, AppError> {
        let limit = self.body_limit.unwrap_or(super::route::BODY_LIMIT);
        let mut stream = self.take_body().into_data_stream();
        let mut first = Bytes::new();
        let mut rest = Vec::new();
        let mut length = 0_u64;
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| broken(&error))?;
            length += chunk.len() as u64;
            if length > limit {
                return Err(too_large(limit));
            }
            // Most bodies come in one piece, which is then not copied.
            if first.is_empty() && rest.is_empty() {
                first = chunk;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&chunk);
            }
        }
        Ok(if rest.is_empty() { first } else { rest.into() })
    }

    /// The body as JSON; whatever is wrong with it is said with the attribute and the line.
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T, AppError> {
        self.check_media()?;
        let bytes = self.bytes().await?;
        if bytes.trim_ascii().is_empty() {
            return Err(AppError::invalid("the body is empty; this request needs a JSON object"));
        }
        parse(&bytes)
    }

    /// The body as JSON, or `T::default()` if there is none. An empty object is fine whatever it is said to be.
    pub async fn json_or_empty<T: DeserializeOwned + Default>(&mut self) -> Result<T, AppError> {
        let media = self.check_media();
        let bytes = self.bytes().await?;
        let text = bytes.trim_ascii();
        if text.is_empty() {
            return Ok(T::default());
        }
        if !is_empty_object(text) {
            media?;
        }
        parse(text)
    }

    /// The body bit by bit, for what is too large to be held.
    pub fn body_stream(
        &mut self,
    ) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + Unpin + use<> {
        self.take_body().into_data_stream().map_err(std::io::Error::other)
    }

    /// Refuses a request whose `If-Match` names none of the present entity tag (without quotes).
    pub fn if_match(&self, tag: impl std::fmt::Display) -> Result<(), AppError> {
        let present = format!("\"{tag}\"");
        let mut asked = false;
        for value in self.headers.get_all(header::IF_MATCH) {
            asked = true;
            let value = value.to_str().unwrap_or_default();
            if value.split(',').map(str::trim).any(|one| one == "*" || one == present) {
                return Ok(());
            }
        }
        if !asked {
            return Ok(());
        }
        Err(AppError::new(
            ErrorKind::Precondition,
            format!(
                "it has changed: its ETag is {present} now, which If-Match does not name; read it again and repeat"
            ),
        ))
    }

    /// Whether the caller would take an answer of this media type.
    pub fn accepts(&self, media: &str) -> bool {
        super::accept::accepts(&self.headers, media)
    }

    /// An absolute address of ours.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.app.config.url.trim_end_matches('/'))
    }

    /// Ends when the manager is about to stop: whoever streams without end should end then.
    pub fn stopping(&self) -> tokio_util::sync::CancellationToken {
        self.shared.stop.clone()
    }

    fn check_media(&self) -> Result<(), AppError> {
        let allowed: &[&str] =
            if self.method == Method::PATCH { super::route::MERGE_PATCH } else { &[super::route::JSON] };
        let Some(value) = self.headers.get(header::CONTENT_TYPE) else {
            return Err(AppError::new(
                ErrorKind::MediaType,
                format!("the body has no Content-Type; send {}", allowed[0]),
            ));
        };
        let text = value.to_str().unwrap_or("something unreadable");
        let essence = text.split(';').next().unwrap_or_default().trim();
        if allowed.iter().any(|one| one.eq_ignore_ascii_case(essence)) {
            return Ok(());
        }
        Err(AppError::new(
            ErrorKind::MediaType,
            format!("Content-Type is {essence:?}; send {}", allowed.join(" or ")),
        ))
    }
}

/// JSON to a type. An unknown attribute, a wrong type or broken JSON is named with its place.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, AppError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        AppError::invalid(format!("the body is no UTF-8 text: byte {} is wrong", error.valid_up_to() + 1))
    })?;
    // An array would be taken for a struct's fields in their order.
    if text.trim_start().starts_with('[') {
        return Err(AppError::invalid("the body is an array; this request needs a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match (inner.classify(), path.as_str()) {
            (serde_json::error::Category::Data, "." | "") => AppError::invalid(format!("the body: {inner}")),
            (serde_json::error::Category::Data, _) => AppError::invalid(format!("{path}: {inner}")),
            _ => AppError::invalid(format!("the body is no JSON: {inner}")),
        }
    })?;
    reader.end().map_err(|error| AppError::invalid(format!("the body is no JSON: {error}")))?;
    Ok(value)
}

fn is_empty_object(text: &[u8]) -> bool {
    text.strip_prefix(b"{")
        .and_then(|rest| rest.strip_suffix(b"}"))
        .is_some_and(|inside| inside.trim_ascii().is_empty())
}

pub(super) fn too_large(limit: u64) -> AppError {
    AppError::new(
        ErrorKind::TooLarge,
        format!("the body is longer than the {limit} bytes that are taken here"),
    )
}

fn broken(error: &axum::Error) -> AppError {
    AppError::invalid(format!("the body ended before it was whole: {error}"))
}
