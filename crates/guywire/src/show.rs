//! One plan, drawn with its phases and tasks.

use guywire_plan::{How, Plan, PlanHeader, PlanView, TaskState, TaskView, TreeState};
use jiff::Timestamp;
use serde::Serialize;

use crate::output::span;

/// A plan for programs.
#[derive(Serialize)]
pub struct Shown<'a> {
    #[serde(flatten)]
    header: &'a PlanHeader,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    phases: Vec<ShownPhase<'a>>,
}

#[derive(Serialize)]
struct ShownPhase<'a> {
    name: &'a str,
    tasks: Vec<ShownTask<'a>>,
}

#[derive(Serialize)]
struct ShownTask<'a> {
    name: &'a str,
    handler: String,
    #[serde(flatten)]
    state: &'a TaskState,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    how: Option<How>,
    after: Vec<&'a str>,
}

/// The plan as data.
pub fn data<'a>(header: &'a PlanHeader, plan: &'a Plan, view: &'a PlanView) -> Shown<'a> {
    let phase = |(at, phase): (u32, &'a guywire_plan::Phase)| {
        let tasks = plan.tasks.iter().zip(&view.tasks).filter(|(task, _)| task.phase == at);
        let task = |(task, view): (&'a guywire_plan::Task, &'a TaskView)| ShownTask {
            name: &task.name,
            handler: task.handler.to_string(),
            state: &view.state,
            attempt: view.attempt,
            seconds: seconds(view),
            how: view.how,
            after: task.after.iter().map(|after| plan.task(*after).name.as_str()).collect(),
        };
        ShownPhase { name: &phase.name, tasks: tasks.map(task).collect() }
    };
    let phases = (0u32..).zip(&plan.phases).map(phase).collect();
    Shown { header, reason: view.reason.as_deref(), phases }
}

/// The plan as a drawing.
pub fn draw(header: &PlanHeader, plan: &Plan, view: &PlanView) -> String {
    let mut lines = Vec::new();
    let took = view.created.zip(view.ended).map(|(from, to)| format!(" after {}", span(between(from, to))));
    let interrupted = header.state.is_active() && !header.executing;
    let note = if interrupted { ", nobody executes it: `guywire plan resume` goes on" } else { "" };
    lines.push(format!("plan {}  {}", header.id, header.title));
    lines.push(format!("         {}{}{note}", header.state.as_str(), took.unwrap_or_default()));
    if let Some(reason) = &view.reason {
        lines.push(format!("         because {reason}"));
    }
    let width = plan.tasks.iter().map(|task| task.name.chars().count()).max().unwrap_or(0);
    for (at, phase) in (0u32..).zip(&plan.phases) {
        lines.push(format!("{}{}", phase.name, if phase.gate { " (after all before)" } else { "" }));
        for (task, view) in plan.tasks.iter().zip(&view.tasks).filter(|(task, _)| task.phase == at) {
            let name = format!("{:width$}", task.name);
            lines.push(format!("  {} {name}  {}", symbol(&view.state), detail(view)).trim_end().to_owned());
        }
    }
    let scopes = plan.scopes.iter().zip(&view.trees).filter(|(_, state)| **state == TreeState::Held);
    lines.extend(
        scopes.map(|(scope, _)| format!("held: {} stays locked until this plan is resumed", scope.resource)),
    );
    lines.join("\n")
}

/// A sign for a state that reads the same in black and white.
pub fn symbol(state: &TaskState) -> char {
    match state {
        TaskState::Pending => '·',
        TaskState::Running => '▸',
        TaskState::Unknown => '?',
        TaskState::Waiting { .. } => '↻',
        TaskState::Succeeded => '✓',
        TaskState::Failed { .. } => '✗',
        TaskState::Blocked { .. } => '!',
        TaskState::Stopped => '■',
        TaskState::Undoing => '◂',
        TaskState::Undone => '↩',
    }
}

fn detail(view: &TaskView) -> String {
    let mut words = vec![format!("{:9}", view.state.as_str())];
    if let Some(seconds) = seconds(view) {
        words.push(format!("{:>7}", span(seconds)));
    }
    if view.attempt > 1 {
        words.push(format!("attempt {}", view.attempt));
    }
    if view.how == Some(How::Satisfied) && view.state == TaskState::Succeeded {
        words.push("was done already".to_owned());
    }
    if let Some(reason) = view.state.reason() {
        words.push(reason.to_owned());
    }
    words.join("  ")
}

fn seconds(view: &TaskView) -> Option<f64> {
    let end = match view.state {
        TaskState::Running | TaskState::Undoing => Timestamp::now(),
        _ => view.ended?,
    };
    Some(between(view.started?, end))
}

fn between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}
