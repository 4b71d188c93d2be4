//! Who sends a request: a token, a certificate or a cookie.

use http::{HeaderMap, Method, header};

use super::{Access, Peer};
use crate::{
    app::access::{Caller, Gate, Role},
    domain::{AppError, ErrorKind},
};

/// The console's cookie.
pub const COOKIE: &str = "guywire_session";

/// Lets a request through to a route, or says why not.
pub async fn authorise(
    gate: &Gate,
    access: Access,
    method: &Method,
    headers: &HeaderMap,
    peer: &Peer,
) -> Result<Caller, AppError> {
    let Some(needed) = access.role() else {
        return Ok(Caller { name: "nobody".to_owned(), role: Role::Reader });
    };
    let caller = authenticate(gate, method, headers, peer).await?;
    if caller.role < needed {
        return Err(AppError::new(
            ErrorKind::Forbidden,
            format!(
                "{} has the role {}, and this needs the role {}; ask an administrator",
                caller.name,
                caller.role.as_str(),
                needed.as_str()
            ),
        ));
    }
    Ok(caller)
}

async fn authenticate(
    gate: &Gate,
    method: &Method,
    headers: &HeaderMap,
    peer: &Peer,
) -> Result<Caller, AppError> {
    if gate.is_open() {
        // Any page that a browser on this host shows could send requests here: they must not count as ours.
        if !is_loopback(host(headers)) {
            return Err(forbidden(
                "without authentication only requests to this host's own addresses are served",
            ));
        }
        check_origin(method, headers, false)?;
        return Ok(Caller::anonymous());
    }
    if let Some(token) = token(headers)? {
        return gate.token(token).await;
    }
    if let Some(cookie) = cookie(headers) {
        check_origin(method, headers, true)?;
        return gate.session(cookie).await;
    }
    if !peer.certificate.is_empty() {
        return gate.certificate(&peer.certificate).await;
    }
    Err(AppError::new(
        ErrorKind::Unauthenticated,
        "the request says not who asks; send a token as `Authorization: Bearer TOKEN` or `X-Auth-Token: TOKEN`",
    ))
}

/// The token of a request, if it has one.
fn token(headers: &HeaderMap) -> Result<Option<&str>, AppError> {
    let wrong = |detail: &str| AppError::new(ErrorKind::Unauthenticated, detail);
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().map_err(|_| wrong("Authorization: it is no text"))?;
        let (scheme, token) = text.trim().split_once(' ').unwrap_or((text, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(wrong(
                "Authorization: send `Bearer TOKEN`; a user and password serve at /oauth2/token only",
            ));
        }
        return Ok(Some(token.trim()));
    }
    match headers.get("x-auth-token") {
        Some(value) => {
            value.to_str().map(|text| Some(text.trim())).map_err(|_| wrong("X-Auth-Token: it is no text"))
        }
        None => Ok(None),
    }
}

/// The console's session in a request.
pub fn cookie(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value)
}

/// Refuses a change that another site's page sends in somebody's name. Browsers say where a request comes from; with
/// a cookie something has to be said.
pub fn check_origin(method: &Method, headers: &HeaderMap, needed: bool) -> Result<(), AppError> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    if let Some(site) = headers.get("sec-fetch-site") {
        return match site.as_bytes() {
            b"same-origin" | b"none" => Ok(()),
            _ => Err(forbidden("the request comes from another site's page")),
        };
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return if needed {
            Err(forbidden(
                "a change with a cookie needs an Origin or Sec-Fetch-Site header; send a token instead",
            ))
        } else {
            Ok(())
        };
    };
    let origin = origin.to_str().unwrap_or_default();
    let there = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    match (there, host(headers)) {
        (Some(there), Some(here)) if there.eq_ignore_ascii_case(here) => Ok(()),
        _ => Err(forbidden("the request comes from another site's page")),
    }
}

/// The name under which we were called.
fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST).and_then(|value| value.to_str().ok())
}

fn is_loopback(host: Option<&str>) -> bool {
    // HTTP/2 has its authority in the address, which is put into the header before; HTTP/1.0 may have none.
    let Some(host) = host else { return true };
    let name = match host.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn forbidden(detail: &str) -> AppError {
    AppError::new(ErrorKind::Forbidden, detail)
}

impl Access {
    /// The role that is needed; none for what is open.
    pub fn role(self) -> Option<Role> {
        match self {
            Self::Open => None,
            Self::Reader => Some(Role::Reader),
            Self::Operator => Some(Role::Operator),
            Self::Admin => Some(Role::Admin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
            .collect()
    }

    #[test]
    fn cookies_are_heeded_from_our_own_pages_alone() {
        let cases: &[(&[(&'static str, &str)], bool)] = &[
            (&[], false),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("host", "m:9890"), ("origin", "http://m:9890")], true),
            (&[("host", "m:9890"), ("origin", "https://M:9890")], true),
            (&[("host", "m:9890"), ("origin", "http://m:9891")], false),
            (&[("host", "m:9890"), ("origin", "null")], false),
            (&[("host", "m:9890"), ("origin", "http://evil.example")], false),
            (&[("origin", "http://m")], false),
        ];
        for (pairs, good) in cases {
            let map = headers(pairs);
            assert_eq!(check_origin(&Method::POST, &map, true).is_ok(), *good, "{pairs:?}");
            assert!(check_origin(&Method::GET, &map, true).is_ok(), "reading changes nothing: {pairs:?}");
        }
        assert!(check_origin(&Method::POST, &headers(&[]), false).is_ok(), "a program without a cookie");
    }

    #[test]
    fn our_own_addresses_are_known() {
        for good in ["localhost", "LOCALHOST:9890", "127.0.0.1", "127.1.2.3:80", "[::1]:9890", "[::1]"] {
            assert!(is_loopback(Some(good)), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example", "10.0.0.1", "[fe80::1]:1", ""] {
            assert!(!is_loopback(Some(bad)), "{bad}");
        }
    }

    #[test]
    fn tokens_come_in_two_headers() {
        let read = |pairs: &[(&'static str, &str)]| {
            token(&headers(pairs)).map(|found| found.map(str::to_owned)).map_err(|error| error.kind)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("authorization", "Bearer abc")]), Ok(Some("abc".to_owned())));
        assert_eq!(read(&[("authorization", "bearer  abc ")]), Ok(Some("abc".to_owned())));
        assert_eq!(read(&[("x-auth-token", "abc")]), Ok(Some("abc".to_owned())));
        assert_eq!(read(&[("authorization", "Basic YTpi")]), Err(ErrorKind::Unauthenticated));
        assert_eq!(read(&[("authorization", "Bearer")]), Ok(Some(String::new())));
        assert_eq!(cookie(&headers(&[("cookie", "a=b; guywire_session=x=y; c=d")])), Some("x=y"));
        assert_eq!(cookie(&headers(&[("cookie", "guywire_session2=x")])), None);
    }
}
