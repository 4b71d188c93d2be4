//! Where secrets are exchanged for short-lived ones: `OAuth2` client credentials (RFC 6749 4.4), sessions of the console.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, StatusCode, header};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Access, Answer, Call, Reply, RequestDoc, Route, auth, query};
use crate::{
    app::access::{ACCESS_SECONDS, CONSOLE_SECONDS, Caller, Role},
    domain::{AppError, ErrorKind},
};

const FORM: &str = "application/x-www-form-urlencoded";

/// What a client sends for an access token.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it describes a form, which is read pair by pair")]
struct TokenForm {
    /// `client_credentials`
    grant_type: String,
    /// The client's id, unless it is in `Authorization: Basic`.
    client_id: Option<String>,
    /// The client's secret, unless it is in `Authorization: Basic`.
    client_secret: Option<String>,
    /// Accepted and not used: the role of the client decides.
    scope: Option<String>,
}

/// An access token.
#[derive(Serialize, JsonSchema)]
struct TokenAnswer<'a> {
    /// The token.
    access_token: &'a str,
    /// `Bearer`
    token_type: &'static str,
    /// Seconds until it ends.
    expires_in: i64,
    /// The role.
    scope: &'static str,
}

/// Why there is no access token (RFC 6749 5.2).
#[derive(Serialize, JsonSchema)]
struct TokenError {
    /// One of the words of RFC 6749.
    error: &'static str,
    /// What was wrong, and what to do.
    error_description: String,
}

/// A token to log in with.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Login {
    /// The token.
    token: String,
}

/// Who is logged in.
#[derive(Serialize, JsonSchema)]
struct Session {
    /// The credential's name.
    name: String,
    /// What it may do.
    role: Role,
}

/// The routes.
pub fn routes() -> Vec<Route> {
    let mut token = Route::post("/oauth2/token", Access::Open, token)
        .doc("access", "Exchange an OAuth2 client's id and secret for an access token")
        .answers::<TokenAnswer>(200, "An access token")
        .answers::<TokenError>(400, "The request is wrong")
        .answers::<TokenError>(401, "The client is not known");
    token.doc.request = Some(RequestDoc {
        media: &[FORM],
        schema: Some(SchemaGenerator::subschema_for::<TokenForm>),
        required: true,
    });
    vec![
        token,
        Route::post("/console/session", Access::Open, log_in)
            .doc("access", "Exchange a token for a session of the console, in a cookie")
            .takes::<Login>()
            .answers::<Session>(200, "Who is logged in now"),
        Route::get("/console/session", Access::Reader, who)
            .doc("access", "Who is logged in")
            .answers::<Session>(200, "Who is logged in"),
        Route::delete("/console/session", Access::Reader, log_out)
            .doc("access", "End the session of the console")
            .answers_nothing(204, "It has ended"),
    ]
}

async fn token(mut call: Call) -> Answer {
    let media =
        call.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM) {
        return Ok(refuse(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            format!("send a form: Content-Type: {FORM}"),
        ));
    }
    let bytes = call.bytes().await?;
    let Ok(Ok(pairs)) = std::str::from_utf8(&bytes).map(query::parse) else {
        return Ok(refuse(StatusCode::BAD_REQUEST, "invalid_request", "the form cannot be read"));
    };
    for (at, (name, _)) in pairs.iter().enumerate() {
        if pairs[..at].iter().any(|(other, _)| other == name) {
            return Ok(refuse(
                StatusCode::BAD_REQUEST,
                "invalid_request",
                format!("{name:?} is there twice"),
            ));
        }
    }
    let field = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    match field("grant_type") {
        Some("client_credentials") => {}
        None => return Ok(refuse(StatusCode::BAD_REQUEST, "invalid_request", "grant_type is missing")),
        Some(_) => {
            let detail = "grant_type: client_credentials is served, and nothing else";
            return Ok(refuse(StatusCode::BAD_REQUEST, "unsupported_grant_type", detail));
        }
    }
    let basic = match basic(&call.headers) {
        Ok(basic) => basic,
        Err(detail) => return Ok(refuse(StatusCode::UNAUTHORIZED, "invalid_client", detail)),
    };
    let posted = field("client_secret").map(|secret| (field("client_id").unwrap_or_default(), secret));
    let (id, secret) = match (&basic, posted) {
        (Some(_), Some(_)) => {
            let detail = "the client's secret is in the header and in the form; send it once";
            return Ok(refuse(StatusCode::BAD_REQUEST, "invalid_request", detail));
        }
        (Some((id, secret)), None) => (id.as_str(), secret.as_str()),
        (None, Some(posted)) => posted,
        (None, None) => {
            let detail =
                "send the client's id and secret as Authorization: Basic or as client_id and client_secret";
            return Ok(refuse(StatusCode::UNAUTHORIZED, "invalid_client", detail));
        }
    };
    let Some((token, caller)) = call.shared.gate.access_token(id, secret).await? else {
        tokio::time::sleep(call.shared.gate.slow().failed(call.peer.address.ip())).await;
        let detail = "there is no such client, or the secret is another; an administrator makes clients";
        return Ok(refuse(StatusCode::UNAUTHORIZED, "invalid_client", detail));
    };
    let answer = TokenAnswer {
        access_token: &token,
        token_type: "Bearer",
        expires_in: ACCESS_SECONDS,
        scope: caller.role.as_str(),
    };
    Ok(Reply::ok(&answer).with_header(header::CACHE_CONTROL, "no-store"))
}

