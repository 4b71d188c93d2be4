//! Making plans, and refusing those that could not run to their end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::Serialize;
use serde_json::Value;

use crate::{
    Handler, HandlerId, OnFailure, Phase, Plan, Retry, Scope, ScopeIndex, Task, TaskIndex,
    spec::Plan as Built,
};

/// The most tasks in one plan: a bound on memory, far above any real plan.
const MAX_TASKS: usize = 100_000;

/// Collects phases, tasks and scopes; [`PlanBuilder::build`] checks them and makes a [`Plan`].
#[derive(Debug)]
pub struct PlanBuilder {
    plan: Plan,
}

/// One task being described; [`TaskBuilder::add`] puts it into the plan.
#[must_use = "a task is part of the plan only after add()"]
#[derive(Debug)]
pub struct TaskBuilder<'a> {
    plan: &'a mut Plan,
    task: Task,
    role: Role,
}

#[derive(Debug, Clone, Copy)]
enum Role {
    Body,
    Enter(ScopeIndex),
    Exit(ScopeIndex),
}

/// Why a plan was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two tasks have one name.
    #[error("task {name:?} is there twice; give each task of a plan a name of its own")]
    DuplicateTask {
        /// The name.
        name: String,
    },
    /// Tasks wait for each other.
    #[error("these tasks wait for each other: {}; take one of the dependencies away", path.join(" -> "))]
    Cycle {
        /// The tasks along the circle, the first one again at the end.
        path: Vec<String>,
    },
    /// A task of a scope waits for something outside that waits for the scope.
    #[error(
        "the scope on {resource} would be held while {inside:?} waits for {outside:?}, which waits for the scope; \
         move {outside:?} into the scope or before it"
    )]
    ScopeWaitsOutside {
        /// The scope's resource.
        resource: String,
        /// The task inside.
        inside: String,
        /// The task outside that it needs.
        outside: String,
    },
    /// A scope reaches across a gate.
    #[error(
        "the scope on {resource} reaches across the gate of phase {phase:?}; keep a scope on one side of it"
    )]
    ScopeAcrossGate {
        /// The scope's resource.
        resource: String,
        /// The phase behind the gate.
        phase: String,
    },
    /// A task waits for one in a phase that starts later.
    #[error("task {task:?} waits for {after:?}, which a gate holds back until {task:?} is done")]
    AgainstGate {
        /// The task.
        task: String,
        /// What it waits for.
        after: String,
    },
    /// A task names a resource without a width.
    #[error("task {task:?} uses {resource:?}, which has no width; call width({resource:?}, N) on the plan")]
    NoWidth {
        /// The task.
        task: String,
        /// The resource.
        resource: String,
    },
    /// Something is out of bounds.
    #[error("{0}")]
    Bounds(String),
    /// Nobody is registered for a task.
    #[error("task {task:?} needs handler {handler}, which is not registered; registered are {known}")]
    UnknownHandler {
        /// The task.
        task: String,
        /// What it needs.
        handler: HandlerId,
        /// What there is.
        known: String,
    },
    /// A handler's input does not have its type.
    #[error("task {task:?}: handler {handler} does not take this input: {reason}")]
    BadInput {
        /// The task.
        task: String,
        /// The handler.
        handler: HandlerId,
        /// Why.
        reason: String,
    },
}

impl PlanBuilder {
    /// A plan that planner `kind` makes.
    pub fn new(kind: impl Into<String>, title: impl Into<String>) -> Self {
        let (kind, title) = (kind.into(), title.into());
        let plan = Plan {
            kind,
            title,
            subject: None,
            once: None,
            request: Value::Null,
            phases: Vec::new(),
            tasks: Vec::new(),
            scopes: Vec::new(),
            widths: BTreeMap::new(),
            on_failure: OnFailure::Stop,
        };
        Self { plan }
    }

    /// A key under which a journal accepts one plan, ever.
    #[must_use]
    pub fn once(mut self, key: impl Into<String>) -> Self {
        self.plan.once = Some(key.into());
        self
    }

