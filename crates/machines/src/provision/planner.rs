//! From what is wanted and what is there to a plan. No I/O.

use std::collections::BTreeSet;

use guywire_model::{
    LabSpec, MachineName, MachineSpec, Observed, ObservedMachine, Power, PowerState, TemplateName, VolumeName,
};
use guywire_plan::{OnFailure, Plan, PlanBuilder, PlanError, ScopeIndex, TaskIndex};
use serde_json::Value;

use super::handlers::{
    AwaitReady, Close, CreateMachine, DestroyMachine, EnsureNetworks, EnsureTemplate, EnsureVolume, In,
    Networks, ReleaseAddress, RemoveNetworks, RemoveVolume, Switch, SwitchPower,
};

/// How many machines are made and started at once: enough to keep the disk and the cores busy.
pub(super) const WIDTH: u32 = 8;
pub(super) const STARTING: &str = "machines starting";

/// Why no plan was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanRefused {
    /// A machine of that name is there and differs from what is wanted.
    #[error(
        "machine {machine} is there with another {what}; remove it first with `guywire lab rm {machine}`, or give the new one another name"
    )]
    Differs {
        /// The machine.
        machine: MachineName,
        /// What is different.
        what: &'static str,
    },
    /// There is no such machine.
    #[error("there is no machine {machine}; there {}", listed(.known))]
    NoMachine {
        /// The machine.
        machine: MachineName,
        /// Those that are there.
        known: Vec<MachineName>,
    },
    /// A machine is to become two things at once.
    #[error("machine {machine} is named twice in one change; name it once")]
    Twice {
        /// The machine.
        machine: MachineName,
    },
    /// Nobody gave us its power switch.
    #[error(
        "machine {machine} of {infra} is not ours to switch; do it with what its owner has, or use a lab"
    )]
    NoSwitch {
        /// The machine.
        machine: MachineName,
        /// The place that it is in.
        infra: String,
    },
    /// The plan makes no sense: a slip of ours.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

fn listed(machines: &[MachineName]) -> String {
    match machines {
        [] => "are none".to_owned(),
        names => format!("are {}", listed_names(names)),
    }
}

fn listed_names<'a>(names: impl IntoIterator<Item = &'a MachineName>) -> String {
    names.into_iter().map(MachineName::as_str).collect::<Vec<_>>().join(", ")
}

/// All of `desired` made, started and answering; `None` if that is so already. Machines beyond it are
/// left alone. If it fails, what it made is taken back.
pub fn plan_up(infra: &str, desired: &LabSpec, observed: &Observed) -> Result<Option<Plan>, PlanRefused> {
    for machine in &desired.machines {
        if let Some(there) = observed.machine(&machine.name) {
            differs(machine, there)?;
        }
    }
    let missing: Vec<&MachineSpec> =
        desired.machines.iter().filter(|machine| observed.machine(&machine.name).is_none()).collect();
    let is_off = |machine: &&ObservedMachine| machine.power == PowerState::Off;
    let wanted =
        |machine: &&ObservedMachine| desired.machines.iter().any(|spec| spec.name == machine.spec.name);
    let stopped: Vec<&MachineSpec> =
        observed.machines.iter().filter(wanted).filter(is_off).map(|machine| &machine.spec).collect();
    if missing.is_empty() && stopped.is_empty() && !desired.machines.is_empty() {
        return Ok(None);
    }

    let count = missing.len() + stopped.len();
    let title = format!("bring up {infra}: {count} machine{}", if count == 1 { "" } else { "s" });
    let request = serde_json::to_value(desired).expect("a lab is plain data");
    let mut plan = new_plan("lab.up", title, infra, request).on_failure(OnFailure::Undo);
    let base = plan.phase("network and templates");
    let networks = Networks { sites: desired.sites.clone(), egress: desired.egress };
    let mut before = vec![plan.task::<EnsureNetworks>(base, "networks", &named(infra, networks)).add()];
    let used: BTreeSet<&TemplateName> = missing.iter().map(|machine| &machine.template).collect();
    for template in desired.templates.iter().filter(|template| used.contains(&template.name)) {
        let name = format!("template {}", template.name);
        before.push(plan.task::<EnsureTemplate>(base, name, &named(infra, template.clone())).add());
    }
    let volumes: BTreeSet<&VolumeName> =
        missing.iter().flat_map(|machine| &machine.volumes).map(|mount| &mount.volume).collect();
    for volume in volumes {
        let name = format!("volume {volume}");
        before.push(plan.task::<EnsureVolume>(base, name, &named(infra, volume.clone())).add());
    }
    let phase = plan.phase("machines");
    for (machine, is_new) in missing.iter().map(|m| (m, true)).chain(stopped.iter().map(|m| (m, false))) {
        let scope = machine_scope(&mut plan, infra, &machine.name);
        let mut after = before.clone();
        if is_new {
            let name = format!("{} create", machine.name);
            let input = named(infra, (*machine).clone());
            let create =
                plan.task::<CreateMachine>(phase, name, &input).after(after).within(scope).uses(STARTING);
            after = vec![create.add()];
        }
        start(&mut plan, phase, infra, &machine.name, scope, &after);
    }
    Ok(Some(plan.build()?))
}

