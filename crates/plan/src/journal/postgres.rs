//! The journal in `PostgreSQL`, for several managers that share the work.
//!
//! Leases run on the database's clock. A dead connection does not prove a dead process, so nobody takes
//! a lease over before it has run out.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use serde::Serialize;
use sqlx::{
    Connection, FromRow, PgConnection, PgPool, Row,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow},
};
use tokio::sync::watch;

use super::{
    Batch, HeaderRow, HeldLock, Journal, JournalError, JournalErrorKind, Lease, PlanHeader, check_state,
    millis, parse_events, to_json,
};
use crate::{Cancel, Cursor, Event, EventKind, ExecutorId, Fence, Plan, PlanId, PlanState};

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("migrations/postgres");

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A journal in a `PostgreSQL` database.
pub struct PostgresJournal {
    place: String,
    id: String,
    pool: PgPool,
    commits: AtomicU64,
    written: watch::Receiver<u64>,
    listener: tokio::task::JoinHandle<()>,
}

impl PostgresJournal {
    /// Connects by URL and brings the schema up to date where needed.
    pub async fn open(url: &str) -> Result<Self, JournalError> {
        // The URL may hold a password: it is never part of a message.
        let options: PgConnectOptions = url.parse().map_err(|_| {
            let message = "is not a URL of the form postgres://USER@HOST/DATABASE (for a socket: postgres:///DATABASE?host=DIRECTORY&user=USER)";
            JournalError::new(JournalErrorKind::Unavailable, "--database", message)
        })?;
        let database = options.get_database().unwrap_or("postgres");
        let socket = options.get_socket().map(|socket| socket.display().to_string());
        let host = socket.unwrap_or_else(|| options.get_host().to_owned());
        let place = format!("database {database} at {host}:{}", options.get_port());
        let fail = |error| JournalError::from_sqlx(&place, error);
        // The pool would only say that it waited in vain; a first connection says why.
        let first = tokio::time::timeout(PATIENCE, PgConnection::connect_with(&options)).await;
        let silent = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time");
        let first = first.unwrap_or_else(|_| Err(sqlx::Error::Io(silent()))).map_err(fail)?;
        first.close().await.map_err(fail)?;
        let pool = PgPoolOptions::new()
            .max_connections(8)
            .acquire_timeout(PATIENCE)
            .connect_with(options)
            .await
            .map_err(fail)?;
        MIGRATIONS.run(&pool).await.map_err(|error| JournalError::from_migrate(&place, error))?;
        let id = sqlx::query_scalar("SELECT id FROM journal").fetch_one(&pool).await.map_err(fail)?;
        let (tell, written) = watch::channel(0);
        let listener = tokio::spawn(listen(pool.clone(), tell));
        Ok(Self { id, pool, commits: AtomicU64::new(0), written, listener, place })
    }

    fn fail(&self, error: sqlx::Error) -> JournalError {
        JournalError::from_sqlx(&self.place, error)
    }

    fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    async fn grant(
        &self,
        connection: &mut PgConnection,
        plan: PlanId,
        owner: &ExecutorId,
        term: Duration,
    ) -> Result<Lease, JournalError> {
        let fail = |error| self.fail(error);
        // Before the database is asked: our own idea of the lease ends no later than the database's.
        let until = Instant::now() + term;
        let fence: i64 = sqlx::query_scalar("UPDATE journal SET fence = fence + 1 RETURNING fence")
            .fetch_one(&mut *connection)
            .await
            .map_err(fail)?;
        sqlx::query(
            "UPDATE plan SET owner = $2, fence = $3, lease_until = clock_timestamp() + $4 * interval '1 millisecond' WHERE id = $1",
        )
        .bind(plan.0)
        .bind(&owner.0)
        .bind(fence)
        .bind(millis(term))
        .execute(connection)
        .await
        .map_err(fail)?;
        Ok(Lease { plan, owner: owner.clone(), fence: Fence(fence.unsigned_abs()), until })
    }
}

