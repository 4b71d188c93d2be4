//! What the journal costs: a plan of no-op tasks against as many bare commits with the same driver.
//!
//! `bench TASKS WIDTH DIRECTORY` prints one JSON object. `cargo xtask bench` runs it and judges.

use std::{path::Path, sync::Arc, time::Instant};

use guywire_plan::{
    Context, Engine, Handler, Handlers, Options, PlanBuilder, PlanState, Probe, TaskError,
    journal::SqliteJournal,
};
use sqlx::{
    Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

struct Nothing;

impl Handler for Nothing {
    const NAME: &'static str = "nothing";
    const VERSION: u32 = 1;
    type Input = ();
    type Output = ();

    async fn probe(&self, _: &Context, (): &()) -> Result<Probe<()>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, _: &Context, (): &()) -> Result<(), TaskError> {
        Ok(())
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tasks, width, directory] = arguments.as_slice() else {
        panic!("usage: bench TASKS WIDTH DIRECTORY")
    };
    let (tasks, width): (usize, u32) = (tasks.parse().unwrap(), width.parse().unwrap());
    let directory = tempfile::tempdir_in(directory).unwrap();

    let mut plan = PlanBuilder::new("bench", "no-op tasks").width("bench", width);
    let phase = plan.phase("only");
    for at in 0..tasks {
        plan.task::<Nothing>(phase, format!("task {at}"), &()).uses("bench").add();
    }
    let plan = plan.build().unwrap();
    let journal = Arc::new(SqliteJournal::open(&directory.path().join("journal.db")).await.unwrap());
    let engine = Engine::new(journal, Handlers::new().with(Nothing), Options::default());
    let begin = Instant::now();
    let id = engine.submit(&plan).await.unwrap();
    let report = engine.run(id).await.unwrap();
    let plan_time = begin.elapsed();
    assert_eq!(report.outcome.state, PlanState::Succeeded);
    let commits = report.commits + 1; // and the submission itself

    let bare_time = bare_commits(&directory.path().join("bare.db"), commits).await;
    let peak = peak_memory();
    println!(
        "{}",
        serde_json::json!({
            "tasks": tasks, "width": width, "commits": commits,
            "plan_ms": plan_time.as_secs_f64() * 1e3, "bare_ms": bare_time.as_secs_f64() * 1e3,
            "ratio": plan_time.as_secs_f64() / bare_time.as_secs_f64(), "peak_mb": peak,
        })
    );
}

/// One small row a transaction, with the same settings.
async fn bare_commits(path: &Path, commits: u64) -> std::time::Duration {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("CREATE TABLE row (id INTEGER PRIMARY KEY, body TEXT)")
        .execute(&mut connection)
        .await
        .unwrap();
    let begin = Instant::now();
    for at in 0..commits {
        sqlx::query("INSERT INTO row (body) VALUES (?1)")
            .bind(format!("row {at}"))
            .execute(&mut connection)
            .await
            .unwrap();
    }
    begin.elapsed()
}

/// The most memory that this process has had, in megabytes.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}
