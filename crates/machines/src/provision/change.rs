//! A change of some machines of a place: added, replaced, removed, switched. No I/O.

use std::collections::BTreeSet;

use guywire_model::{
    Egress, MachineName, MachineSpec, Observed, Power, PowerState, SiteSpec, TemplateName, TemplateSpec,
    VolumeName,
};
use guywire_plan::{Plan, PlanBuilder, ScopeIndex, TaskIndex};
use serde::{Deserialize, Serialize};

use super::{
    PlanRefused,
    handlers::{
        AwaitReady, CreateMachine, DestroyMachine, EnsureNetworks, EnsureTemplate, EnsureVolume, Networks,
        Switch, SwitchPower,
    },
    planner::{STARTING, WIDTH, differs, find, machine_scope, named, start},
};

/// What is to become of some machines; all others of the place are left alone. A machine is named once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineChange {
    /// The plan's kind, such as `vnf.machines`.
    pub kind: String,
    /// One line for people.
    pub title: String,
    /// What it is about: one unfinished plan for each.
    pub subject: Option<String>,
    /// The place, such as `lab/demo`.
    pub infra: String,
    /// Whether the place's machines reach the world outside.
    pub egress: Egress,
    /// All sites of the place.
    pub sites: Vec<SiteSpec>,
    /// The templates that new machines start from.
    pub templates: Vec<TemplateSpec>,
    /// Machines that are to be there and to run.
    pub add: Vec<MachineSpec>,
    /// Machines that are destroyed, then made anew under the same name and number.
    pub replace: Vec<MachineSpec>,
    /// Machines that are to be gone; their volumes stay.
    pub remove: Vec<MachineName>,
    /// Machines whose power switch is turned.
    pub power: Vec<(MachineName, Power)>,
    /// Replaces one machine after the other.
    pub one_by_one: bool,
}

/// The change as a plan; `None` if all is as wanted. If it fails, what was done stays.
pub fn plan_change(change: &MachineChange, observed: &Observed) -> Result<Option<Plan>, PlanRefused> {
    let wanted = Wanted::of(change, observed)?;
    if wanted.is_nothing() {
        return Ok(None);
    }
    let request = serde_json::to_value(change).expect("a change is plain data");
    let mut plan = PlanBuilder::new(&change.kind, &change.title).request(request).width(STARTING, WIDTH);
    if let Some(subject) = &change.subject {
        plan = plan.subject(subject);
    }
    let mut draft = Draft { change, phase: 0, plan };
    let ground =
        if wanted.needs_ground() && !change.has_hosts() { draft.ground(&wanted) } else { Vec::new() };
    draft.phase = draft.plan.phase("machines");

    let mut gone = Vec::new();
    for machine in wanted.removed {
        let scope = draft.scope(machine);
        gone.push((machine, draft.destroy(machine, scope, &[])));
    }
    for spec in wanted.missing {
        // A number that is given back in the same breath is free once its holder is gone.
        let holder = |name: &MachineName| {
            let is = &observed.machine(name).expect("only those that are there are removed").spec;
            is.site == spec.site && is.number == spec.number
        };
        let freed = gone.iter().filter(|(name, _)| holder(name)).map(|(_, task)| *task);
        let after: Vec<TaskIndex> = ground.iter().copied().chain(freed).collect();
        let scope = draft.scope(&spec.name);
        draft.make(spec, scope, &after);
    }
    let mut before = ground.clone();
    for spec in &change.replace {
        let scope = draft.scope(&spec.name);
        let destroyed = draft.destroy(&spec.name, scope, &before);
        let made = draft.make(spec, scope, &[destroyed]);
        if change.one_by_one {
            before = vec![made];
        }
    }
    for machine in wanted.stopped {
        let scope = draft.scope(machine);
        start(&mut draft.plan, draft.phase, &change.infra, machine, scope, &ground);
    }
    for (machine, power) in wanted.switched {
        let word = if power == Power::Cut { "cut" } else { "stop" };
        let scope = draft.scope(machine);
        let switch = named(&change.infra, Switch { machine: machine.clone(), power });
        draft.plan.task::<SwitchPower>(draft.phase, format!("{machine} {word}"), &switch).within(scope).add();
    }
    Ok(Some(draft.plan.build()?))
}

/// What is left to be done of a change.
struct Wanted<'a> {
    /// Machines to make.
    missing: Vec<&'a MachineSpec>,
    /// Machines to make anew.
    replaced: &'a [MachineSpec],
    /// Machines to start.
    stopped: Vec<&'a MachineName>,
    /// Machines to destroy.
    removed: Vec<&'a MachineName>,
    /// Machines to switch off.
    switched: Vec<(&'a MachineName, Power)>,
}

