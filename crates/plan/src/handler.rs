//! Handlers: who does a task, and what a task is given while it runs.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{Fence, HandlerId, Plan, PlanError, Retry, Task, TaskIndex};

/// How much of an attempt's own words the journal keeps.
const OUTPUT_LIMIT: usize = 64 * 1024;

/// One kind of idempotent step.
///
/// A handler is asked in this order: `probe` (is it done?), `apply`, `verify`; and `undo` when a plan goes
/// back. Any of them may be called again after a crash, so each must bear being run twice in a row.
/// Whatever changes the world shows [`Context::fence`] to it, or at least asks [`Context::check`] first.
pub trait Handler: Send + Sync + 'static {
    /// The name under which plans refer to it.
    const NAME: &'static str;
    /// Raised when the input, the output or the meaning changes. The old version stays registered, or
    /// plans that need it are made anew by their planner.
    const VERSION: u32;
    /// Applying twice would do harm: it is applied only after a probe that is certain.
    const GUARDED: bool = false;
    /// What it does cannot be taken back.
    const IRREVERSIBLE: bool = false;
    /// The time for one attempt.
    const TIMEOUT: Duration = Duration::from_mins(1);
    /// How often it is tried.
    const RETRY: Retry = Retry { tries: 5, first_ms: 500, most_ms: 15_000 };

    /// What it is given.
    type Input: Serialize + DeserializeOwned + Send + Sync;
    /// What it answers, for tasks after it.
    type Output: Serialize + DeserializeOwned + Send + Sync;

    /// Looks whether the step is done, changing nothing.
    fn probe(
        &self,
        context: &Context,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Probe<Self::Output>, TaskError>> + Send;

    /// Does the step.
    fn apply(
        &self,
        context: &Context,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Self::Output, TaskError>> + Send;

    /// Looks whether the step had its effect.
    fn verify(
        &self,
        _context: &Context,
        _input: &Self::Input,
        _output: &Self::Output,
    ) -> impl Future<Output = Result<(), TaskError>> + Send {
        async { Ok(()) }
    }

    /// Takes the step back. A step that leaves nothing behind keeps this default.
    fn undo(
        &self,
        _context: &Context,
        _input: &Self::Input,
    ) -> impl Future<Output = Result<(), TaskError>> + Send {
        async { Ok(()) }
    }
}

/// What a look at the world told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe<O> {
    /// It is done.
    Satisfied(O),
    /// It is certainly not done.
    Needed,
    /// An earlier apply is still under way; applying again joins it and does not start another.
    Running,
    /// It cannot be told, for this reason.
    Uncertain(String),
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct TaskError {
    /// For a person: what was wrong, where, what to do. No secrets: it goes into the journal.
    pub reason: String,
    /// Whether another attempt can help.
    pub retry: bool,
}

/// Makes a plan of one kind anew, from the request and from what is there now.
#[async_trait]
pub trait Planner: Send + Sync {
    /// Observes and plans. `None` if nothing is left to be done.
    async fn plan(&self, request: &Value) -> Result<Option<Plan>, TaskError>;
}

/// All handlers and planners of a process.
#[derive(Default)]
pub struct Handlers {
    handlers: BTreeMap<HandlerId, Arc<dyn AnyHandler>>,
    planners: BTreeMap<String, Arc<dyn Planner>>,
}

/// What a running task is given.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) key: String,
    pub(crate) attempt: u32,
    pub(crate) task: TaskIndex,
    pub(crate) fence: Fence,
    pub(crate) stop: CancellationToken,
    pub(crate) lease_until: watch::Receiver<Instant>,
    pub(crate) outputs: Arc<BTreeMap<String, Value>>,
    pub(crate) words: mpsc::UnboundedSender<(TaskIndex, u32, String)>,
    pub(crate) spoken: Arc<AtomicUsize>,
}

impl TaskError {
    /// A failure that another attempt may mend.
    pub fn retry(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), retry: true }
    }

    /// A failure that another attempt cannot mend.
    pub fn fatal(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), retry: false }
    }
}

impl Context {
    /// Names this task among all plans of all installations; the same in every attempt.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Which attempt this is, from 1. After a crash of ours the same number comes again: remote work
    /// under key and attempt is found, not started twice.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The number to show to whatever is changed.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Ends when the task should stop: a forceful cancel, a timeout, a lost lease.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether the lease still stands, to be asked before every change of the world.
    pub fn check(&self) -> Result<(), TaskError> {
        if self.stop.is_cancelled() {
            return Err(TaskError::retry("stopped"));
        }
        if *self.lease_until.borrow() <= Instant::now() {
            return Err(TaskError::retry(
                "the lease on this plan has run out, so another process may be executing it",
            ));
        }
        Ok(())
    }