impl Drop for PostgresJournal {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Passes the database's word that there are events on to whoever waits; polling covers its gaps.
async fn listen(pool: PgPool, tell: watch::Sender<u64>) {
    loop {
        if let Ok(mut listener) = PgListener::connect_with(&pool).await
            && listener.listen("guywire_event").await.is_ok()
        {
            while listener.recv().await.is_ok() {
                tell.send_modify(|count| *count += 1);
            }
        }
        // The database is away; those who wait poll meanwhile.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[async_trait]
impl Journal for PostgresJournal {
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
        let mut transaction = self.pool.begin().await.map_err(fail)?;
        lock_journal(&mut transaction).await.map_err(fail)?;
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
        let found: Option<i64> = sqlx::query_scalar("SELECT id FROM plan WHERE once = $1")
            .bind(once)
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| self.fail(error))?;
        Ok(found.map(PlanId))
    }

    async fn header(&self, plan: PlanId) -> Result<PlanHeader, JournalError> {
        let row = sqlx::query_as::<_, HeaderRow>(
            "SELECT *, owner IS NOT NULL AND lease_until > clock_timestamp() AS executing FROM plan WHERE id = $1",
        )
        .bind(plan.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(|error| self.fail(error))?;
        row.ok_or_else(|| JournalError::not_found(&self.place, plan))?.parse(&self.place)
    }

    async fn list(&self, limit: u32) -> Result<Vec<PlanHeader>, JournalError> {
        let rows = sqlx::query_as::<_, HeaderRow>(
            "SELECT *, owner IS NOT NULL AND lease_until > clock_timestamp() AS executing FROM plan ORDER BY id DESC LIMIT $1",
        )
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.fail(error))?;
        rows.into_iter().map(|row| row.parse(&self.place)).collect()
    }

    async fn latest(&self, subject: &str) -> Result<Option<PlanHeader>, JournalError> {
        let id: Option<i64> =
            sqlx::query_scalar("SELECT id FROM plan WHERE subject = $1 ORDER BY id DESC LIMIT 1")
                .bind(subject)
                .fetch_optional(&self.pool)
                .await
                .map_err(|error| self.fail(error))?;
        match id {
            Some(id) => self.header(PlanId(id)).await.map(Some),
            None => Ok(None),
        }
    }

    async fn plan(&self, plan: PlanId) -> Result<Plan, JournalError> {
        let spec: Option<String> = sqlx::query_scalar("SELECT spec FROM plan WHERE id = $1")
            .bind(plan.0)
            .fetch_optional(&self.pool)
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
        let rows = sqlx::query_as(
            "SELECT last, plan, at_ms, bodies FROM event \
             WHERE last > $1 AND ($3::bigint IS NULL OR plan = $3) ORDER BY last LIMIT $2",
        )
        .bind(after.0)
        .bind(i64::from(limit))
        .bind(plan.map(|plan| plan.0))
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.fail(error))?;
        parse_events(&self.place, rows, after, limit)
    }

