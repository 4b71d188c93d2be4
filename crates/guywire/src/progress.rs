//! A plan while it runs: a bar with an estimate on a terminal, plain lines on a pipe.

use std::{collections::BTreeSet, io::IsTerminal, time::Duration};

use guywire_plan::{Event, EventKind, Plan, PlanState, TaskIndex};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;

use crate::output::span;

/// Shows events as they come.
pub struct Progress<'a> {
    plan: &'a Plan,
    begin: Option<Timestamp>,
    done: BTreeSet<TaskIndex>,
    running: BTreeSet<TaskIndex>,
    bar: Option<ProgressBar>,
}

impl<'a> Progress<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(plan.tasks.len() as u64);
            let style =
                ProgressStyle::with_template("{elapsed:>4} {wide_bar} {pos}/{len} about {eta} left  {msg}");
            bar.set_style(style.expect("the template is a constant").progress_chars("━╸ "));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { plan, begin: None, done: BTreeSet::new(), running: BTreeSet::new(), bar }
    }

    /// Takes one event in.
    pub fn see(&mut self, event: &Event) {
        let begin = *self.begin.get_or_insert(event.at);
        let name = |task: TaskIndex| self.plan.task(task).name.as_str();
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
            EventKind::TaskOutput { task, text, .. } => Some(format!("  {}: {text}", name(*task))),
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
            EventKind::ScopeHeld { scope } => {
                Some(format!("{} stays locked", self.plan.scopes[scope.at()].resource))
            }
            EventKind::CancelRequested { .. } => Some("asked to stop".to_owned()),
            EventKind::PlanStopping { reason, .. } => Some(format!("stopping: {reason}")),
            EventKind::PlanSuperseded { by, reason } => Some(format!("made anew as plan {by}: {reason}")),
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
                    self.running.iter().map(|task| self.plan.task(*task).name.as_str()).take(3).collect();
                let more = if self.running.len() > 3 { ", …" } else { "" };
                bar.set_message(format!("{}{more}", names.join(", ")));
            }
            (None, Some(line)) => eprintln!("{line}"),
            (None, None) => {}
        }
    }

    /// Takes the bar away and says how it ended.
    pub fn end(self, title: &str, state: PlanState, reason: Option<&str>) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        let because = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        eprintln!("{title}: {}{because}", state.as_str());
    }
}
