//! Tables of wanted and observed in, tasks out.

use guywire_model::{Egress, HostNumber, LabName, Login, Power, SiteName, SiteNetwork};

use super::*;
use guywire_model::{LabSpec, MachineName, Observed, ObservedMachine, PowerState};
use guywire_plan::Plan;

fn lab(machines: usize) -> LabSpec {
    let login =
        Login { user: "root".into(), authorized_keys: vec!["ssh-ed25519 AAAA x".into()], password: None };
    LabSpec::of_machines(LabName::new("demo").unwrap(), machines, Egress::None, &login)
}

fn observed(lab: &LabSpec, power: impl Fn(usize) -> Option<PowerState>) -> Observed {
    let site = SiteNetwork {
        name: SiteName::new("site1").unwrap(),
        v4: "10.250.0.0/24".parse().unwrap(),
        v6: "fd00::/64".parse().unwrap(),
    };
    let machine = |(at, spec): (usize, &guywire_model::MachineSpec)| {
        let addresses = site.host(spec.number).unwrap();
        power(at).map(|power| ObservedMachine { spec: spec.clone(), power, addresses })
    };
    let machines = lab.machines.iter().enumerate().filter_map(machine).collect();
    Observed { sites: vec![site], machines, ..Observed::default() }
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.tasks.iter().map(|task| task.name.as_str()).collect()
}

#[test]
fn an_empty_place_gets_everything() {
    let plan = plan_up("lab/demo", &lab(2), &Observed::default()).unwrap().unwrap();
    let expected = [
        "networks",
        "template base",
        "m1 create",
        "m1 power on",
        "m1 ready",
        "m2 create",
        "m2 power on",
        "m2 ready",
    ];
    assert_eq!(names(&plan), expected);
    assert_eq!(plan.subject.as_deref(), Some("lab/demo"));
}

#[test]
fn only_what_is_missing_is_planned_and_nothing_is_no_plan() {
    let lab = lab(3);
    let all = observed(&lab, |_| Some(PowerState::Running));
    assert_eq!(plan_up("lab/demo", &lab, &all).unwrap(), None);
    let some = observed(&lab, |at| [Some(PowerState::Running), Some(PowerState::Off), None][at]);
    let plan = plan_up("lab/demo", &lab, &some).unwrap().unwrap();
    let expected =
        ["networks", "template base", "m3 create", "m3 power on", "m3 ready", "m2 power on", "m2 ready"];
    assert_eq!(names(&plan), expected);
}

#[test]
fn a_machine_that_differs_is_never_changed_silently() {
    let there = observed(&lab(1), |_| Some(PowerState::Running));
    let mut wanted = lab(1);
    wanted.machines[0].number = HostNumber(77);
    let error = plan_up("lab/demo", &wanted, &there).unwrap_err().to_string();
    assert_eq!(
        error,
        "machine m1 is there with another address; remove it first with `guywire lab rm m1`, or give the new one another name"
    );
}

#[test]
fn down_removes_machines_before_networks() {
    let there = observed(&lab(2), |_| Some(PowerState::Running));
    let plan = plan_down("lab/demo", &there).unwrap();
    assert_eq!(names(&plan), ["m1 destroy", "m2 destroy", "networks", "forget"]);
    assert_eq!(plan.tasks[2].after.len(), 2);
    assert!(plan.tasks[0].guarded && plan.tasks[0].irreversible);
}

#[test]
fn a_machine_that_is_not_there_is_told_with_those_that_are() {
    let there = observed(&lab(2), |_| Some(PowerState::Running));
    let missing = MachineName::new("m9").unwrap();
    let error = plan_power("lab/demo", &missing, Power::Cut, &there).unwrap_err().to_string();
    assert_eq!(error, "there is no machine m9; there are m1, m2");
    assert_eq!(
        plan_remove("lab/demo", &missing, &Observed::default()).unwrap_err().to_string(),
        "there is no machine m9; there are none"
    );
}

fn change(lab: &LabSpec) -> MachineChange {
    MachineChange {
        kind: "vnf.machines".into(),
        title: "change".into(),
        subject: Some("vnf/1".into()),
        infra: "lab/demo".into(),
        egress: lab.egress,
        sites: lab.sites.clone(),
        templates: lab.templates.clone(),
        add: Vec::new(),
        replace: Vec::new(),
        remove: Vec::new(),
        power: Vec::new(),
        one_by_one: false,
    }
}

fn name(at: usize) -> MachineName {
    MachineName::new(format!("m{at}")).unwrap()
}

/// The tasks of a plan, each with what it waits for.
fn drawn(plan: Option<Plan>) -> Vec<String> {
    let plan = plan.expect("something is to be done");
    let line = |task: &guywire_plan::Task| {
        let after: Vec<&str> = task.after.iter().map(|after| plan.task(*after).name.as_str()).collect();
        if after.is_empty() { task.name.clone() } else { format!("{} < {}", task.name, after.join(", ")) }
    };
    plan.tasks.iter().map(line).collect()
}

