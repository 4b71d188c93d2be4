//! What goes wrong, as the caller sees it (RFC 9457) and as our log has it. The one place that does both.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};

use super::table::NoRoute;
use crate::domain::{AppError, ErrorKind, Problem};

/// The media type of problems.
pub const MEDIA: &str = "application/problem+json";

/// An answer for an error. What lies beneath one of our own faults is logged and not shown.
pub fn answer(error: &AppError, request: u64) -> Response<Body> {
    if matches!(error.kind, ErrorKind::Internal | ErrorKind::Unavailable) {
        let cause = causes(error);
        tracing::error!(request, detail = error.detail, cause, "a request failed by our own fault");
    }
    let mut response = plain(&error.problem());
    let headers = response.headers_mut();
    match error.kind {
        ErrorKind::Unauthenticated => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"guywire\""));
        }
        ErrorKind::Unavailable | ErrorKind::TooMany => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        _ => {}
    }
    response
}

/// An answer for a path or a method that is not there.
pub fn no_route(no: &NoRoute, request: u64) -> Response<Body> {
    let mut response = answer(&no.error, request);
    if !no.allow.is_empty()
        && let Ok(allow) = HeaderValue::from_str(&no.allow.join(", "))
    {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

/// An answer with a status that no application error has.
pub fn with_status(status: StatusCode, detail: String) -> Response<Body> {
    plain(&Problem {
        kind: None,
        title: status.canonical_reason().map(str::to_owned),
        status: status.as_u16(),
        detail,
        instance: None,
    })
}

fn plain(problem: &Problem) -> Response<Body> {
    let body = serde_json::to_vec(problem).expect("a problem is plain data");
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA));
    response
}

/// All causes in one line.
fn causes(error: &AppError) -> String {
    let mut text = String::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
