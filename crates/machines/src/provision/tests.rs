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
