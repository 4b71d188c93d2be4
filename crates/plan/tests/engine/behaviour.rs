//! How plans go: retries, timeouts, blocks, cancels, scopes, undo, upgrades.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use guywire_plan::{
    Cancel, CancelMode, Context, Cursor, Engine, EngineError, EventKind, Handler, Handlers, Journal,
    OnFailure, Options, Plan, PlanBuilder, PlanId, PlanState, Planner, Probe, Retry, TaskError, TaskState,
    TreeState,
};
use serde_json::Value;

use crate::{
    stores::Store,
    world::{Endless, Fail, Final, Input, Mark, Mark2, Once, World, handlers},
};

struct Bench {
    store: Store,
    world: World,
    engine: Engine,
}

async fn bench() -> Bench {
    let store = Store::sqlite();
    let world = World::new(&store.world());
    let engine = Engine::new(store.open().await, handlers(&world), Options::default());
    Bench { store, world, engine }
}

impl Bench {
    async fn run(&self, plan: PlanBuilder) -> (PlanId, PlanState, Option<String>) {
        let id = self.engine.submit(&plan.build().unwrap()).await.unwrap();
        let outcome = self.engine.run(id).await.unwrap().outcome;
        (id, outcome.state, outcome.reason)
    }

    async fn task_state(&self, id: PlanId, name: &str) -> TaskState {
        let (plan, view) = self.engine.load(id).await.unwrap();
        let at = plan.tasks.iter().position(|task| task.name == name).unwrap();
        view.tasks[at].state.clone()
    }
}

fn plan() -> (PlanBuilder, u32) {
    let mut plan = PlanBuilder::new("test", "a test");
    let phase = plan.phase("only");
    (plan, phase)
}

/// Takes longer than it may.
struct Slow;

impl Handler for Slow {
    const NAME: &'static str = "slow";
    const VERSION: u32 = 1;
    const TIMEOUT: Duration = Duration::from_millis(50);
    const RETRY: Retry = Retry { tries: 2, first_ms: 1, most_ms: 1 };
    type Input = ();
    type Output = ();

    async fn probe(&self, _: &Context, (): &()) -> Result<Probe<()>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, (): &()) -> Result<(), TaskError> {
        context.stop().cancelled().await;
        Err(TaskError::retry("stopped the remote unit"))
    }
}

struct Panics;

impl Handler for Panics {
    const NAME: &'static str = "panics";
    const VERSION: u32 = 1;
    const RETRY: Retry = Retry::ONCE;
    type Input = ();
    type Output = ();

    async fn probe(&self, _: &Context, (): &()) -> Result<Probe<()>, TaskError> {
        panic!("a slip")
    }

