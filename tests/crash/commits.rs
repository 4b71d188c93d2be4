//! Watches the databases from outside for commits that bring something new.
//!
//! A manager that is started again repeats some commits (it takes leases, and starts tasks again that were running). A
//! kill at each of these would let nothing ever be done, so a commit counts if it tells something for the first time.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::Value;
use sqlx::{Connection, PgConnection, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::runtime::Runtime;

use crate::managers::Managers;

/// How often the databases are looked at: a kill follows its commit by about this much.
const LOOK: Duration = Duration::from_micros(300);

/// What has been seen so far.
pub struct Commits {
    runtime: Runtime,
    place: Place,
    cursor: i64,
    seen: BTreeSet<String>,
}

enum Place {
    Files { journal: SqliteConnection, manager: SqliteConnection },
    Server(PgConnection),
}

impl Commits {
    /// Begins with what is there.
    pub fn of(managers: &Managers) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let place = runtime.block_on(async {
            if let Some(url) = managers.database() {
                return Place::Server(PgConnection::connect(&url).await.unwrap());
            }
            let open = |name: &str| {
                SqliteConnectOptions::new().filename(managers.guywire.data().join(name)).read_only(true)
            };
            Place::Files {
                journal: SqliteConnection::connect_with(&open("journal.db")).await.unwrap(),
                manager: SqliteConnection::connect_with(&open("manager.db")).await.unwrap(),
            }
        });
        let mut commits = Self { runtime, place, cursor: 0, seen: BTreeSet::new() };
        commits.look();
        commits
    }

    /// Waits for something new; what it was.
    pub fn wait_for_news(&mut self, patience: Duration) -> Option<String> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            if let Some(news) = self.look() {
                return Some(news);
            }
            std::thread::sleep(LOOK);
            if self.idle() {
                return None;
            }
        }
        None
    }

    /// Whether an operation has ended.
    pub fn ended(&mut self, operation: &str) -> bool {
        let sql =
            "SELECT id FROM operation WHERE state IN ('COMPLETED', 'FAILED', 'ROLLED_BACK', 'FAILED_TEMP')";
        self.manager(sql).iter().any(|row| row.0 == operation)
    }

    /// Whether no notification waits.
    pub fn all_told(&mut self) -> bool {
        self.manager("SELECT subscription FROM notification").is_empty()
    }

    /// Whether nothing is to be done any more.
    fn idle(&mut self) -> bool {
        let sql = "SELECT id FROM operation WHERE state IN ('STARTING', 'PROCESSING', 'ROLLING_BACK')";
        self.manager(sql).is_empty() && self.all_told()
    }

    /// Something new, if there is.
    fn look(&mut self) -> Option<String> {
        let mut news = None;
        for (last, plan, bodies) in self.events() {
            self.cursor = last;
            let events: Vec<Value> = serde_json::from_str(&bodies).expect("events are JSON");
            for event in events {
                let fact = fact(plan, &event);
                if let Some(fact) = fact
                    && self.seen.insert(fact.clone())
                {
                    news = Some(fact);
                }
            }
        }
        let facts = [
            ("operation", "SELECT id || ' at ' || rev FROM operation"),
            ("told", "SELECT id || ' up to ' || delivered FROM subscription"),
        ];
        for (what, sql) in facts {
            for (row,) in self.manager(sql) {
                if self.seen.insert(format!("{what} {row}")) {
                    news = Some(format!("{what} {row}"));
                }
            }
        }
        news
    }

    fn events(&mut self) -> Vec<(i64, i64, String)> {
        let Self { runtime, place, cursor, .. } = self;
        runtime.block_on(async {
            match place {
                Place::Files { journal, .. } => {
                    sqlx::query_as("SELECT last, plan, bodies FROM event WHERE last > ?1 ORDER BY last")
                        .bind(*cursor)
                        .fetch_all(journal)
                        .await
                        .unwrap()
                }
                Place::Server(server) => {
                    sqlx::query_as("SELECT last, plan, bodies FROM event WHERE last > $1 ORDER BY last")
                        .bind(*cursor)
                        .fetch_all(server)
                        .await
                        .unwrap()
                }
            }
        })
    }

    fn manager(&mut self, sql: &'static str) -> Vec<(String,)> {
        let Self { runtime, place, .. } = self;
        runtime.block_on(async {
            match place {
                Place::Files { manager, .. } => {
                    let rows = sqlx::query(sql).fetch_all(manager).await.unwrap();
                    rows.iter().map(|row| (row.get(0),)).collect()
                }
                Place::Server(server) => {
                    let rows = sqlx::query(sql).fetch_all(server).await.unwrap();
                    rows.iter().map(|row| (row.get(0),)).collect()
                }
            }
        })
    }
}

/// What an event tells, the same in every repetition; `None` for those that only repeat.
fn fact(plan: i64, event: &Value) -> Option<String> {
    let kind = event["event"].as_str().expect("an event has a kind");
    match kind {
        // Told again by every manager that takes a plan over, and by every word that a task says.
        "plan-started" | "task-output" | "scope-waiting" => None,
        _ => Some(format!("plan {plan}: {kind} {}{}", event["task"], event["scope"])),
    }
}
