//! Kill it anywhere: every effect exactly once (guarded) or idempotently, in order, and the plan ends.

use std::{collections::BTreeMap, os::unix::process::ExitStatusExt, process::Command};

use guywire_plan::{Engine, Options, Plan, PlanId, TaskIndex};
use rand::{RngExt, SeedableRng};

use crate::{
    stores::Store,
    world::{World, handlers, sample},
};

const SIGABRT: i32 = 6;

/// Submits the sample plan and says how the victim ends it when nothing goes wrong.
async fn prepared(store: &Store, fails: bool) -> (PlanId, Plan, i32) {
    let world = World::new(&store.world());
    let plan = sample("", fails);
    let engine = Engine::new(store.open().await, handlers(&world), Options::default());
    let id = engine.submit(&plan).await.unwrap();
    (id, plan, if fails { 10 } else { 0 })
}

fn ended(command: &mut Command) -> (Option<i32>, Option<i32>) {
    let status = command.output().unwrap();
    if let Some(code @ (1 | 11)) = status.status.code() {
        panic!("victim ended with {code}: {}", String::from_utf8_lossy(&status.stderr));
    }
    (status.status.code(), status.status.signal())
}

/// What must be true of the world after the plan has ended, however often it died on the way.
fn judge(world: &World, plan: &Plan, fails: bool) {
    let deeds = world.deeds();
    assert!(deeds.iter().all(|(verb, ..)| verb != "DOUBLE"), "a guarded step was done twice: {deeds:?}");
    let applied = world.counts("apply");
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, (verb, name, _)) in deeds.iter().enumerate() {
        if verb == "apply" {
            first.entry(name).or_insert(at);
            last.insert(name, at);
        }
    }
    for (at, task) in plan.tasks.iter().enumerate() {
        let name = task.name.as_str();
        if task.handler.name == "fail" {
            continue;
        }
        let times = applied.get(name).copied().unwrap_or(0);
        if task.guarded {
            assert_eq!(times, 1, "{name} was applied {times} times: {deeds:?}");
        } else {
            assert!(times >= 1, "{name} was never applied");
        }
        for after in &plan.task(TaskIndex::from_at(at)).after {
            let before = plan.task(*after).name.as_str();
            assert!(last[before] < first[name], "{name} began before {before} was done");
        }
        assert_eq!(world.is_done(name), !fails, "{name} at the end");
    }
    if fails {
        let undone = world.counts("undo");
        for task in plan.tasks.iter().filter(|task| task.handler.name != "fail") {
            assert!(undone.contains_key(&task.name), "{} was not undone", task.name);
        }
        // Back in reverse: what a task waited for stays until the task is gone.
        let last_undo =
            |name: &str| deeds.iter().rposition(|(verb, deed, _)| verb == "undo" && deed == name).unwrap();
        let first_undo =
            |name: &str| deeds.iter().position(|(verb, deed, _)| verb == "undo" && deed == name).unwrap();
        for task in plan.tasks.iter().filter(|task| task.handler.name != "fail") {
            for after in &task.after {
                let before = &plan.task(*after).name;
                assert!(
                    last_undo(&task.name) < first_undo(before),
                    "{before} was undone under {}",
                    task.name
                );
            }
        }
    }
}

async fn locks_are_gone(store: &Store) {
    assert_eq!(store.open().await.locks().await.unwrap(), vec![]);
}

