//! Both databases, each test with one of its own.

use std::{path::PathBuf, process::Command, sync::Arc};

use guywire_plan::{
    Journal,
    journal::{PostgresJournal, SqliteJournal},
};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

/// A database for one test, gone with it.
pub struct Store {
    pub dir: TempDir,
    pub place: String,
}

impl Store {
    pub fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("journal.db").display().to_string();
        Self { dir, place }
    }

    /// On a file system in memory: for the suites that abort processes thousands of times. A process's
    /// death loses nothing of what it wrote there, so what they prove is the same.
    pub fn sqlite_in_memory() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let place = dir.path().join("journal.db").display().to_string();
        Self { dir, place }
    }

    pub async fn postgres() -> Self {
        let base = std::env::var("GUYWIRE_TEST_POSTGRES").expect(
            "GUYWIRE_TEST_POSTGRES is not set; run the tests with `cargo xtask test`, which starts a server, \
             or set it to postgres:///postgres?host=SOCKET_DIRECTORY&user=USER",
        );
        let dir = tempfile::tempdir().unwrap();
        let name = format!("t{}", uuid::Uuid::now_v7().simple());
        let mut connection = PgConnection::connect(&base).await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&mut connection)
            .await
            .unwrap();
        let (head, tail) = base.split_once("/postgres?").expect("the URL names the database `postgres`");
        Self { dir, place: format!("{head}/{name}?{tail}") }
    }

    pub async fn both() -> [Self; 2] {
        [Self::sqlite(), Self::postgres().await]
    }

    pub fn is_postgres(&self) -> bool {
        self.place.starts_with("postgres:")
    }

    pub async fn open(&self) -> Arc<dyn Journal> {
        if self.is_postgres() {
            Arc::new(PostgresJournal::open(&self.place).await.unwrap())
        } else {
            Arc::new(SqliteJournal::open(&PathBuf::from(&self.place)).await.unwrap())
        }
    }

    pub fn world(&self) -> PathBuf {
        self.dir.path().join("world")
    }

    /// The process under test, on this store and world.
    pub fn victim(&self, verb: &str, what: i64) -> Command {
        let tests = std::env::current_exe().unwrap();
        let program = tests.parent().unwrap().parent().unwrap().join("examples/victim");
        assert!(
            program.exists(),
            "{} is not built: run `cargo test` without --test, or `cargo build --examples`",
            program.display()
        );
        let mut command = Command::new(program);
        command.arg(&self.place).arg(self.world()).arg(verb).arg(what.to_string());
        command
    }
}
