//! From steps to a plan. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use guywire_model::MachineName;
use guywire_plan::{Plan, PlanBuilder, PlanError, Retry, ScopeIndex, TaskBuilder, TaskIndex};

use super::{
    Action, Content, Put, Step,
    handlers::{Await, On, PutFile, SLACK, Source},
    run::{RunOnce, RunScript},
};

/// How many steps are worked on at once: connections and a little memory for each.
const WIDTH: u32 = 32;
const WORKING: &str = "steps at once";

/// What a plan of a script's steps is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptPlan {
    /// The plan's kind, such as `vnf.script`.
    pub kind: String,
    /// One line for people.
    pub title: String,
    /// What it is about: one unfinished plan for each.
    pub subject: Option<String>,
    /// The place that the machines are in, such as `lab/demo`.
    pub infra: String,
    /// The directory of the extracted package, for files that steps put.
    pub package_dir: PathBuf,
}

/// The steps as tasks, each machine locked from its first step to its last; `None` if there are none.
/// If one fails, what was done stays.
pub fn plan(order: &ScriptPlan, steps: &[Step]) -> Result<Option<Plan>, PlanError> {
    if steps.is_empty() {
        return Ok(None);
    }
    let mut plan = PlanBuilder::new(&order.kind, &order.title).width(WORKING, WIDTH);
    if let Some(subject) = &order.subject {
        plan = plan.subject(subject);
    }
    let phase = plan.phase("steps");
    let scopes = lock(&mut plan, &order.infra, steps);
    // Steps may wait for later ones, so all have their numbers before any is added.
    let mut numbers: BTreeMap<&str, TaskIndex> = BTreeMap::new();
    for (step, number) in steps.iter().zip(0..) {
        numbers.insert(&step.name, TaskIndex(number));
    }
    for step in steps {
        let unknown = |name: &String| {
            PlanError::Bounds(format!("step {:?} waits for {name:?}, which is not there", step.name))
        };
        let after =
            step.after.iter().map(|name| numbers.get(name.as_str()).copied().ok_or_else(|| unknown(name)));
        let after = after.collect::<Result<Vec<_>, _>>()?;
        let mut task =
            task(&mut plan, phase, order, step).after(after).within(scopes[&step.machine]).uses(WORKING);
        if step.optional {
            // Its first failure is passed over.
            task = task.retry(Retry::ONCE);
        }
        task.add();
    }
    Ok(Some(plan.build()?))
}

fn task<'a>(plan: &'a mut PlanBuilder, phase: u32, order: &ScriptPlan, step: &Step) -> TaskBuilder<'a> {
    let name = format!("{} {}", step.machine, step.name);
    let within = |seconds: u64| Duration::from_secs(seconds) + 2 * SLACK;
    match &step.action {
        Action::Put(put) => {
            let task = plan.task::<PutFile>(phase, name, &on(order, step, source(order, put)));
            task.timeout(within(put.seconds()))
        }
        Action::Run(run) if run.once => {
            plan.task::<RunOnce>(phase, name, &on(order, step, run.clone())).timeout(within(run.timeout))
        }
        Action::Run(run) => {
            plan.task::<RunScript>(phase, name, &on(order, step, run.clone())).timeout(within(run.timeout))
        }
        Action::Wait(wait) => {
            plan.task::<Await>(phase, name, &on(order, step, wait.clone())).timeout(within(wait.timeout))
        }
    }
}

fn on<T>(order: &ScriptPlan, step: &Step, what: T) -> On<T> {
    On { infra: order.infra.clone(), machine: step.machine.clone(), optional: step.optional, what }
}

fn source(order: &ScriptPlan, put: &Put) -> Source {
    let package = matches!(put.content, Content::File { .. }).then(|| order.package_dir.clone());
    Source { put: put.clone(), package }
}

/// A lock for each machine. Machines whose steps wait for each other in a circle are locked as one:
/// otherwise one would be held while it waits for the other.
fn lock(plan: &mut PlanBuilder, infra: &str, steps: &[Step]) -> BTreeMap<MachineName, ScopeIndex> {
    let mut waits: BTreeMap<&MachineName, BTreeSet<&MachineName>> = BTreeMap::new();
    let of: BTreeMap<&str, &MachineName> =
        steps.iter().map(|step| (step.name.as_str(), &step.machine)).collect();
    for step in steps {
        let others = step.after.iter().filter_map(|name| of.get(name.as_str()).copied());
        waits.entry(&step.machine).or_default().extend(others);
    }
    let reached: BTreeMap<&MachineName, BTreeSet<&MachineName>> =
        waits.keys().map(|machine| (*machine, reach(machine, &waits))).collect();
    let mut scopes: BTreeMap<MachineName, ScopeIndex> = BTreeMap::new();
    for machine in waits.keys().copied() {
        let in_circle = |other: &&&MachineName| reached[**other].contains(machine) && **other != machine;
        let first = reached[machine].iter().filter(in_circle).find_map(|other| scopes.get(*other).copied());
        let scope = plan.scope(format!("{infra}/machine/{machine}"), first);
        scopes.insert(machine.clone(), scope);
    }
    scopes
}

/// All machines that `from` waits for, directly or through others.
fn reach<'a>(
    from: &'a MachineName,
    waits: &BTreeMap<&'a MachineName, BTreeSet<&'a MachineName>>,
) -> BTreeSet<&'a MachineName> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(machine) = left.pop() {
        left.extend(waits[machine].iter().copied().filter(|other| reached.insert(*other)));
    }
    reached
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
