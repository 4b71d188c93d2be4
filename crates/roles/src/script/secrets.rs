//! `${secret:NAME}` in what a script wrote: a reference until the moment of its use.

use std::collections::BTreeSet;

use guywire_machines::SecretSource;
use guywire_secrets::{Masker, Secret, SecretRef};
use serde_json::{Map, Value};

/// How a reference begins in a text.
const OPENS: &str = "${secret:";
/// The shell variable that holds a secret, before its number.
const VARIABLE: &str = "guywire_secret_";

/// The secrets that a request passes on, wherever in it they stand.
pub(super) fn granted(request: &Map<String, Value>) -> BTreeSet<SecretRef> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&Value> = request.values().collect();
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => found.extend(text.parse::<SecretRef>()),
            Value::Array(values) => left.extend(values),
            Value::Object(values) => left.extend(values.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found
}

/// The references in a text, in their order.
pub(super) fn references(text: &str) -> Result<Vec<SecretRef>, String> {
    let pieces = split(text)?;
    Ok(pieces.into_iter().filter_map(|piece| piece.reference).collect())
}

/// A file's text with the secrets in it, which `masker` knows from then on.
pub(super) fn fill(text: &str, source: &SecretSource, masker: &Masker) -> Result<Vec<u8>, String> {
    let mut filled = Vec::with_capacity(text.len());
    for piece in split(text)? {
        filled.extend_from_slice(piece.text.as_bytes());
        if let Some(reference) = piece.reference {
            filled.extend_from_slice(look_up(&reference, source, masker)?.expose());
        }
    }
    Ok(filled)
}

/// A shell script in which each reference is a variable: in double quotes it is the secret as it is,
/// whatever is in it. The variables are not exported, so they are in no process's environment.
pub(super) fn into_shell(script: &str, source: &SecretSource, masker: &Masker) -> Result<String, String> {
    let mut known: Vec<SecretRef> = Vec::new();
    let (mut head, mut body) = (String::new(), String::new());
    for piece in split(script)? {
        body += piece.text;
        let Some(reference) = piece.reference else { continue };
        let number = known.iter().position(|other| *other == reference).unwrap_or(known.len());
        let name = format!("{VARIABLE}{number}");
        if number == known.len() {
            let secret = look_up(&reference, source, masker)?;
            let text = secret.expose_str().filter(|text| !text.contains('\0')).ok_or_else(|| {
                format!("{reference} is not text, so it cannot be in a script; put it into a file")
            })?;
            head.extend([&name, "='", &text.replace('\'', r"'\''"), "'\n"]);
            known.push(reference);
        }
        body.extend(["${", &name, "}"]);
    }
    Ok(head + &body)
}

/// A piece of a text, and the reference that follows it.
struct Piece<'a> {
    text: &'a str,
    reference: Option<SecretRef>,
}

fn split(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(OPENS) {
        let (before, opened) = rest.split_at(at);
        let end = opened.find('}').ok_or("a ${secret: has no } behind it")?;
        // Without "${" and "}" it is a reference as it stands elsewhere.
        let reference: SecretRef =
            opened[2..end].parse().map_err(|error| format!("${{secret:…}}: {error}"))?;
        pieces.push(Piece { text: before, reference: Some(reference) });
        rest = &opened[end + 1..];
    }
    pieces.push(Piece { text: rest, reference: None });
    Ok(pieces)
}

fn look_up(reference: &SecretRef, source: &SecretSource, masker: &Masker) -> Result<Secret, String> {
    let secret = source(reference).map_err(|error| error.to_string())?;
    masker.add(&secret);
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::{process::Command, sync::Arc};

    use guywire_secrets::StoreError;
    use serde_json::json;

    use super::*;

    const NASTY: &str = "it's $(touch /x) `y` \"z\" \\ $HOME";

    fn source() -> SecretSource {
        Arc::new(|reference| match reference.name() {
            "pw" => Ok(Secret::new(NASTY)),
            "key" => Ok(Secret::new(vec![0xff, 0xfe, 0xfd, 0xfc])),
            other => Err(StoreError::NotFound(other.to_owned())),
        })
    }

    #[test]
    fn only_whole_references_of_the_request_are_granted() {
        let request = json!({"a": ["secret:one", {"b": "secret:two/x"}], "c": "not secret:three", "d": 4});
        let names: Vec<String> =
            granted(request.as_object().unwrap()).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["secret:one", "secret:two/x"]);
    }

    #[test]
    fn a_file_gets_the_secret_as_it_is_and_a_bad_reference_is_told() {
        let masker = Masker::default();
        let filled = fill("a=${secret:pw}\nb=${secret:key}${HOME}", &source(), &masker).unwrap();
        let wanted = [format!("a={NASTY}\nb=").as_bytes(), &[0xff, 0xfe, 0xfd, 0xfc], b"${HOME}"].concat();
        assert_eq!(filled, wanted);
        assert_eq!(masker.mask(NASTY), "***");
        assert!(fill("${secret:none}", &source(), &masker).unwrap_err().contains("none"));
        for bad in ["${secret:}", "${secret:a b}", "${secret:a"] {
            assert!(references(bad).is_err(), "{bad}");
        }
        assert_eq!(references("${HOME} $secret:a {secret:b}").unwrap(), []);
    }

    #[test]
    fn a_script_gets_the_secret_as_a_variable_whatever_is_in_it() {
        let script = r#"printf '%s|' "${secret:pw}" "<${secret:pw}>"; cat <<E
${secret:pw}
E
env | grep -c guywire_secret"#;
        let script = into_shell(script, &source(), &Masker::default()).unwrap();
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{NASTY}|<{NASTY}>|{NASTY}\n0\n"));
        assert_eq!(script.matches("it'").count(), 1, "one variable for one secret: {script}");
        let error = into_shell("${secret:key}", &source(), &Masker::default()).unwrap_err();
        assert_eq!(error, "secret:key is not text, so it cannot be in a script; put it into a file");
    }
}
