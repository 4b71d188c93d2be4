//! Running a script on a machine, once for each attempt whatever happens to us.

use std::time::Duration;

use guywire_machines::{
    provision::with_causes,
    remote::{RemoteError, UnitRequest, UnitState},
    ssh::Door,
};
use guywire_plan::{Context, Handler, Probe, Retry, TaskError};

use super::{
    Run,
    handlers::{LOOK, On, SLACK, Scripts, Went, end_of, tolerate, tolerate_probe},
};

/// How much of a script's output the machine keeps.
const OUTPUT: u64 = 256 * 1024;

/// Runs a script that may be run again when it failed.
pub(super) struct RunScript(pub Scripts);
/// Runs a script that is never run again once it ended.
pub(super) struct RunOnce(pub Scripts);

impl Handler for RunScript {
    const NAME: &'static str = "script.run";
    const VERSION: u32 = 1;
    const RETRY: Retry = Retry { tries: 3, first_ms: 1_000, most_ms: 10_000 };
    type Input = On<Run>;
    type Output = Went;

    async fn probe(&self, context: &Context, input: &Self::Input) -> Result<Probe<Went>, TaskError> {
        tolerate_probe(context, input, self.0.probe_run(context, input)).await
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<Went, TaskError> {
        let time = Duration::from_secs(input.what.timeout) + SLACK;
        tolerate(context, input, time, self.0.apply_run(context, input)).await
    }

    async fn undo(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        self.0.undo_run(context, input).await
    }
}

impl Handler for RunOnce {
    const NAME: &'static str = "script.run-once";
    const VERSION: u32 = 1;
    const GUARDED: bool = true;
    type Input = On<Run>;
    type Output = Went;

    async fn probe(&self, context: &Context, input: &Self::Input) -> Result<Probe<Went>, TaskError> {
        tolerate_probe(context, input, self.0.probe_run(context, input)).await
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<Went, TaskError> {
        let time = Duration::from_secs(input.what.timeout) + SLACK;
        tolerate(context, input, time, self.0.apply_run(context, input)).await
    }

    async fn undo(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        self.0.undo_run(context, input).await
    }
}

impl Scripts {
    async fn probe_run(&self, context: &Context, input: &On<Run>) -> Result<Probe<Went>, TaskError> {
        let door = self.door(input).await?;
        let run = &input.what;
        let state = self.units.status(&door, context.key()).await.map_err(|error| of_remote(&error, true))?.1;
        let failed = match state {
            UnitState::Running { .. } => return Ok(Probe::Running),
            // Ended while nobody looked: joining it gives its result, as if we had been there.
            UnitState::Ended { attempt, code: 0 } if attempt == context.attempt() => {
                return Ok(Probe::Running);
            }
            UnitState::Ended { code: 0, .. } => return Ok(Probe::Satisfied(Went::default())),
            UnitState::Ended { code, .. } => Some(code),
            UnitState::None | UnitState::Lost { .. } => None,
        };
        if let Some(unless) = &run.unless
            && self.succeeds(&door, unless, LOOK).await?.0
        {
            return Ok(Probe::Satisfied(Went::default()));
        }
        Ok(match failed {
            Some(code) if run.once => Probe::Uncertain(format!(
                "{}: it ended with exit code {code} and is to run once only; finish its work by hand so that its \"unless\" succeeds",
                input.machine
            )),
            _ => Probe::Needed,
        })
    }

    async fn apply_run(&self, context: &Context, input: &On<Run>) -> Result<Went, TaskError> {
        let door = self.door(input).await?;
        let run = &input.what;
        self.unit(context, &door, context.key(), &run.script, run).await
    }

    async fn undo_run(&self, context: &Context, input: &On<Run>) -> Result<(), TaskError> {
        let Some(undo) = &input.what.undo else { return Ok(()) };
        let time = Duration::from_secs(input.what.timeout) + SLACK;
        let work = async {
            let door = self.door(input).await?;
            let key = context.key();
            let went = self.unit(context, &door, &format!("{key} undo"), undo, &input.what).await?;
            // What was taken back was never done, should anybody ask again.
            let forgotten = self.units.forget(&door, key, context.fence()).await;
            forgotten.map(|()| went).map_err(|error| of_remote(&error, true))
        };
        tolerate(context, input, time, work).await.map(drop)
    }

    /// Runs a script as a unit, or joins it where it runs already, and tells what it says.
    async fn unit(
        &self,
        context: &Context,
        door: &Door,
        key: &str,
        script: &str,
        run: &Run,
    ) -> Result<Went, TaskError> {
        let request = UnitRequest {
            key: key.to_owned(),
            fence: context.fence(),
            attempt: context.attempt(),
            script: self.shell(script)?,
            timeout: Duration::from_secs(run.timeout),
            limit: OUTPUT,
        };
        let mut lines = Lines { context, begun: Vec::new() };
        let exit = self.units.run(door, &request, context.stop(), &mut |chunk| lines.take(chunk)).await;
        lines.finish();
        let exit = exit.map_err(|error| of_remote(&error, !run.once))?;
        let output = end_of(&exit.output_tail).to_owned();
        if exit.code == 0 {
            return Ok(Went { output, passed_over: None });
        }
        let said = if output.is_empty() { "it said nothing".to_owned() } else { output };
        let reason = format!("{}: the script ended with exit code {}: {said}", door.machine, exit.code);
        Err(TaskError { reason, retry: !run.once })
    }
}

/// A unit's error as a task's. A unit that was cut off has left no result, so another attempt is right
/// even where it may run once only; one that ran out of time has.
fn of_remote(error: &RemoteError, again: bool) -> TaskError {
    let retry = match error {
        RemoteError::Lost { .. } | RemoteError::Cancelled { .. } => true,
        RemoteError::TimedOut { .. } => again,
        other => other.retry(),
    };
    TaskError { reason: with_causes(error), retry }
}

/// A script's output as words for the journal, in whole lines.
struct Lines<'a> {
    context: &'a Context,
    begun: Vec<u8>,
}

impl Lines<'_> {
    fn take(&mut self, chunk: &[u8]) {
        self.begun.extend_from_slice(chunk);
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // A line without end is not waited for.
        let whole = if self.begun.len() - whole > 8 * 1024 { self.begun.len() } else { whole };
        if whole > 0 {
            let lines: Vec<u8> = self.begun.drain(..whole).collect();
            self.context.say(String::from_utf8_lossy(&lines));
        }
    }

    fn finish(&mut self) {
        if !self.begun.is_empty() {
            self.context.say(String::from_utf8_lossy(&self.begun));
            self.begun.clear();
        }
    }
}