#[test]
fn a_change_adds_what_is_missing_and_starts_what_is_off() {
    use PowerState::{Off, Running};
    let lab = lab(3);
    let there = observed(&lab, |at| [Some(Running), Some(Off), None][at]);
    let wanted = MachineChange { add: lab.machines.clone(), ..change(&lab) };
    let plan = plan_change(&wanted, &there).unwrap();
    assert_eq!(
        drawn(plan.clone()),
        [
            "networks",
            "template base",
            "m3 create < networks, template base",
            "m3 power on < m3 create",
            "m3 ready < m3 power on",
            "m2 power on < networks, template base",
            "m2 ready < m2 power on",
        ]
    );
    let plan = plan.unwrap();
    assert_eq!((plan.kind.as_str(), plan.subject.as_deref()), ("vnf.machines", Some("vnf/1")));
    assert_eq!(plan.on_failure, guywire_plan::OnFailure::Stop);
    assert_eq!(
        plan.phases.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(),
        ["network and templates", "machines"]
    );
    let all = observed(&lab, |_| Some(Running));
    assert_eq!(plan_change(&wanted, &all).unwrap(), None);
}

#[test]
fn a_change_removes_what_is_there_and_skips_what_is_gone() {
    let lab = lab(3);
    let there = observed(&lab, |at| (at != 1).then_some(PowerState::Running));
    let wanted = MachineChange { remove: vec![name(1), name(2)], ..change(&lab) };
    assert_eq!(drawn(plan_change(&wanted, &there).unwrap()), ["m1 destroy"]);
    // A new machine in the place of one that goes waits for it; another does not.
    let mut new = lab.machines[0].clone();
    new.name = name(7);
    let wanted = MachineChange { remove: vec![name(1), name(3)], add: vec![new], ..change(&lab) };
    let drawn = drawn(plan_change(&wanted, &there).unwrap());
    assert_eq!(drawn[4], "m7 create < networks, template base, m1 destroy");
    let wanted = MachineChange { remove: vec![name(2)], ..change(&lab) };
    assert_eq!(plan_change(&wanted, &there).unwrap(), None);
}

#[test]
fn replaced_machines_are_destroyed_and_made_in_one_scope_all_at_once_or_one_by_one() {
    let lab = lab(2);
    let there = observed(&lab, |_| Some(PowerState::Off));
    let all = MachineChange { replace: lab.machines.clone(), ..change(&lab) };
    let plan = plan_change(&all, &there).unwrap();
    assert_eq!(
        drawn(plan.clone())[2..6],
        [
            "m1 destroy < networks, template base",
            "m1 create < m1 destroy",
            "m1 power on < m1 create",
            "m1 ready < m1 power on",
        ]
    );
    let plan = plan.unwrap();
    assert_eq!(plan.scopes.len(), 2);
    assert!(plan.tasks[2..6].iter().all(|task| task.scope == plan.tasks[2].scope && task.scope.is_some()));
    let serial = drawn(plan_change(&MachineChange { one_by_one: true, ..all }, &there).unwrap());
    assert_eq!(serial[6], "m2 destroy < m1 ready");
}

#[test]
fn a_change_turns_only_switches_that_are_not_as_wanted() {
    use PowerState::{Off, Running};
    let lab = lab(4);
    let there = observed(&lab, |at| Some([Running, Off, Running, Off][at]));
    let power =
        vec![(name(1), Power::Off), (name(2), Power::Cut), (name(3), Power::On), (name(4), Power::On)];
    let wanted = MachineChange { power, ..change(&lab) };
    let expected = ["networks", "m4 power on < networks", "m4 ready < m4 power on", "m1 stop"];
    assert_eq!(drawn(plan_change(&wanted, &there).unwrap()), expected);
    let unknown = MachineChange { power: vec![(name(9), Power::On)], ..change(&lab) };
    let error = plan_change(&unknown, &there).unwrap_err().to_string();
    assert_eq!(error, "there is no machine m9; there are m1, m2, m3, m4");
}

#[test]
fn hosts_are_claimed_and_released_and_never_switched() {
    let lab = lab(3);
    let there = observed(&lab, |at| (at != 0).then_some(PowerState::Running));
    let hosts = MachineChange { infra: "hosts/site.yaml".into(), ..change(&lab) };
    let wanted = MachineChange {
        add: vec![lab.machines[0].clone()],
        replace: vec![lab.machines[1].clone()],
        remove: vec![name(3)],
        ..hosts.clone()
    };
    assert_eq!(
        drawn(plan_change(&wanted, &there).unwrap()),
        [
            "m3 release",
            "m1 ready",
            "m1 claim < m1 ready",
            "m2 release",
            "m2 ready < m2 release",
            "m2 claim < m2 ready"
        ]
    );
    let error =
        plan_change(&MachineChange { power: vec![(name(2), Power::On)], ..hosts }, &there).unwrap_err();
    assert_eq!(
        error.to_string(),
        "machine m2 of hosts/site.yaml is not ours to switch; do it with what its owner has, or use a lab"
    );
}

#[test]
fn a_change_names_a_machine_once_and_changes_none_silently() {
    let lab = lab(2);
    let there = observed(&lab, |_| Some(PowerState::Running));
    let twice = MachineChange { replace: lab.machines.clone(), remove: vec![name(2)], ..change(&lab) };
    let error = plan_change(&twice, &there).unwrap_err().to_string();
    assert_eq!(error, "machine m2 is named twice in one change; name it once");
    let mut other = lab.machines[0].clone();
    other.number = HostNumber(77);
    let error = plan_change(&MachineChange { add: vec![other], ..change(&lab) }, &there).unwrap_err();
    assert!(error.to_string().starts_with("machine m1 is there with another address"), "{error}");
}
