//! What people write on a command line as JSON: `a.b=1`, `password=@FILE`, files of parameters.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

use crate::output::read_bounded;

/// The longest file of parameters, as the manager's own limit of a body.
const MOST: u64 = 1 << 20;
/// The longest file that stands for one value: a key or a certificate chain fits.
const LONGEST: u64 = 64 << 10;
/// How deep `a.b.c` may go.
const DEPTH: usize = 16;

/// A JSON file that holds an object.
pub fn object(file: &Path) -> anyhow::Result<Map<String, Value>> {
    let text = read_bounded(file, MOST)?;
    let name = file.display();
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        anyhow::anyhow!("{name}:{}:{}: this is no JSON: {}", error.line(), error.column(), category(&error))
    })?;
    match value {
        Value::Object(object) => Ok(object),
        other => bail!("{name}: a JSON object is expected ({{…}}), and this is {}", kind(&other)),
    }
}

/// `KEY=VALUE` pairs put into an object; dots in a key go deeper.
pub fn add(object: &mut Map<String, Value>, option: &str, pairs: &[String]) -> anyhow::Result<()> {
    for pair in pairs {
        let (key, value) = split(option, pair)?;
        let value = value_of(option, key, value)?;
        insert(object, option, key, value)?;
    }
    Ok(())
}

/// `KEY=VALUE` pairs whose keys and values are plain text.
pub fn texts(option: &str, pairs: &[String]) -> anyhow::Result<Map<String, Value>> {
    let mut object = Map::new();
    for pair in pairs {
        let (key, value) = split(option, pair)?;
        let value = match value.strip_prefix('@') {
            Some(file) => from_file(option, key, file)?,
            None => value.to_owned(),
        };
        object.insert(key.to_owned(), Value::String(value));
    }
    Ok(object)
}

/// The two sides of `KEY=VALUE`. The value may be a secret, so it is never repeated.
pub fn split<'a>(option: &str, pair: &'a str) -> anyhow::Result<(&'a str, &'a str)> {
    match pair.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key, value)),
        Some(_) => bail!("{option}: a name is missing before the =; write {option} KEY=VALUE"),
        None => bail!("{option}: there is no = in it; write {option} KEY=VALUE"),
    }
}

fn value_of(option: &str, key: &str, text: &str) -> anyhow::Result<Value> {
    if let Some(text) = text.strip_prefix("@@") {
        return Ok(Value::String(format!("@{text}")));
    }
    if let Some(file) = text.strip_prefix('@') {
        return Ok(Value::String(from_file(option, key, file)?));
    }
    Ok(serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())))
}

fn from_file(option: &str, key: &str, file: &str) -> anyhow::Result<String> {
    let text = read_bounded(Path::new(file), LONGEST)
        .with_context(|| format!("{option} {key}=@FILE: the value cannot be read from its file"))?;
    // An editor's newline at the end is no part of a password.
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn insert(object: &mut Map<String, Value>, option: &str, key: &str, value: Value) -> anyhow::Result<()> {
    let parts: Vec<&str> = key.split('.').collect();
    if parts.len() > DEPTH || parts.iter().any(|part| part.is_empty()) {
        bail!(
            "{option} {key}: names between dots must not be empty, and there may be {DEPTH} of them at most"
        );
    }
    let (last, path) = parts.split_last().expect("a split has at least one part");
    let mut at = object;
    for part in path {
        let next = at.entry(*part).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(inner) = next else {
            bail!("{option} {key}: {part} is {} already, so nothing can be put into it", kind(next));
        };
        at = inner;
    }
    at.insert((*last).to_owned(), value);
    Ok(())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The library's own words may repeat what stands there, which may be a secret.
fn category(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Io => "it cannot be read",
        serde_json::error::Category::Syntax | serde_json::error::Category::Data => {
            "a comma, quote or bracket is wrong or missing here"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(pairs: &[&str]) -> anyhow::Result<Value> {
        let mut object = Map::new();
        let pairs: Vec<String> = pairs.iter().map(ToString::to_string).collect();
        add(&mut object, "--param", &pairs)?;
        Ok(Value::Object(object))
    }

    #[test]
    fn pairs_become_json() {
        let cases: &[(&[&str], &str)] = &[
            (&[], "{}"),
            (&["a=b"], r#"{"a":"b"}"#),
            (&["a="], r#"{"a":""}"#),
            (&["a=1", "b=true", "c=null", "d=[1]"], r#"{"a":1,"b":true,"c":null,"d":[1]}"#),
            (&["a=\"1\""], r#"{"a":"1"}"#),
            (&["a=1.2.3"], r#"{"a":"1.2.3"}"#),
            (&["a=b=c"], r#"{"a":"b=c"}"#),
            (&["a.b.c=1", "a.b.d=2"], r#"{"a":{"b":{"c":1,"d":2}}}"#),
            (&["a=1", "a=2"], r#"{"a":2}"#),
            (&["p=secret:ssh"], r#"{"p":"secret:ssh"}"#),
            (&["p=@@home"], r#"{"p":"@home"}"#),
        ];
        for (pairs, expected) in cases {
            let expected: Value = serde_json::from_str(expected).expect("JSON");
            assert_eq!(added(pairs).expect("it is right"), expected, "{pairs:?}");
        }
    }

    #[test]
    fn wrong_pairs_are_refused_without_their_value() {
        let cases: &[(&[&str], &str)] = &[
            (&["hunter2"], "no = in it"),
            (&["=hunter2"], "a name is missing"),
            (&["a..b=hunter2"], "must not be empty"),
            (&["a=hunter2", "a.b=1"], "a is text already"),
            (&["a=@/nonexistent/hunter3"], "cannot be read from its file"),
        ];
        for (pairs, words) in cases {
            let error = added(pairs).expect_err("it is wrong").to_string();
            assert!(error.contains(words) && !error.contains("hunter2"), "{pairs:?}: {error}");
        }
        let deep = format!("{}=1", ["a"; DEPTH + 1].join("."));
        assert!(added(&[&deep]).is_err());
    }

    #[test]
    fn a_file_stands_for_a_value_without_its_last_newline() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("password");
        std::fs::write(&file, "hunter2\n").expect("it is written");
        let pair = format!("password=@{}", file.display());
        assert_eq!(added(&[&pair]).expect("it is right")["password"], "hunter2");
        std::fs::write(&file, "x".repeat(70_000)).expect("it is written");
        assert!(added(&[&pair]).is_err(), "too long");
    }

    #[test]
    fn files_that_hold_no_object_are_refused_with_their_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("params.json");
        let cases =
            [("{\n\"a\": hunter2}", "params.json:2:6"), ("[1]", "this is a list"), ("", "ends too early")];
        for (text, words) in cases {
            std::fs::write(&file, text).expect("it is written");
            let error = object(&file).expect_err(text).to_string();
            assert!(error.contains(words) && !error.contains("hunter2"), "{text}: {error}");
        }
    }
}
