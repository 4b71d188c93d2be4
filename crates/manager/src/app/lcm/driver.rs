//! Carries operations from state to state.
//!
//! Every manager drives every active operation. That is safe without any lock, because each step is one of three
//! things: a look, a plan that is accepted once under its key, or a write that is conditional on what was read. Who
//! comes second finds the work done and reads again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use guywire_plan::{Cursor, EngineError, EventKind, JournalErrorKind, Plan, PlanId, PlanState, PlanView};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Request, decide,
    finish::{complete, failed_temp, rolled_back},
    outline::{flavour, outline},
    stages::{self, Work, key},
    wishes::stop_plan,
};
use crate::{
    app::{App, grant, vims, works::WorksError},
    domain::{
        AppError, CancelMode, Direction, ErrorKind, Instance, Notice, Operation, OperationId, OperationState,
        OperationType, Problem, Stage, VimConnection,
    },
    store::{Step, StoreError, StoreErrorKind},
};

/// How often the database is asked for operations that another manager has accepted.
const LOOK: Duration = Duration::from_secs(1);
/// How long to wait before trying again what may work then.
const PAUSE: Duration = Duration::from_millis(500);
/// How often an observation or a plan that cannot be made is tried before the operation fails.
const TRIES: u32 = 10;

/// Drives all active operations until told to stop. Whatever runs then goes on where it stands at the next start.
pub async fn drive(app: App, stop: CancellationToken) {
    let carried = TaskTracker::new();
    let mut busy: BTreeSet<OperationId> = BTreeSet::new();
    let (done_tx, mut done_rx) = mpsc::unbounded_channel();
    let app = Arc::new(app);
    loop {
        let changed = app.store.changed();
        match app.store.active_operations().await {
            Ok(active) => {
                for id in active {
                    if busy.insert(id) {
                        let (app, stop, done) = (app.clone(), stop.clone(), done_tx.clone());
                        carried.spawn(async move {
                            tokio::select! {
                                () = stop.cancelled() => {}
                                () = carry(&app, id) => {}
                            }
                            if done.send(id).is_err() {
                                tracing::debug!(operation = %id, "the driver has stopped");
                            }
                        });
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "operations cannot be looked up; trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = changed => {}
            ended = done_rx.recv() => if let Some(id) = ended { busy.remove(&id); },
            () = tokio::time::sleep(LOOK) => {}
        }
        while let Ok(id) = done_rx.try_recv() {
            busy.remove(&id);
        }
    }
    carried.close();
    carried.wait().await;
}

/// What follows a step.
enum Next {
    /// Another step.
    Again,
    /// The plan's end.
    Await(PlanId),
    /// Nothing more, until somebody wishes something.
    Rest,
}

/// Carries one operation until it rests.
async fn carry(app: &App, id: OperationId) {
    let mut failures = 0;
    loop {
        match step(app, id, failures).await {
            Ok(Next::Again) => failures = 0,
            Ok(Next::Await(plan)) => {
                failures = 0;
                run(app, id, plan).await;
            }
            Ok(Next::Rest) => return,
            Err(Trouble::Stale) => {}
            Err(Trouble::Later(reason)) => {
                failures += 1;
                tracing::warn!(operation = %id, reason, failures, "an operation waits");
                tokio::time::sleep(PAUSE * failures.min(20)).await;
            }
        }
    }
}

/// Why a step was not taken.
enum Trouble {
    /// Somebody else took it.
    Stale,
    /// It may be possible later.
    Later(String),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        match error.kind {
            StoreErrorKind::Stale => Self::Stale,
            _ => Self::Later(error.message),
        }
    }
}

impl From<EngineError> for Trouble {
    fn from(error: EngineError) -> Self {
        Self::Later(error.to_string())
    }
}

impl From<guywire_plan::JournalError> for Trouble {
    fn from(error: guywire_plan::JournalError) -> Self {
        Self::Later(error.to_string())
    }
}

/// Takes the one step that comes next.
async fn step(app: &App, id: OperationId, failures: u32) -> Result<Next, Trouble> {
    let Some(operation) = app.store.operation(id).await? else { return Ok(Next::Rest) };
    if !operation.state.is_active() {
        return Ok(Next::Rest);
    }
    let Some(instance) = app.store.instance(operation.instance).await? else {
        return Err(Trouble::Later("its instance is not there".to_owned()));
    };
    if let Some(plan) = operation.plan {
        return after_plan(app, operation, &instance, plan).await;
    }
    if operation.cancel.is_some() && operation.stage != Stage::Finish {
        return cancelled(app, operation, instance).await;
    }
    if operation.target.is_none() && operation.operation != OperationType::ModifyInfo {
        return decided(app, operation, instance, failures).await;
    }
    if operation.stage == Stage::Finish {
        return finished(app, operation, instance).await;
    }
    planned(app, operation, instance, failures).await
}

/// Decides what the operation aims at, and speaks for the machines that it needs.
async fn decided(
    app: &App,
    mut operation: Operation,
    instance: Instance,
    failures: u32,
) -> Result<Next, Trouble> {
    let (target, warnings) = match aim(app, &operation, &instance).await {
        Ok(decided) => decided,
        Err(error) if error.retry && failures < TRIES => return Err(Trouble::Later(error.reason)),
        Err(error) => {
            let problem = problem(ErrorKind::Unprocessable, error.reason);
            rolled_back(app, operation, instance, Some(problem)).await?;
            return Ok(Next::Again);
        }
    };
    operation.warnings.extend(warnings);
    let (infra, add) = (target.infra.clone(), target.add.clone());
    operation.target = Some(target);
    let mut step = Step { claim: Some((&infra, &add)), ..Step::default() };
    if app.config.nfvo.is_none() {
        // Granted locally: nothing has to be asked for.
        enter_processing(&mut operation, &instance, &mut step);
    }
    match app.store.advance(&operation, step).await {
        Ok(()) => Ok(Next::Again),
        // Another operation was faster with an address: look again, and choose another.
        Err(error) if error.kind == StoreErrorKind::Taken && failures < TRIES => {
            Err(Trouble::Later("another operation was faster with an address".to_owned()))
        }
        Err(error) if error.kind == StoreErrorKind::Taken => {
            let problem =
                problem(ErrorKind::Unprocessable, "no name or address for a machine could be had".to_owned());
            operation.target = None;
            rolled_back(app, operation, instance, Some(problem)).await?;
            Ok(Next::Again)
        }
        Err(error) => Err(error.into()),
    }
}

async fn aim(
    app: &App,
    operation: &Operation,
    instance: &Instance,
) -> Result<(crate::domain::Target, Vec<String>), WorksError> {
    let later = |error: StoreError| WorksError { reason: error.message, retry: true };
    let never = |reason: String| WorksError { reason, retry: false };
    let refused = |error: AppError| {
        let retry = matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Internal);
        WorksError { reason: error.detail, retry }
    };
    let request = Request::parse(operation.operation, &operation.params)
        .map_err(|error| never(format!("the stored request cannot be read: {error}")))?;
    let package = app.store.package(instance.package).await.map_err(later)?;
    let vnfd = package.and_then(|package| package.vnfd);
    let vnfd = vnfd.ok_or_else(|| never("the instance's package is not there any more".to_owned()))?;
    let next = match &request {
        Request::ChangeVnfpkg(wanted) => app.store.package_of(&wanted.vnfd_id).await.map_err(later)?,
        _ => None,
    };
    let next_vnfd = next.as_ref().and_then(|package| package.vnfd.as_ref());
    let outline = outline(&request, instance, &vnfd, next_vnfd).map_err(refused)?;
    let (name, vim) = if let Some(info) = &instance.info {
        let vim = app.store.vim(info.vim).await.map_err(later)?;
        let vim = vim.ok_or_else(|| never(format!("VIM {} is not registered any more", info.vim)))?;
        (info.vim_connection.clone(), vim)
    } else {
        let wanted = match &request {
            Request::Instantiate(wanted) => wanted.vim_connection_info.0.clone(),
            _ => std::collections::BTreeMap::new(),
        };
        vims::resolve(&app.store, &wanted).await.map_err(refused)?
    };
    let place = app.works.place(&vim).await?;
    let observed = app.works.observe(&place.infra).await?;
    let claimed = app.store.claimed(&place.infra).await.map_err(later)?;
    let flavour = flavour(next_vnfd.unwrap_or(&vnfd), &outline.flavour).map_err(refused)?;
    let connection = VimConnection {
        vim_id: Some(vim.id.to_string()),
        vim_type: Some(vim.kind.as_str().to_owned()),
        ..instance.vims.get(&name).cloned().unwrap_or_default()
    };
    decide::target(&decide::Facts {
        operation: operation.id,
        instance,
        outline: &outline,
        flavour,
        vim: (name, vim.id),
        connection,
        place: &place,
        observed: &observed,
        claimed: &claimed,
        package: next.as_ref().zip(next_vnfd).map(|(package, vnfd)| (package.id, vnfd.id.clone())),
    })
    .map_err(never)
}

/// Plans the present stage, or goes on to the next one if it has nothing to do.
async fn planned(
    app: &App,
    mut operation: Operation,
    instance: Instance,
    failures: u32,
) -> Result<Next, Trouble> {
    // A plan that we accepted and died before we noted it.
    if let Some(plan) = app.engine.journal().find(&key(&operation)).await? {
        note_plan(app, &mut operation, plan).await?;
        return Ok(Next::Await(plan));
    }
    match work(app, &operation, &instance).await {
        Ok(Work { plan: None, warnings }) => {
            operation.warnings.extend(warnings);
            next_stage(app, operation, &instance).await?;
            Ok(Next::Again)
        }
        Ok(Work { plan: Some(plan), warnings }) => {
            operation.warnings.extend(warnings);
            let plan = app.engine.submit(&Plan { once: Some(key(&operation)), ..plan }).await?;
            note_plan(app, &mut operation, plan).await?;
            Ok(Next::Await(plan))
        }
        Err(error) if error.retry && failures < TRIES => Err(Trouble::Later(error.reason)),
        Err(error) => {
            let problem = problem(ErrorKind::Unprocessable, error.reason);
            fall(app, operation, instance, problem).await?;
            Ok(Next::Again)
        }
    }
}

async fn work(app: &App, operation: &Operation, instance: &Instance) -> Result<Work, WorksError> {
    let Some(target) = &operation.target else { return Ok(Work::default()) };
    match operation.stage {
        Stage::Grant => {
            if app.config.nfvo.is_none() {
                return Ok(Work::default());
            }
            let later = |error: StoreError| WorksError { reason: error.message, retry: true };
            let package = app.store.package(instance.package).await.map_err(later)?;
            let vnfd = package.and_then(|package| package.vnfd);
            let flavour = vnfd.as_ref().and_then(|vnfd| vnfd.flavour(&target.flavour));
            let request = grant::grant_request(operation, instance, target, flavour, &app.config.url);
            let title = format!("grant for {} {}", operation.operation.as_str(), operation.instance);
            let plan = grant::plan(&stages::subject(operation), &title, operation.id, request)
                .map_err(|error| WorksError { reason: error.to_string(), retry: false })?;
            Ok(Work { plan: Some(plan), warnings: Vec::new() })
        }
        Stage::Start | Stage::End => stages::point(app, operation, instance, target).await,
        Stage::Machines => stages::machines(app, operation, target).await,
        Stage::Finish => Ok(Work::default()),
    }
}

/// Notes which plan does the present stage.
async fn note_plan(app: &App, operation: &mut Operation, plan: PlanId) -> Result<(), Trouble> {
    operation.plan = Some(plan);
    operation.resumes = 0;
    if !operation.plans.contains(&plan) {
        operation.plans.push(plan);
    }
    app.store.advance(operation, Step::default()).await?;
    Ok(())
}

/// Executes a plan, or waits for whoever does.
async fn run(app: &App, id: OperationId, plan: PlanId) {
    let journal = app.engine.journal().clone();
    let ended = app.engine.run(plan).await;
    let Err(error) = ended else { return };
    let EngineError::Journal(refused) = &error else {
        tracing::warn!(operation = %id, plan = plan.0, %error, "a plan cannot be executed here");
        return tokio::time::sleep(PAUSE * 10).await;
    };
    match refused.kind {
        JournalErrorKind::Executing => {
            let newest = match app.engine.load(plan).await {
                Ok((_, view)) => view.cursor,
                Err(_) => Cursor(0),
            };
            if let Err(error) = journal.changed(newest, PAUSE).await {
                tracing::warn!(operation = %id, %error, "the journal does not answer");
                tokio::time::sleep(PAUSE).await;
            }
        }
        // It has ended: the next step sees how.
        JournalErrorKind::State => {}
        _ => {
            tracing::warn!(operation = %id, plan = plan.0, %error, "a plan was interrupted");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Looks how the plan of the present stage fares.
async fn after_plan(
    app: &App,
    mut operation: Operation,
    instance: &Instance,
    plan: PlanId,
) -> Result<Next, Trouble> {
    let header = app.engine.journal().header(plan).await?;
    match header.state {
        state if state.is_active() => {
            if operation.cancel.is_some() {
                stop_plan(app, &operation).await;
            }
            Ok(Next::Await(plan))
        }
        PlanState::Succeeded => {
            if operation.stage == Stage::Grant {
                let (_, view) = app.engine.load(plan).await?;
                operation.grant = granted(&view);
            }
            next_stage(app, operation, instance).await?;
            Ok(Next::Again)
        }
        PlanState::Superseded => {
            // A newer guywire made it anew under the same key.
            let successor = app.engine.journal().find(&key(&operation)).await?;
            let successor =
                successor.ok_or_else(|| Trouble::Later(format!("plan {plan} has no successor")))?;
            note_plan(app, &mut operation, successor).await?;
            Ok(Next::Await(successor))
        }
        PlanState::Failed | PlanState::Cancelled if resumed(app, plan).await? < operation.resumes => {
            app.engine.resume(plan).await?;
            Ok(Next::Await(plan))
        }
        _ => {
            let (spec, view) = app.engine.load(plan).await?;
            let problem = failure(&operation, &spec, &view);
            fall(app, operation, instance.clone(), problem).await?;
            Ok(Next::Again)
        }
    }
}

/// The id of the grant that the plan's one task has answered.
fn granted(view: &PlanView) -> Option<String> {
    let grant = view.tasks.first()?;
    grant.output.get("id").and_then(serde_json::Value::as_str).map(ToOwned::to_owned)
}

/// How often a plan was told to go on.
async fn resumed(app: &App, plan: PlanId) -> Result<u32, Trouble> {
    let (mut count, mut cursor) = (0, Cursor(0));
    loop {
        let events = app.engine.journal().events(Some(plan), cursor, 1000).await?;
        let Some(last) = events.last() else { return Ok(count) };
        cursor = last.seq;
        let resumed = events.iter().filter(|event| matches!(event.kind, EventKind::PlanResumed)).count();
        count += u32::try_from(resumed).unwrap_or(u32::MAX);
    }
}

/// Goes on to the next stage, and tells if that is another state.
async fn next_stage(app: &App, mut operation: Operation, instance: &Instance) -> Result<(), Trouble> {
    let mut step = Step::default();
    match operation.stage {
        Stage::Grant => enter_processing(&mut operation, instance, &mut step),
        Stage::Start => operation.stage = Stage::Machines,
        Stage::Machines => {
            if operation.direction == Direction::Forward {
                note_addresses(app, &mut operation).await?;
            }
            operation.stage = Stage::End;
        }
        Stage::End | Stage::Finish => operation.stage = Stage::Finish,
    }
    operation.plan = None;
    operation.resumes = 0;
    app.store.advance(&operation, step).await?;
    Ok(())
}

/// Notes the addresses that new machines have.
async fn note_addresses(app: &App, operation: &mut Operation) -> Result<(), Trouble> {
    let Some(target) = &mut operation.target else { return Ok(()) };
    if target.add.is_empty() && target.replace.is_empty() {
        return Ok(());
    }
    let observed = app.works.observe(&target.infra).await.map_err(|error| Trouble::Later(error.reason))?;
    let renewed = target.replace.iter_mut().map(|(next, _)| next);
    for vnfc in target.add.iter_mut().chain(renewed) {
        vnfc.addresses = observed.machine(&vnfc.machine.name).map(|machine| machine.addresses);
    }
    Ok(())
}

fn enter_processing(operation: &mut Operation, instance: &Instance, step: &mut Step<'_>) {
    operation.state = OperationState::Processing;
    operation.entered = Timestamp::now();
    operation.stage = Stage::Start;
    step.notices.push(Notice::Operation {
        operation: Box::new(operation.clone()),
        instance: Box::new(instance.clone()),
    });
}

async fn finished(app: &App, operation: Operation, instance: Instance) -> Result<Next, Trouble> {
    match operation.direction {
        Direction::Forward => {
            complete(app, operation, instance).await.map_err(|error| match error.kind {
                ErrorKind::Conflict => Trouble::Stale,
                _ => Trouble::Later(error.detail),
            })?;
        }
        Direction::Back => rolled_back(app, operation, instance, None).await?,
    }
    Ok(Next::Again)
}

/// Stops where it stands, since somebody wished so.
async fn cancelled(app: &App, operation: Operation, instance: Instance) -> Result<Next, Trouble> {
    // A plan that was accepted before the wish, and not yet noted.
    if let Some(plan) = app.engine.journal().find(&key(&operation)).await? {
        let mut operation = operation;
        note_plan(app, &mut operation, plan).await?;
        return Ok(Next::Again);
    }
    let how = match operation.cancel {
        Some(CancelMode::Forceful) => "FORCEFUL",
        _ => "GRACEFUL",
    };
    let problem = problem(ErrorKind::Conflict, format!("the operation was cancelled ({how})"));
    fall(app, operation, instance, problem).await?;
    Ok(Next::Again)
}

/// An operation that has not begun is over; one that has waits for what somebody wishes.
async fn fall(
    app: &App,
    operation: Operation,
    instance: Instance,
    problem: Problem,
) -> Result<(), StoreError> {
    if operation.state == OperationState::Starting {
        return rolled_back(app, operation, instance, Some(problem)).await;
    }
    failed_temp(app, operation, &instance, problem).await
}

fn problem(kind: ErrorKind, detail: String) -> Problem {
    AppError::new(kind, detail).problem()
}

/// Why a plan stopped: the tasks that failed, each with its reason.
fn failure(operation: &Operation, spec: &Plan, view: &PlanView) -> Problem {
    let failed = spec
        .tasks
        .iter()
        .zip(&view.tasks)
        .filter_map(|(task, view)| view.state.reason().map(|reason| format!("{}: {reason}", task.name)));
    let mut reasons: Vec<String> = failed.take(5).collect();
    if reasons.is_empty() {
        reasons
            .push(view.reason.clone().unwrap_or_else(|| format!("plan {} {}", view.id, view.state.as_str())));
    }
    if view.state == PlanState::Cancelled {
        let detail = format!("the operation was cancelled; {}", reasons.join("; "));
        return problem(ErrorKind::Conflict, detail);
    }
    let detail = reasons.join("; ");
    if operation.stage == Stage::Grant {
        return problem(ErrorKind::Forbidden, format!("Grant failed: {detail}"));
    }
    problem(ErrorKind::Unprocessable, detail)
}
