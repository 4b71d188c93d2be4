//! A process that executes plans and is made to die: the engine's tests run it.
//!
//! `victim JOURNAL WORLD run PLAN | work MILLISECONDS`. JOURNAL is a file or a postgres URL.
//! `ABORT_BEFORE=n` and `ABORT_AFTER=n` abort around the n-th write to the journal, `ABORT_EFFECT=n` after
//! the n-th effect on the world, `TERM_MS` sets the lease.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use guywire_plan::{
    Engine, EngineError, Journal, JournalErrorKind, Options, PlanId, PlanState,
    journal::{PostgresJournal, SqliteJournal},
};
use tokio_util::sync::CancellationToken;

#[path = "../tests/engine/aborting.rs"]
mod aborting;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/engine/world.rs"]
mod world;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, world, verb, what] = arguments.as_slice() else { return ExitCode::from(2) };
    let journal: Arc<dyn Journal> = if place.starts_with("postgres:") {
        Arc::new(PostgresJournal::open(place).await.unwrap())
    } else {
        Arc::new(SqliteJournal::open(Path::new(place)).await.unwrap())
    };
    let journal: Arc<dyn Journal> = Arc::new(aborting::Aborting::new(journal));
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let term = Duration::from_millis(number("TERM_MS").unwrap_or(10_000));
    let options = Options { term, ..Options::default() };
    let engine = Engine::new(journal, world::handlers(&world::World::new(Path::new(world))), options);
    let what: i64 = what.parse().unwrap();
    if verb == "work" {
        let stop = CancellationToken::new();
        let timer = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(what.unsigned_abs())).await;
            timer.cancel();
        });
        engine.work(stop).await;
        return ExitCode::SUCCESS;
    }
    match engine.run(PlanId(what)).await {
        Ok(report) if report.outcome.state == PlanState::Succeeded => ExitCode::SUCCESS,
        Ok(report) if report.outcome.state == PlanState::Undone => ExitCode::from(10),
        Ok(report) => {
            eprintln!("{:?}", report.outcome);
            ExitCode::from(11)
        }
        Err(EngineError::Journal(error)) if error.kind == JournalErrorKind::Lost => ExitCode::from(20),
        Err(EngineError::Journal(error)) if error.kind == JournalErrorKind::State => ExitCode::from(21),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}