    /// What the plan is about; a journal holds one unfinished plan for each subject.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.plan.subject = Some(subject.into());
        self
    }

    /// What the planner was asked for.
    #[must_use]
    pub fn request(mut self, request: Value) -> Self {
        self.plan.request = request;
        self
    }

    /// What happens when a task has failed for good.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.plan.on_failure = on_failure;
        self
    }

    /// How many tasks may use `resource` at once.
    #[must_use]
    pub fn width(mut self, resource: impl Into<String>, width: u32) -> Self {
        self.plan.widths.insert(resource.into(), width);
        self
    }

    /// A phase whose tasks wait for their dependencies only.
    pub fn phase(&mut self, name: impl Into<String>) -> u32 {
        self.push_phase(name.into(), false)
    }

    /// A phase whose tasks also wait for every task of the phases before it.
    pub fn gated_phase(&mut self, name: impl Into<String>) -> u32 {
        self.push_phase(name.into(), true)
    }

    fn push_phase(&mut self, name: String, gate: bool) -> u32 {
        self.plan.phases.push(Phase { name, gate });
        u32::try_from(self.plan.phases.len() - 1).expect("few phases")
    }

    /// A lock on `resource` around tasks, inside the scope `parent` if there is one.
    ///
    /// A tree of nested scopes takes all its resources at once, and only when everything that any of its
    /// tasks needs from outside is done. So whoever holds a lock never waits for another one, and plans
    /// cannot lock each other out.
    pub fn scope(&mut self, resource: impl Into<String>, parent: Option<ScopeIndex>) -> ScopeIndex {
        self.plan.scopes.push(Scope { resource: resource.into(), parent, enter: None, exit: None });
        ScopeIndex(u32::try_from(self.plan.scopes.len() - 1).expect("few scopes"))
    }

    /// A task of handler `H`.
    pub fn task<H: Handler>(
        &mut self,
        phase: u32,
        name: impl Into<String>,
        input: &H::Input,
    ) -> TaskBuilder<'_> {
        let task = Task {
            name: name.into(),
            phase,
            handler: HandlerId { name: H::NAME.to_owned(), version: H::VERSION },
            input: to_value(input),
            after: Vec::new(),
            scope: None,
            uses: Vec::new(),
            guarded: H::GUARDED,
            irreversible: H::IRREVERSIBLE,
            timeout_ms: millis(H::TIMEOUT),
            retry: H::RETRY,
        };
        TaskBuilder { plan: &mut self.plan, task, role: Role::Body }
    }

    /// Checks everything and makes the plan immutable.
    pub fn build(mut self) -> Result<Plan, PlanError> {
        self.imply_scope_order();
        for task in &mut self.plan.tasks {
            task.after.sort_unstable();
            task.after.dedup();
        }
        self.plan.check()?;
        Ok(self.plan)
    }

    /// Enter before everything in a scope, exit after it, inner scopes between.
    fn imply_scope_order(&mut self) {
        let plan = &mut self.plan;
        let around = |plan: &Plan, task: &Task| -> Vec<ScopeIndex> {
            let up = |scope: &ScopeIndex| plan.scopes[scope.at()].parent;
            std::iter::successors(task.scope, up).collect()
        };
        let mut edges: Vec<(TaskIndex, TaskIndex)> = Vec::new();
        for (at, task) in plan.tasks.iter().enumerate() {
            let this = TaskIndex::from_at(at);
            for scope in around(plan, task) {
                let Scope { enter, exit, .. } = plan.scopes[scope.at()];
                edges.extend(enter.filter(|enter| *enter != this).map(|enter| (this, enter)));
                edges.extend(exit.filter(|exit| *exit != this).map(|exit| (exit, this)));
            }
        }
        for (later, earlier) in edges {
            plan.tasks[later.at()].after.push(earlier);
        }
    }
}

