//! The tasks of scripts' plans: put a file, run a script, wait for something.

use std::{path::PathBuf, time::Duration};

use guywire_machines::{
    SecretSource,
    provision::{Machines, with_causes},
    remote::Units,
    ssh::{Door, ExecRequest, FileMode, SshError, SshErrorKind},
};
use guywire_model::MachineName;
use guywire_plan::{Context, Handler, Handlers, Probe, Retry, TaskError};
use guywire_secrets::Masker;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Content, Put, Wait, payload,
    run::{RunOnce, RunScript},
    secrets,
};

/// What a step gets beyond its own time, to reach its machine; a task gets it twice, so that an optional
/// step ends before its task does.
pub(super) const SLACK: Duration = Duration::from_secs(60);
/// How long an optional step's machine may take to answer before it is passed over.
const REACH: Duration = Duration::from_secs(10);
/// How long one look at a machine may take.
pub(super) const LOOK: Duration = Duration::from_secs(60);
/// The slowest link that a file is put over, in bytes per second, to bound its time.
const SLOWEST: u64 = 256 * 1024;
/// How much of the end of a step's output is kept as its result, and told in an error.
const KEPT: usize = 4_000;

/// What all handlers of scripts' steps share.
#[derive(Clone)]
pub struct Scripts {
    /// The way to places and machines.
    pub machines: Machines,
    /// Commands that run once.
    pub units: Units,
    /// Opens references to secrets, at the moment of their use.
    pub secrets: SecretSource,
    /// Knows the secrets that were used; the one that `units` masks with.
    pub masker: Masker,
}

/// What a step left, for who asks for the plan's outputs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Went {
    /// The end of what its script printed, without secrets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// Why an optional step that failed was passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<String>,
}

/// Something to do on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct On<T> {
    pub infra: String,
    pub machine: MachineName,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    pub what: T,
}

/// A file to put, and the package that it may come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    pub put: Put,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<PathBuf>,
}

/// Puts a file.
pub(super) struct PutFile(Scripts);
/// Waits until a script succeeds.
pub(super) struct Await(Scripts);

/// Adds the handlers of scripts' steps.
pub fn handlers(handlers: Handlers, scripts: &Scripts) -> Handlers {
    handlers
        .with(PutFile(scripts.clone()))
        .with(RunScript(scripts.clone()))
        .with(RunOnce(scripts.clone()))
        .with(Await(scripts.clone()))
}

impl Scripts {
    /// With units and a masker of its own.
    pub fn new(machines: Machines, secrets: SecretSource) -> Self {
        let masker = Masker::default();
        let units = Units::new(machines.pool.clone(), masker.clone());
        Self { machines, units, secrets, masker }
    }

    /// The way into a step's machine. An optional step's machine must answer soon, since it may be dead.
    pub(super) async fn door<T>(&self, step: &On<T>) -> Result<Door, TaskError> {
        let failed = |error: &guywire_machines::InfraError| TaskError {
            reason: with_causes(error),
            retry: error.retry(),
        };
        let infra = self.machines.infras.open(&step.infra).map_err(|error| failed(&error))?;
        let door = infra.door(&step.machine).await.map_err(|error| failed(&error))?;
        if step.optional {
            let hello = ExecRequest::argv(["true"]).timeout(REACH);
            let answered = timeout(REACH, self.machines.pool.exec(&door, hello)).await;
            let silent = || SshError::new(SshErrorKind::Unreachable, &door, "it does not answer");
            answered.map_err(|_| of_ssh(&silent()))?.map_err(|error| of_ssh(&error))?;
        }
        Ok(door)
    }

    /// Whether a script succeeds on a machine, and the end of what it said.
    pub(super) async fn succeeds(
        &self,
        door: &Door,
        script: &str,
        time: Duration,
    ) -> Result<(bool, String), TaskError> {
        let script = self.shell(script)?;
        let request = ExecRequest::script(script).timeout(time);
        let output = self.machines.pool.exec(door, request).await.map_err(|error| of_ssh(&error))?;
        let said = format!("{}{}", output.stdout_text(), output.stderr_text());
        Ok((output.code == 0, end_of(&self.masker.mask(&said)).to_owned()))
    }

    /// A script with its secrets, for the machine's eyes only.
    pub(super) fn shell(&self, script: &str) -> Result<String, TaskError> {
        secrets::into_shell(script, &self.secrets, &self.masker).map_err(TaskError::fatal)
    }

    async fn content(&self, source: &Source) -> Result<Vec<u8>, TaskError> {
        match (&source.put.content, &source.package) {
            (Content::Text(text), _) => {
                secrets::fill(text, &self.secrets, &self.masker).map_err(TaskError::fatal)
            }
            (Content::File { file, sha256, .. }, Some(package)) => {
                let (package, file, sha256) = (package.clone(), file.clone(), sha256.clone());
                let read = tokio::task::spawn_blocking(move || payload::sealed(&package, &file, &sha256));
                read.await.map_err(TaskError::retry)?.map_err(TaskError::fatal)
            }
            (Content::File { file, .. }, None) => {
                Err(TaskError::fatal(format!("file {file:?}: the plan does not say of which package")))
            }
        }
    }
}

