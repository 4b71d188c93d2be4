//! What a plan is: an immutable DAG of tasks with phases, lock scopes and width limits.
//!
//! These types are what the journal stores. They are made by [`crate::PlanBuilder`], which refuses what
//! could not run.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ScopeIndex, TaskIndex};

/// An immutable DAG of tasks, grouped in phases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Which planner made it, such as `lab.up`; an unfinished plan whose handlers are gone is made anew by it.
    pub kind: String,
    /// One line for people.
    pub title: String,
    /// What it is about, such as `lab/demo`: a journal holds at most one unfinished plan for each.
    pub subject: Option<String>,
    /// A key under which a journal accepts one plan, ever: whoever comes second gets the first one's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
    /// What the planner was asked for, so that it can be asked again.
    pub request: Value,
    /// Phases in the order in which they are shown.
    pub phases: Vec<Phase>,
    /// Tasks; every dependency points at another one of them.
    pub tasks: Vec<Task>,
    /// Lock scopes.
    pub scopes: Vec<Scope>,
    /// How many tasks may use a resource at once, by the resource's name.
    pub widths: BTreeMap<String, u32>,
    /// What happens when a task has failed for good.
    pub on_failure: OnFailure,
}

/// A group of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Whether its tasks wait for all tasks of the phases before it. Without a gate, dependencies
    /// alone order them.
    pub gate: bool,
}

/// One idempotent step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its name, unique in the plan.
    pub name: String,
    /// The phase that it belongs to.
    pub phase: u32,
    /// Who does it.
    pub handler: HandlerId,
    /// What the handler is given.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// What must have succeeded before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<TaskIndex>,
    /// The innermost lock scope that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeIndex>,
    /// Resources whose width it counts against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
    /// Never applied again without a certain probe.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guarded: bool,
    /// Once started, locks around it are held when the plan stops, and the plan cannot be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub irreversible: bool,
    /// The time for one attempt, in milliseconds.
    pub timeout_ms: u64,
    /// How often it is tried.
    pub retry: Retry,
}

/// A handler of one version: what a task recorded is only ever given to that version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HandlerId {
    /// The handler's name.
    pub name: String,
    /// The version of its input, output and meaning.
    pub version: u32,
}

/// Attempts and the pauses between them, which double up to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How many attempts in all; at least 1.
    pub tries: u32,
    /// The pause after the first failure, in milliseconds.
    pub first_ms: u64,
    /// The longest pause, in milliseconds.
    pub most_ms: u64,
}

/// A lock on a resource, held from before its first task until after its last. Scopes nest; a tree of
/// them is entered as a whole (see [`crate::PlanBuilder::scope`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// What is locked, such as `node/m1`.
    pub resource: String,
    /// The scope around it.
    pub parent: Option<ScopeIndex>,
    /// The task that locks (a drain, say): before all others of the scope. Its undo unlocks.
    pub enter: Option<TaskIndex>,
    /// The task that unlocks: after all others of the scope.
    pub exit: Option<TaskIndex>,
}

/// What happens when a task has failed for good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// What was done stays; scopes without an irreversible step are left.
    #[default]
    Stop,
    /// What was done is undone in reverse, unless an irreversible task has started.
    Undo,
}

impl Plan {
    /// The task of that index.
    pub fn task(&self, index: TaskIndex) -> &Task {
        &self.tasks[index.at()]
    }

    /// The outermost scope around `scope`: the tree that is entered and left as a whole.
    pub fn tree(&self, scope: ScopeIndex) -> ScopeIndex {
        let mut root = scope;
        while let Some(parent) = self.scopes[root.at()].parent {
            root = parent;
        }
        root
    }

    /// The tree that a task runs in.
    pub fn tree_of(&self, task: TaskIndex) -> Option<ScopeIndex> {
        self.task(task).scope.map(|scope| self.tree(scope))
    }

    /// All resources that a tree locks, each once.
    pub fn resources(&self, tree: ScopeIndex) -> Vec<String> {
        let scopes = (0u32..).zip(&self.scopes).filter(|(at, _)| self.tree(ScopeIndex(*at)) == tree);
        let mut resources: Vec<String> = scopes.map(|(_, scope)| scope.resource.clone()).collect();
        resources.sort_unstable();
        resources.dedup();
        resources
    }

    /// For each phase, how many gates stand before or at it.
    pub fn segments(&self) -> Vec<usize> {
        let gates = self.phases.iter().enumerate().map(|(at, phase)| usize::from(phase.gate && at > 0));
        gates
            .scan(0, |sum, gate| {
                *sum += gate;
                Some(*sum)
            })
            .collect()
    }
}

impl Retry {
    /// One attempt only.
    pub const ONCE: Self = Self { tries: 1, first_ms: 0, most_ms: 0 };

    /// The pause after `failed` failures.
    pub fn pause(&self, failed: u32) -> Duration {
        let doubled = self.first_ms.saturating_mul(1u64 << failed.saturating_sub(1).min(20));
        Duration::from_millis(doubled.min(self.most_ms))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { tries: 5, first_ms: 500, most_ms: 15_000 }
    }
}

impl fmt::Display for HandlerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}