/// Power on and wait until SSH answers; gives the task after which it does.
pub(super) fn start(
    plan: &mut PlanBuilder,
    phase: u32,
    infra: &str,
    machine: &MachineName,
    scope: ScopeIndex,
    after: &[TaskIndex],
) -> TaskIndex {
    let switch = Switch { machine: machine.clone(), power: Power::On };
    let power = plan
        .task::<SwitchPower>(phase, format!("{machine} power on"), &named(infra, switch))
        .after(after.iter().copied())
        .within(scope)
        .uses(STARTING)
        .add();
    plan.task::<AwaitReady>(phase, format!("{machine} ready"), &named(infra, machine.clone()))
        .after([power])
        .within(scope)
        .add()
}

/// Everything in the place removed, and the place forgotten.
pub fn plan_down(infra: &str, observed: &Observed) -> Result<Plan, PlanRefused> {
    let count = observed.machines.len();
    let title = format!("take down {infra}: {count} machine{}", if count == 1 { "" } else { "s" });
    let mut plan = new_plan("lab.down", title, infra, Value::Null);
    let phase = plan.phase("machines");
    let mut before = Vec::new();
    for machine in &observed.machines {
        before.push(destroy(&mut plan, phase, infra, &machine.spec.name));
    }
    let last = plan.phase("network and volumes");
    let machines = before.clone();
    for volume in &observed.volumes {
        let task = plan.task::<RemoveVolume>(last, format!("volume {volume}"), &named(infra, volume.clone()));
        before.push(task.after(machines.iter().copied()).add());
    }
    for (address, _) in &observed.reserved {
        let task =
            plan.task::<ReleaseAddress>(last, format!("address {address}"), &named(infra, address.clone()));
        before.push(task.after(machines.iter().copied()).add());
    }
    let networks = plan.task::<RemoveNetworks>(last, "networks", &named(infra, ())).after(before).add();
    plan.task::<Close>(last, "forget", &named(infra, ())).after([networks]).add();
    Ok(plan.build()?)
}

/// Machines made where no network or template is: existing hosts claimed, and each seen to let us in.
pub fn plan_claim(
    infra: &str,
    machines: &[MachineSpec],
    observed: &Observed,
) -> Result<Option<Plan>, PlanRefused> {
    let is_missing = |machine: &&MachineSpec| observed.machine(&machine.name).is_none();
    let missing: Vec<&MachineSpec> = machines.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let title = format!("claim {} of {infra}", listed_names(missing.iter().map(|machine| &machine.name)));
    let mut plan = new_plan("hosts.claim", title, infra, Value::Null).on_failure(OnFailure::Undo);
    let phase = plan.phase("machines");
    for machine in missing {
        let scope = machine_scope(&mut plan, infra, &machine.name);
        let input = named(infra, machine.name.clone());
        let ready =
            plan.task::<AwaitReady>(phase, format!("{} ready", machine.name), &input).within(scope).add();
        let input = named(infra, machine.clone());
        let claim = plan.task::<CreateMachine>(phase, format!("{} claim", machine.name), &input);
        claim.after([ready]).within(scope).uses(STARTING).add();
    }
    Ok(Some(plan.build()?))
}

