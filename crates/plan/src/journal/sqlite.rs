//! The journal in a `SQLite` file: the default, for one host.
//!
//! Several processes may open the file. `WAL` with `synchronous=FULL` makes an answered append survive a
//! power cut. Leases run on the host's boot clock, which does not jump; since all processes are on one
//! host, each executor also keeps a lock on a file of its own, so that a dead one is known at once and
//! nobody waits for its lease.

mod rows;

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Mutex as StdMutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use rustix::fs::{FlockOperation, flock};
use sqlx::{
    Connection, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::sync::{Mutex, Notify};

use super::{
    Batch, HeaderRow, HeldLock, Journal, JournalError, JournalErrorKind, Lease, PlanHeader, check_state,
    millis, parse_events, to_json,
};
use crate::{Cancel, Cursor, Event, EventKind, ExecutorId, Fence, Plan, PlanId, PlanState};
use rows::{active_plan, boot_ms, insert_events, insert_plan, insert_wish, plan_of_key, state_of};

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

/// How long a writer waits for another process's transaction.
const BUSY: Duration = Duration::from_secs(15);
/// How often a reader looks whether another process has written.
const POLL: Duration = Duration::from_millis(50);

/// A journal in a `SQLite` file.
pub struct SqliteJournal {
    place: String,
    id: String,
    boot: String,
    owners: PathBuf,
    /// `SQLite` has one writer at a time; so have we, and never wait for ourselves.
    writer: Mutex<SqliteConnection>,
    readers: SqlitePool,
    commits: AtomicU64,
    written: Notify,
    alive: StdMutex<HashMap<ExecutorId, File>>,
}

impl SqliteJournal {
    /// Opens the file, making it and bringing its schema up to date where needed.
    pub async fn open(path: &Path) -> Result<Self, JournalError> {
        let place = path.display().to_string();
        let fail = |error| JournalError::from_sqlx(&place, error);
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY)
            .foreign_keys(true)
            .statement_cache_capacity(64);
        let io = |error| fail(sqlx::Error::Io(error));
        let owners = PathBuf::from(format!("{place}.owners"));
        match std::fs::create_dir(&owners) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(JournalError::from_io(&place, &error));
            }
            _ => {}
        }
        // Two processes that find no journal must not both make one.
        let making = File::open(&owners).map_err(io)?;
        flock(&making, FlockOperation::LockExclusive).map_err(|error| io(error.into()))?;
        let mut writer = SqliteConnection::connect_with(&options).await.map_err(fail)?;
        MIGRATIONS
            .run_direct(None, &mut writer, false)
            .await
            .map_err(|error| JournalError::from_migrate(&place, error))?;
        drop(making);
        let id = sqlx::query_scalar("SELECT id FROM journal").fetch_one(&mut writer).await.map_err(fail)?;
        let readers = SqlitePoolOptions::new()
            .min_connections(0)
            .max_connections(2)
            .connect_lazy_with(options.read_only(true));
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(io)?;
        Ok(Self {
            id,
            boot: boot.trim().to_owned(),
            owners,
            writer: Mutex::new(writer),
            readers,
            commits: AtomicU64::new(0),
            written: Notify::new(),
            alive: StdMutex::default(),
            place,
        })
    }

    fn fail(&self, error: sqlx::Error) -> JournalError {
        JournalError::from_sqlx(&self.place, error)
    }

    fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.written.notify_waiters();
    }

    /// Shows other processes that `owner` lives, for as long as this process does.
    fn live(&self, owner: &ExecutorId) -> Result<(), JournalError> {
        let mut alive = self.alive.lock().expect("no panic while held");
        if alive.contains_key(owner) {
            return Ok(());
        }
        let io = |error: std::io::Error| self.fail(sqlx::Error::Io(error));
        let file = File::create(self.owners.join(&owner.0)).map_err(io)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| io(error.into()))?;
        alive.insert(owner.clone(), file);
        Ok(())
    }

    /// Whether the process behind `owner` is certainly gone.
    fn is_dead(&self, owner: &str) -> bool {
        let path = self.owners.join(owner);
        match File::open(&path) {
            Ok(file) => {
                let dead = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
                if dead {
                    remove(&path);
                }
                dead
            }
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    async fn header_row(&self, plan: PlanId) -> Result<PlanHeader, JournalError> {
        let row = sqlx::query_as::<_, HeaderRow>(
            "SELECT *, owner IS NOT NULL AND lease_boot = ?2 AND lease_until > ?3 AS executing FROM plan WHERE id = ?1",
        )
        .bind(plan.0)
        .bind(&self.boot)
        .bind(boot_ms())
        .fetch_optional(&self.readers)
        .await
        .map_err(|error| self.fail(error))?;
        self.parse(row.ok_or_else(|| JournalError::not_found(&self.place, plan))?)
    }

    /// A row as a header. A lease says nothing of a process that is dead.
    fn parse(&self, row: HeaderRow) -> Result<PlanHeader, JournalError> {
        let dead = row.executing && row.owner.as_deref().is_some_and(|owner| self.is_dead(owner));
        HeaderRow { executing: row.executing && !dead, ..row }.parse(&self.place)
    }

    async fn grant(
        &self,
        transaction: &mut SqliteConnection,
        plan: PlanId,
        owner: &ExecutorId,
        term: Duration,
    ) -> Result<Lease, JournalError> {
        let fail = |error| self.fail(error);
        let until = Instant::now() + term;
        let fence: i64 = sqlx::query_scalar("UPDATE journal SET fence = fence + 1 RETURNING fence")
            .fetch_one(&mut *transaction)
            .await
            .map_err(fail)?;
        sqlx::query(
            "UPDATE plan SET owner = ?2, fence = ?3, lease_boot = ?4, lease_until = ?5 WHERE id = ?1",
        )
        .bind(plan.0)
        .bind(&owner.0)
        .bind(fence)
        .bind(&self.boot)
        .bind(boot_ms() + millis(term))
        .execute(transaction)
        .await
        .map_err(fail)?;
        Ok(Lease { plan, owner: owner.clone(), fence: Fence(fence.unsigned_abs()), until })
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        for owner in self.alive.lock().expect("no panic while held").keys() {
            remove(&self.owners.join(&owner.0));
        }
    }
}

#[async_trait]
impl Journal for SqliteJournal {
    fn place(&self) -> &str {
        &self.place
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    async fn create(&self, plan: &Plan) -> Result<PlanId, JournalError> {
        let fail = |error| self.fail(error);
        let mut writer = self.writer.lock().await;
        let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
        if let Some(once) = &plan.once
            && let Some(there) = plan_of_key(&mut transaction, once).await.map_err(fail)?
        {
            return Ok(PlanId(there));
        }
        if let Some(subject) = &plan.subject
            && let Some(busy) = active_plan(&mut transaction, subject).await.map_err(fail)?
        {
            return Err(JournalError::busy(&self.place, subject, PlanId(busy)));
        }
        let id = insert_plan(&mut transaction, plan, plan.once.as_deref()).await.map_err(fail)?;
        transaction.commit().await.map_err(fail)?;
        self.committed();
        Ok(id)
    }

    async fn find(&self, once: &str) -> Result<Option<PlanId>, JournalError> {
        let found: Option<i64> = sqlx::query_scalar("SELECT id FROM plan WHERE once = ?1")
            .bind(once)
            .fetch_optional(&self.readers)
            .await
            .map_err(|error| self.fail(error))?;
        Ok(found.map(PlanId))
    }

    async fn header(&self, plan: PlanId) -> Result<PlanHeader, JournalError> {
        self.header_row(plan).await
    }

    async fn list(&self, limit: u32) -> Result<Vec<PlanHeader>, JournalError> {
        let rows = sqlx::query_as::<_, HeaderRow>(
            "SELECT *, owner IS NOT NULL AND lease_boot = ?2 AND lease_until > ?3 AS executing FROM plan ORDER BY id DESC LIMIT ?1",
        )
        .bind(i64::from(limit))
        .bind(&self.boot)
        .bind(boot_ms())
        .fetch_all(&self.readers)
        .await
        .map_err(|error| self.fail(error))?;
        rows.into_iter().map(|row| self.parse(row)).collect()
    }

    async fn latest(&self, subject: &str) -> Result<Option<PlanHeader>, JournalError> {
        let id: Option<i64> =
            sqlx::query_scalar("SELECT id FROM plan WHERE subject = ?1 ORDER BY id DESC LIMIT 1")
                .bind(subject)
                .fetch_optional(&self.readers)
                .await
                .map_err(|error| self.fail(error))?;
        match id {
            Some(id) => self.header_row(PlanId(id)).await.map(Some),
            None => Ok(None),
        }
    }

    async fn plan(&self, plan: PlanId) -> Result<Plan, JournalError> {
        let spec: Option<String> = sqlx::query_scalar("SELECT spec FROM plan WHERE id = ?1")
            .bind(plan.0)
            .fetch_optional(&self.readers)
            .await
            .map_err(|error| self.fail(error))?;
        let spec = spec.ok_or_else(|| JournalError::not_found(&self.place, plan))?;
        serde_json::from_str(&spec)
            .map_err(|error| JournalError::corrupt(&self.place, format!("plan {plan}: {error}")))
    }

    async fn events(
        &self,
        plan: Option<PlanId>,
        after: Cursor,
        limit: u32,
    ) -> Result<Vec<Event>, JournalError> {
        let query = match plan {
            Some(_) => {
                "SELECT last, plan, at_ms, bodies FROM event WHERE plan = ?3 AND last > ?1 ORDER BY last LIMIT ?2"
            }
            None => {
                "SELECT last, plan, at_ms, bodies FROM event WHERE last > ?1 AND ?3 IS NULL ORDER BY last LIMIT ?2"
            }
        };
        let rows = sqlx::query_as(query)
            .bind(after.0)
            .bind(i64::from(limit))
            .bind(plan.map(|plan| plan.0))
            .fetch_all(&self.readers)
            .await
            .map_err(|error| self.fail(error))?;
        parse_events(&self.place, rows, after, limit)
    }

    async fn changed(&self, after: Cursor, patience: Duration) -> Result<(), JournalError> {
        let deadline = Instant::now() + patience;
        loop {
            let written = self.written.notified();
            let last: Option<i64> = sqlx::query_scalar("SELECT max(last) FROM event")
                .fetch_one(&self.readers)
                .await
                .map_err(|error| self.fail(error))?;
            if last > Some(after.0) || Instant::now() >= deadline {
                return Ok(());
            }
            tokio::select! {
                () = written => {}
                () = tokio::time::sleep(POLL.min(deadline.saturating_duration_since(Instant::now()))) => {}
            }
        }
    }

    async fn acquire(&self, plan: PlanId, owner: &ExecutorId, term: Duration) -> Result<Lease, JournalError> {
        self.live(owner)?;
        let fail = |error| self.fail(error);
        let mut writer = self.writer.lock().await;
        let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
        let row = sqlx::query_as::<_, HeaderRow>(
            "SELECT *, owner IS NOT NULL AND lease_boot = ?2 AND lease_until > ?3 AS executing FROM plan WHERE id = ?1",
        )
        .bind(plan.0)
        .bind(&self.boot)
        .bind(boot_ms())
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fail)?
        .ok_or_else(|| JournalError::not_found(&self.place, plan))?;
        let header = self.parse(row)?;
        if !header.state.is_active() {
            let message = format!("plan {plan} has {}", header.state.as_str());
            return Err(JournalError::new(JournalErrorKind::State, &self.place, message));
        }
        if header.executing {
            let message =
                format!("another process executes plan {plan}; follow it with `guywire plan watch {plan}`");
            return Err(JournalError::new(JournalErrorKind::Executing, &self.place, message));
        }
        let lease = self.grant(&mut transaction, plan, owner, term).await?;
        transaction.commit().await.map_err(fail)?;
        self.committed();
        Ok(lease)
    }

    async fn claim(
        &self,
        owner: &ExecutorId,
        term: Duration,
        except: &[PlanId],
    ) -> Result<Option<Lease>, JournalError> {
        self.live(owner)?;
        let fail = |error| self.fail(error);
        let mut writer = self.writer.lock().await;
        let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
        let rows = sqlx::query_as::<_, HeaderRow>(
            "SELECT *, owner IS NOT NULL AND lease_boot = ?1 AND lease_until > ?2 AS executing FROM plan \
             WHERE state IN ('ready', 'running', 'stopping', 'undoing') ORDER BY id",
        )
        .bind(&self.boot)
        .bind(boot_ms())
        .fetch_all(&mut *transaction)
        .await
        .map_err(fail)?;
        for row in rows {
            let header = self.parse(row)?;
            if !except.contains(&header.id) && !header.executing {
                let lease = self.grant(&mut transaction, header.id, owner, term).await?;
                transaction.commit().await.map_err(fail)?;
                self.committed();
                return Ok(Some(lease));
            }
        }
        Ok(None)
    }

    async fn renew(&self, lease: &Lease, term: Duration) -> Result<Instant, JournalError> {
        let until = Instant::now() + term;
        let mut writer = self.writer.lock().await;
        let done = sqlx::query(
            "UPDATE plan SET lease_until = ?5 WHERE id = ?1 AND owner = ?2 AND fence = ?3 AND lease_boot = ?4 AND lease_until > ?6",
        )
        .bind(lease.plan.0)
        .bind(&lease.owner.0)
        .bind(lease.fence.0.cast_signed())
        .bind(&self.boot)
        .bind(boot_ms() + millis(term))
        .bind(boot_ms())
        .execute(&mut *writer)
        .await
        .map_err(|error| self.fail(error))?;
        if done.rows_affected() == 0 {
            return Err(JournalError::lost(&self.place, lease.plan));
        }
        self.committed();
        Ok(until)
    }

    async fn release(&self, lease: &Lease) -> Result<(), JournalError> {
        let mut writer = self.writer.lock().await;
        sqlx::query(
            "UPDATE plan SET owner = NULL, lease_until = NULL WHERE id = ?1 AND owner = ?2 AND fence = ?3",
        )
        .bind(lease.plan.0)
        .bind(&lease.owner.0)
        .bind(lease.fence.0.cast_signed())
        .execute(&mut *writer)
        .await
        .map_err(|error| self.fail(error))?;
        self.committed();
        Ok(())
    }

    async fn append(&self, lease: &Lease, batch: &Batch) -> Result<(), JournalError> {
        let fail = |error| self.fail(error);
        let mut writer = self.writer.lock().await;
        if batch.state.is_none() && batch.lock.is_empty() && batch.unlock.is_empty() {
            // The common case is one statement, which is a transaction of its own.
            if !insert_events(&mut writer, lease, &self.boot, &batch.events).await.map_err(fail)? {
                return Err(JournalError::lost(&self.place, lease.plan));
            }
            self.committed();
            return Ok(());
        }
        let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
        if !insert_events(&mut transaction, lease, &self.boot, &batch.events).await.map_err(fail)? {
            return Err(JournalError::lost(&self.place, lease.plan));
        }
        for resource in &batch.unlock {
            sqlx::query("DELETE FROM lock WHERE resource = ?1 AND plan = ?2")
                .bind(resource)
                .bind(lease.plan.0)
                .execute(&mut *transaction)
                .await
                .map_err(fail)?;
        }
        for resource in &batch.lock {
            let holder: i64 = sqlx::query_scalar(
                "INSERT INTO lock VALUES (?1, ?2) ON CONFLICT (resource) DO UPDATE SET plan = plan RETURNING plan",
            )
            .bind(resource)
            .bind(lease.plan.0)
            .fetch_one(&mut *transaction)
            .await
            .map_err(fail)?;
            if holder != lease.plan.0 {
                return Err(JournalError::locked(&self.place, resource, PlanId(holder)));
            }
        }
        if let Some(state) = batch.state {
            sqlx::query("UPDATE plan SET state = ?2, cancel = CASE WHEN ?3 THEN cancel END WHERE id = ?1")
                .bind(lease.plan.0)
                .bind(state.as_str())
                .bind(state.is_active())
                .execute(&mut *transaction)
                .await
                .map_err(fail)?;
        }
        transaction.commit().await.map_err(fail)?;
        self.committed();
        Ok(())
    }

    async fn supersede(&self, lease: &Lease, plan: &Plan, reason: &str) -> Result<PlanId, JournalError> {
        let fail = |error| self.fail(error);
        let mut writer = self.writer.lock().await;
        let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
        // The old plan leaves its subject before the new one takes it.
        let once: Option<String> = sqlx::query_scalar("SELECT once FROM plan WHERE id = ?1")
            .bind(lease.plan.0)
            .fetch_one(&mut *transaction)
            .await
            .map_err(fail)?;
        sqlx::query("UPDATE plan SET state = ?2, cancel = NULL, once = NULL WHERE id = ?1")
            .bind(lease.plan.0)
            .bind(PlanState::Superseded.as_str())
            .execute(&mut *transaction)
            .await
            .map_err(fail)?;
        let by = insert_plan(&mut transaction, plan, once.as_deref()).await.map_err(fail)?;
        let event = EventKind::PlanSuperseded { by, reason: reason.to_owned() };
        if !insert_events(&mut transaction, lease, &self.boot, &[event]).await.map_err(fail)? {
            return Err(JournalError::lost(&self.place, lease.plan));
        }
        sqlx::query("UPDATE lock SET plan = ?2 WHERE plan = ?1")
            .bind(lease.plan.0)
            .bind(by.0)
            .execute(&mut *transaction)
            .await
            .map_err(fail)?;
        transaction.commit().await.map_err(fail)?;
        self.committed();
        Ok(by)
    }

    async fn request_cancel(&self, plan: PlanId, cancel: Cancel) -> Result<(), JournalError> {
        let fail = |error| self.fail(error);
        let mut writer = self.writer.lock().await;
        let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
        let (state, before) = state_of(&mut transaction, plan)
            .await
            .map_err(fail)?
            .ok_or_else(|| JournalError::not_found(&self.place, plan))?;
        check_state(&self.place, plan, &state, PlanState::is_active, "it cannot be cancelled")?;
        let before: Option<Cancel> = before.and_then(|before| serde_json::from_str(&before).ok());
        if before.is_none_or(|before| cancel > before) {
            sqlx::query("UPDATE plan SET cancel = ?2 WHERE id = ?1")
                .bind(plan.0)
                .bind(to_json(&cancel))
                .execute(&mut *transaction)
                .await
                .map_err(fail)?;
            insert_wish(&mut transaction, plan, &EventKind::CancelRequested { cancel })
                .await
                .map_err(fail)?;
            transaction.commit().await.map_err(fail)?;
            self.committed();
        }
        Ok(())
    }

    async fn request_resume(&self, plan: PlanId) -> Result<(), JournalError> {
        let fail = |error| self.fail(error);
        let mut writer = self.writer.lock().await;
        let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
        let (state, _) = state_of(&mut transaction, plan)
            .await
            .map_err(fail)?
            .ok_or_else(|| JournalError::not_found(&self.place, plan))?;
        check_state(&self.place, plan, &state, PlanState::is_resumable, "it cannot be resumed")?;
        let subject: Option<String> = sqlx::query_scalar("SELECT subject FROM plan WHERE id = ?1")
            .bind(plan.0)
            .fetch_one(&mut *transaction)
            .await
            .map_err(fail)?;
        if let Some(subject) = subject
            && let Some(busy) = active_plan(&mut transaction, &subject).await.map_err(fail)?
        {
            return Err(JournalError::busy(&self.place, &subject, PlanId(busy)));
        }
        sqlx::query("UPDATE plan SET state = ?2, cancel = NULL WHERE id = ?1")
            .bind(plan.0)
            .bind(PlanState::Running.as_str())
            .execute(&mut *transaction)
            .await
            .map_err(fail)?;
        insert_wish(&mut transaction, plan, &EventKind::PlanResumed).await.map_err(fail)?;
        transaction.commit().await.map_err(fail)?;
        self.committed();
        Ok(())
    }

    async fn abandon(&self, plan: PlanId, reason: &str) -> Result<(), JournalError> {
        let fail = |error| self.fail(error);
        let mut writer = self.writer.lock().await;
        let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
        let (state, _) = state_of(&mut transaction, plan)
            .await
            .map_err(fail)?
            .ok_or_else(|| JournalError::not_found(&self.place, plan))?;
        if state == PlanState::Abandoned.as_str() {
            return Ok(());
        }
        check_state(&self.place, plan, &state, PlanState::is_resumable, "it cannot be given up")?;
        sqlx::query("UPDATE plan SET state = ?2, cancel = NULL WHERE id = ?1")
            .bind(plan.0)
            .bind(PlanState::Abandoned.as_str())
            .execute(&mut *transaction)
            .await
            .map_err(fail)?;
        sqlx::query("DELETE FROM lock WHERE plan = ?1")
            .bind(plan.0)
            .execute(&mut *transaction)
            .await
            .map_err(fail)?;
        let event = EventKind::PlanAbandoned { reason: reason.to_owned() };
        insert_wish(&mut transaction, plan, &event).await.map_err(fail)?;
        transaction.commit().await.map_err(fail)?;
        self.committed();
        Ok(())
    }

    async fn locks(&self) -> Result<Vec<HeldLock>, JournalError> {
        let rows: Vec<(String, i64)> = sqlx::query_as("SELECT resource, plan FROM lock ORDER BY resource")
            .fetch_all(&self.readers)
            .await
            .map_err(|error| self.fail(error))?;
        Ok(rows.into_iter().map(|(resource, plan)| HeldLock { resource, plan: PlanId(plan) }).collect())
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::debug!(path = %path.display(), %error, "an executor's file stays");
    }
}
