//! Random plans, executed by rolling dice: whatever the order, the rules hold and the plan ends.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{EventKind, HandlerId, How, OnFailure, Phase, PlanId, PlanState, Retry, Scope, Task};

/// A random plan: edges go from later to earlier tasks, scopes are contiguous runs of tasks.
#[derive(Debug, Clone)]
struct Shape {
    tasks: usize,
    edges: Vec<(usize, usize)>,
    /// Start, length, inner length, resource of each scope tree.
    trees: Vec<(usize, usize, usize, u8)>,
    gate_at: usize,
    width: u32,
}

fn shapes() -> impl Strategy<Value = Shape> {
    (2usize..40).prop_flat_map(|tasks| {
        let edge =
            (0..tasks, 0..tasks).prop_filter_map("no loop", |(a, b)| (a != b).then(|| (a.max(b), a.min(b))));
        let tree = (0..tasks, 1usize..6, 0usize..4, 0u8..3);
        (
            Just(tasks),
            prop::collection::vec(edge, 0..60),
            prop::collection::vec(tree, 0..5),
            0..tasks,
            1u32..5,
        )
            .prop_map(|(tasks, edges, trees, gate_at, width)| Shape {
                tasks,
                edges,
                trees,
                gate_at,
                width,
            })
    })
}

/// The plan of a shape, if it is one that the builder would accept.
fn plan(shape: &Shape) -> Option<Plan> {
    let mut tasks: Vec<Task> = (0..shape.tasks)
        .map(|at| Task {
            name: format!("t{at}"),
            phase: u32::from(at >= shape.gate_at),
            handler: HandlerId { name: "none".into(), version: 1 },
            input: Value::Null,
            after: Vec::new(),
            scope: None,
            uses: if at % 3 == 0 { vec!["disk".into()] } else { Vec::new() },
            guarded: false,
            irreversible: false,
            timeout_ms: 1,
            retry: Retry::ONCE,
        })
        .collect();
    let mut scopes = Vec::new();
    for (start, length, inner, resource) in &shape.trees {
        let range = *start..(start + length).min(shape.tasks);
        if range.clone().any(|at| tasks[at].scope.is_some()) {
            continue;
        }
        let outer = ScopeIndex(u32::try_from(scopes.len()).unwrap());
        scopes.push(Scope { resource: format!("node/{resource}"), parent: None, enter: None, exit: None });
        let inner_scope = ScopeIndex(outer.0 + 1);
        scopes.push(Scope {
            resource: format!("node/{}", (resource + 1) % 3),
            parent: Some(outer),
            enter: None,
            exit: None,
        });
        for at in range {
            tasks[at].scope = Some(if at - start < *inner { inner_scope } else { outer });
        }
    }
    for (later, earlier) in &shape.edges {
        tasks[*later].after.push(TaskIndex::from_at(*earlier));
    }
    for task in &mut tasks {
        task.after.sort_unstable();
        task.after.dedup();
    }
    let phases = vec![Phase { name: "a".into(), gate: false }, Phase { name: "b".into(), gate: true }];
    let plan = Plan {
        kind: "test".into(),
        title: "a random plan".into(),
        subject: None,
        once: None,
        request: Value::Null,
        phases,
        tasks,
        scopes,
        widths: BTreeMap::from([("disk".to_owned(), shape.width)]),
        on_failure: OnFailure::Stop,
    };
    plan.check().is_ok().then_some(plan)
}

/// Plans that share one set of locks, executed in a random interleaving.
struct World<'p> {
    plans: Vec<(&'p Plan, PlanView, Schedule<'p>)>,
    locks: BTreeMap<String, usize>,
    dice: Vec<u8>,
    thrown: usize,
}

