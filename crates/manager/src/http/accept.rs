//! Which media types a caller takes.

use http::{HeaderMap, header};

use super::ApiVersions;
use crate::domain::{AppError, ErrorKind};

/// Whether `Accept` lets an answer of this media type through. No `Accept` takes anything.
pub fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim();
    let (kind, _) = essence.split_once('/').unwrap_or((essence, ""));
    let mut asked = false;
    // The most specific range decides, as RFC 9110 12.5.1 has it.
    let mut best: Option<(u8, bool)> = None;
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            if name.is_empty() {
                continue;
            }
            asked = true;
            let rank = match name.split_once('/') {
                _ if name.eq_ignore_ascii_case(essence) => 3,
                Some((one, "*")) if one.eq_ignore_ascii_case(kind) => 2,
                Some(("*", "*")) => 1,
                _ => continue,
            };
            let refused = parts.any(|part| {
                let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
                weight.is_some_and(|weight| weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0))
            });
            if best.is_none_or(|(known, _)| rank > known) {
                best = Some((rank, !refused));
            }
        }
    }
    !asked || best.is_some_and(|(_, taken)| taken)
}

/// Refuses a `Version` header that the interface does not serve.
pub fn check_version(headers: &HeaderMap, api: &ApiVersions) -> Result<(), AppError> {
    let Some(value) = headers.get("version") else {
        if api.mandatory {
            return Err(AppError::invalid(format!(
                "the request has no Version header; {} needs `Version: {}`",
                api.prefix, api.version
            )));
        }
        return Ok(());
    };
    let text = value.to_str().unwrap_or("something unreadable").trim();
    let number = text.split_once("-impl:").map_or(text, |(number, _)| number);
    let parts: Vec<&str> = number.split('.').collect();
    let well_formed = parts.len() == 3
        && parts.iter().all(|part| {
            !part.is_empty() && part.len() < 10 && part.bytes().all(|byte| byte.is_ascii_digit())
        });
    if !well_formed {
        return Err(AppError::invalid(format!(
            "Version is {text:?}, which is no version; it looks like {}",
            api.version
        )));
    }
    let same_major = parts.first() == api.version.split('.').collect::<Vec<_>>().first();
    if number == api.version || (api.lenient && same_major) {
        return Ok(());
    }
    Err(AppError::new(
        ErrorKind::NotAcceptable,
        format!("Version {text} is not served by {}; send `Version: {}`", api.prefix, api.version),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{LCM_V1, LCM_V2};

    #[test]
    fn the_most_specific_range_decides() {
        let cases = [
            (None, true),
            (Some("*/*"), true),
            (Some("application/json"), true),
            (Some("application/*"), true),
            (Some("APPLICATION/JSON"), true),
            (Some("text/html, application/json;q=0.5"), true),
            (Some("text/html"), false),
            (Some("*/*, application/json;q=0"), false),
            (Some("application/xml, */*;q=0.1"), true),
            (Some(""), true),
        ];
        for (accept, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(text) = accept {
                headers.insert(header::ACCEPT, text.parse().expect("a header"));
            }
            assert_eq!(accepts(&headers, "application/json"), expected, "{accept:?}");
        }
    }

    #[test]
    fn versions_are_taken_or_refused_with_the_right_status() {
        let cases = [
            (LCM_V2, None, Some(ErrorKind::Invalid)),
            (LCM_V2, Some("2.0.0"), None),
            (LCM_V2, Some("2.0.0-impl:acme:1"), None),
            (LCM_V2, Some("2"), Some(ErrorKind::Invalid)),
            (LCM_V2, Some("two"), Some(ErrorKind::Invalid)),
            (LCM_V2, Some("2.0.-1"), Some(ErrorKind::Invalid)),
            (LCM_V2, Some("2.1.0"), Some(ErrorKind::NotAcceptable)),
            (LCM_V2, Some("1.3.0"), Some(ErrorKind::NotAcceptable)),
            (LCM_V1, None, None),
            (LCM_V1, Some("1.3.0"), None),
            (LCM_V1, Some("1.2.1"), None),
            (LCM_V1, Some("2.0.0"), Some(ErrorKind::NotAcceptable)),
        ];
        for (api, version, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(text) = version {
                headers.insert("version", text.parse().expect("a header"));
            }
            let got = check_version(&headers, &api).err().map(|error| error.kind);
            assert_eq!(got, expected, "{} {version:?}", api.prefix);
        }
    }
}