impl TaskBuilder<'_> {
    /// What must have succeeded before.
    pub fn after(mut self, tasks: impl IntoIterator<Item = TaskIndex>) -> Self {
        self.task.after.extend(tasks);
        self
    }

    /// A resource whose width it counts against.
    pub fn uses(mut self, resource: impl Into<String>) -> Self {
        self.task.uses.push(resource.into());
        self
    }

    /// The scope that it runs in.
    pub fn within(mut self, scope: ScopeIndex) -> Self {
        self.task.scope = Some(scope);
        self
    }

    /// Makes it the task that locks `scope`; its undo must unlock.
    pub fn enters(mut self, scope: ScopeIndex) -> Self {
        self.role = Role::Enter(scope);
        self.within(scope)
    }

    /// Makes it the task that unlocks `scope`.
    pub fn exits(mut self, scope: ScopeIndex) -> Self {
        self.role = Role::Exit(scope);
        self.within(scope)
    }

    /// The time for one attempt, in place of the handler's own.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.task.timeout_ms = millis(timeout);
        self
    }

    /// How often it is tried, in place of the handler's own.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.task.retry = retry;
        self
    }

    /// Puts it into the plan.
    pub fn add(self) -> TaskIndex {
        let index = TaskIndex::from_at(self.plan.tasks.len());
        match self.role {
            Role::Body => {}
            Role::Enter(scope) => self.plan.scopes[scope.at()].enter = Some(index),
            Role::Exit(scope) => self.plan.scopes[scope.at()].exit = Some(index),
        }
        self.plan.tasks.push(self.task);
        index
    }
}

impl Built {
    /// Whether the plan can run to its end: unique names, no circles, scopes that never wait outside.
    pub fn check(&self) -> Result<(), PlanError> {
        self.check_bounds()?;
        let mut names = BTreeSet::new();
        if let Some(task) = self.tasks.iter().find(|task| !names.insert(&task.name)) {
            return Err(PlanError::DuplicateTask { name: task.name.clone() });
        }
        let edges: Vec<Vec<usize>> =
            self.tasks.iter().map(|task| task.after.iter().map(|after| after.at()).collect()).collect();
        if let Some(path) = find_cycle(&edges) {
            return Err(PlanError::Cycle {
                path: path.into_iter().map(|at| self.tasks[at].name.clone()).collect(),
            });
        }
        self.check_gates()?;
        self.check_trees()
    }

