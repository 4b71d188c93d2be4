//! Tables of steps in, tasks out.

use super::*;
use crate::script::{Run, Wait};

fn order() -> ScriptPlan {
    ScriptPlan {
        kind: "vnf.script".into(),
        title: "steps".into(),
        subject: Some("vnf/1".into()),
        infra: "lab/demo".into(),
        package_dir: "/p".into(),
    }
}

fn step(name: &str, machine: &str, after: &[&str]) -> Step {
    let run = Run { script: "true".into(), timeout: 5, unless: None, undo: None, once: false };
    Step {
        name: name.into(),
        machine: MachineName::new(machine).unwrap(),
        after: after.iter().map(|name| (*name).to_owned()).collect(),
        optional: false,
        action: Action::Run(run),
    }
}

/// Each task with what it waits for and the resources that are locked with its own.
fn drawn(steps: &[Step]) -> Vec<String> {
    let plan = plan(&order(), steps).unwrap().unwrap();
    let line = |task: &guywire_plan::Task| {
        let after: Vec<&str> = task.after.iter().map(|after| plan.task(*after).name.as_str()).collect();
        let locks = plan.resources(plan.tree(task.scope.unwrap()));
        let locks: Vec<&str> =
            locks.iter().filter_map(|lock| lock.strip_prefix("lab/demo/machine/")).collect();
        format!("{} < {} [{}]", task.name, after.join(", "), locks.join(" "))
    };
    plan.tasks.iter().map(line).collect()
}

#[test]
fn no_steps_are_no_plan() {
    assert_eq!(plan(&order(), &[]).unwrap(), None);
}

#[test]
fn each_machine_is_locked_by_itself() {
    let steps = [step("a", "m1", &[]), step("b", "m1", &["a"]), step("c", "m2", &["b"])];
    assert_eq!(drawn(&steps), ["m1 a <  [m1]", "m1 b < m1 a [m1]", "m2 c < m1 b [m2]"]);
    let plan = plan(&order(), &steps).unwrap().unwrap();
    assert_eq!((plan.kind.as_str(), plan.subject.as_deref()), ("vnf.script", Some("vnf/1")));
    assert_eq!(plan.on_failure, guywire_plan::OnFailure::Stop);
}

#[test]
fn machines_that_wait_for_each_other_are_locked_as_one() {
    let steps = [
        step("token", "m1", &[]),
        step("join", "m2", &["token"]),
        step("label", "m1", &["join"]),
        step("watch", "m3", &["label"]),
    ];
    let expected = [
        "m1 token <  [m1 m2]",
        "m2 join < m1 token [m1 m2]",
        "m1 label < m2 join [m1 m2]",
        "m3 watch < m1 label [m3]",
    ];
    assert_eq!(drawn(&steps), expected);
    // Two circles that share a machine are one; in whatever order the machines come.
    let steps = [
        step("a", "m1", &["c2"]),
        step("b", "m2", &["a"]),
        step("a2", "m1", &["b"]),
        step("c", "m3", &[]),
        step("d", "m1", &["c"]),
        step("c2", "m3", &["d"]),
    ];
    assert!(drawn(&steps).iter().all(|line| line.ends_with("[m1 m2 m3]")), "{:?}", drawn(&steps));
}

#[test]
fn a_circle_of_steps_is_refused_with_its_way() {
    let error = plan(&order(), &[step("a", "m1", &["b"]), step("b", "m2", &["a"])]).unwrap_err();
    assert!(error.to_string().contains("wait for each other: m1 a -> m2 b -> m1 a"), "{error}");
    let error = plan(&order(), &[step("a", "m1", &["x"])]).unwrap_err();
    assert_eq!(error.to_string(), "step \"a\" waits for \"x\", which is not there");
}

#[test]
fn what_a_step_is_decides_its_handler_time_and_tries() {
    let mut once = step("once", "m1", &[]);
    once.action = Action::Run(Run { script: "x".into(), timeout: 100, unless: None, undo: None, once: true });
    let mut wait = step("wait", "m1", &[]);
    wait.action = Action::Wait(Wait { script: "x".into(), timeout: 10, every: 1 });
    let mut put = step("put", "m1", &[]);
    let content = Content::File { file: "Files/x".into(), sha256: "00".into(), size: 1 << 20 };
    put.action = Action::Put(Put { path: "/x".into(), mode: 0o644, owner: "root:root".into(), content });
    let mut optional = step("optional", "m1", &[]);
    optional.optional = true;
    let plan = plan(&order(), &[once, wait, put, optional]).unwrap().unwrap();
    let tasks: Vec<_> = plan
        .tasks
        .iter()
        .map(|task| (task.handler.name.as_str(), task.timeout_ms / 1000, task.guarded))
        .collect();
    let slack = 2 * SLACK.as_secs();
    assert_eq!(
        tasks,
        [
            ("script.run-once", 100 + slack, true),
            ("script.wait", 10 + slack, false),
            ("script.put", 124 + slack, false),
            ("script.run", 5 + slack, false)
        ]
    );
    assert_eq!(plan.tasks[2].input["what"]["package"], "/p");
    assert_eq!(plan.tasks[3].retry, Retry::ONCE);
    assert!(plan.tasks[1].input.get("package").is_none());
}