    /// What a task that this one waits for has answered.
    pub fn output<T: DeserializeOwned>(&self, task: &str) -> Result<T, TaskError> {
        let value = self.outputs.get(task);
        let value = value
            .ok_or_else(|| TaskError::fatal(format!("this task does not wait for one named {task:?}")))?;
        serde_json::from_value(value.clone())
            .map_err(|error| TaskError::fatal(format!("the output of {task:?} has another type: {error}")))
    }

    /// Words for the journal; secrets are masked by who has them. Past a bound they are cut off.
    pub fn say(&self, text: impl Into<String>) {
        let text = text.into();
        let before = self.spoken.fetch_add(text.len(), Ordering::Relaxed);
        let text = match before {
            _ if before + text.len() <= OUTPUT_LIMIT => text,
            _ if before <= OUTPUT_LIMIT => format!("[cut off after {OUTPUT_LIMIT} bytes]"),
            _ => return,
        };
        if self.words.send((self.task, self.attempt, text)).is_err() {
            tracing::debug!("a task spoke after its plan had ended");
        }
    }
}

impl Handlers {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler.
    ///
    /// # Panics
    /// When one of that name and version is there: that is a slip in the wiring.
    #[must_use]
    pub fn with<H: Handler>(mut self, handler: H) -> Self {
        let id = HandlerId { name: H::NAME.to_owned(), version: H::VERSION };
        let before = self.handlers.insert(id.clone(), Arc::new(handler));
        assert!(before.is_none(), "handler {id} is registered twice");
        self
    }

    /// Adds the planner of plans of `kind`.
    #[must_use]
    pub fn with_planner(mut self, kind: impl Into<String>, planner: impl Planner + 'static) -> Self {
        self.planners.insert(kind.into(), Arc::new(planner));
        self
    }

    pub(crate) fn get(&self, id: &HandlerId) -> Option<Arc<dyn AnyHandler>> {
        self.handlers.get(id).cloned()
    }

    pub(crate) fn planner(&self, kind: &str) -> Option<Arc<dyn Planner>> {
        self.planners.get(kind).cloned()
    }

    /// Whether somebody is there for `task` and takes its input.
    pub(crate) fn check(&self, task: &Task) -> Result<(), PlanError> {
        let Some(handler) = self.handlers.get(&task.handler) else {
            let known: Vec<String> = self.handlers.keys().map(ToString::to_string).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(PlanError::UnknownHandler {
                task: task.name.clone(),
                handler: task.handler.clone(),
                known,
            });
        };
        handler.takes(&task.input).map_err(|reason| PlanError::BadInput {
            task: task.name.clone(),
            handler: task.handler.clone(),
            reason,
        })
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

/// A handler with its types hidden behind JSON.
#[async_trait]
pub(crate) trait AnyHandler: Send + Sync {
    fn takes(&self, input: &Value) -> Result<(), String>;
    async fn probe(&self, context: &Context, input: &Value) -> Result<Probe<Value>, TaskError>;
    async fn apply_and_verify(&self, context: &Context, input: &Value) -> Result<Value, TaskError>;
    async fn undo(&self, context: &Context, input: &Value) -> Result<(), TaskError>;
}

#[async_trait]
impl<H: Handler> AnyHandler for H {
    fn takes(&self, input: &Value) -> Result<(), String> {
        typed::<H>(input).map(drop).map_err(|error| error.reason)
    }

    async fn probe(&self, context: &Context, input: &Value) -> Result<Probe<Value>, TaskError> {
        Ok(match Handler::probe(self, context, &typed::<H>(input)?).await? {
            Probe::Satisfied(output) => Probe::Satisfied(untyped(&output)?),
            Probe::Needed => Probe::Needed,
            Probe::Running => Probe::Running,
            Probe::Uncertain(reason) => Probe::Uncertain(reason),
        })
    }

    async fn apply_and_verify(&self, context: &Context, input: &Value) -> Result<Value, TaskError> {
        let input = typed::<H>(input)?;
        let output = self.apply(context, &input).await?;
        self.verify(context, &input, &output).await?;
        untyped(&output)
    }

    async fn undo(&self, context: &Context, input: &Value) -> Result<(), TaskError> {
        Handler::undo(self, context, &typed::<H>(input)?).await
    }
}

fn typed<H: Handler>(input: &Value) -> Result<H::Input, TaskError> {
    <H::Input as serde::Deserialize>::deserialize(input).map_err(TaskError::fatal)
}

fn untyped<T: Serialize>(output: &T) -> Result<Value, TaskError> {
    serde_json::to_value(output)
        .map_err(|error| TaskError::fatal(format!("the output cannot be stored: {error}")))
}