/// Machines given back; those that are not ours any more are left out.
pub fn plan_release(
    infra: &str,
    machines: &[MachineName],
    observed: &Observed,
) -> Result<Option<Plan>, PlanRefused> {
    let ours: Vec<&MachineName> =
        machines.iter().filter(|machine| observed.machine(machine).is_some()).collect();
    if ours.is_empty() {
        return Ok(None);
    }
    let title = format!("release {} of {infra}", listed_names(ours.iter().copied()));
    let mut plan = new_plan("hosts.release", title, infra, Value::Null);
    let phase = plan.phase("machines");
    for machine in ours {
        destroy(&mut plan, phase, infra, machine);
    }
    Ok(Some(plan.build()?))
}

/// One machine destroyed; volumes and networks stay.
pub fn plan_remove(infra: &str, machine: &MachineName, observed: &Observed) -> Result<Plan, PlanRefused> {
    find(machine, observed)?;
    let title = format!("remove {machine} from {infra}");
    let mut plan = new_plan("lab.remove", title, infra, Value::Null);
    let phase = plan.phase("machines");
    destroy(&mut plan, phase, infra, machine);
    Ok(plan.build()?)
}

/// One machine's power switch turned; turned on, the plan ends when SSH answers.
pub fn plan_power(
    infra: &str,
    machine: &MachineName,
    power: Power,
    observed: &Observed,
) -> Result<Plan, PlanRefused> {
    find(machine, observed)?;
    let word = match power {
        Power::On => "boot",
        Power::Off => "stop",
        Power::Cut => "cut",
    };
    // No subject: a power cut must be possible whatever else goes on; the machine's own lock orders it.
    let mut plan =
        PlanBuilder::new("lab.power", format!("{word} {machine} of {infra}")).width(STARTING, WIDTH);
    let phase = plan.phase("machines");
    let scope = machine_scope(&mut plan, infra, machine);
    if power == Power::On {
        start(&mut plan, phase, infra, machine, scope, &[]);
    } else {
        let switch = Switch { machine: machine.clone(), power };
        plan.task::<SwitchPower>(phase, format!("{machine} {word}"), &named(infra, switch))
            .within(scope)
            .add();
    }
    Ok(plan.build()?)
}

fn new_plan(kind: &str, title: String, infra: &str, request: Value) -> PlanBuilder {
    PlanBuilder::new(kind, title).subject(infra).request(request).width(STARTING, WIDTH)
}

pub(super) fn machine_scope(plan: &mut PlanBuilder, infra: &str, machine: &MachineName) -> ScopeIndex {
    plan.scope(format!("{infra}/machine/{machine}"), None)
}

fn destroy(plan: &mut PlanBuilder, phase: u32, infra: &str, machine: &MachineName) -> TaskIndex {
    let scope = machine_scope(plan, infra, machine);
    let input = named(infra, machine.clone());
    plan.task::<DestroyMachine>(phase, format!("{machine} destroy"), &input)
        .within(scope)
        .uses(STARTING)
        .add()
}

pub(super) fn named<T>(infra: &str, what: T) -> In<T> {
    In { infra: infra.to_owned(), what }
}

pub(super) fn find<'a>(
    machine: &MachineName,
    observed: &'a Observed,
) -> Result<&'a ObservedMachine, PlanRefused> {
    if let Some(there) = observed.machine(machine) {
        return Ok(there);
    }
    let known = observed.machines.iter().map(|machine| machine.spec.name.clone()).collect();
    Err(PlanRefused::NoMachine { machine: machine.clone(), known })
}

pub(super) fn differs(wanted: &MachineSpec, there: &ObservedMachine) -> Result<(), PlanRefused> {
    let is = &there.spec;
    let what = [
        ("site", wanted.site != is.site),
        ("address", wanted.number != is.number),
        ("template", wanted.template != is.template),
        ("login", wanted.login != is.login),
        ("set of volumes", wanted.volumes != is.volumes),
    ];
    match what.into_iter().find(|(_, different)| *different) {
        Some((what, _)) => Err(PlanRefused::Differs { machine: wanted.name.clone(), what }),
        None => Ok(()),
    }
}
