//! Answers in, steps or a reason with its place out.

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::script::{Change, ScriptMachine, ScriptVnf};

fn input() -> ScriptInput {
    let machine = |name: &str, there: bool| ScriptMachine {
        name: MachineName::new(name).unwrap(),
        vdu: "v".into(),
        vnfc: format!("v-{name}"),
        change: Change::Kept,
        addresses: there.then(|| guywire_model::AddressPair {
            v4: "10.0.0.1".parse().unwrap(),
            v6: "fd00::1".parse().unwrap(),
        }),
    };
    let mut request = Map::new();
    request.insert("additionalParams".into(), json!({"deep": [{"password": "secret:ops/pw"}]}));
    ScriptInput {
        operation: "SCALE".into(),
        point: "scale_start".into(),
        vnf: ScriptVnf { id: "1".into(), name: "n".into(), vnfd_id: "d".into(), flavour_id: "f".into() },
        request,
        machines: vec![machine("m1", true), machine("m2", true), machine("m3", false)],
        outputs: Map::new(),
    }
}

fn steps(steps: &Value) -> Result<Vec<Step>, String> {
    read(json!({ "steps": steps }).to_string().as_bytes(), &input()).map(|decision| decision.steps)
}

#[test]
fn the_input_has_the_shape_that_is_documented() {
    let value: Value = serde_json::from_slice(&input().to_bytes()).unwrap();
    let wanted = json!({
        "protocol": 1,
        "operation": "SCALE",
        "point": "scale_start",
        "vnf": {"id": "1", "name": "n", "vnfdId": "d", "flavourId": "f"},
        "request": {"additionalParams": {"deep": [{"password": "secret:ops/pw"}]}},
        "machines": [
            {"name": "m1", "vdu": "v", "vnfc": "v-m1", "change": "kept", "addresses": {"v4": "10.0.0.1", "v6": "fd00::1"}},
            {"name": "m2", "vdu": "v", "vnfc": "v-m2", "change": "kept", "addresses": {"v4": "10.0.0.1", "v6": "fd00::1"}},
            {"name": "m3", "vdu": "v", "vnfc": "v-m3", "change": "kept", "addresses": null},
        ],
        "outputs": {},
        "package": "/package",
    });
    assert_eq!(value, wanted);
}

#[test]
fn a_step_follows_the_last_of_its_machine_unless_it_says_otherwise() {
    let run = json!({"script": "true"});
    let all = steps(&json!([
        {"name": "a", "machine": "m1", "run": run},
        {"name": "b", "machine": "m2", "run": run},
        {"name": "c", "machine": "m1", "run": run},
        {"name": "d", "machine": "m1", "run": run, "after": []},
        {"name": "e", "machine": "m2", "run": run, "after": ["d", "b"], "optional": true},
    ]))
    .unwrap();
    let after: Vec<String> = all.iter().map(|step| step.after.join(" ")).collect();
    assert_eq!(after, ["", "", "a", "", "d b"]);
    assert_eq!(all.iter().map(|step| step.optional).collect::<Vec<_>>(), [false, false, false, false, true]);
    let Action::Run(run) = &all[0].action else { panic!("{all:?}") };
    assert_eq!((run.timeout, run.once, &run.unless), (60, false, &None));
}