    async fn apply(&self, _: &Context, (): &()) -> Result<(), TaskError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_timeout_stops_the_task_and_says_so_with_the_attempt() {
    let bench = bench().await;
    let engine =
        Engine::new(bench.store.open().await, Handlers::new().with(Slow).with(Panics), Options::default());
    let (mut slow, phase) = plan();
    slow.task::<Slow>(phase, "slow", &()).add();
    let id = engine.submit(&slow.build().unwrap()).await.unwrap();
    let outcome = engine.run(id).await.unwrap().outcome;
    assert_eq!(outcome.state, PlanState::Failed);
    assert_eq!(
        outcome.reason.unwrap(),
        "task \"slow\" failed: timed out after 0.1 s (stopped the remote unit) (attempt 2 of 2)"
    );
    let (mut panics, phase) = plan();
    panics.task::<Panics>(phase, "panics", &()).add();
    let id = engine.submit(&panics.build().unwrap()).await.unwrap();
    let outcome = engine.run(id).await.unwrap().outcome;
    assert!(outcome.reason.unwrap().contains("panicked"), "a panic is the task's failure, not ours");
}

#[tokio::test]
async fn an_uncertain_guarded_task_is_blocked_and_never_applied() {
    let bench = bench().await;
    let (mut builder, phase) = plan();
    builder.task::<Once>(phase, "uncertain", &Input::named("uncertain")).add();
    let (id, state, reason) = bench.run(builder).await;
    assert_eq!(state, PlanState::Failed);
    assert!(reason.unwrap().contains("cannot be told whether it was before: the node does not answer"));
    assert!(matches!(bench.task_state(id, "uncertain").await, TaskState::Blocked { .. }));
    assert!(bench.world.deeds().is_empty());
}

#[tokio::test]
async fn every_handler_bears_being_run_twice_in_a_row() {
    let bench = bench().await;
    for _ in 0..2 {
        let (mut builder, phase) = plan();
        builder.task::<Mark>(phase, "a", &Input::named("a")).add();
        builder.task::<Once>(phase, "b", &Input::named("b")).add();
        let (_, state, _) = bench.run(builder).await;
        assert_eq!(state, PlanState::Succeeded);
    }
    assert_eq!(
        bench.world.counts("apply").values().copied().collect::<Vec<_>>(),
        vec![1, 1],
        "the probe found them done"
    );
}

#[tokio::test]
async fn a_forceful_cancel_from_another_process_stops_a_running_task() {
    for mode in [CancelMode::Forceful, CancelMode::Graceful] {
        let bench = bench().await;
        let (mut builder, phase) = plan();
        let endless = builder.task::<Endless>(phase, "endless", &Input::named("endless")).add();
        builder.task::<Mark>(phase, "after", &Input::named("after")).after([endless]).add();
        let id = bench.engine.submit(&builder.build().unwrap()).await.unwrap();
        let running = tokio::spawn({
            let engine = bench.engine.clone();
            async move { engine.run(id).await.unwrap().outcome }
        });
        while bench.world.deeds().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let second = Engine::new(bench.store.open().await, Handlers::new(), Options::default());
        second.cancel(id, Cancel { mode, undo: false }).await.unwrap();
        if mode == CancelMode::Graceful {
            // Running tasks end by themselves, and this one never would: the stronger wish comes later.
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(!running.is_finished());
            second.cancel(id, Cancel { mode: CancelMode::Forceful, undo: false }).await.unwrap();
        }
        let outcome = running.await.unwrap();
        assert_eq!(outcome.state, PlanState::Cancelled);
        assert_eq!(
            bench.world.deeds().last().unwrap().0,
            "stopped",
            "the remote work was stopped, not abandoned"
        );
        assert_eq!(bench.task_state(id, "endless").await, TaskState::Stopped);
        assert_eq!(bench.task_state(id, "after").await, TaskState::Pending);
        let events = bench.engine.journal().events(Some(id), Cursor(0), 100).await.unwrap();
        assert!(events.iter().any(
            |event| matches!(&event.kind, EventKind::TaskOutput { text, .. } if text == "running on a node")
        ));
    }
}

/// One lock pair around `body`, with `Final` in it or not.
fn scoped(irreversible: bool) -> PlanBuilder {
    let (mut builder, phase) = plan();
    let outer = builder.scope("node/m1", None);
    let inner = builder.scope("node/m1", Some(outer));
    builder.task::<Mark>(phase, "lock", &Input::named("lock")).enters(outer).add();
    builder.task::<Mark>(phase, "drain", &Input::named("drain")).enters(inner).add();
    let body = if irreversible {
        builder.task::<Final>(phase, "body", &Input::named("body")).within(inner).add()
    } else {
        builder.task::<Mark>(phase, "body", &Input::named("body")).within(inner).add()
    };
    builder.task::<Fail>(phase, "fail", &Input::named("fail")).within(inner).after([body]).add();
    builder.task::<Mark>(phase, "unlock", &Input::named("unlock")).exits(outer).add();
    builder
}

#[tokio::test]
async fn scopes_are_left_innermost_first_before_anything_irreversible_and_held_after() {
    let bench1 = bench().await;
    let (id, state, _) = bench1.run(scoped(false)).await;
    assert_eq!(state, PlanState::Failed);
    let undone: Vec<String> = bench1
        .world
        .deeds()
        .into_iter()
        .filter(|(verb, ..)| verb == "undo")
        .map(|(_, name, _)| name)
        .collect();
    assert_eq!(undone, ["drain", "lock"], "only the locks, the inner one first");
    assert!(bench1.world.is_done("body"), "what was done inside stays");
    assert_eq!(bench1.engine.journal().locks().await.unwrap(), vec![]);
    // Resumed, it locks again and goes on.
    bench1.engine.resume(id).await.unwrap();
    assert_eq!(bench1.engine.run(id).await.unwrap().outcome.state, PlanState::Failed);
    assert_eq!(bench1.world.counts("apply")["lock"], 2);
    assert_eq!(bench1.world.counts("apply")["body"], 1);

    let bench2 = bench().await;
    let (id, state, _) = bench2.run(scoped(true)).await;
    assert_eq!(state, PlanState::Failed);
    assert!(bench2.world.counts("undo").is_empty(), "the node stays locked");
    assert_eq!(bench2.engine.journal().locks().await.unwrap()[0].plan, id);
    let (_, view) = bench2.engine.load(id).await.unwrap();
    assert_eq!(view.trees[0], TreeState::Held);
    // Another plan that wants the node waits for it.
    let waiting = bench2.engine.submit(&scoped(false).build().unwrap()).await.unwrap();
    let engine = bench2.engine.clone();
    let run = tokio::spawn(async move { engine.run(waiting).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let events = bench2.engine.journal().events(Some(waiting), Cursor(0), 100).await.unwrap();
    assert!(
        events
            .iter()
            .any(|event| matches!(&event.kind, EventKind::ScopeWaiting { holder, .. } if *holder == id))
    );
    bench2.engine.cancel(waiting, Cancel { mode: CancelMode::Graceful, undo: false }).await.unwrap();
    assert_eq!(run.await.unwrap().unwrap().outcome.state, PlanState::Cancelled);
}

#[tokio::test]
async fn an_undo_stops_at_what_cannot_be_taken_back() {
    let bench = bench().await;
    let (builder, phase) = plan();
    let mut builder = builder.on_failure(OnFailure::Undo);
    let first = builder.task::<Mark>(phase, "first", &Input::named("first")).add();
    let last = builder.task::<Final>(phase, "last", &Input::named("last")).after([first]).add();
    builder.task::<Fail>(phase, "fail", &Input::named("fail")).after([last]).add();
    let (_, state, reason) = bench.run(builder).await;
    assert_eq!(state, PlanState::Failed);
    assert!(reason.unwrap().ends_with("not undone, since \"last\" cannot be taken back"));
    assert!(bench.world.is_done("first"));
}

/// Makes the plan anew with the handlers of the newer version.
struct NewPlanner(World);

#[async_trait]
impl Planner for NewPlanner {
    async fn plan(&self, request: &Value) -> Result<Option<Plan>, TaskError> {
        let names: Vec<String> = serde_json::from_value(request.clone()).map_err(TaskError::fatal)?;
        let mut plan = PlanBuilder::new("upgraded", "made anew").request(request.clone()).subject("site/1");
        let phase = plan.phase("only");
        // What is there already needs no task: observed state decides.
        for name in names.iter().filter(|name| !self.0.is_done(name)) {
            plan.task::<Mark2>(phase, name, &Input::named(name)).add();
        }
        plan.build().map(Some).map_err(TaskError::fatal)
    }
}

/// A plan of three steps of version 1 that an older guywire has left after the first.
async fn half_done(bench: &Bench) -> PlanId {
    let (builder, phase) = plan();
    let mut builder = builder.subject("site/1").request(serde_json::json!(["a", "b", "c"]));
    let first = builder.task::<Mark>(phase, "a", &Input::named("a")).add();
    let flaky = Input { failures: 9, ..Input::named("b") };
    let second = builder.task::<Mark>(phase, "b", &flaky).after([first]).retry(Retry::ONCE).add();
    builder.task::<Mark>(phase, "c", &Input::named("c")).after([second]).add();
    let mut plan = builder.build().unwrap();
    plan.kind = "upgraded".into();
    let id = bench.engine.submit(&plan).await.unwrap();
    assert_eq!(bench.engine.run(id).await.unwrap().outcome.state, PlanState::Failed);
    bench.engine.resume(id).await.unwrap();
    id
}

#[tokio::test]
async fn an_upgrade_in_the_middle_runs_on_replans_or_says_that_it_cannot() {
    // With the old version still registered beside the new one, the plan runs on with the old one.
    let bench1 = bench().await;
    let id = half_done(&bench1).await;
    let both = handlers(&bench1.world).with(Mark2(bench1.world.clone()));
    let upgraded = Engine::new(bench1.store.open().await, both, Options::default());
    let outcome = upgraded.run(id).await.unwrap().outcome;
    assert_eq!(
        (outcome.plan, outcome.state),
        (id, PlanState::Failed),
        "b of version 1 fails on, as it was written"
    );

    // With only the new version it is made anew from what is there.
    let bench2 = bench().await;
    let id = half_done(&bench2).await;
    let new = || Handlers::new().with(Mark2(bench2.world.clone()));
    let planner = NewPlanner(bench2.world.clone());
    let upgraded =
        Engine::new(bench2.store.open().await, new().with_planner("upgraded", planner), Options::default());
    let outcome = upgraded.run(id).await.unwrap().outcome;
    assert_ne!(outcome.plan, id);
    assert_eq!(outcome.state, PlanState::Succeeded);
    assert_eq!(bench2.world.counts("apply")["a"], 1, "what was done is not done again");
    assert_eq!(bench2.engine.journal().header(id).await.unwrap().state, PlanState::Superseded);

    // Without a planner nothing is guessed: the plan stays as it is.
    let bench3 = bench().await;
    let id = half_done(&bench3).await;
    let journal: Arc<dyn Journal> = bench3.store.open().await;
    let stranger =
        Engine::new(journal, Handlers::new().with(Mark2(bench3.world.clone())), Options::default());
    let error = stranger.run(id).await.unwrap_err();
    assert!(matches!(error, EngineError::Upgrade { .. }), "{error}");
    assert!(error.to_string().contains("needs handler mark@1"), "{error}");
    let header = bench3.engine.journal().header(id).await.unwrap();
    assert_eq!((header.state, header.executing), (PlanState::Running, false));
}

#[tokio::test]
async fn bad_plans_are_refused_whole() {
    let bench = bench().await;
    let (mut builder, phase) = plan();
    builder.task::<Slow>(phase, "slow", &()).add();
    let error = bench.engine.submit(&builder.build().unwrap()).await.unwrap_err().to_string();
    assert!(
        error.contains("needs handler slow@1, which is not registered; registered are endless@1"),
        "{error}"
    );
    assert!(bench.engine.journal().list(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn cancel_with_undo_takes_back_what_was_done() {
    let bench = bench().await;
    let (mut builder, phase) = plan();
    let first = builder.task::<Mark>(phase, "first", &Input::named("first")).add();
    builder.task::<Endless>(phase, "endless", &Input::named("endless")).after([first]).add();
    let id = bench.engine.submit(&builder.build().unwrap()).await.unwrap();
    let engine = bench.engine.clone();
    let run = tokio::spawn(async move { engine.run(id).await.unwrap().outcome });
    while bench.world.deeds().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bench.engine.cancel(id, Cancel { mode: CancelMode::Forceful, undo: true }).await.unwrap();
    assert_eq!(run.await.unwrap().state, PlanState::Undone);
    assert!(!bench.world.is_done("first"));
}