    async fn changed(&self, after: Cursor, patience: Duration) -> Result<(), JournalError> {
        let deadline = Instant::now() + patience;
        let mut written = self.written.clone();
        loop {
            written.mark_unchanged();
            let last: i64 = sqlx::query_scalar("SELECT last_event FROM journal")
                .fetch_one(&self.pool)
                .await
                .map_err(|error| self.fail(error))?;
            let now = Instant::now();
            if last > after.0 || now >= deadline {
                return Ok(());
            }
            // A second is for the time when the listener's connection is being made again.
            let pause = Duration::from_secs(1).min(deadline.saturating_duration_since(now));
            tokio::select! {
                changed = written.changed() => if changed.is_err() { tokio::time::sleep(pause).await },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn acquire(&self, plan: PlanId, owner: &ExecutorId, term: Duration) -> Result<Lease, JournalError> {
        let fail = |error| self.fail(error);
        let mut transaction = self.pool.begin().await.map_err(fail)?;
        let row = sqlx::query_as::<_, HeaderRow>(
            "SELECT *, owner IS NOT NULL AND lease_until > clock_timestamp() AS executing FROM plan WHERE id = $1 FOR UPDATE",
        )
        .bind(plan.0)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fail)?;
        let header = row.ok_or_else(|| JournalError::not_found(&self.place, plan))?.parse(&self.place)?;
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
        let fail = |error| self.fail(error);
        let except: Vec<i64> = except.iter().map(|plan| plan.0).collect();
        let mut transaction = self.pool.begin().await.map_err(fail)?;
        let id: Option<i64> = sqlx::query_scalar(
            "SELECT id FROM plan WHERE state IN ('ready', 'running', 'stopping', 'undoing') \
             AND (owner IS NULL OR lease_until <= clock_timestamp()) AND id <> ALL ($1) \
             ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
        )
        .bind(&except)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fail)?;
        let Some(id) = id else { return Ok(None) };
        let lease = self.grant(&mut transaction, PlanId(id), owner, term).await?;
        transaction.commit().await.map_err(fail)?;
        self.committed();
        Ok(Some(lease))
    }

    async fn renew(&self, lease: &Lease, term: Duration) -> Result<Instant, JournalError> {
        let until = Instant::now() + term;
        let done = sqlx::query(
            "UPDATE plan SET lease_until = clock_timestamp() + $4 * interval '1 millisecond' \
             WHERE id = $1 AND owner = $2 AND fence = $3 AND lease_until > clock_timestamp()",
        )
        .bind(lease.plan.0)
        .bind(&lease.owner.0)
        .bind(lease.fence.0.cast_signed())
        .bind(millis(term))
        .execute(&self.pool)
        .await
        .map_err(|error| self.fail(error))?;
        if done.rows_affected() == 0 {
            return Err(JournalError::lost(&self.place, lease.plan));
        }
        self.committed();
        Ok(until)
    }

    async fn release(&self, lease: &Lease) -> Result<(), JournalError> {
        sqlx::query(
            "UPDATE plan SET owner = NULL, lease_until = NULL WHERE id = $1 AND owner = $2 AND fence = $3",
        )
        .bind(lease.plan.0)
        .bind(&lease.owner.0)
        .bind(lease.fence.0.cast_signed())
        .execute(&self.pool)
        .await
        .map_err(|error| self.fail(error))?;
        self.committed();
        Ok(())
    }

    async fn append(&self, lease: &Lease, batch: &Batch) -> Result<(), JournalError> {
        let fail = |error| self.fail(error);
        let mut transaction = self.pool.begin().await.map_err(fail)?;
        if !insert_events(&mut transaction, lease, &batch.events).await.map_err(fail)? {
            return Err(JournalError::lost(&self.place, lease.plan));
        }
        for resource in &batch.unlock {
            sqlx::query("DELETE FROM lock WHERE resource = $1 AND plan = $2")
                .bind(resource)
                .bind(lease.plan.0)
                .execute(&mut *transaction)
                .await
                .map_err(fail)?;
        }
        for resource in &batch.lock {
            let holder: i64 = sqlx::query_scalar(
                "INSERT INTO lock AS l VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET plan = l.plan RETURNING plan",
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
            sqlx::query("UPDATE plan SET state = $2, cancel = CASE WHEN $3 THEN cancel END WHERE id = $1")
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
        let mut transaction = self.pool.begin().await.map_err(fail)?;
        // A plan's row is always locked before the journal's, here as everywhere: no deadlock.
        let once: Option<String> = sqlx::query_scalar("SELECT once FROM plan WHERE id = $1 FOR UPDATE")
            .bind(lease.plan.0)
            .fetch_one(&mut *transaction)
            .await
            .map_err(fail)?;
        sqlx::query("UPDATE plan SET state = $2, cancel = NULL, once = NULL WHERE id = $1")
            .bind(lease.plan.0)
            .bind(PlanState::Superseded.as_str())
            .execute(&mut *transaction)
            .await
            .map_err(fail)?;
        lock_journal(&mut transaction).await.map_err(fail)?;
        let by = insert_plan(&mut transaction, plan, once.as_deref()).await.map_err(fail)?;
        let event = EventKind::PlanSuperseded { by, reason: reason.to_owned() };
        if !insert_events(&mut transaction, lease, &[event]).await.map_err(fail)? {
            return Err(JournalError::lost(&self.place, lease.plan));
        }
        sqlx::query("UPDATE lock SET plan = $2 WHERE plan = $1")
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
        let mut transaction = self.pool.begin().await.map_err(fail)?;
        let (state, before, _) = state_of(&mut transaction, plan)
            .await
            .map_err(fail)?
            .ok_or_else(|| JournalError::not_found(&self.place, plan))?;
        check_state(&self.place, plan, &state, PlanState::is_active, "it cannot be cancelled")?;
        let before: Option<Cancel> = before.and_then(|before| serde_json::from_str(&before).ok());
        if before.is_none_or(|before| cancel > before) {
            sqlx::query("UPDATE plan SET cancel = $2 WHERE id = $1")
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
        let mut transaction = self.pool.begin().await.map_err(fail)?;
        let (state, _, subject) = state_of(&mut transaction, plan)
            .await
            .map_err(fail)?
            .ok_or_else(|| JournalError::not_found(&self.place, plan))?;
        check_state(&self.place, plan, &state, PlanState::is_resumable, "it cannot be resumed")?;
        lock_journal(&mut transaction).await.map_err(fail)?;
        if let Some(subject) = subject
            && let Some(busy) = active_plan(&mut transaction, &subject).await.map_err(fail)?
        {
            return Err(JournalError::busy(&self.place, &subject, PlanId(busy)));
        }
        sqlx::query("UPDATE plan SET state = $2, cancel = NULL WHERE id = $1")
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
        let mut transaction = self.pool.begin().await.map_err(fail)?;
        let (state, ..) = state_of(&mut transaction, plan)
            .await
            .map_err(fail)?
            .ok_or_else(|| JournalError::not_found(&self.place, plan))?;
        if state == PlanState::Abandoned.as_str() {
            return Ok(());
        }
        check_state(&self.place, plan, &state, PlanState::is_resumable, "it cannot be given up")?;
        sqlx::query("UPDATE plan SET state = $2, cancel = NULL WHERE id = $1")
            .bind(plan.0)
            .bind(PlanState::Abandoned.as_str())
            .execute(&mut *transaction)
            .await
            .map_err(fail)?;
        lock_journal(&mut transaction).await.map_err(fail)?;
        sqlx::query("DELETE FROM lock WHERE plan = $1")
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
            .fetch_all(&self.pool)
            .await
            .map_err(|error| self.fail(error))?;
        Ok(rows.into_iter().map(|(resource, plan)| HeldLock { resource, plan: PlanId(plan) }).collect())
    }
}

impl FromRow<'_, PgRow> for HeaderRow {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get("id")?,
            kind: row.try_get("kind")?,
            title: row.try_get("title")?,
            subject: row.try_get("subject")?,
            state: row.try_get("state")?,
            tasks: row.try_get("tasks")?,
            created_ms: row.try_get("created_ms")?,
            owner: row.try_get("owner")?,
            executing: row.try_get::<Option<bool>, _>("executing")?.unwrap_or(false),
            cancel: row.try_get("cancel")?,
        })
    }
}

