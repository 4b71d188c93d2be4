//! Query strings, read strictly: what cannot be decoded is refused and not guessed at.

use percent_encoding::percent_decode_str;

use crate::domain::AppError;

/// Pairs of a query, decoded. A name without `=` has an empty value (`all_fields`).
pub fn parse(query: &str) -> Result<Vec<(String, String)>, AppError> {
    query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name, "the query")?, decode(value, "the query")?))
        })
        .collect()
}

/// Refuses parameters that a route does not know.
pub fn check(query: &str, known: &[super::QueryDoc]) -> Result<(), AppError> {
    if query.is_empty() {
        return Ok(());
    }
    for (name, _) in parse(query)? {
        if known.iter().any(|one| one.name == name) {
            continue;
        }
        let names: Vec<&str> = known.iter().map(|one| one.name).collect();
        let hint = if names.is_empty() {
            "there are none here".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        };
        return Err(AppError::invalid(format!("the query parameter {name:?} is not known; {hint}")));
    }
    Ok(())
}

/// One part, decoded; `+` is a space as in forms.
pub fn decode(text: &str, place: &str) -> Result<String, AppError> {
    let spaced;
    let text = if text.contains('+') {
        spaced = text.replace('+', " ");
        &spaced
    } else {
        text
    };
    decode_plain(text, place)
}

/// One part of a path, decoded.
pub fn decode_plain(text: &str, place: &str) -> Result<String, AppError> {
    if let Some(wrong) = broken_escape(text) {
        return Err(AppError::invalid(format!(
            "{place}: {wrong:?} is no percent-encoding; write a percent sign as %25"
        )));
    }
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| AppError::invalid(format!("{place}: {text:?} decodes to something that is no UTF-8")))?;
    if decoded.contains('\0') {
        return Err(AppError::invalid(format!("{place}: {text:?} holds a NUL, which nothing here can")));
    }
    Ok(decoded.into_owned())
}

/// The first `%` that two hexadecimal digits do not follow, with what follows.
fn broken_escape(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == b'%') {
        let start = at + found;
        let digits = bytes.get(start + 1..start + 3);
        if !digits.is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit)) {
            let end = (start + 3).min(bytes.len());
            return Some(String::from_utf8_lossy(&bytes[start..end]).into_owned());
        }
        at = start + 3;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_or_refused() {
        let good = |text: &str| parse(text).expect("decodes");
        assert_eq!(good(""), vec![]);
        assert_eq!(good("all_fields&a=b%20c+d"), vec![pair("all_fields", ""), pair("a", "b c d")]);
        assert_eq!(good("filter=(eq,a,b=c)"), vec![pair("filter", "(eq,a,b=c)")]);
        for bad in ["a=%", "a=%2", "a=%zz", "%ff=1", "a=%00"] {
            let error = parse(bad).expect_err(bad);
            assert!(error.detail.contains("the query"), "{}", error.detail);
        }
    }

    #[test]
    fn an_unknown_parameter_is_named_with_those_that_are_known() {
        let known = [super::super::QueryDoc { name: "filter", description: "" }];
        assert!(check("filter=x", &known).is_ok());
        let error = check("filte=x", &known).expect_err("unknown");
        assert_eq!(error.detail, "the query parameter \"filte\" is not known; there are filter");
        assert!(check("x", &[]).expect_err("none known").detail.contains("none here"));
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }
}
