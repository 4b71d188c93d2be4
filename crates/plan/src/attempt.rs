//! One attempt at one task: probe, apply, verify, or undo, within its time.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use serde_json::Value;

use crate::{Context, Direction, EventKind, How, Plan, Probe, Task, TaskError, handler::AnyHandler};

/// How long a task that was told to stop may take to do so before it is dropped.
const GRACE: Duration = Duration::from_secs(10);

/// What an attempt is about.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub plan: Arc<Plan>,
    pub context: Context,
    pub direction: Direction,
    /// Failures before this attempt.
    pub failures: u32,
    /// The plan is stopping: earlier work is followed to its end, but nothing new is applied.
    pub only_finish: bool,
}

enum End {
    Done(How, Value),
    Undone,
    Failed(TaskError),
    Blocked(String),
    Stopped,
}

impl Attempt {
    /// Runs the attempt to its end, whatever happens, and says what to record.
    pub async fn run(self, handler: Arc<dyn AnyHandler>) -> EventKind {
        let (stop, timeout) = (&self.context.stop, Duration::from_millis(self.task().timeout_ms));
        let work = async {
            match self.direction {
                Direction::Forward => self.forward(&*handler).await,
                Direction::Backward => match handler.undo(&self.context, &self.task().input).await {
                    Ok(()) => End::Undone,
                    Err(error) => End::Failed(error),
                },
            }
        };
        // A handler's panic ends this attempt and not the engine. It may have left its own state in
        // disorder, but the next attempt begins with a probe of the world.
        let mut work = std::pin::pin!(AssertUnwindSafe(work).catch_unwind());
        let mut why = None;
        let end = tokio::select! {
            biased;
            end = &mut work => Some(end),
            () = stop.cancelled() => None,
            () = tokio::time::sleep(timeout) => {
                why = Some(format!("timed out after {}", seconds(timeout)));
                stop.cancel();
                None
            }
        };
        // Told to stop, it may still finish in good order, and then that is what counts. Past the grace it
        // is dropped where it stands.
        let end = match end {
            Some(end) => Some(end),
            None => tokio::time::timeout(GRACE, &mut work).await.ok(),
        };
        let end = match (end, why) {
            (Some(Ok(End::Failed(error))), Some(why)) => {
                End::Failed(TaskError::retry(format!("{why} ({})", error.reason)))
            }
            (Some(Ok(End::Failed(_))), None) if stop.is_cancelled() => End::Stopped,
            (Some(Ok(end)), _) => end,
            (Some(Err(panic)), _) => {
                End::Failed(TaskError::retry(format!("the handler panicked: {}", panic_text(&*panic))))
            }
            (None, Some(why)) => End::Failed(TaskError::retry(format!("{why} and did not stop when told"))),
            (None, None) => End::Stopped,
        };
        self.record(end)
    }

    fn task(&self) -> &Task {
        self.plan.task(self.context.task)
    }

    async fn forward(&self, handler: &dyn AnyHandler) -> End {
        let (context, Task { input, guarded, .. }) = (&self.context, self.task());
        let under_way = match handler.probe(context, input).await {
            Ok(Probe::Satisfied(output)) => return End::Done(How::Satisfied, output),
            Ok(Probe::Running) => true,
            Ok(Probe::Uncertain(reason)) if *guarded => return End::Blocked(uncertain(&reason)),
            Ok(Probe::Needed | Probe::Uncertain(_)) => false,
            Err(error) if *guarded => return End::Blocked(uncertain(&error.reason)),
            Err(error) => return End::Failed(error),
        };
        // Work that is under way is always joined: either to follow it to its end or to stop it in good
        // order.
        if !under_way {
            if self.only_finish || context.stop.is_cancelled() {
                return End::Stopped;
            }
            if let Err(error) = context.check() {
                return End::Failed(error);
            }
        }
        match handler.apply_and_verify(context, input).await {
            Ok(output) => End::Done(How::Applied, output),
            Err(error) => End::Failed(error),
        }
    }

    fn record(&self, end: End) -> EventKind {
        let (task, attempt) = (self.context.task, self.context.attempt);
        let retry = self.task().retry;
        let failures = self.failures + 1;
        let again = |wanted: bool| {
            (wanted && failures < retry.tries)
                .then(|| u64::try_from(retry.pause(failures).as_millis()).unwrap_or(u64::MAX))
        };
        let of = |reason: &str| {
            if failures > 1 {
                format!("{reason} (attempt {failures} of {})", retry.tries)
            } else {
                reason.to_owned()
            }
        };
        match end {
            End::Done(how, output) => EventKind::TaskSucceeded { task, attempt, how, output },
            End::Undone => EventKind::UndoSucceeded { task, attempt },
            End::Stopped => EventKind::TaskStopped { task, attempt },
            End::Failed(error) if self.direction == Direction::Backward => EventKind::UndoFailed {
                task,
                attempt,
                reason: of(&error.reason),
                retry_ms: again(error.retry),
            },
            End::Failed(error) => {
                let (reason, retry_ms) = (of(&error.reason), again(error.retry));
                EventKind::TaskFailed { task, attempt, reason, retry_ms, blocked: false }
            }
            End::Blocked(reason) => EventKind::TaskFailed {
                task,
                attempt,
                reason: of(&reason),
                retry_ms: again(true),
                blocked: true,
            },
        }
    }
}

fn uncertain(reason: &str) -> String {
    format!("not applied, since it cannot be told whether it was before: {reason}")
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

fn seconds(duration: Duration) -> String {
    if duration.as_secs() < 10 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} s", duration.as_secs())
    }
}
