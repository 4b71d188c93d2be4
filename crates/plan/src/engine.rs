//! Taking plans, executing them, and stopping them: what the rest of the program calls.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Cancel, Cursor, ExecutorId, Handlers, Journal, JournalError, JournalErrorKind, Lease, Plan, PlanError,
    PlanId, PlanState, PlanView, TaskState, run::Run,
};

/// How many events are read at once.
const PAGE: u32 = 1000;

/// Executes the plans of one journal.
#[derive(Clone)]
pub struct Engine {
    journal: Arc<dyn Journal>,
    handlers: Arc<Handlers>,
    options: Options,
    owner: ExecutorId,
}

/// How an engine goes about its work.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a lease lasts without renewal: the time after which another host takes over.
    pub term: Duration,
    /// How many tasks of one plan run at once.
    pub width: usize,
    /// How often it is looked whether somebody has asked for a cancel.
    pub wishes: Duration,
}

/// How a plan ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The plan that ended; another than the one that was started if that was replanned.
    pub plan: PlanId,
    /// Its last state.
    pub state: PlanState,
    /// Why, unless it succeeded.
    pub reason: Option<String>,
}

/// What executing a plan took.
#[derive(Debug, Clone)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// Transactions that the journal committed meanwhile.
    pub commits: u64,
}

/// Why a plan could not be executed. The plan itself is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The journal failed, or the lease was lost.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The plan cannot run here.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan needs handlers that are not here, and nobody can plan it anew.
    #[error("plan {plan}: {source}; run it with the guywire that made it, or cancel it")]
    Upgrade {
        /// The plan.
        plan: PlanId,
        /// What is missing.
        #[source]
        source: PlanError,
    },
    /// The plan had to be made anew, which failed.
    #[error("plan {plan} needs a handler of another version and could not be planned anew: {reason}")]
    Replan {
        /// The plan.
        plan: PlanId,
        /// Why.
        reason: String,
    },
}

impl Default for Options {
    fn default() -> Self {
        Self { term: Duration::from_secs(10), width: 64, wishes: Duration::from_millis(200) }
    }
}

impl Engine {
    /// An engine for this process.
    pub fn new(journal: Arc<dyn Journal>, handlers: Handlers, options: Options) -> Self {
        Self { journal, handlers: Arc::new(handlers), options, owner: ExecutorId::new() }
    }

    /// The journal it works on.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// Accepts a plan: it is checked, and stored whole or not at all.
    pub async fn submit(&self, plan: &Plan) -> Result<PlanId, EngineError> {
        plan.check()?;
        for task in &plan.tasks {
            self.handlers.check(task)?;
        }
        Ok(self.journal.create(plan).await?)
    }

    /// Executes a plan to its end, from wherever it stands.
    pub async fn run(&self, plan: PlanId) -> Result<Report, EngineError> {
        let before = self.journal.commits();
        let lease = self.journal.acquire(plan, &self.owner, self.options.term).await?;
        let outcome = self.execute(lease).await?;
        Ok(Report { outcome, commits: self.journal.commits() - before })
    }

    /// Executes whatever plans nobody else does, until told to stop. Plans run side by side.
    ///
    /// When told to stop, it lets go at once: tasks that ran are probed by whoever takes over.
    pub async fn work(&self, stop: CancellationToken) {
        let plans = TaskTracker::new();
        let (unrunnable_tx, mut unrunnable_rx) = mpsc::unbounded_channel();
        let mut unrunnable: Vec<PlanId> = Vec::new();
        while !stop.is_cancelled() {
            while let Ok(plan) = unrunnable_rx.try_recv() {
                unrunnable.push(plan);
            }
            match self.journal.claim(&self.owner, self.options.term, &unrunnable).await {
                Ok(Some(lease)) => {
                    let (engine, stop, tell) = (self.clone(), stop.clone(), unrunnable_tx.clone());
                    plans.spawn(async move {
                        let plan = lease.plan;
                        tokio::select! {
                            () = stop.cancelled() => {}
                            ended = engine.execute(lease) => if let Err(error) = ended {
                                tracing::warn!(plan = plan.0, %error, "a plan is left to others");
                                // What this process cannot run it must not claim again and again.
                                if !matches!(error, EngineError::Journal(_)) && tell.send(plan).is_err() {
                                    tracing::debug!("the engine has stopped");
                                }
                            }
                        }
                    });
                }
                Ok(None) => self.idle(&stop).await,
                Err(error) => {
                    tracing::warn!(%error, "the journal does not answer");
                    self.idle(&stop).await;
                }
            }
        }
        plans.close();
        plans.wait().await;
    }

