//! Command lines to requests of SOL003. No I/O but the files that options name.

use serde_json::{Map, Value, json};

use anyhow::bail;

use crate::{
    cli::{
        target::Wait,
        vnf::{Request, Switch, VnfCommand},
    },
    client::params,
};

/// What to create.
pub fn create(vnfd: &str, name: Option<String>, description: Option<String>) -> Value {
    let mut body = json!({"vnfdId": vnfd});
    if let Some(name) = name {
        body["vnfInstanceName"] = Value::String(name);
    }
    if let Some(description) = description {
        body["vnfInstanceDescription"] = Value::String(description);
    }
    body
}

/// What to change in an instance's own attributes.
pub fn modify(
    body: &mut Map<String, Value>,
    name: Option<String>,
    description: Option<String>,
    metadata: &[String],
) -> anyhow::Result<()> {
    if let Some(name) = name {
        body.insert("vnfInstanceName".to_owned(), Value::String(name));
    }
    if let Some(description) = description {
        body.insert("vnfInstanceDescription".to_owned(), Value::String(description));
    }
    params::add(inner(body, "metadata")?, "--metadata", metadata)?;
    drop_empty(body, "metadata");
    if body.is_empty() {
        bail!("nothing is to be changed; name it with --name, --description, --metadata or --request");
    }
    Ok(())
}

/// An operation: the instance as it was named, the task of the interface, the body, and whether to wait.
pub fn operation(command: &VnfCommand) -> anyhow::Result<(String, &'static str, Map<String, Value>, Wait)> {
    let mut fields: Vec<(&str, Value)> = Vec::new();
    let (vnf, task, request, wait) = match command {
        VnfCommand::Instantiate { vnf, flavour, level, request, wait, .. } => {
            fields.extend(flavour.clone().map(|flavour| ("flavourId", Value::String(flavour))));
            fields.extend(level.clone().map(|level| ("instantiationLevelId", Value::String(level))));
            (vnf, "instantiate", request, wait)
        }
        VnfCommand::Scale { vnf, aspect, steps, request, wait } => {
            let (kind, number) = match (steps.out, steps.r#in) {
                (Some(number), _) => ("SCALE_OUT", number),
                (None, number) => ("SCALE_IN", number.unwrap_or(1)),
            };
            fields.extend([
                ("type", kind.into()),
                ("aspectId", aspect.as_str().into()),
                ("numberOfSteps", number.into()),
            ]);
            (vnf, "scale", request, wait)
        }
        VnfCommand::ScaleTo { vnf, level, aspects, request, wait } => {
            fields.extend(level.clone().map(|level| ("instantiationLevelId", Value::String(level))));
            if !aspects.is_empty() {
                fields.push(("scaleInfo", scale_info(aspects)?));
            }
            (vnf, "scale_to_level", request, wait)
        }
        VnfCommand::Heal { vnf, parts, cause, request, wait } => {
            if !parts.all {
                fields.push(("vnfcInstanceId", json!(parts.vnfcs)));
            }
            fields.extend(cause.clone().map(|cause| ("cause", Value::String(cause))));
            (vnf, "heal", request, wait)
        }
        VnfCommand::Operate { vnf, change, force, grace, request, wait } => {
            fields
                .push(("changeStateTo", if *change == Switch::Start { "STARTED" } else { "STOPPED" }.into()));
            if *change == Switch::Stop {
                fields.push(("stopType", if *force { "FORCEFUL" } else { "GRACEFUL" }.into()));
                fields.extend(grace.map(|grace| ("gracefulStopTimeout", grace.into())));
            } else if *force || grace.is_some() {
                bail!("--force and --grace are for stop: a start has no such choice");
            }
            (vnf, "operate", request, wait)
        }
        VnfCommand::ChangeFlavour { vnf, flavour, level, request, wait } => {
            fields.push(("newFlavourId", flavour.as_str().into()));
            fields.extend(level.clone().map(|level| ("instantiationLevelId", Value::String(level))));
            (vnf, "change_flavour", request, wait)
        }
        VnfCommand::ChangeExtConn { vnf, request, wait } => {
            if request.whole.is_none() {
                bail!("the networks are missing; name a file with --request that has extVirtualLinks in it");
            }
            (vnf, "change_ext_conn", request, wait)
        }
        VnfCommand::ChangePackage { vnf, request, wait, .. } => (vnf, "change_vnfpkg", request, wait),
        VnfCommand::Terminate { vnf, force, grace, request, wait } => {
            fields.push(("terminationType", if *force { "FORCEFUL" } else { "GRACEFUL" }.into()));
            fields.extend(grace.map(|grace| ("gracefulTerminationTimeout", grace.into())));
            (vnf, "terminate", request, wait)
        }
        VnfCommand::Create { .. }
        | VnfCommand::List(_)
        | VnfCommand::Show { .. }
        | VnfCommand::Modify { .. }
        | VnfCommand::Delete { .. } => unreachable!("these are no operations"),
    };
    let mut body = assembled(request)?;
    body.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    if let VnfCommand::Heal { parts, .. } = command
        && parts.all
    {
        inner(&mut body, "additionalParams")?.insert("all".to_owned(), Value::Bool(true));
    }
    Ok((vnf.clone(), task, body, *wait))
}

