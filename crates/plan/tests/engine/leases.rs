//! Who executes: leases, fences, a process that sleeps past its lease, several that share the work.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use guywire_plan::{
    Engine, ExecutorId, JournalErrorKind, Options, Plan, PlanBuilder, PlanState, journal::Batch,
};
use rand::{RngExt, SeedableRng};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    stores::Store,
    world::{Input, Mark, Once, World, handlers, sample},
};

const TERM: Duration = Duration::from_millis(600);

/// Tasks one after the other, each slow enough to be caught in the middle.
fn slow_chain(length: usize) -> Plan {
    let mut plan = PlanBuilder::new("slow", "a slow chain");
    let phase = plan.phase("only");
    let mut before = None;
    for at in 0..length {
        let name = format!("slow{at}");
        let input = Input { pause_ms: 150, ..Input::named(&name) };
        before = Some(plan.task::<Mark>(phase, name, &input).after(before).add());
    }
    plan.task::<Once>(phase, "last", &Input::named("last")).after(before).add();
    plan.build().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Stops a process at a moment when it holds neither the world's lock nor the database's write lock: asleep
/// with one of them it would keep everybody from going on, and prove nothing about leases.
async fn stop_outside_locks(child: &Child, store: &Store) {
    for _ in 0..1000 {
        signal(child, Signal::STOP);
        // The signal is on its way when `kill` returns; on a busy machine a thread may still run for a while.
        until("it has stopped", async || is_stopped(child)).await;
        if is_free(store).await {
            return;
        }
        signal(child, Signal::CONT);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    panic!("it holds a lock whenever it is looked at");
}

/// Whether every thread of a process is stopped.
fn is_stopped(child: &Child) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let state = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    threads.into_iter().all(|thread| {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
        stat.is_ok_and(|stat| state(&stat))
    })
}

async fn is_free(store: &Store) -> bool {
    let lock = std::fs::File::create(store.world().join("lock")).unwrap();
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    if store.is_postgres() {
        return true;
    }
    let options: SqliteConnectOptions = store.place.parse().unwrap();
    let mut connection = SqliteConnection::connect_with(&options.busy_timeout(Duration::ZERO)).await.unwrap();
    let free = sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.is_ok();
    connection.close().await.unwrap();
    free
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !done().await {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_process_that_slept_past_its_lease_neither_acts_nor_records() {
    for store in Store::both().await {
        let world = World::new(&store.world());
        let engine =
            Engine::new(store.open().await, handlers(&world), Options { term: TERM, ..Options::default() });
        let id = engine.submit(&slow_chain(6)).await.unwrap();
        let mut sleeper =
            store.victim("run", id.0).env("TERM_MS", "600").stderr(Stdio::piped()).spawn().unwrap();
        until("it has acted", async || !world.deeds().is_empty()).await;
        stop_outside_locks(&sleeper, &store).await;
        let stopped_at = world.deeds().len();
        // Its lease runs out, this process takes over and ends the plan.
        until("its lease has run out", async || !store.open().await.header(id).await.unwrap().executing)
            .await;
        let report = engine.run(id).await.unwrap();
        assert_eq!(report.outcome.state, PlanState::Succeeded);
        let after_takeover = world.deeds();
        signal(&sleeper, Signal::CONT);
        let ended = sleeper.wait().unwrap();
        assert_eq!(ended.code(), Some(20), "it must find its lease lost");
        let deeds = world.deeds();
        let effects =
            |deeds: &[crate::world::Deed]| deeds.iter().filter(|(verb, ..)| verb == "apply").count();
        assert_eq!(effects(&deeds), effects(&after_takeover), "it acted after it woke: {deeds:?}");
        assert!(stopped_at < after_takeover.len());
        assert_eq!(world.counts("apply")["last"], 1);
        let journal = store.open().await;
        assert_eq!(journal.header(id).await.unwrap().state, PlanState::Succeeded);
    }
}

#[tokio::test]
async fn a_lost_lease_cannot_record_even_before_anybody_took_it_over() {
    for store in Store::both().await {
        let world = World::new(&store.world());
        let journal = store.open().await;
        let engine = Engine::new(journal.clone(), handlers(&world), Options::default());
        let id = engine.submit(&sample("", false)).await.unwrap();
        let (me, other) = (ExecutorId::new(), ExecutorId::new());
        let lease = journal.acquire(id, &me, Duration::from_millis(100)).await.unwrap();
        let held = journal.acquire(id, &other, TERM).await.unwrap_err();
        assert_eq!(held.kind, JournalErrorKind::Executing);
        tokio::time::sleep(Duration::from_millis(150)).await;
        let batch = || Batch { state: Some(PlanState::Failed), ..Batch::default() };
        assert_eq!(journal.append(&lease, &batch()).await.unwrap_err().kind, JournalErrorKind::Lost);
        assert_eq!(journal.renew(&lease, TERM).await.unwrap_err().kind, JournalErrorKind::Lost);
        let next = journal.acquire(id, &other, TERM).await.unwrap();
        assert!(next.fence > lease.fence);
        assert_eq!(journal.append(&lease, &batch()).await.unwrap_err().kind, JournalErrorKind::Lost);
        // Releasing a lease that is lost must not take it from its new holder.
        journal.release(&lease).await.unwrap();
        assert!(journal.header(id).await.unwrap().executing);
        assert_eq!(journal.header(id).await.unwrap().state, PlanState::Ready, "nothing was recorded");
    }
}

#[tokio::test]
async fn two_executors_share_plans_on_postgres_under_random_kills() {
    const PLANS: usize = 12;
    let store = Store::postgres().await;
    let world = World::new(&store.world());
    let engine = Engine::new(store.open().await, handlers(&world), Options::default());
    let mut plans = Vec::new();
    for at in 0..PLANS {
        let plan = sample(&format!("p{at}."), at % 3 == 2);
        plans.push((engine.submit(&plan).await.unwrap(), plan));
    }
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut dice = rand::rngs::StdRng::seed_from_u64(seed);
    let executor = || store.victim("work", 300_000).env("TERM_MS", "1000").spawn().unwrap();
    let mut executors = [executor(), executor()];
    let journal = store.open().await;
    let (mut kills, deadline) = (0, Instant::now() + Duration::from_secs(240));
    loop {
        tokio::time::sleep(Duration::from_millis(dice.random_range(50..400))).await;
        let left = journal.list(100).await.unwrap().iter().filter(|plan| plan.state.is_active()).count();
        if left == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{left} plans never ended");
        if kills < 25 {
            let victim = &mut executors[dice.random_range(0..2)];
            victim.kill().unwrap();
            victim.wait().unwrap();
            *victim = executor();
            kills += 1;
        }
    }
    for mut executor in executors {
        executor.kill().unwrap();
        executor.wait().unwrap();
    }
    println!("{PLANS} plans, {kills} kills");
    let deeds = world.deeds();
    assert!(deeds.iter().all(|(verb, ..)| verb != "DOUBLE"), "{deeds:?}");
    let applied = world.counts("apply");
    for (id, plan) in &plans {
        let undone = plan.tasks.iter().any(|task| task.handler.name == "fail");
        let state = journal.header(*id).await.unwrap().state;
        assert_eq!(state, if undone { PlanState::Undone } else { PlanState::Succeeded });
        for task in plan.tasks.iter().filter(|task| task.guarded) {
            assert_eq!(applied[&task.name], 1, "{}", task.name);
        }
    }
    assert_eq!(journal.locks().await.unwrap(), vec![]);
}
