//! What a handler answers.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// Headers of its own; those that every answer has are added later.
    pub headers: HeaderMap,
    /// What it says.
    pub body: Payload,
}

/// What an answer says.
#[derive(Debug)]
pub enum Payload {
    /// Nothing.
    Empty,
    /// JSON, as it goes on the wire.
    Json(Vec<u8>),
    /// Bytes of a media type.
    Bytes(&'static str, Bytes),
    /// Bytes of a media type that come bit by bit.
    Stream(&'static str, Body),
}

impl Reply {
    /// An answer without a body.
    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Payload::Empty }
    }

    /// JSON with any status.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(value).expect("answers are plain data that JSON can hold");
        Self { status, headers: HeaderMap::new(), body: Payload::Json(bytes) }
    }

    /// 200 with JSON.
    pub fn ok(value: &impl Serialize) -> Self {
        Self::json(StatusCode::OK, value)
    }

    /// 201 with JSON and where it can be found.
    pub fn created(location: &str, value: &impl Serialize) -> Self {
        Self::json(StatusCode::CREATED, value).with_header(header::LOCATION, location)
    }

    /// 202 and where to look for what becomes of it.
    pub fn accepted(location: &str) -> Self {
        Self::empty(StatusCode::ACCEPTED).with_header(header::LOCATION, location)
    }

    /// 204.
    pub fn no_content() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    /// 303, with where it is already.
    pub fn see_other(location: &str) -> Self {
        Self::empty(StatusCode::SEE_OTHER).with_header(header::LOCATION, location)
    }

    /// Bytes of a media type.
    pub fn bytes(media: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, headers: HeaderMap::new(), body: Payload::Bytes(media, bytes.into()) }
    }

    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::bytes("text/plain; charset=utf-8", text.into())
    }

    /// Bytes that come bit by bit.
    pub fn stream(media: &'static str, body: Body) -> Self {
        Self { status: StatusCode::OK, headers: HeaderMap::new(), body: Payload::Stream(media, body) }
    }

    /// Another status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// A header more. One that cannot be a header's value is left out: it could only come from a name that was
    /// stored with control characters in it, which is no reason to fail.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(name, value);
        }
        self
    }

    /// A strong entity tag, such as a revision. `If-None-Match` is answered with 304 by the layer above.
    #[must_use]
    pub fn with_etag(self, tag: impl std::fmt::Display) -> Self {
        let quoted = format!("\"{tag}\"");
        self.with_header(header::ETAG, &quoted)
    }

    /// A strong entity tag from the content.
    #[must_use]
    pub fn with_content_etag(self) -> Self {
        let tag = match &self.body {
            Payload::Json(bytes) => content_tag(bytes),
            Payload::Bytes(_, bytes) => content_tag(bytes),
            Payload::Empty | Payload::Stream(..) => return self,
        };
        self.with_etag(tag)
    }
}

/// A tag of content: half a SHA-256 is enough to tell two contents apart.
pub fn content_tag(bytes: &[u8]) -> String {
    crate::domain::hex(&Sha256::digest(bytes)[..16])
}