/// Aborts before and after every single write, once with each plan.
async fn every_write(store: impl AsyncFn() -> Store, term_ms: &str) -> usize {
    let mut aborts = 0;
    for (fails, variable) in
        [(false, "ABORT_BEFORE"), (false, "ABORT_AFTER"), (true, "ABORT_BEFORE"), (true, "ABORT_AFTER")]
    {
        let (mut number, mut lost) = (1, 0);
        loop {
            let store = store().await;
            let (id, plan, good) = prepared(&store, fails).await;
            let (code, signal) =
                ended(store.victim("run", id.0).env(variable, number.to_string()).env("TERM_MS", term_ms));
            let aborted = signal == Some(SIGABRT);
            // A short lease that ran out on a busy machine before the abort has proved nothing about this
            // write: the plan must still end well, and the same write is tried again.
            let early = code == Some(20);
            if aborted || early {
                let ended = finish(&store, id, term_ms, good);
                assert!(ended == good || ended == 21, "write {number} {variable}: ended with {ended}");
            } else {
                assert_eq!(code, Some(good));
            }
            judge(&World::new(&store.world()), &plan, fails);
            locks_are_gone(&store).await;
            if aborted {
                aborts += 1;
                number += 1;
            } else if early {
                lost += 1;
                assert!(lost < 50, "the machine is too busy for a lease of {term_ms} ms");
            } else {
                break;
            }
        }
    }
    aborts
}

/// Starts it again until it has ended; on `PostgreSQL` the dead one's lease must run out first.
fn finish(store: &Store, id: PlanId, term_ms: &str, good: i32) -> i32 {
    for _ in 0..200 {
        let output = store.victim("run", id.0).env("TERM_MS", term_ms).output().unwrap();
        match output.status.code() {
            Some(code) if code == good || code == 21 => return code,
            // On a busy machine a short lease may run out under its holder: whoever comes next goes on.
            Some(20) => {}
            Some(1) if String::from_utf8_lossy(&output.stderr).contains("another process executes") => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            other => {
                panic!("restarted, it ended with {other:?}: {}", String::from_utf8_lossy(&output.stderr))
            }
        }
    }
    panic!("the lease never ran out");
}

#[tokio::test]
async fn aborted_around_every_commit_on_sqlite() {
    let aborts = every_write(async || Store::sqlite_in_memory(), "10000").await;
    println!("{aborts} aborts, every one recovered");
    assert!(aborts > 80, "only {aborts} aborts: is the plan that short?");
}

#[tokio::test]
async fn aborted_around_every_commit_on_postgres() {
    let aborts = every_write(Store::postgres, "400").await;
    println!("{aborts} aborts, every one recovered");
    assert!(aborts > 80, "only {aborts} aborts: is the plan that short?");
}

/// A thousand lives, each with random deaths: around writes and in the middle of handlers.
#[test]
fn a_thousand_runs_with_random_aborts() {
    const RUNS: u64 = 1000;
    let seed: u64 =
        std::env::var("GUYWIRE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random);
    println!("GUYWIRE_SEED={seed} repeats this");
    let next = std::sync::atomic::AtomicU64::new(0);
    let deaths = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                loop {
                    let run = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    if run >= RUNS {
                        break;
                    }
                    let died = runtime.block_on(one_random_life(seed.wrapping_add(run), run % 2 == 1));
                    deaths.fetch_add(died, std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
    println!("{RUNS} runs, {} deaths, every one recovered", deaths.into_inner());
}

async fn one_random_life(seed: u64, fails: bool) -> u64 {
    let mut dice = rand::rngs::StdRng::seed_from_u64(seed);
    let store = Store::sqlite_in_memory();
    let (id, plan, good) = prepared(&store, fails).await;
    let mut deaths = 0;
    loop {
        let mut victim = store.victim("run", id.0);
        // After some deaths it may live, so that every run ends.
        if deaths < 4 {
            let variable = ["ABORT_BEFORE", "ABORT_AFTER", "ABORT_EFFECT"][dice.random_range(0..3)];
            victim.env(variable, dice.random_range(1..25).to_string());
        }
        match ended(&mut victim) {
            (_, Some(SIGABRT)) => deaths += 1,
            (Some(code), _) if code == good || code == 21 => break,
            other => panic!("seed {seed}: ended with {other:?}"),
        }
    }
    judge(&World::new(&store.world()), &plan, fails);
    locks_are_gone(&store).await;
    deaths
}
