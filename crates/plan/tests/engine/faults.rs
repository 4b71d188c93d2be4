//! A journal that cannot be used says which file it is and what to do, and loses nothing.

use std::{os::unix::fs::PermissionsExt, path::Path, process::Command};

use guywire_plan::{
    Engine, EventKind, ExecutorId, Journal, JournalError, JournalErrorKind, Options, PlanState, TaskIndex,
    journal::{Batch, PostgresJournal, SqliteJournal},
};
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::{
    stores::Store,
    world::{World, handlers, sample},
};

async fn refused(path: &str) -> JournalError {
    match SqliteJournal::open(Path::new(path)).await {
        Ok(_) => panic!("{path} was opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_by_both() {
    let store = Store::sqlite();
    drop(store.open().await);
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9001, 'later', true, ";
    let mut connection = SqliteConnection::connect(&store.place).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("{newer} x'00', 0)"))).execute(&mut connection).await.unwrap();
    let error = refused(&store.place).await;
    assert_eq!(error.kind, JournalErrorKind::Newer);
    let text = error.to_string();
    assert!(
        text.starts_with(&store.place) && text.contains("newer guywire (schema 9001); upgrade this one"),
        "{text}"
    );

    let store = Store::postgres().await;
    drop(store.open().await);
    let mut connection = PgConnection::connect(&store.place).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("{newer} '\\x00', 0)"))).execute(&mut connection).await.unwrap();
    let error = PostgresJournal::open(&store.place).await.err().unwrap();
    assert_eq!(error.kind, JournalErrorKind::Newer, "{error}");
}

#[tokio::test]
async fn a_corrupt_file_is_named() {
    let store = Store::sqlite();
    std::fs::write(&store.place, "this is a shopping list, and not a short one either: ".repeat(200))
        .unwrap();
    let error = refused(&store.place).await;
    assert_eq!(error.kind, JournalErrorKind::Corrupt, "{error}");
    assert!(error.to_string().starts_with(&store.place), "{error}");
    assert_eq!(std::fs::read(&store.place).unwrap().len(), 10_600, "it was left alone");
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_named() {
    let error = refused("/nowhere/at/all/journal.db").await;
    assert_eq!(error.kind, JournalErrorKind::ReadOnly, "{error}");
    assert!(
        error.to_string().contains("/nowhere/at/all/journal.db") && error.to_string().contains("directory"),
        "{error}"
    );
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_named_without_its_password() {
    let error = PostgresJournal::open("postgres://joe:hunter22@127.0.0.1:1/guywire").await.err().unwrap();
    let text = format!("{error} {error:?}");
    assert_eq!(error.kind, JournalErrorKind::Unavailable);
    assert!(text.contains("database guywire at 127.0.0.1:1") && !text.contains("hunter22"), "{text}");
    let error = PostgresJournal::open("postgres://joe:hunter22@[").await.err().unwrap();
    assert!(!format!("{error} {error:?}").contains("hunter22"));
}

/// A file system of a few megabytes, mounted for one test. Needs root, as the whole suite does.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(dir.path())
            .status()
            .unwrap();
        assert!(done.success(), "mounting needs root: run the tests as root");
        Self(dir)
    }

    /// A database that was just closed may keep the file system busy for a moment.
    fn remount(&self, options: &str) {
        let remounted = || {
            let options = format!("remount,{options}");
            Command::new("mount").args(["-o", &options]).arg(self.0.path()).status().unwrap().success()
        };
        let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(
            (0..100).any(|_| remounted() || {
                pause();
                false
            }),
            "{} stays as it is",
            self.0.path().display()
        );
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(done.is_ok_and(|done| done.success()), "{} stays mounted", self.0.path().display());
    }
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_the_plan_resumes_when_there_is_room() {
    let disk = SmallDisk::new("size=1m");
    let path = disk.0.path().join("journal.db");
    let store = Store::sqlite();
    let world = World::new(&store.world());
    let journal = SqliteJournal::open(&path).await.unwrap();
    let plan = sample("", false);
    let id = journal.create(&plan).await.unwrap();
    let lease = journal.acquire(id, &ExecutorId::new(), std::time::Duration::from_mins(1)).await.unwrap();
    let words = EventKind::TaskOutput { task: TaskIndex(0), attempt: 1, text: "x".repeat(20_000) };
    let mut recorded = 1;
    let error = loop {
        match journal.append(&lease, &Batch { events: vec![words.clone()], ..Batch::default() }).await {
            Ok(()) => recorded += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, JournalErrorKind::Full, "{error}");
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()) && text.contains("make room"), "{text}");
    drop(journal);
    disk.remount("size=16m");
    let journal = SqliteJournal::open(&path).await.unwrap();
    let events = journal.events(Some(id), guywire_plan::Cursor(0), 1000).await.unwrap();
    assert_eq!(events.len(), recorded, "what was answered is there, what was refused is not");
    drop(journal);
    let engine = Engine::new(
        std::sync::Arc::new(SqliteJournal::open(&path).await.unwrap()),
        handlers(&world),
        Options::default(),
    );
    assert_eq!(engine.run(id).await.unwrap().outcome.state, PlanState::Succeeded);
}

#[tokio::test]
async fn a_read_only_file_system_is_named() {
    let disk = SmallDisk::new("size=4m");
    let path = disk.0.path().join("journal.db");
    drop(SqliteJournal::open(&path).await.unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    disk.remount("ro");
    let error = refused(&path.display().to_string()).await;
    assert_eq!(error.kind, JournalErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}
