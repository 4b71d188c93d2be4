//! One request, from its arrival to its answer.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use axum::body::Body;
use futures::FutureExt as _;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts,
};
use tokio_util::sync::CancellationToken;

use super::{
    ApiVersions, Call, Payload, Peer, Reply, Route, accept, auth, call, metrics::Metrics, problem, query,
    table::Table,
};
use crate::{
    app::{
        App,
        access::{Caller, Gate},
    },
    domain::{AppError, ErrorKind},
};

/// The longest headers that are taken, in bytes.
const HEADERS: usize = 64 * 1024;
const VERSION: HeaderName = HeaderName::from_static("version");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What all requests of a server share.
pub struct Shared {
    pub(super) app: App,
    pub(super) gate: Gate,
    pub(super) table: Table,
    pub(super) metrics: Metrics,
    /// Ends when the server is about to.
    pub(super) stop: CancellationToken,
    requests: AtomicU64,
}

/// What is known of a request once it was answered, for log and metrics.
struct Trace {
    route: &'static str,
    caller: String,
}

impl Shared {
    pub(super) fn new(app: App, routes: Vec<Route>, open: bool, stop: CancellationToken) -> Self {
        let gate = Gate::new(app.store.clone(), open);
        Self {
            app,
            gate,
            table: Table::new(routes),
            metrics: Metrics::new(),
            stop,
            // Requests of another run of the program must not look like these.
            requests: AtomicU64::new(u64::from(rand::random::<u32>()) << 24),
        }
    }

    /// Answers a request. Whatever happens, there is an answer.
    pub async fn answer(self: Arc<Self>, peer: Peer, request: Request<Body>) -> Response<Body> {
        let began = Instant::now();
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let method = request.method().clone();
        let mut trace = Trace { route: "none", caller: String::new() };
        let mut response = self.dispatch(peer, request, number, &mut trace).await;
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&format!("{number:016x}")) {
            headers.insert(REQUEST_ID, id);
        }
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
        let status = response.status().as_u16();
        let took = began.elapsed();
        self.metrics.request(trace.route, &method, status, took);
        let (route, caller) = (trace.route, trace.caller.as_str());
        let ms = took.as_secs_f64() * 1000.0;
        // Those who only look come often and change nothing: they are told of when somebody wants to know.
        if matches!(method, Method::GET | Method::HEAD) && status < 500 {
            tracing::debug!(request = number, %method, route, caller, status, ms, "request");
        } else {
            tracing::info!(request = number, %method, route, caller, status, ms, "request");
        }
        response
    }

    async fn dispatch(
        self: &Arc<Self>,
        peer: Peer,
        request: Request<Body>,
        number: u64,
        trace: &mut Trace,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let size: usize =
            parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if size > HEADERS {
            return problem::with_status(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                format!("the headers have {size} bytes; {HEADERS} are taken"),
            );
        }
        // HTTP/2 has no Host: its authority is in the address.
        if let Some(authority) = parts.uri.authority()
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            parts.headers.entry(header::HOST).or_insert(host);
        }
        let found = match self.table.find(&parts.method, parts.uri.path()) {
            Ok(found) => found,
            Err(no) => return problem::no_route(&no, number),
        };
        let (route, params) = (found.route, found.params);
        trace.route = route.path;
        let allowed = auth::authorise(&self.gate, route.access, &parts.method, &parts.headers, &peer).await;
        let mut response = match allowed {
            Err(error) => {
                if error.kind == ErrorKind::Unauthenticated {
                    tokio::time::sleep(self.gate.slow().failed(peer.address.ip())).await;
                }
                problem::answer(&error, number)
            }
            Ok(caller) => {
                trace.caller.clone_from(&caller.name);
                self.run(route, params, parts, body, peer, caller, number).await
            }
        };
        if let Some(ApiVersions { version, .. }) = route.api {
            response.headers_mut().insert(VERSION, HeaderValue::from_static(version));
        }
        response
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one request, taken apart once and put together once"
    )]
    async fn run(
        self: &Arc<Self>,
        route: &Route,
        params: Vec<(&'static str, String)>,
        parts: Parts,
        body: Body,
        peer: Peer,
        caller: Caller,
        number: u64,
    ) -> Response<Body> {
        if let Err(error) = check(route, &parts) {
            return problem::answer(&error, number);
        }
        let conditional = parts.method == Method::GET || parts.method == Method::HEAD;
        let unless = conditional.then(|| parts.headers.get(header::IF_NONE_MATCH).cloned()).flatten();
        let call = Call {
            app: self.app.clone(),
            caller,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            method: parts.method,
            headers: parts.headers,
            api: route.api,
            peer,
            request: number,
            shared: self.clone(),
            params,
            body: body.into(),
            body_limit: route.body_limit,
        };
        // A slip in one handler must not take the connection, and with it other requests, along.
        let done = AssertUnwindSafe((route.handler)(call)).catch_unwind().await;
        let done = done.unwrap_or_else(|panic| {
            let what = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(AppError::new(ErrorKind::Internal, "the manager made a mistake; its log says more")
                .because(what))
        });
        match done {
            Ok(reply) => finish(reply, unless.as_ref()),
            Err(error) => problem::answer(&error, number),
        }
    }
}

/// What can be refused before the handler looks at a request.
fn check(route: &Route, parts: &Parts) -> Result<(), AppError> {
    if let Some(api) = &route.api {
        accept::check_version(&parts.headers, api)?;
    }
    check_accept(route, &parts.headers)?;
    query::check(parts.uri.query().unwrap_or_default(), &route.doc.query)?;
    if let (Some(limit), Some(length)) = (route.body_limit, content_length(&parts.headers))
        && length > limit
    {
        return Err(call::too_large(limit));
    }
    Ok(())
}

/// Where all that a route can say is JSON, the caller has to take JSON. Others choose themselves.
fn check_accept(route: &Route, headers: &HeaderMap) -> Result<(), AppError> {
    let mut media =
        route.doc.answers.iter().filter_map(|answer| answer.body.map(|(media, _)| media)).peekable();
    if media.peek().is_none()
        || media.any(|media| media != super::JSON)
        || accept::accepts(headers, super::JSON)
    {
        return Ok(());
    }
    Err(AppError::new(
        ErrorKind::NotAcceptable,
        "Accept leaves out application/json, which is all that this has; send `Accept: application/json`",
    ))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// An answer on the wire.
fn finish(reply: Reply, unless: Option<&HeaderValue>) -> Response<Body> {
    let Reply { mut status, headers, body } = reply;
    let same = unless.is_some_and(|unless| is_same(unless, headers.get(header::ETAG)));
    let (media, body) = match body {
        _ if same && status == StatusCode::OK => {
            status = StatusCode::NOT_MODIFIED;
            (None, Body::empty())
        }
        Payload::Empty => (None, Body::empty()),
        Payload::Json(bytes) => (Some(super::JSON), Body::from(bytes)),
        Payload::Bytes(media, bytes) => (Some(media), Body::from(bytes)),
        Payload::Stream(media, body) => (Some(media), body),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(media) = media {
        response.headers_mut().entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(media));
    }
    response
}

/// Whether `If-None-Match` names the present entity tag; weak ones compare alike here (RFC 9110 13.1.2).
fn is_same(unless: &HeaderValue, tag: Option<&HeaderValue>) -> bool {
    let (Ok(unless), Some(Ok(tag))) = (unless.to_str(), tag.map(HeaderValue::to_str)) else { return false };
    unless.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}