/// The request's file, then the file of parameters, then single parameters: the later adds to the earlier.
fn assembled(request: &Request) -> anyhow::Result<Map<String, Value>> {
    let mut body = request.whole.as_deref().map(params::object).transpose()?.unwrap_or_default();
    let additional = inner(&mut body, "additionalParams")?;
    if let Some(file) = &request.params_file {
        additional.extend(params::object(file)?);
    }
    params::add(additional, "--param", &request.params)?;
    drop_empty(&mut body, "additionalParams");
    Ok(body)
}

fn scale_info(aspects: &[String]) -> anyhow::Result<Value> {
    let mut info = Vec::new();
    for pair in aspects {
        let (aspect, level) = params::split("--aspect", pair)?;
        let Ok(level) = level.parse::<u32>() else {
            bail!("--aspect {pair}: a level is a number from 0; write --aspect {aspect}=2");
        };
        info.push(json!({"aspectId": aspect, "scaleLevel": level}));
    }
    Ok(Value::Array(info))
}

fn inner<'a>(body: &'a mut Map<String, Value>, name: &str) -> anyhow::Result<&'a mut Map<String, Value>> {
    match body.entry(name).or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(object) => Ok(object),
        _ => bail!("{name} in the request's file must be a JSON object ({{…}})"),
    }
}

fn drop_empty(body: &mut Map<String, Value>, name: &str) {
    if body.get(name).and_then(Value::as_object).is_some_and(Map::is_empty) {
        body.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn command(words: &str) -> VnfCommand {
        let words = ["guywire", "vnf"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).expect("it parses").command {
            Command::Vnf { command, .. } => command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn command_lines_become_requests() {
        let cases = [
            ("instantiate x --flavour simple", "instantiate", json!({"flavourId": "simple"})),
            (
                "instantiate x --flavour f --level l --param a=1 --param b.c=d",
                "instantiate",
                json!({"flavourId": "f", "instantiationLevelId": "l", "additionalParams": {"a": 1, "b": {"c": "d"}}}),
            ),
            (
                "scale x --aspect a --out 2",
                "scale",
                json!({"type": "SCALE_OUT", "aspectId": "a", "numberOfSteps": 2}),
            ),
            (
                "scale x --aspect a --in 1",
                "scale",
                json!({"type": "SCALE_IN", "aspectId": "a", "numberOfSteps": 1}),
            ),
            ("scale-to x --level l", "scale_to_level", json!({"instantiationLevelId": "l"})),
            (
                "scale-to x --aspect a=2 --aspect b=0",
                "scale_to_level",
                json!({"scaleInfo": [{"aspectId": "a", "scaleLevel": 2}, {"aspectId": "b", "scaleLevel": 0}]}),
            ),
            ("heal x --vnfc a --vnfc b", "heal", json!({"vnfcInstanceId": ["a", "b"]})),
            ("heal x --all --cause c", "heal", json!({"cause": "c", "additionalParams": {"all": true}})),
            ("operate x start", "operate", json!({"changeStateTo": "STARTED"})),
            (
                "operate x stop --grace 9",
                "operate",
                json!({"changeStateTo": "STOPPED", "stopType": "GRACEFUL", "gracefulStopTimeout": 9}),
            ),
            (
                "operate x stop --force",
                "operate",
                json!({"changeStateTo": "STOPPED", "stopType": "FORCEFUL"}),
            ),
            ("change-flavour x big", "change_flavour", json!({"newFlavourId": "big"})),
            ("change-package x y --param p=1", "change_vnfpkg", json!({"additionalParams": {"p": 1}})),
            ("terminate x", "terminate", json!({"terminationType": "GRACEFUL"})),
            ("terminate x --force", "terminate", json!({"terminationType": "FORCEFUL"})),
            (
                "terminate x --grace 5",
                "terminate",
                json!({"terminationType": "GRACEFUL", "gracefulTerminationTimeout": 5}),
            ),
        ];
        for (words, task, body) in cases {
            let (vnf, got, request, _) = operation(&command(words)).expect(words);
            assert_eq!((vnf.as_str(), got, Value::Object(request)), ("x", task, body), "{words}");
        }
    }

    #[test]
    fn what_makes_no_request_is_refused() {
        for (words, message) in [
            ("operate x start --force", "for stop"),
            ("scale-to x --aspect a=two", "a level is a number"),
            ("scale-to x --aspect a", "no = in it"),
            ("change-ext-conn x", "the networks are missing"),
            ("terminate x --params /nonexistent", "/nonexistent: cannot be read"),
        ] {
            let error = operation(&command(words)).expect_err(words).to_string();
            assert!(error.contains(message), "{words}: {error}");
        }
        assert!(modify(&mut Map::new(), None, None, &[]).is_err(), "nothing is to be changed");
    }

    #[test]
    fn parameters_add_to_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("it is written");
            path.display().to_string()
        };
        let request = file("r.json", r#"{"flavourId": "a", "additionalParams": {"x": 1, "y": 1, "z": 1}}"#);
        let params = file("p.json", r#"{"y": 2, "z": 2}"#);
        let words = format!("instantiate v --flavour b --request {request} --params {params} --param z=3");
        let (_, _, body, _) = operation(&command(&words)).expect("it is right");
        let expected = json!({"flavourId": "b", "additionalParams": {"x": 1, "y": 2, "z": 3}});
        assert_eq!(Value::Object(body), expected);
        let wrong = file("w.json", r#"{"additionalParams": []}"#);
        let error = operation(&command(&format!("terminate v --request {wrong}"))).expect_err("no object");
        assert!(error.to_string().contains("must be a JSON object"), "{error}");
    }
}