/// Taken first by whoever checks something before it writes events, so that two never cross.
async fn lock_journal(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT id FROM journal FOR UPDATE").execute(connection).await.map(drop)
}

async fn active_plan(connection: &mut PgConnection, subject: &str) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT id FROM plan WHERE subject = $1 AND state IN ('ready', 'running', 'stopping', 'undoing')",
    )
    .bind(subject)
    .fetch_optional(connection)
    .await
}

type StateRow = (String, Option<String>, Option<String>);

async fn state_of(connection: &mut PgConnection, plan: PlanId) -> Result<Option<StateRow>, sqlx::Error> {
    sqlx::query_as("SELECT state, cancel, subject FROM plan WHERE id = $1 FOR UPDATE")
        .bind(plan.0)
        .fetch_optional(connection)
        .await
}

async fn plan_of_key(connection: &mut PgConnection, once: &str) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM plan WHERE once = $1").bind(once).fetch_optional(connection).await
}

async fn insert_plan(
    connection: &mut PgConnection,
    plan: &Plan,
    once: Option<&str>,
) -> Result<PlanId, sqlx::Error> {
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO plan (kind, title, subject, state, tasks, spec, once) \
         VALUES ($1, $2, $3, 'ready', $4, $5, $6) RETURNING id",
    )
    .bind(&plan.kind)
    .bind(&plan.title)
    .bind(&plan.subject)
    .bind(i64::try_from(plan.tasks.len()).unwrap_or(i64::MAX))
    .bind(to_json(plan))
    .bind(once)
    .fetch_one(&mut *connection)
    .await?;
    insert_wish(connection, PlanId(id), &EventKind::PlanCreated).await?;
    Ok(PlanId(id))
}

/// An event that needs no lease.
async fn insert_wish(
    connection: &mut PgConnection,
    plan: PlanId,
    event: &EventKind,
) -> Result<(), sqlx::Error> {
    insert_row(connection, plan, &[event]).await
}

/// One commit's events under the next numbers of the stream.
async fn insert_row<E: Serialize>(
    connection: &mut PgConnection,
    plan: PlanId,
    events: &[E],
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH number AS (UPDATE journal SET last_event = last_event + $1 RETURNING last_event) \
         INSERT INTO event (last, plan, at_ms, bodies) \
         SELECT last_event, $2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $3 FROM number",
    )
    .bind(i64::try_from(events.len()).unwrap_or(i64::MAX))
    .bind(plan.0)
    .bind(to_json(&events))
    .execute(connection)
    .await
    .map(drop)
}

/// Events of the lease's holder: no row is made unless the lease stands at this very moment. The plan's
/// row is locked until the transaction ends, so nobody takes the lease over in between.
async fn insert_events(
    connection: &mut PgConnection,
    lease: &Lease,
    events: &[EventKind],
) -> Result<bool, sqlx::Error> {
    let held: Option<i64> = sqlx::query_scalar(
        "SELECT id FROM plan WHERE id = $1 AND owner = $2 AND fence = $3 AND lease_until > clock_timestamp() FOR UPDATE",
    )
    .bind(lease.plan.0)
    .bind(&lease.owner.0)
    .bind(lease.fence.0.cast_signed())
    .fetch_optional(&mut *connection)
    .await?;
    if held.is_some() {
        insert_row(connection, lease.plan, events).await?;
    }
    Ok(held.is_some())
}
