//! What a script answers: one JSON object on its standard output, checked to the last field.

use std::collections::{BTreeMap, BTreeSet};

use guywire_model::MachineName;
use guywire_secrets::SecretRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ScriptInput, secrets};

/// The most steps of one answer.
const MAX_STEPS: usize = 1_000;
/// The most warnings of one answer, and the longest.
const MAX_WARNINGS: usize = 100;
const MAX_WARNING: usize = 1_000;
/// The longest name of a step: with its machine's it is the name of a task.
const MAX_NAME: usize = 120;
/// The longest that a step may take.
const MAX_SECONDS: u64 = 24 * 3600;

/// What a script decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The steps, in the script's order.
    pub steps: Vec<Step>,
    /// What it wants people to know.
    pub warnings: Vec<String>,
}

/// One thing to do on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its name, unique in the answer.
    pub name: String,
    /// Where it is done.
    pub machine: MachineName,
    /// The steps that come before it.
    pub after: Vec<String>,
    /// Its failure is told and does not stop the operation.
    pub optional: bool,
    /// What is done.
    pub action: Action,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Puts a file on the machine.
    Put(Put),
    /// Runs a shell script as root.
    Run(Run),
    /// Waits until a shell script succeeds.
    Wait(Wait),
}

/// A file to put on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// Its absolute path.
    pub path: String,
    /// The permission bits.
    pub mode: u32,
    /// The owner as `chown` takes it.
    pub owner: String,
    /// What is in it.
    pub content: Content,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Content {
    /// This text, with `${secret:NAME}` replaced when it is put.
    Text(String),
    /// A file of the package, as it was when the script decided.
    File {
        /// Its path in the package.
        file: String,
        /// Its SHA-256 in hexadecimal digits.
        sha256: String,
        /// Its size in bytes.
        size: u64,
    },
}

/// A shell script to run on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The script, for `/bin/sh`, with `${secret:NAME}` as a variable of it.
    pub script: String,
    /// How long it may take, in seconds.
    #[serde(default = "a_minute")]
    pub timeout: u64,
    /// A script whose success means that the work is done already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unless: Option<String>,
    /// A script that takes the work back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// It is never run again after it ended, however it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
}