    fn check_bounds(&self) -> Result<(), PlanError> {
        let bounds = |message: String| Err(PlanError::Bounds(message));
        if self.tasks.len() > MAX_TASKS {
            return bounds(format!("{} tasks are more than the {MAX_TASKS} of one plan", self.tasks.len()));
        }
        for task in &self.tasks {
            let name = &task.name;
            if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
                return bounds(format!("task name {name:?}: use 1 to 200 printable characters"));
            }
            if task.phase as usize >= self.phases.len() {
                return bounds(format!("task {name:?} is in phase {}, which is not there", task.phase));
            }
            if task.after.iter().any(|after| after.at() >= self.tasks.len()) {
                return bounds(format!("task {name:?} waits for a task that is not there"));
            }
            if task.retry.tries == 0 || task.timeout_ms == 0 {
                return bounds(format!("task {name:?}: tries and timeout must be at least 1"));
            }
            if let Some(resource) = task.uses.iter().find(|resource| !self.widths.contains_key(*resource)) {
                return Err(PlanError::NoWidth { task: name.clone(), resource: resource.clone() });
            }
        }
        if let Some((resource, _)) = self.widths.iter().find(|(_, width)| **width == 0) {
            return bounds(format!("the width of {resource:?} is 0, so its tasks could never run"));
        }
        let good = |(at, scope): (usize, &Scope)| scope.parent.is_none_or(|parent| parent.at() < at);
        if !self.scopes.iter().enumerate().all(good) {
            return bounds("a scope's parent must be made before it".to_owned());
        }
        Ok(())
    }

    fn check_gates(&self) -> Result<(), PlanError> {
        let segments = self.segments();
        let segment = |task: &Task| segments[task.phase as usize];
        for task in &self.tasks {
            let late = |after: &&TaskIndex| segment(self.task(**after)) > segment(task);
            if let Some(after) = task.after.iter().find(late) {
                let after = self.task(*after).name.clone();
                return Err(PlanError::AgainstGate { task: task.name.clone(), after });
            }
        }
        let mut of_tree: BTreeMap<ScopeIndex, usize> = BTreeMap::new();
        for task in &self.tasks {
            let Some(scope) = task.scope else { continue };
            let tree = self.tree(scope);
            let first = *of_tree.entry(tree).or_insert(segment(task));
            if first != segment(task) {
                let resource = self.scopes[tree.at()].resource.clone();
                let behind = first.max(segment(task));
                let at = segments.iter().position(|segment| *segment == behind).unwrap_or_default();
                return Err(PlanError::ScopeAcrossGate { resource, phase: self.phases[at].name.clone() });
            }
        }
        Ok(())
    }

    /// With every tree drawn together to one point there must still be no circle.
    fn check_trees(&self) -> Result<(), PlanError> {
        let point = |task: TaskIndex| match self.tree_of(task) {
            Some(tree) => self.tasks.len() + tree.at(),
            None => task.at(),
        };
        let mut edges: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.tasks.len() + self.scopes.len()];
        for at in 0..self.tasks.len() {
            let this = TaskIndex::from_at(at);
            let others =
                self.tasks[at].after.iter().map(|after| point(*after)).filter(|other| *other != point(this));
            edges[point(this)].extend(others);
        }
        let edges: Vec<Vec<usize>> = edges.into_iter().map(|set| set.into_iter().collect()).collect();
        let Some(circle) = find_cycle(&edges) else { return Ok(()) };
        // The task circle check has passed, so some point of this one is a tree; name the edge that leaves it.
        let at = circle.iter().position(|point| *point >= self.tasks.len()).unwrap_or_default();
        let (tree, next) = (circle[at], circle.get(at + 1).copied().unwrap_or(circle[1]));
        let leaves = |this: &usize| {
            let this = TaskIndex::from_at(*this);
            point(this) == tree && self.task(this).after.iter().any(|after| point(*after) == next)
        };
        let inside = (0..self.tasks.len()).find(leaves).unwrap_or_default();
        let outside = self.tasks[inside].after.iter().find(|after| point(**after) == next);
        Err(PlanError::ScopeWaitsOutside {
            resource: self.scopes[tree - self.tasks.len()].resource.clone(),
            inside: self.tasks[inside].name.clone(),
            outside: outside.map(|after| self.task(*after).name.clone()).unwrap_or_default(),
        })
    }
}

/// A circle in a graph given as edges from each point, as a path that ends where it begins.
fn find_cycle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; edges.len()];
    for start in 0..edges.len() {
        if marks[start] != Mark::New {
            continue;
        }
        // An explicit stack: a chain of 100,000 tasks must not overflow the thread's own.
        let mut stack = vec![(start, 0)];
        marks[start] = Mark::Open;
        while let Some((point, next)) = stack.last_mut() {
            let Some(to) = edges[*point].get(*next).copied() else {
                marks[*point] = Mark::Done;
                stack.pop();
                continue;
            };
            *next += 1;
            match marks[to] {
                Mark::Done => {}
                Mark::New => {
                    marks[to] = Mark::Open;
                    stack.push((to, 0));
                }
                Mark::Open => {
                    let from = stack.iter().position(|(point, _)| *point == to).unwrap_or_default();
                    let mut path: Vec<usize> = stack[from..].iter().map(|(point, _)| *point).collect();
                    path.push(to);
                    return Some(path);
                }
            }
        }
    }
    None
}

fn to_value<T: Serialize>(input: &T) -> Value {
    serde_json::to_value(input).expect("handlers' inputs are plain data that JSON can hold")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
