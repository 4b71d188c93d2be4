//! One plan being executed by the holder of its lease.
//!
//! The loop is: fold in what has ended, decide, commit all of it at once, then start what was committed
//! as started. Nothing acts before its start is on disk, and a task's success and the start of those that
//! waited for it share a commit. While one commit is under way the next one gathers, so that the disk and
//! the tasks never wait for each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicUsize},
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Cancel, CancelMode, Context, Direction, EventKind, Handlers, Journal, JournalError, JournalErrorKind,
    Lease, OnFailure, Options, Outcome, Plan, PlanState, PlanView, Schedule, ScopeIndex, Start, TaskIndex,
    TaskState, Then, TreeState, attempt::Attempt, journal::Batch,
};

/// How long to wait before asking again for a lock that another plan holds.
const LOCK_POLL: Duration = Duration::from_millis(200);

/// How many events one commit gathers before what has ended meanwhile is left to the next one. It is chosen for
/// what a plan may cost against as many bare commits, and it costs time: without it a thousand no-op tasks make a
/// quarter of the commits and end in a third of the time (docs/decisions/0001). It also bounds how long a commit
/// has the database's only write lock.
const GROUP: usize = 4;

/// The execution of one plan.
pub(crate) struct Run<'a> {
    journal: &'a Arc<dyn Journal>,
    handlers: &'a Handlers,
    options: &'a Options,
    lease: &'a Lease,
    plan: &'a Arc<Plan>,
    view: PlanView,
    schedule: Schedule<'a>,
    /// Events that have been folded in and are not yet committed.
    batch: Batch,
    /// Attempts that begin when that commit is done.
    prepared: Vec<Attempt>,
    commit: Option<Commit<'a>>,
    attempts: JoinSet<EventKind>,
    stops: BTreeMap<TaskIndex, CancellationToken>,
    lease_until: watch::Receiver<Instant>,
    words: mpsc::UnboundedReceiver<(TaskIndex, u32, String)>,
    speak: mpsc::UnboundedSender<(TaskIndex, u32, String)>,
    /// Trees that wait for another plan's lock, and who was seen to hold it.
    waiting: BTreeSet<ScopeIndex>,
    /// A task has failed for good.
    failed: bool,
    /// The way back has been entered (scopes are left or all is undone).
    unwinding: bool,
}

/// A commit under way, and what begins when it is done.
struct Commit<'a> {
    append: BoxFuture<'a, Result<(), JournalError>>,
    attempts: Vec<Attempt>,
}

/// What the keeper of the lease tells the loop.
enum Notice {
    Cancel(Cancel),
    Lost(JournalError),
}

impl<'a> Run<'a> {
    pub fn new(
        journal: &'a Arc<dyn Journal>,
        handlers: &'a Handlers,
        options: &'a Options,
        lease: &'a Lease,
        plan: &'a Arc<Plan>,
        view: PlanView,
    ) -> Self {
        let (speak, words) = mpsc::unbounded_channel();
        let schedule = Schedule::forward(plan, &view);
        let is_failed =
            |state: &TaskState| matches!(state, TaskState::Failed { .. } | TaskState::Blocked { .. });
        let failed = view.tasks.iter().any(|task| is_failed(&task.state));
        let (_, lease_until) = watch::channel(lease.until);
        Self {
            journal,
            handlers,
            options,
            lease,
            plan,
            view,
            schedule,
            batch: Batch::default(),
            prepared: Vec::new(),
            commit: None,
            attempts: JoinSet::new(),
            stops: BTreeMap::new(),
            lease_until,
            words,
            speak,
            waiting: BTreeSet::new(),
            failed,
            unwinding: false,
        }
    }