#[test]
fn what_is_put_is_checked() {
    let put = |put: Value| steps(&json!([{"name": "a", "machine": "m1", "put": put}]));
    let Action::Put(good) =
        put(json!({"path": "/a", "content": "${secret:ops/pw}"})).unwrap().remove(0).action
    else {
        panic!("a put is one")
    };
    assert_eq!((good.mode, good.owner.as_str()), (0o644, "root:root"));
    for (bad, wanted) in [
        (json!({"path": "a", "content": ""}), "path"),
        (json!({"path": "/", "content": ""}), "path"),
        (json!({"path": "/a/", "content": ""}), "path"),
        (json!({"path": "/a\n", "content": ""}), "path"),
        (json!({"path": "/a", "content": "", "mode": "8"}), "mode"),
        (json!({"path": "/a", "content": "", "mode": "17777"}), "mode"),
        (json!({"path": "/a", "content": "", "mode": "+644"}), "mode"),
        (json!({"path": "/a", "content": "", "owner": "a:b:c"}), "owner"),
        (json!({"path": "/a", "content": "", "owner": "-r:b"}), "owner"),
        (json!({"path": "/a"}), "exactly one of content and file"),
        (json!({"path": "/a", "content": "", "file": "x"}), "exactly one of content and file"),
        (json!({"path": "/a", "file": "/x"}), "file"),
        (json!({"path": "/a", "file": "x//y"}), "file"),
        (json!({"path": "/a", "content": "${secret:x}"}), "not a secret of the request"),
        (json!({"path": "/a", "content": "${secret:x"}), "has no }"),
    ] {
        let error = put(bad.clone()).unwrap_err();
        assert!(error.starts_with("steps[0] (\"a\"): ") && error.contains(wanted), "{bad}: {error}");
    }
}

#[test]
fn too_much_and_what_is_not_there_is_refused() {
    let step =
        |name: String, machine: &str| json!({"name": name, "machine": machine, "run": {"script": "x"}});
    let many: Vec<Value> = (0..=MAX_STEPS).map(|at| step(at.to_string(), "m1")).collect();
    assert_eq!(steps(&json!(many)).unwrap_err(), "1001 steps are more than 1000");
    assert_eq!(steps(&json!(many[..MAX_STEPS])).unwrap().len(), MAX_STEPS);
    let error = steps(&json!([step("a".into(), "m3")])).unwrap_err();
    assert_eq!(error, "steps[0] (\"a\"): machine m3 is not there, so nothing can be done on it");
    let error = steps(&json!([step("a".into(), "m1"), step("a".into(), "m2")])).unwrap_err();
    assert_eq!(error, "steps[1] (\"a\"): another step has this name; give each its own");
    assert!(steps(&json!([step("x".repeat(121), "m1")])).is_err());
    assert!(steps(&json!([step("a\u{7}".into(), "m1")])).is_err());
    let warnings = json!({"steps": [], "warnings": vec!["x"; 101]}).to_string();
    assert!(read(warnings.as_bytes(), &input()).unwrap_err().starts_with("warnings: at most 100"));
}

#[test]
fn the_documented_examples_are_what_we_write_and_read() {
    let text = include_str!("../../../../docs/scripts.md");
    let mut blocks = text.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut asked: Value = serde_json::from_str(blocks.next().unwrap()).unwrap();
    let documented = asked.clone();
    for ours in ["protocol", "package"] {
        assert!(asked.as_object_mut().unwrap().remove(ours).is_some());
    }
    let input: ScriptInput = serde_json::from_value(asked).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&input.to_bytes()).unwrap(), documented);
    let decision = read(blocks.next().unwrap().as_bytes(), &input).unwrap();
    assert_eq!((decision.steps.len(), decision.warnings.len()), (3, 1));
    assert!(blocks.next().is_none(), "an example without a test");
}

proptest! {
    #[test]
    fn no_answer_makes_us_panic(answer in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&answer, &input()).is_err());
    }

    #[test]
    fn no_mutation_of_a_good_answer_makes_us_panic(at in 0_usize..200, with in any::<u8>()) {
        let good = json!({"steps": [
            {"name": "ä", "machine": "m1", "after": [], "put": {"path": "/a", "mode": "0600", "content": "${secret:ops/pw}ü"}},
            {"name": "b", "machine": "m2", "wait": {"script": "true", "every": 2}},
        ], "warnings": ["ö"]});
        let mut bytes = good.to_string().into_bytes();
        prop_assert!(read(&bytes, &input()).is_ok());
        let at = at % bytes.len();
        bytes[at] = with;
        // Whether it is still good depends on the byte; that it is read to an end does not.
        drop(read(&bytes, &input()));
    }
}
