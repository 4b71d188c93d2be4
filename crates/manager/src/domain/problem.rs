//! What goes wrong, for the caller (RFC 7807) and for us.

use serde::{Deserialize, Serialize};

/// Problem details as they appear in answers, in operations and in notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Problem {
    /// A URI that names the kind of problem.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The kind of problem in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong, where, and what to do.
    pub detail: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// Why the application did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub struct AppError {
    /// What kind of failure it is, from which the HTTP status follows.
    pub kind: ErrorKind,
    /// For the caller: what was wrong, where, what to do. Never a secret.
    pub detail: String,
    /// For us: what lies beneath. It is logged and not shown.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request makes no sense as it stands (400).
    Invalid,
    /// Nobody has proved who asks (401).
    Unauthenticated,
    /// Who asks may not do that (403).
    Forbidden,
    /// There is no such thing (404).
    NotFound,
    /// The method is not one of this resource (405).
    Method,
    /// No representation that the caller accepts (406).
    NotAcceptable,
    /// It cannot be done in the present state (409).
    Conflict,
    /// The caller's condition does not hold (412).
    Precondition,
    /// The body is too large (413).
    TooLarge,
    /// The body is of a type that is not understood (415).
    MediaType,
    /// No such part of the content (416).
    Range,
    /// It is well formed but refers to what cannot be used (422).
    Unprocessable,
    /// Too many requests (429).
    TooMany,
    /// Our own fault (500).
    Internal,
    /// Our own surroundings: disk, database, another service (503).
    Unavailable,
}

impl ErrorKind {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Method => 405,
            Self::NotAcceptable => 406,
            Self::Conflict => 409,
            Self::Precondition => 412,
            Self::TooLarge => 413,
            Self::MediaType => 415,
            Self::Range => 416,
            Self::Unprocessable => 422,
            Self::TooMany => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }

    /// The kind in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Self::Invalid => "Bad Request",
            Self::Unauthenticated => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not Found",
            Self::Method => "Method Not Allowed",
            Self::NotAcceptable => "Not Acceptable",
            Self::Conflict => "Conflict",
            Self::Precondition => "Precondition Failed",
            Self::TooLarge => "Content Too Large",
            Self::MediaType => "Unsupported Media Type",
            Self::Range => "Range Not Satisfiable",
            Self::Unprocessable => "Unprocessable Content",
            Self::TooMany => "Too Many Requests",
            Self::Internal => "Internal Server Error",
            Self::Unavailable => "Service Unavailable",
        }
    }
}

impl AppError {
    /// An error of `kind` with a detail for the caller.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    /// A request that makes no sense.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, detail)
    }

    /// Nothing of that name.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, detail)
    }

    /// Not in the present state.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, detail)
    }

    /// The same with what lies beneath.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// As the caller sees it.
    pub fn problem(&self) -> Problem {
        Problem {
            kind: None,
            title: Some(self.kind.title().to_owned()),
            status: self.kind.status(),
            detail: self.detail.clone(),
            instance: None,
        }
    }
}