    /// Executes until the plan ends. An error leaves it for whoever takes it over; nothing acts any more.
    pub async fn drive(mut self) -> Result<Outcome, JournalError> {
        let (until, lease_until) = watch::channel(self.lease.until);
        self.lease_until = lease_until;
        let (tell, mut notices) = mpsc::unbounded_channel();
        let keeper = keep_lease(self.journal.clone(), self.lease.clone(), self.options.clone(), until, tell);
        // A run whose future is dropped lets go of its lease: the keeper must not outlive it.
        let keeper = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(keeper));
        let ended = self.turn(&mut notices).await;
        keeper.abort();
        // Whatever the reason, nothing of this run acts after it has returned.
        self.stops.values().for_each(CancellationToken::cancel);
        self.attempts.shutdown().await;
        ended
    }

    async fn turn(&mut self, notices: &mut mpsc::UnboundedReceiver<Notice>) -> Result<Outcome, JournalError> {
        self.record(EventKind::PlanStarted { fence: self.lease.fence });
        self.batch.state = Some(self.view.state);
        if let Some(cancel) = self.journal.header(self.lease.plan).await?.cancel {
            self.cancel(cancel);
        }
        loop {
            self.decide();
            let start = self.enter_trees().await?;
            let idle = self.commit.is_none() && self.schedule.running() == 0 && start.tasks.is_empty();
            if idle && self.all_done() {
                return self.end().await;
            }
            self.prepare(&start);
            self.begin_commit();
            self.wait(&start, notices).await?;
        }
    }

    /// Folds an event in and puts it into the next commit.
    fn record(&mut self, event: EventKind) {
        self.view.apply(&event, Timestamp::now());
        self.batch.events.push(event);
    }

    /// Puts what tasks have said into the next commit, before whatever is recorded next.
    fn hear(&mut self) {
        while let Ok((task, attempt, text)) = self.words.try_recv() {
            self.batch.events.push(EventKind::TaskOutput { task, attempt, text });
        }
    }

    /// Sends what has gathered to the journal, unless a commit is under way.
    fn begin_commit(&mut self) {
        self.hear();
        if self.commit.is_some() || self.batch.events.is_empty() {
            return;
        }
        let (batch, attempts) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.prepared));
        let (journal, lease) = (self.journal, self.lease);
        let append = async move { journal.append(lease, &batch).await };
        self.commit = Some(Commit { append: append.boxed(), attempts });
    }

    /// Waits for the commit that is under way; what it has recorded as started begins.
    async fn finish_commit(&mut self) -> Result<(), JournalError> {
        if let Some(commit) = &mut self.commit {
            (&mut commit.append).await?;
            self.committed();
        }
        Ok(())
    }

    fn committed(&mut self) {
        for attempt in self.commit.take().map(|commit| commit.attempts).unwrap_or_default() {
            let task = self.plan.task(attempt.context.task);
            let handler = self.handlers.get(&task.handler).expect("checked before the run began");
            self.attempts.spawn(attempt.run(handler));
        }
    }

    /// Everything gathered so far is on disk when this returns.
    async fn commit_all(&mut self) -> Result<(), JournalError> {
        self.finish_commit().await?;
        self.begin_commit();
        self.finish_commit().await
    }

    fn cancel(&mut self, cancel: Cancel) {
        if self.view.cancel.is_none_or(|before| cancel > before) {
            // The wish itself is in the journal already; only the view needs to know.
            self.view.cancel = Some(cancel);
        }
        if cancel.mode == CancelMode::Forceful && self.view.state != PlanState::Undoing {
            self.stops.values().for_each(CancellationToken::cancel);
        }
    }

    /// Whether the plan's direction changes: a failure, a cancel, or the turn to the way back.
    fn decide(&mut self) {
        if self.view.state == PlanState::Running
            && let Some((reason, then)) = self.reason_to_stop()
        {
            self.record(EventKind::PlanStopping { reason, then });
            self.batch.state = Some(self.view.state);
        }
        let stopping = matches!(self.view.state, PlanState::Stopping | PlanState::Undoing);
        let unknown = || {
            self.plan_tasks().any(|task| {
                let view = self.view.task(task);
                view.state == TaskState::Unknown && !view.undoing
            })
        };
        if stopping && !self.unwinding && self.schedule.running() == 0 && !unknown() {
            self.unwinding = true;
            self.schedule = Schedule::backward(self.plan, &self.to_undo());
        }
    }

    fn reason_to_stop(&self) -> Option<(String, Then)> {
        // Asked at every turn, so the common answer must not cost a walk over ten thousand tasks.
        if !self.failed && self.view.cancel.is_none() {
            return None;
        }
        let failed = self.plan_tasks().find_map(|task| match &self.view.task(task).state {
            TaskState::Failed { reason } | TaskState::Blocked { reason } => Some((task, reason)),
            _ => None,
        });
        let irreversible = || {
            self.plan_tasks().find(|task| self.plan.task(*task).irreversible && self.view.task(*task).touched)
        };
        let (reason, undo) = match (failed, self.view.cancel) {
            (Some((task, reason)), _) => (
                format!("task {:?} failed: {reason}", self.plan.task(task).name),
                self.plan.on_failure == OnFailure::Undo,
            ),
            (None, Some(cancel)) => ("cancelled".to_owned(), cancel.undo),
            (None, None) => return None,
        };
        let stop = if failed.is_some() { Then::Fail } else { Then::Cancel };
        match irreversible() {
            Some(task) if undo => {
                let name = &self.plan.task(task).name;
                Some((format!("{reason}; not undone, since {name:?} cannot be taken back"), stop))
            }
            _ if undo => Some((reason, Then::Undo)),
            _ => Some((reason, stop)),
        }
    }

    fn plan_tasks(&self) -> impl Iterator<Item = TaskIndex> + use<> {
        (0..self.plan.tasks.len()).map(TaskIndex::from_at)
    }

    /// What the way back undoes: all that was touched, or the locks of scopes that may be left.
    fn to_undo(&self) -> BTreeSet<TaskIndex> {
        let touched = |task: &TaskIndex| self.view.task(*task).touched;
        if self.view.then == Some(Then::Undo) {
            return self.plan_tasks().filter(touched).collect();
        }
        let leaving: BTreeSet<ScopeIndex> = self.trees().filter(|tree| self.may_leave(*tree)).collect();
        let scopes = (0u32..)
            .zip(&self.plan.scopes)
            .filter(|(at, _)| leaving.contains(&self.plan.tree(ScopeIndex(*at))));
        scopes.filter_map(|(_, scope)| scope.enter).filter(touched).collect()
    }

    /// Trees whose locks this plan has.
    fn trees(&self) -> impl Iterator<Item = ScopeIndex> + '_ {
        let open = (0u32..).zip(&self.view.trees).filter(|(_, state)| **state != TreeState::Closed);
        open.map(|(at, _)| ScopeIndex(at))
    }

    /// A stopping plan leaves a tree unless an irreversible task has started in it.
    fn may_leave(&self, tree: ScopeIndex) -> bool {
        let holds = |task: TaskIndex| {
            self.plan.tree_of(task) == Some(tree)
                && self.plan.task(task).irreversible
                && self.view.task(task).touched
        };
        !self.plan_tasks().any(holds)
    }

    /// What may start, after the locks of trees that want to be entered have been asked for.
    async fn enter_trees(&mut self) -> Result<Start, JournalError> {
        let now = Timestamp::now();
        let mut start = self.next(now);
        if start.trees.is_empty() {
            return Ok(start);
        }
        // What the entry depends on is committed before it.
        self.commit_all().await?;
        let mut entered = false;
        for tree in start.trees.clone() {
            let resources = self.plan.resources(tree);
            // Trees of one plan exclude each other too; the journal only tells plans apart.
            if self
                .trees()
                .any(|other| self.plan.resources(other).iter().any(|resource| resources.contains(resource)))
            {
                continue;
            }
            let event = EventKind::ScopeEntered { scope: tree };
            let batch = Batch { events: vec![event.clone()], lock: resources, ..Batch::default() };
            match self.journal.append(self.lease, &batch).await {
                Ok(()) => {
                    self.view.apply(&event, now);
                    self.waiting.remove(&tree);
                    entered = true;
                }
                Err(JournalError { kind: JournalErrorKind::Locked { resource, holder }, .. }) => {
                    if self.waiting.insert(tree) {
                        self.record(EventKind::ScopeWaiting { scope: tree, resource, holder });
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if entered {
            let trees = std::mem::take(&mut start.trees);
            start = self.next(now);
            start.trees = trees;
        }
        Ok(start)
    }

    fn next(&self, now: Timestamp) -> Start {
        let mut start = self.schedule.next(&self.view, now, self.options.width);
        let stopping = matches!(self.view.state, PlanState::Stopping | PlanState::Undoing);
        if stopping && !self.unwinding {
            // Nothing new starts; what another executor left under way is followed to its end.
            start.trees.clear();
            start.wake = None;
            start.tasks.retain(|task| self.view.task(*task).state == TaskState::Unknown);
        }
        start
    }

    /// Records the starts and makes the attempts, which begin only after the commit.
    fn prepare(&mut self, start: &Start) {
        let direction = self.schedule.direction();
        for index in &start.tasks {
            let task = self.plan.task(*index);
            let attempt = self.view.next_attempt(*index, direction == Direction::Backward);
            self.record(match direction {
                Direction::Forward => EventKind::TaskStarted { task: *index, attempt },
                Direction::Backward => EventKind::UndoStarted { task: *index, attempt },
            });
            self.schedule.started(*index);
            let stop = CancellationToken::new();
            let stopping = self.view.state != PlanState::Running && direction == Direction::Forward;
            if stopping && self.view.cancel.is_some_and(|cancel| cancel.mode == CancelMode::Forceful) {
                stop.cancel();
            }
            self.stops.insert(*index, stop.clone());
            let outputs: BTreeMap<String, Value> = task
                .after
                .iter()
                .map(|after| (self.plan.task(*after).name.clone(), self.view.task(*after).output.clone()))
                .collect();
            let context = Context {
                key: format!("{}/{}/{}", self.journal.id(), self.lease.plan, task.name),
                attempt,
                task: *index,
                fence: self.lease.fence,
                stop,
                lease_until: self.lease_until.clone(),
                outputs: Arc::new(outputs),
                words: self.speak.clone(),
                spoken: Arc::new(AtomicUsize::new(0)),
            };
            let failures = self.view.task(*index).failures;
            self.prepared.push(Attempt {
                plan: Arc::clone(self.plan),
                context,
                direction,
                failures,
                only_finish: stopping,
            });
        }
    }

    /// Waits until something has happened and folds it in, with all else that has happened meanwhile.
    async fn wait(
        &mut self,
        start: &Start,
        notices: &mut mpsc::UnboundedReceiver<Notice>,
    ) -> Result<(), JournalError> {
        let locks = (!start.trees.is_empty()).then_some(LOCK_POLL);
        let retry = start.wake.map(|wake| {
            let pause = wake.duration_since(Timestamp::now());
            Duration::try_from(pause).unwrap_or(Duration::ZERO).max(Duration::from_millis(1))
        });
        let pause = [locks, retry].into_iter().flatten().min().unwrap_or(Duration::from_hours(1));
        let commit = async {
            match &mut self.commit {
                Some(commit) => (&mut commit.append).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            appended = commit => {
                appended?;
                self.committed();
            }
            Some(ended) = self.attempts.join_next(), if self.batch.events.len() < GROUP => self.ended(ended),
            Some(notice) = notices.recv() => match notice {
                Notice::Cancel(cancel) => self.cancel(cancel),
                Notice::Lost(error) => return Err(error),
            },
            Some((task, attempt, text)) = self.words.recv() => {
                self.batch.events.push(EventKind::TaskOutput { task, attempt, text });
            }
            () = tokio::time::sleep(pause) => {}
        }
        while self.batch.events.len() < GROUP
            && let Some(ended) = self.attempts.try_join_next()
        {
            self.ended(ended);
        }
        Ok(())
    }

    fn ended(&mut self, ended: Result<EventKind, tokio::task::JoinError>) {
        // An attempt catches its handler's panic; one of its own is a slip of ours and must be seen.
        let event = ended.expect("attempts do not panic and are not aborted while the run goes on");
        let task = event.task().expect("attempts end with an event of their task");
        self.stops.remove(&task);
        self.hear();
        self.failed |= matches!(event, EventKind::TaskFailed { retry_ms: None, .. });
        let done = matches!(event, EventKind::TaskSucceeded { .. } | EventKind::UndoSucceeded { .. });
        self.record(event);
        if done {
            self.schedule.done(task);
            self.leave_finished_tree(task);
        } else {
            self.schedule.ended(task);
        }
    }

    /// A tree is left with the success of its last task, in the same commit.
    fn leave_finished_tree(&mut self, task: TaskIndex) {
        let forward = self.schedule.direction() == Direction::Forward;
        let Some(tree) = self.plan.tree_of(task).filter(|tree| forward && self.schedule.tree_is_done(*tree))
        else {
            return;
        };
        self.leave(tree);
    }

    fn leave(&mut self, tree: ScopeIndex) {
        self.batch.unlock.extend(self.plan.resources(tree));
        self.record(EventKind::ScopeLeft { scope: tree });
    }

    /// Whether nothing is left to do in the direction that the plan goes.
    fn all_done(&self) -> bool {
        let undo_failed = self.unwinding
            && self.plan_tasks().any(|task| {
                self.view.task(task).undoing && matches!(self.view.task(task).state, TaskState::Failed { .. })
            });
        match self.view.state {
            PlanState::Running => self.schedule.is_done(),
            PlanState::Stopping | PlanState::Undoing => {
                self.unwinding && (self.schedule.is_done() || undo_failed)
            }
            _ => true,
        }
    }

    /// Leaves or holds the scopes, records the end and commits it.
    async fn end(&mut self) -> Result<Outcome, JournalError> {
        let stuck =
            self.plan_tasks().filter(|_| self.unwinding).find_map(|task| match &self.view.task(task).state {
                TaskState::Failed { reason } if self.view.task(task).undoing => {
                    Some(format!("task {:?} {reason}", self.plan.task(task).name))
                }
                _ => None,
            });
        let reason = self.view.reason.clone();
        let (state, reason) = match (self.view.state, self.view.then, stuck) {
            (PlanState::Running, ..) => (PlanState::Succeeded, None),
            (_, _, Some(stuck)) => {
                (PlanState::Failed, Some(format!("{}; {stuck}", reason.unwrap_or_default())))
            }
            (_, Some(Then::Undo), None) => (PlanState::Undone, reason),
            (_, Some(Then::Cancel), None) => (PlanState::Cancelled, reason),
            (_, _, None) => (PlanState::Failed, reason),
        };
        for tree in self.trees().collect::<Vec<_>>() {
            let still_locked =
                |scope: &crate::Scope| scope.enter.is_some_and(|enter| self.view.task(enter).touched);
            let scopes =
                (0u32..).zip(&self.plan.scopes).filter(|(at, _)| self.plan.tree(ScopeIndex(*at)) == tree);
            let locked =
                state == PlanState::Failed && scopes.into_iter().any(|(_, scope)| still_locked(scope));
            if locked || (state != PlanState::Undone && !self.may_leave(tree)) {
                self.record(EventKind::ScopeHeld { scope: tree });
            } else {
                self.leave(tree);
            }
        }
        self.leave_inherited().await?;
        self.record(EventKind::PlanEnded { state, reason: reason.clone() });
        self.batch.state = Some(state);
        self.commit_all().await?;
        Ok(Outcome { plan: self.lease.plan, state, reason })
    }

    /// Locks that came from a plan in whose place this one stands, and that no scope of it has taken up.
    async fn leave_inherited(&mut self) -> Result<(), JournalError> {
        let kept: BTreeSet<String> = self.trees().flat_map(|tree| self.plan.resources(tree)).collect();
        let ours = self.journal.locks().await?.into_iter().filter(|lock| lock.plan == self.lease.plan);
        self.batch.unlock.extend(ours.map(|lock| lock.resource).filter(|resource| !kept.contains(resource)));
        Ok(())
    }
}

/// Renews the lease while the run goes on, and listens for wishes. Tells when the lease is lost.
async fn keep_lease(
    journal: Arc<dyn Journal>,
    lease: Lease,
    options: Options,
    until: watch::Sender<Instant>,
    tell: mpsc::UnboundedSender<Notice>,
) {
    let mut renewed = Instant::now();
    let mut cancel = None;
    let lost = loop {
        tokio::time::sleep(options.wishes.min(options.term / 4)).await;
        if renewed.elapsed() >= options.term / 3 {
            match journal.renew(&lease, options.term).await {
                Ok(new) => {
                    renewed = Instant::now();
                    until.send_replace(new);
                }
                Err(error) if error.kind == JournalErrorKind::Lost => break error,
                // The journal may come back before the lease runs out.
                Err(error) if *until.borrow() <= Instant::now() => break error,
                Err(error) => tracing::warn!(%error, "the lease could not be renewed yet"),
            }
        }
        match journal.header(lease.plan).await {
            Ok(header) if header.cancel != cancel => {
                cancel = header.cancel;
                if let Some(cancel) = cancel
                    && tell.send(Notice::Cancel(cancel)).is_err()
                {
                    return;
                }
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "wishes could not be read"),
        }
    };
    if tell.send(Notice::Lost(lost)).is_err() {
        tracing::debug!("the run has ended already");
    }
}