    /// A pause that is long against a query and short against a lease.
    async fn idle(&self, stop: &CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(self.options.term / 10) => {}
        }
    }

    /// Asks a plan to stop; whoever executes it does so.
    pub async fn cancel(&self, plan: PlanId, cancel: Cancel) -> Result<(), EngineError> {
        Ok(self.journal.request_cancel(plan, cancel).await?)
    }

    /// Makes a failed or cancelled plan active again; [`Engine::run`] then goes on with it.
    pub async fn resume(&self, plan: PlanId) -> Result<(), EngineError> {
        Ok(self.journal.request_resume(plan).await?)
    }

    /// Gives up a failed or cancelled plan, so that others can have its locks.
    pub async fn abandon(&self, plan: PlanId, reason: &str) -> Result<(), EngineError> {
        Ok(self.journal.abandon(plan, reason).await?)
    }

    /// A plan and its state now.
    pub async fn load(&self, plan: PlanId) -> Result<(Plan, PlanView), EngineError> {
        Ok(load(&*self.journal, plan).await?)
    }

    async fn execute(&self, mut lease: Lease) -> Result<Outcome, EngineError> {
        loop {
            let ended = self.execute_one(&lease).await;
            // A lease that is lost is somebody else's; any other is given back for others to take.
            let lost =
                matches!(&ended, Err(EngineError::Journal(error)) if error.kind == JournalErrorKind::Lost);
            if !lost && let Err(error) = self.journal.release(&lease).await {
                tracing::debug!(%error, "the lease will run out by itself");
            }
            match ended? {
                Executed::Ended(outcome) => return Ok(outcome),
                Executed::Superseded(successor) => {
                    lease = self.journal.acquire(successor, &self.owner, self.options.term).await?;
                }
            }
        }
    }

    async fn execute_one(&self, lease: &Lease) -> Result<Executed, EngineError> {
        let id = lease.plan;
        let (plan, view) = load(&*self.journal, id).await?;
        if let Err(missing) = self.runnable(&plan, &view) {
            return self.replan(lease, &plan, missing).await;
        }
        let plan = Arc::new(plan);
        let run = Run::new(&self.journal, &self.handlers, &self.options, lease, &plan, view);
        Ok(Executed::Ended(run.drive().await?))
    }

    /// Whether there are handlers for all that may still happen, forward or back.
    fn runnable(&self, plan: &Plan, view: &PlanView) -> Result<(), PlanError> {
        let going_back = plan.on_failure == crate::OnFailure::Undo || !plan.scopes.is_empty();
        let may_run = |state: &TaskState| going_back || *state != TaskState::Succeeded;
        let tasks = plan.tasks.iter().zip(&view.tasks).filter(|(_, view)| may_run(&view.state));
        tasks.map(|(task, _)| task).try_for_each(|task| self.handlers.check(task))
    }

    async fn replan(&self, lease: &Lease, plan: &Plan, missing: PlanError) -> Result<Executed, EngineError> {
        let id = lease.plan;
        let Some(planner) = self.handlers.planner(&plan.kind) else {
            return Err(EngineError::Upgrade { plan: id, source: missing });
        };
        let fail = |reason: String| EngineError::Replan { plan: id, reason };
        let reason = missing.to_string();
        let successor = planner.plan(&plan.request).await.map_err(|error| fail(error.reason))?;
        // Nothing left to do is a plan too, so that the old one has a successor that ended well.
        let successor = match successor {
            Some(successor) => successor,
            None => Plan { phases: Vec::new(), tasks: Vec::new(), scopes: Vec::new(), ..plan.clone() },
        };
        successor.check()?;
        successor.tasks.iter().try_for_each(|task| self.handlers.check(task))?;
        let successor = self.journal.supersede(lease, &successor, &reason).await?;
        Ok(Executed::Superseded(successor))
    }
}

enum Executed {
    Ended(Outcome),
    Superseded(PlanId),
}

/// Reads a plan and folds its events.
pub(crate) async fn load(journal: &dyn Journal, id: PlanId) -> Result<(Plan, PlanView), JournalError> {
    let plan = journal.plan(id).await?;
    let mut view = PlanView::new(id, &plan);
    loop {
        let events = journal.events(Some(id), view.cursor, PAGE).await?;
        for event in &events {
            view.see(event);
        }
        if events.len() < PAGE as usize {
            return Ok((plan, view));
        }
    }
}

/// Follows a plan's events after `cursor`: none missed, none twice. Ends with the plan.
pub async fn follow(
    journal: &dyn Journal,
    plan: PlanId,
    mut cursor: Cursor,
    mut see: impl FnMut(&crate::Event),
) -> Result<Cursor, JournalError> {
    loop {
        // The state is read before the events, so that the last event of an ended plan is never missed.
        let ended = !journal.header(plan).await?.state.is_active();
        let events = journal.events(Some(plan), cursor, PAGE).await?;
        for event in &events {
            see(event);
            cursor = event.seq;
        }
        if events.is_empty() && ended {
            return Ok(cursor);
        }
        if events.is_empty() {
            journal.changed(cursor, Duration::from_millis(500)).await?;
        }
    }
}
