//! A plan while it runs: a bar with an estimate on a terminal, plain lines on a pipe.

use std::{collections::BTreeSet, io::IsTerminal, time::Duration};

use guywire_plan::{Event, EventKind, Plan, PlanState, ScopeIndex, TaskIndex};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;

use crate::output::span;

/// Shows events as they come.
pub struct Progress {
    tasks: Vec<String>,
    scopes: Vec<String>,
    begin: Option<Timestamp>,
    done: BTreeSet<TaskIndex>,
    running: BTreeSet<TaskIndex>,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn new(plan: &Plan) -> Self {
        let tasks = plan.tasks.iter().map(|task| task.name.clone()).collect();
        Self::named(tasks, plan.scopes.iter().map(|scope| scope.resource.clone()).collect())
    }

    /// Of a plan that is known by the names of its tasks and of what it locks.
    pub fn named(tasks: Vec<String>, scopes: Vec<String>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(tasks.len() as u64);
            let style =
                ProgressStyle::with_template("{elapsed:>4} {wide_bar} {pos}/{len} about {eta} left  {msg}");
            bar.set_style(style.expect("the template is a constant").progress_chars("━╸ "));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { tasks, scopes, begin: None, done: BTreeSet::new(), running: BTreeSet::new(), bar }
    }

    /// Takes one event in.
    pub fn see(&mut self, event: &Event) {
        let begin = *self.begin.get_or_insert(event.at);
        let name = |task: TaskIndex| name_of(&self.tasks, task);
        let line = match &event.kind {
            EventKind::TaskStarted { task, attempt } => {
                self.running.insert(*task);
                (*attempt > 1).then(|| format!("{}: attempt {attempt}", name(*task)))
            }
            EventKind::TaskSucceeded { task, .. } => {
                self.running.remove(task);
                self.done.insert(*task);
                Some(format!("✓ {}", name(*task)))
            }
            EventKind::TaskFailed { task, reason, retry_ms: Some(pause), .. } => {
                self.running.remove(task);
                let pause = Duration::from_millis(*pause).as_secs_f64();
                Some(format!("↻ {}: {reason}; again in {}", name(*task), span(pause)))
            }
            EventKind::TaskFailed { task, reason, .. } => {
                self.running.remove(task);
                Some(format!("✗ {}: {reason}", name(*task)))
            }
            EventKind::TaskStopped { task, .. } => {
                self.running.remove(task);
                Some(format!("■ {}: stopped", name(*task)))
            }
            EventKind::TaskOutput { task, text, .. } => {
                Some(format!("  {}: {}", name(*task), text.trim_end()))
            }
            EventKind::UndoStarted { .. } | EventKind::ScopeEntered { .. } | EventKind::ScopeLeft { .. } => {
                None
            }
            EventKind::UndoSucceeded { task, .. } => {
                self.done.remove(task);
                Some(format!("↩ {}: undone", name(*task)))
            }
            EventKind::UndoFailed { task, reason, .. } => {
                Some(format!("✗ {}: not undone: {reason}", name(*task)))
            }
            EventKind::ScopeWaiting { resource, holder, .. } => {
                Some(format!("waiting for {resource}, which plan {holder} has locked"))
            }
            EventKind::ScopeHeld { scope } => Some(format!("{} stays locked", self.scope(*scope))),
            EventKind::CancelRequested { .. } => Some("asked to stop".to_owned()),
            EventKind::PlanStopping { reason, .. } => Some(format!("stopping: {reason}")),
            EventKind::PlanSuperseded { by, reason } => Some(format!("made anew as plan {by}: {reason}")),
            EventKind::PlanAbandoned { reason } => Some(format!("given up: {reason}")),
            EventKind::PlanEnded { .. }
            | EventKind::PlanCreated
            | EventKind::PlanStarted { .. }
            | EventKind::PlanResumed => None,
        };
        self.print(begin, event.at, line);
    }

    fn print(&self, begin: Timestamp, at: Timestamp, line: Option<String>) {
        let line = line.map(|line| format!("{:>8}  {line}", span(at.duration_since(begin).as_secs_f64())));
        match (&self.bar, line) {
            (Some(bar), line) => {
                if let Some(line) = line {
                    bar.println(line);
                }
                bar.set_position(self.done.len() as u64);
                let names: Vec<&str> =
                    self.running.iter().map(|task| name_of(&self.tasks, *task)).take(3).collect();
                let more = if self.running.len() > 3 { ", …" } else { "" };
                bar.set_message(format!("{}{more}", names.join(", ")));
            }
            (None, Some(line)) => eprintln!("{line}"),
            (None, None) => {}
        }
    }

    fn scope(&self, scope: ScopeIndex) -> &str {
        self.scopes.get(scope.at()).map_or("something", String::as_str)
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Takes the bar away and says how it ended.
    pub fn end(self, title: &str, state: PlanState, reason: Option<&str>) {
        self.clear();
        let because = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        eprintln!("{title}: {}{because}", state.as_str());
    }
}

/// A plan that came over the wire may be of a newer manager and tell of a task that we were not told of.
fn name_of(tasks: &[String], task: TaskIndex) -> &str {
    tasks.get(task.at()).map_or("a task", String::as_str)
}