/// The user and password of `Authorization: Basic`; both are form-encoded first (RFC 6749 2.3.1).
fn basic(headers: &HeaderMap) -> Result<Option<(String, Zeroizing<String>)>, &'static str> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().map_err(|_| "Authorization: it is no text")?;
    let (scheme, code) = text.trim().split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err("Authorization: send Basic here");
    }
    let decoded =
        STANDARD.decode(code.trim()).map(Zeroizing::new).map_err(|_| "Authorization: it is no base64")?;
    let pair = std::str::from_utf8(&decoded).map_err(|_| "Authorization: it is no UTF-8")?;
    let (id, secret) =
        pair.split_once(':').ok_or("Authorization: there is no colon between id and secret")?;
    let decode =
        |text: &str| query::decode(text, "Authorization").map_err(|_| "Authorization: it is badly encoded");
    Ok(Some((decode(id)?, Zeroizing::new(decode(secret)?))))
}

fn refuse(status: StatusCode, error: &'static str, detail: impl Into<String>) -> Reply {
    let reply = Reply::json(status, &TokenError { error, error_description: detail.into() })
        .with_header(header::CACHE_CONTROL, "no-store");
    if status == StatusCode::UNAUTHORIZED {
        return reply.with_header(header::WWW_AUTHENTICATE, "Basic realm=\"guywire\"");
    }
    reply
}

async fn log_in(mut call: Call) -> Answer {
    // Without this, another site could log somebody in as somebody else.
    auth::check_origin(&call.method, &call.headers, false)?;
    let login: Login = call.json().await?;
    let token = Zeroizing::new(login.token);
    if call.shared.gate.is_open() {
        return Ok(session(&Caller::anonymous()));
    }
    match call.shared.gate.log_in(&token).await {
        Ok((secret, caller)) => {
            let cookie = set_cookie(&secret, CONSOLE_SECONDS, call.peer.tls);
            Ok(session(&caller).with_header(header::SET_COOKIE, &cookie))
        }
        Err(error) => {
            if error.kind == ErrorKind::Unauthenticated {
                tokio::time::sleep(call.shared.gate.slow().failed(call.peer.address.ip())).await;
            }
            Err(error)
        }
    }
}

async fn who(call: Call) -> Answer {
    Ok(session(&call.caller))
}

async fn log_out(call: Call) -> Result<Reply, AppError> {
    if let Some(cookie) = auth::cookie(&call.headers) {
        call.shared.gate.log_out(cookie).await?;
    }
    Ok(Reply::no_content().with_header(header::SET_COOKIE, &set_cookie("", 0, call.peer.tls)))
}

fn session(caller: &Caller) -> Reply {
    Reply::ok(&Session { name: caller.name.clone(), role: caller.role })
        .with_header(header::CACHE_CONTROL, "no-store")
}

fn set_cookie(value: &str, seconds: i64, tls: bool) -> String {
    let secure = if tls { "; Secure" } else { "" };
    format!("{}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}", auth::COOKIE)
}