impl<'a> Wanted<'a> {
    fn of(change: &'a MachineChange, observed: &Observed) -> Result<Self, PlanRefused> {
        refuse_twice(change)?;
        let mut wanted = Self {
            missing: Vec::new(),
            replaced: &change.replace,
            stopped: Vec::new(),
            removed: Vec::new(),
            switched: Vec::new(),
        };
        for spec in &change.add {
            match observed.machine(&spec.name) {
                None => wanted.missing.push(spec),
                Some(there) => {
                    differs(spec, there)?;
                    if there.power == PowerState::Off {
                        wanted.stopped.push(&spec.name);
                    }
                }
            }
        }
        wanted.removed.extend(change.remove.iter().filter(|name| observed.machine(name).is_some()));
        for (machine, power) in &change.power {
            if change.has_hosts() {
                return Err(PlanRefused::NoSwitch { machine: machine.clone(), infra: change.infra.clone() });
            }
            let runs = find(machine, observed)?.power == PowerState::Running;
            match power {
                Power::On if !runs => wanted.stopped.push(machine),
                Power::Off | Power::Cut if runs => wanted.switched.push((machine, *power)),
                Power::On | Power::Off | Power::Cut => {}
            }
        }
        Ok(wanted)
    }

    fn is_nothing(&self) -> bool {
        self.missing.is_empty()
            && self.replaced.is_empty()
            && self.stopped.is_empty()
            && self.removed.is_empty()
            && self.switched.is_empty()
    }

    /// Machines that are started need networks too: bridges are gone after a restart of the host.
    fn needs_ground(&self) -> bool {
        self.made().next().is_some() || !self.stopped.is_empty()
    }

    fn made(&self) -> impl Iterator<Item = &MachineSpec> {
        self.missing.iter().copied().chain(self.replaced)
    }
}

/// A plan that grows.
struct Draft<'a> {
    change: &'a MachineChange,
    plan: PlanBuilder,
    phase: u32,
}

impl Draft<'_> {
    /// What machines stand on: networks, templates, volumes.
    fn ground(&mut self, wanted: &Wanted<'_>) -> Vec<TaskIndex> {
        let (change, infra) = (self.change, &self.change.infra);
        let base = self.plan.phase("network and templates");
        let networks = Networks { sites: change.sites.clone(), egress: change.egress };
        let mut ground =
            vec![self.plan.task::<EnsureNetworks>(base, "networks", &named(infra, networks)).add()];
        let used: BTreeSet<&TemplateName> = wanted.made().map(|spec| &spec.template).collect();
        for template in change.templates.iter().filter(|template| used.contains(&template.name)) {
            let (name, input) = (format!("template {}", template.name), named(infra, template.clone()));
            ground.push(self.plan.task::<EnsureTemplate>(base, name, &input).add());
        }
        let volumes: BTreeSet<&VolumeName> =
            wanted.made().flat_map(|spec| &spec.volumes).map(|mount| &mount.volume).collect();
        for volume in volumes {
            let (name, input) = (format!("volume {volume}"), named(infra, volume.clone()));
            ground.push(self.plan.task::<EnsureVolume>(base, name, &input).add());
        }
        ground
    }

    fn scope(&mut self, machine: &MachineName) -> ScopeIndex {
        machine_scope(&mut self.plan, &self.change.infra, machine)
    }

    fn destroy(&mut self, machine: &MachineName, scope: ScopeIndex, after: &[TaskIndex]) -> TaskIndex {
        let word = if self.change.has_hosts() { "release" } else { "destroy" };
        let input = named(&self.change.infra, machine.clone());
        let task = self.plan.task::<DestroyMachine>(self.phase, format!("{machine} {word}"), &input);
        task.after(after.iter().copied()).within(scope).uses(STARTING).add()
    }

    /// Makes a machine and gives the task after which it is there and answers.
    fn make(&mut self, spec: &MachineSpec, scope: ScopeIndex, after: &[TaskIndex]) -> TaskIndex {
        let (infra, name) = (&self.change.infra, &spec.name);
        if self.change.has_hosts() {
            let input = named(infra, name.clone());
            let ready = self.plan.task::<AwaitReady>(self.phase, format!("{name} ready"), &input);
            let ready = ready.after(after.iter().copied()).within(scope).add();
            let input = named(infra, spec.clone());
            let claim = self.plan.task::<CreateMachine>(self.phase, format!("{name} claim"), &input);
            return claim.after([ready]).within(scope).uses(STARTING).add();
        }
        let input = named(infra, spec.clone());
        let create = self.plan.task::<CreateMachine>(self.phase, format!("{name} create"), &input);
        let create = create.after(after.iter().copied()).within(scope).uses(STARTING).add();
        start(&mut self.plan, self.phase, infra, name, scope, &[create])
    }
}

impl MachineChange {
    /// Whether the place has machines that exist without us, to be claimed and released only.
    fn has_hosts(&self) -> bool {
        self.infra.starts_with("hosts/")
    }
}

fn refuse_twice(change: &MachineChange) -> Result<(), PlanRefused> {
    let specs = change.add.iter().chain(&change.replace).map(|spec| &spec.name);
    let mut names = specs.chain(&change.remove).chain(change.power.iter().map(|(name, _)| name));
    let mut seen = BTreeSet::new();
    match names.find(|name| !seen.insert(*name)) {
        Some(machine) => Err(PlanRefused::Twice { machine: machine.clone() }),
        None => Ok(()),
    }
}