/// Makes the failure of an optional step a word and a success. `time` is what the work has; when that is
/// over too, an optional step is passed over.
pub(super) async fn tolerate<T>(
    context: &Context,
    step: &On<T>,
    time: Duration,
    work: impl Future<Output = Result<Went, TaskError>>,
) -> Result<Went, TaskError> {
    if !step.optional {
        return work.await;
    }
    let late = || TaskError::fatal(format!("it did not end within {} s", time.as_secs()));
    match timeout(time, work).await.unwrap_or_else(|_| Err(late())) {
        // Told to stop, it has not failed.
        Err(error) if !context.stop().is_cancelled() => Ok(pass_over(context, step, &error)),
        went => went,
    }
}

/// The same for a probe.
pub(super) async fn tolerate_probe<T>(
    context: &Context,
    step: &On<T>,
    work: impl Future<Output = Result<Probe<Went>, TaskError>>,
) -> Result<Probe<Went>, TaskError> {
    match work.await {
        Err(error) if step.optional && !context.stop().is_cancelled() => {
            Ok(Probe::Satisfied(pass_over(context, step, &error)))
        }
        probed => probed,
    }
}

fn pass_over<T>(context: &Context, step: &On<T>, error: &TaskError) -> Went {
    context.say(format!("warning: passed over, since the step is optional: {}\n", error.reason));
    tracing::warn!(machine = %step.machine, reason = %error.reason, "an optional step was passed over");
    Went { output: String::new(), passed_over: Some(error.reason.clone()) }
}

impl Handler for PutFile {
    const NAME: &'static str = "script.put";
    const VERSION: u32 = 1;
    type Input = On<Source>;
    type Output = Went;

    async fn probe(&self, context: &Context, input: &Self::Input) -> Result<Probe<Went>, TaskError> {
        let look = async {
            let bytes = self.0.content(&input.what).await?;
            let Put { path, mode, owner, .. } = &input.what.put;
            let look = ExecRequest::argv(["/bin/sh", "-c", IS_THERE, "look", path]).timeout(LOOK);
            let door = self.0.door(input).await?;
            let output = self.0.machines.pool.exec(&door, look).await.map_err(|error| of_ssh(&error))?;
            let is = output.stdout_text();
            let [sum, bits, names, ids] = is.split_whitespace().collect::<Vec<_>>()[..] else {
                return Ok(Probe::Needed);
            };
            let same = sum == payload::digest(&bytes)
                && u32::from_str_radix(bits, 8) == Ok(*mode)
                && (names == owner || ids == owner);
            Ok(if same { Probe::Satisfied(Went::default()) } else { Probe::Needed })
        };
        tolerate_probe(context, input, look).await
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<Went, TaskError> {
        let work = async {
            let bytes = self.0.content(&input.what).await?;
            let door = self.0.door(input).await?;
            let Put { path, mode, owner, .. } = &input.what.put;
            let mode = FileMode { mode: *mode, owner: owner.clone() };
            context.check()?;
            let put = self.0.machines.pool.push_file(&door, path, bytes, &mode).await;
            put.map(|()| Went::default()).map_err(|error| of_ssh(&error))
        };
        tolerate(context, input, Duration::from_secs(input.what.put.seconds()) + SLACK, work).await
    }
}

impl Put {
    /// How long it may take to put it.
    pub(super) fn seconds(&self) -> u64 {
        120 + match &self.content {
            Content::Text(text) => text.len() as u64 / SLOWEST,
            Content::File { size, .. } => size / SLOWEST,
        }
    }
}

/// What a file holds and whose it is; nothing if it is not there or is not a plain file.
const IS_THERE: &str = r#"[ -f "$1" ] && [ ! -L "$1" ] || exit 0
sum=$(sha256sum < "$1") && echo "${sum%% *} $(stat -c '%a %U:%G %u:%g' -- "$1")""#;

impl Handler for Await {
    const NAME: &'static str = "script.wait";
    const VERSION: u32 = 1;
    // It has its own patience; what does not come within it does not come.
    const RETRY: Retry = Retry::ONCE;
    type Input = On<Wait>;
    type Output = Went;

    async fn probe(&self, _: &Context, _: &Self::Input) -> Result<Probe<Went>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<Went, TaskError> {
        let patience = Duration::from_secs(input.what.timeout);
        let work = async {
            tokio::select! {
                went = self.wait(input, patience) => went,
                () = context.stop().cancelled() => Err(TaskError::retry("stopped while waiting")),
            }
        };
        tolerate(context, input, patience + SLACK, work).await
    }
}

impl Await {
    async fn wait(&self, input: &On<Wait>, patience: Duration) -> Result<Went, TaskError> {
        let Wait { script, every, .. } = &input.what;
        let door = self.0.door(input).await?;
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let last = match self.0.succeeds(&door, script, left.max(Duration::from_secs(1)).min(LOOK)).await
            {
                Ok((true, output)) => return Ok(Went { output, passed_over: None }),
                Ok((false, said)) if said.is_empty() => "its script fails without a word".to_owned(),
                Ok((false, said)) => said,
                // A machine that is away may come back while there is time.
                Err(error) if error.retry => error.reason,
                Err(error) => return Err(error),
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (machine, seconds) = (&input.machine, patience.as_secs());
                return Err(TaskError::fatal(format!("{machine}: it is not so after {seconds} s: {last}")));
            }
            sleep(Duration::from_secs(*every).min(left)).await;
        }
    }
}

pub(super) fn of_ssh(error: &SshError) -> TaskError {
    TaskError { reason: with_causes(error), retry: error.retry() }
}

/// The end of an output, as much as is kept.
pub(super) fn end_of(output: &str) -> &str {
    let output = output.trim();
    let from = output.len().saturating_sub(KEPT);
    let from = (from..output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or_default();
    &output[from..]
}