/// A condition to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// A shell script that succeeds when it is so.
    pub script: String,
    /// How long it may take, in seconds.
    #[serde(default = "a_minute")]
    pub timeout: u64,
    /// The pause between two looks, in seconds.
    #[serde(default = "a_second")]
    pub every: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireAnswer {
    steps: Vec<Value>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireStep {
    name: String,
    machine: MachineName,
    after: Option<Vec<String>>,
    #[serde(default)]
    optional: bool,
    put: Option<WirePut>,
    run: Option<Run>,
    wait: Option<Wait>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePut {
    path: String,
    mode: Option<String>,
    owner: Option<String>,
    content: Option<String>,
    file: Option<String>,
}

/// Reads an answer. What is wrong is told with its place. The hashes of package files are still empty.
pub(super) fn read(answer: &[u8], input: &ScriptInput) -> Result<Decision, String> {
    let wire: WireAnswer = serde_json::from_slice(answer).map_err(|error| not_an_answer(answer, &error))?;
    if wire.steps.len() > MAX_STEPS {
        return Err(format!("{} steps are more than {MAX_STEPS}", wire.steps.len()));
    }
    if wire.warnings.len() > MAX_WARNINGS || wire.warnings.iter().any(|warning| warning.len() > MAX_WARNING) {
        return Err(format!("warnings: at most {MAX_WARNINGS} of at most {MAX_WARNING} bytes are taken"));
    }
    let granted = secrets::granted(&input.request);
    let mut names = BTreeSet::new();
    let mut last: BTreeMap<MachineName, String> = BTreeMap::new();
    let mut steps = Vec::with_capacity(wire.steps.len());
    for (at, value) in wire.steps.into_iter().enumerate() {
        let name = value.get("name").and_then(Value::as_str).map(str::to_owned);
        let place = || match &name {
            Some(name) => format!("steps[{at}] ({name:?})"),
            None => format!("steps[{at}]"),
        };
        let step = WireStep::deserialize(&value).map_err(|error| format!("{}: {error}", place()))?;
        let step = check(step, input, &granted, &last).map_err(|what| format!("{}: {what}", place()))?;
        if !names.insert(step.name.clone()) {
            return Err(format!("{}: another step has this name; give each its own", place()));
        }
        last.insert(step.machine.clone(), step.name.clone());
        steps.push(step);
    }
    for (at, step) in steps.iter().enumerate() {
        if let Some(unknown) = step.after.iter().find(|after| !names.contains(*after)) {
            return Err(format!(
                "steps[{at}] ({:?}): after: there is no step {unknown:?} in this answer",
                step.name
            ));
        }
    }
    Ok(Decision { steps, warnings: wire.warnings })
}

fn check(
    wire: WireStep,
    input: &ScriptInput,
    granted: &BTreeSet<SecretRef>,
    last: &BTreeMap<MachineName, String>,
) -> Result<Step, String> {
    let WireStep { name, machine, after, optional, put, run, wait } = wire;
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(format!("name: use 1 to {MAX_NAME} printable characters"));
    }
    check_machine(&machine, input)?;
    let action = match (put, run, wait) {
        (Some(put), None, None) => Action::Put(check_put(put).map_err(|what| format!("put: {what}"))?),
        (None, Some(run), None) => Action::Run(check_run(run).map_err(|what| format!("run: {what}"))?),
        (None, None, Some(wait)) => Action::Wait(check_wait(wait).map_err(|what| format!("wait: {what}"))?),
        _ => return Err("exactly one of put, run and wait says what is done".to_owned()),
    };
    let texts: Vec<&String> = match &action {
        Action::Put(Put { content: Content::Text(text), .. }) => vec![text],
        Action::Put(_) => Vec::new(),
        Action::Run(run) => {
            [Some(&run.script), run.unless.as_ref(), run.undo.as_ref()].into_iter().flatten().collect()
        }
        Action::Wait(wait) => vec![&wait.script],
    };
    for text in texts {
        for reference in secrets::references(text)? {
            if !granted.contains(&reference) {
                return Err(format!(
                    "${{{reference}}} is not a secret of the request; pass {reference} in its additionalParams first"
                ));
            }
        }
    }
    let after = after.unwrap_or_else(|| last.get(&machine).cloned().into_iter().collect());
    Ok(Step { name, machine, after, optional, action })
}

fn check_machine(machine: &MachineName, input: &ScriptInput) -> Result<(), String> {
    match input.machines.iter().find(|known| known.name == *machine) {
        Some(known) if known.addresses.is_some() => Ok(()),
        Some(_) => Err(format!("machine {machine} is not there, so nothing can be done on it")),
        None => {
            let known: Vec<&str> = input.machines.iter().map(|known| known.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Err(format!("there is no machine {machine}; there are {known}"))
        }
    }
}

fn check_put(put: WirePut) -> Result<Put, String> {
    let WirePut { path, mode, owner, content, file } = put;
    let good = path.starts_with('/')
        && path.len() <= 4_000
        && !path.ends_with('/')
        && !path.chars().any(char::is_control)
        && path.split('/').all(|part| part != ".." && part.len() <= 255);
    if !good {
        return Err(format!("path {path:?}: an absolute path of a file is needed, without \"..\""));
    }
    let mode = mode.as_deref().unwrap_or("0644");
    let bits = u32::from_str_radix(mode, 8)
        .ok()
        .filter(|_| mode.len() <= 5 && mode.bytes().all(|c| c.is_ascii_digit()));
    let bits = bits.filter(|bits| *bits <= 0o7777);
    let bits = bits.ok_or_else(|| format!("mode {mode:?}: write the bits in octal, such as \"0644\""))?;
    let owner = owner.unwrap_or_else(|| "root:root".to_owned());
    let part = |part: &str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
        (1..=32).contains(&part.len()) && !part.starts_with('-') && part.bytes().all(inner)
    };
    if !owner.split_once(':').is_some_and(|(user, group)| part(user) && part(group)) {
        return Err(format!("owner {owner:?}: write \"USER:GROUP\", such as \"root:root\""));
    }
    let content = match (content, file) {
        (Some(text), None) => Content::Text(text),
        (None, Some(file)) => {
            super::payload::check_name(&file)?;
            Content::File { file, sha256: String::new(), size: 0 }
        }
        _ => return Err("exactly one of content and file says what is in it".to_owned()),
    };
    Ok(Put { path, mode: bits, owner, content })
}

fn check_run(run: Run) -> Result<Run, String> {
    check_script("script", &run.script)?;
    for (name, script) in [("unless", &run.unless), ("undo", &run.undo)] {
        script.as_deref().map_or(Ok(()), |script| check_script(name, script))?;
    }
    check_seconds("timeout", run.timeout)?;
    Ok(run)
}

fn check_wait(wait: Wait) -> Result<Wait, String> {
    check_script("script", &wait.script)?;
    check_seconds("timeout", wait.timeout)?;
    check_seconds("every", wait.every)?;
    Ok(wait)
}

fn check_script(field: &str, script: &str) -> Result<(), String> {
    if script.trim().is_empty() || script.contains('\0') {
        return Err(format!("{field}: a shell script is needed, without NUL bytes"));
    }
    Ok(())
}

fn check_seconds(field: &str, seconds: u64) -> Result<(), String> {
    if (1..=MAX_SECONDS).contains(&seconds) {
        return Ok(());
    }
    Err(format!("{field}: {seconds} is not between 1 and {MAX_SECONDS} seconds"))
}

/// What is wrong with an answer that is not of the right shape, and what stands there.
fn not_an_answer(answer: &[u8], error: &serde_json::Error) -> String {
    if answer.iter().all(u8::is_ascii_whitespace) {
        return "its standard output is empty; print {\"steps\": []} if there is nothing to do".to_owned();
    }
    let text = String::from_utf8_lossy(answer);
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let from = error.column().saturating_sub(30);
    let shown: String = line.chars().skip(from).take(60).collect();
    format!(
        "its standard output is not an answer: {error}, at {shown:?}; only the answer may be printed there, other words belong on standard error"
    )
}

fn a_minute() -> u64 {
    60
}

fn a_second() -> u64 {
    1
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
