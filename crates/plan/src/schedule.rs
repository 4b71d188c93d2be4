//! What may start now: pure bookkeeping over a plan, in either direction.
//!
//! Forward, a task may start when what it waits for has succeeded. Backward, a task may be undone when
//! whatever waited for it has been undone. Scope trees and gates hold in both directions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{Plan, PlanView, ScopeIndex, TaskIndex, TaskState, TreeState};

/// Which way a plan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Tasks are done.
    Forward,
    /// Tasks are undone.
    Backward,
}

/// What may start now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Tasks.
    pub tasks: Vec<TaskIndex>,
    /// Scope trees whose locks are wanted first.
    pub trees: Vec<ScopeIndex>,
    /// When a task that waits for its next attempt may start.
    pub wake: Option<Timestamp>,
}

/// Which tasks are left, what they wait for, and what is in use.
#[derive(Debug)]
pub struct Schedule<'p> {
    plan: &'p Plan,
    direction: Direction,
    /// Tasks that wait for a given one.
    followers: Vec<Vec<TaskIndex>>,
    tree_of: Vec<Option<ScopeIndex>>,
    segment_of: Vec<usize>,
    /// How many tasks each one still waits for.
    waits: Vec<u32>,
    /// How many tasks outside of it a tree still waits for.
    tree_waits: Vec<u32>,
    /// How many tasks of a tree are left.
    tree_left: Vec<u32>,
    /// How many tasks of a segment are left.
    segment_left: Vec<u32>,
    left: u32,
    /// Tasks that wait for nothing and do not run.
    ready: BTreeSet<TaskIndex>,
    running: BTreeSet<TaskIndex>,
    used: BTreeMap<&'p str, u32>,
}

impl<'p> Schedule<'p> {
    /// The way forward: all tasks that have not succeeded.
    pub fn forward(plan: &'p Plan, view: &PlanView) -> Self {
        let left = |task: TaskIndex| view.task(task).state != TaskState::Succeeded;
        Self::new(plan, Direction::Forward, left)
    }

    /// The way back: `targets` are undone, in an order that respects the dependencies between them.
    pub fn backward(plan: &'p Plan, targets: &BTreeSet<TaskIndex>) -> Self {
        Self::new(plan, Direction::Backward, |task| targets.contains(&task))
    }

    fn new(plan: &'p Plan, direction: Direction, is_left: impl Fn(TaskIndex) -> bool) -> Self {
        let count = plan.tasks.len();
        let segments = plan.segments();
        let tasks = || (0..count).map(TaskIndex::from_at);
        let mut this = Self {
            plan,
            direction,
            followers: vec![Vec::new(); count],
            tree_of: tasks().map(|task| plan.tree_of(task)).collect(),
            segment_of: plan.tasks.iter().map(|task| segments[task.phase as usize]).collect(),
            waits: vec![0; count],
            tree_waits: vec![0; plan.scopes.len()],
            tree_left: vec![0; plan.scopes.len()],
            segment_left: vec![0; plan.phases.len()],
            left: 0,
            ready: BTreeSet::new(),
            running: BTreeSet::new(),
            used: BTreeMap::new(),
        };
        let left: Vec<bool> = tasks().map(is_left).collect();
        for later in tasks() {
            for earlier in &plan.task(later).after {
                let (first, second) = match direction {
                    Direction::Forward => (*earlier, later),
                    Direction::Backward => (later, *earlier),
                };
                if left[first.at()] && left[second.at()] {
                    this.followers[first.at()].push(second);
                    this.waits[second.at()] += 1;
                    if let Some(tree) = this.outside(first, second) {
                        this.tree_waits[tree.at()] += 1;
                    }
                }
            }
        }
        for task in tasks().filter(|task| left[task.at()]) {
            this.left += 1;
            this.segment_left[this.segment_of[task.at()]] += 1;
            if let Some(tree) = this.tree_of[task.at()] {
                this.tree_left[tree.at()] += 1;
            }
            if this.waits[task.at()] == 0 {
                this.ready.insert(task);
            }
        }
        this
    }

    /// The tree of `second`, if `first` is outside of it.
    fn outside(&self, first: TaskIndex, second: TaskIndex) -> Option<ScopeIndex> {
        self.tree_of[second.at()].filter(|tree| self.tree_of[first.at()] != Some(*tree))
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// How many tasks run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Which way it goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether every task of a tree that was to be done is done.
    pub fn tree_is_done(&self, tree: ScopeIndex) -> bool {
        self.tree_left[tree.at()] == 0
    }

    /// What may start at `now` when at most `width` tasks run at once.
    pub fn next(&self, view: &PlanView, now: Timestamp, width: usize) -> Start {
        let mut start = Start::default();
        let mut used = self.used.clone();
        let open_segment = self.open_segment();
        for task in &self.ready {
            if self.running.len() + start.tasks.len() >= width {
                break;
            }
            match &view.task(*task).state {
                TaskState::Waiting { until, .. } if *until > now => {
                    start.wake = Some(start.wake.map_or(*until, |wake| wake.min(*until)));
                    continue;
                }
                TaskState::Failed { .. } | TaskState::Blocked { .. }
                    if self.direction == Direction::Forward =>
                {
                    continue;
                }
                _ => {}
            }
            if Some(self.segment_of[task.at()]) != open_segment {
                continue;
            }
            if let Some(tree) = self.tree_of[task.at()]
                && view.trees[tree.at()] == TreeState::Closed
            {
                if self.tree_waits[tree.at()] == 0 && !start.trees.contains(&tree) {
                    start.trees.push(tree);
                }
                continue;
            }
            let wanted = &self.plan.task(*task).uses;
            let full = |resource: &String| {
                used.get(resource.as_str()).copied().unwrap_or(0) >= self.plan.widths[resource]
            };
            if wanted.iter().any(full) {
                continue;
            }
            for resource in wanted {
                *used.entry(resource).or_default() += 1;
            }
            start.tasks.push(*task);
        }
        start
    }

    fn open_segment(&self) -> Option<usize> {
        let with_tasks = |at: &usize| self.segment_left[*at] > 0;
        match self.direction {
            Direction::Forward => (0..self.segment_left.len()).find(with_tasks),
            Direction::Backward => (0..self.segment_left.len()).rev().find(with_tasks),
        }
    }

    /// The task has started.
    pub fn started(&mut self, task: TaskIndex) {
        self.ready.remove(&task);
        self.running.insert(task);
        for resource in &self.plan.task(task).uses {
            *self.used.entry(resource).or_default() += 1;
        }
    }

    /// The task's attempt has ended without success: it may be tried again.
    pub fn ended(&mut self, task: TaskIndex) {
        self.stopped_running(task);
        self.ready.insert(task);
    }

    /// The task is done (or undone, backward).
    pub fn done(&mut self, task: TaskIndex) {
        self.stopped_running(task);
        self.left -= 1;
        self.segment_left[self.segment_of[task.at()]] -= 1;
        if let Some(tree) = self.tree_of[task.at()] {
            self.tree_left[tree.at()] -= 1;
        }
        for second in std::mem::take(&mut self.followers[task.at()]) {
            self.waits[second.at()] -= 1;
            if let Some(tree) = self.outside(task, second) {
                self.tree_waits[tree.at()] -= 1;
            }
            if self.waits[second.at()] == 0 {
                self.ready.insert(second);
            }
        }
    }

    fn stopped_running(&mut self, task: TaskIndex) {
        self.ready.remove(&task);
        if self.running.remove(&task) {
            for resource in &self.plan.task(task).uses {
                if let Some(used) = self.used.get_mut(resource.as_str()) {
                    *used -= 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