impl World<'_> {
    fn throw(&mut self, sides: usize) -> usize {
        self.thrown += 1;
        usize::from(self.dice[self.thrown % self.dice.len()]).wrapping_add(self.thrown) % sides.max(1)
    }

    /// One plan does one thing: takes locks, starts tasks or ends one. False if it could do nothing.
    fn step(&mut self, at: usize) -> bool {
        let now = Timestamp::UNIX_EPOCH;
        let start = self.plans[at].2.next(&self.plans[at].1, now, 8);
        for tree in &start.trees {
            let (plan, view, _) = &mut self.plans[at];
            let resources = plan.resources(*tree);
            if resources.iter().all(|resource| !self.locks.contains_key(resource)) {
                self.locks.extend(resources.into_iter().map(|resource| (resource, at)));
                view.apply(&EventKind::ScopeEntered { scope: *tree }, now);
                return true;
            }
        }
        if let Some(task) = start.tasks.first().copied() {
            let (plan, view, schedule) = &mut self.plans[at];
            check_start(plan, view, schedule, task);
            let event = match schedule.direction() {
                Direction::Forward => EventKind::TaskStarted { task, attempt: 1 },
                Direction::Backward => EventKind::UndoStarted { task, attempt: 1 },
            };
            view.apply(&event, now);
            schedule.started(task);
            return true;
        }
        let running: Vec<TaskIndex> = self.plans[at].2.running.iter().copied().collect();
        if running.is_empty() {
            return false;
        }
        let task = running[self.throw(running.len())];
        let (plan, view, schedule) = &mut self.plans[at];
        let forward = schedule.direction() == Direction::Forward;
        let event = if forward {
            EventKind::TaskSucceeded { task, attempt: 1, how: How::Applied, output: Value::Null }
        } else {
            EventKind::UndoSucceeded { task, attempt: 1 }
        };
        view.apply(&event, now);
        schedule.done(task);
        if let Some(tree) = plan.tree_of(task).filter(|tree| schedule.tree_is_done(*tree)) {
            view.apply(&EventKind::ScopeLeft { scope: tree }, now);
            for resource in plan.resources(tree) {
                assert_eq!(self.locks.remove(&resource), Some(at));
            }
        }
        true
    }

    fn run(&mut self) {
        loop {
            let count = self.plans.len();
            let first = self.throw(count);
            // Nobody can do anything: that is the end, or a deadlock.
            if !(0..count).any(|offset| self.step((first + offset) % count)) {
                break;
            }
        }
        for (_, _, schedule) in &self.plans {
            assert!(schedule.is_done(), "plans locked each other out");
        }
        assert!(self.locks.is_empty(), "locks stayed: {:?}", self.locks);
    }
}

fn check_start(plan: &Plan, view: &PlanView, schedule: &Schedule<'_>, task: TaskIndex) {
    let segments = plan.segments();
    let segment = |task: TaskIndex| segments[plan.task(task).phase as usize];
    let succeeded = |task: TaskIndex| view.task(task).state == TaskState::Succeeded;
    let all = || (0..plan.tasks.len()).map(TaskIndex::from_at);
    match schedule.direction() {
        Direction::Forward => {
            assert!(
                plan.task(task).after.iter().all(|after| succeeded(*after)),
                "{task:?} before what it waits for"
            );
            assert!(
                all().filter(|other| segment(*other) < segment(task)).all(succeeded),
                "{task:?} before its gate"
            );
        }
        Direction::Backward => {
            let followers = all().filter(|other| plan.task(*other).after.contains(&task));
            assert!(
                followers.into_iter().all(|other| !view.task(other).touched),
                "{task:?} undone under a follower"
            );
        }
    }
    if let Some(tree) = plan.tree_of(task) {
        assert_eq!(view.trees[tree.at()], TreeState::Open, "{task:?} outside its lock");
    }
    let using = |other: &TaskIndex| plan.task(*other).uses.contains(&"disk".to_owned());
    let in_use = schedule.running.iter().filter(|other| using(other)).count() + usize::from(using(&task));
    assert!(in_use <= plan.widths["disk"] as usize, "more than the width allows");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_plans_end_together_in_any_order(
        shapes in prop::collection::vec(shapes(), 1..4),
        dice in prop::collection::vec(any::<u8>(), 32),
    ) {
        let plans: Vec<Plan> = shapes.iter().filter_map(plan).collect();
        let with = |plan: &'static Plan| {
            let view = PlanView::new(PlanId(1), plan);
            let schedule = Schedule::forward(plan, &view);
            (plan, view, schedule)
        };
        // Leaked: a few kilobytes in a test process, and no lifetimes to argue with.
        let plans: Vec<&'static Plan> = plans.into_iter().map(|plan| &*Box::leak(Box::new(plan))).collect();
        prop_assume!(!plans.is_empty());
        let mut world = World { plans: plans.iter().copied().map(with).collect(), locks: BTreeMap::new(), dice, thrown: 0 };
        world.run();
        // And all the way back, with the same rules reversed.
        for (plan, view, schedule) in &mut world.plans {
            let touched: BTreeSet<TaskIndex> = (0..plan.tasks.len()).map(TaskIndex::from_at).collect();
            view.state = PlanState::Undoing;
            *schedule = Schedule::backward(plan, &touched);
        }
        world.run();
    }
}
