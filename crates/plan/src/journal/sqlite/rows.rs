//! The statements that several methods of the `SQLite` journal share.

use rustix::time::{ClockId, clock_gettime};
use sqlx::{FromRow, Row, SqliteConnection, sqlite::SqliteRow};

use super::super::{HeaderRow, Lease, to_json};
use crate::{EventKind, Plan, PlanId};

impl FromRow<'_, SqliteRow> for HeaderRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
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

pub(super) async fn active_plan(
    connection: &mut SqliteConnection,
    subject: &str,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT id FROM plan WHERE subject = ?1 AND state IN ('ready', 'running', 'stopping', 'undoing')",
    )
    .bind(subject)
    .fetch_optional(connection)
    .await
}

pub(super) async fn plan_of_key(
    connection: &mut SqliteConnection,
    once: &str,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM plan WHERE once = ?1").bind(once).fetch_optional(connection).await
}

pub(super) async fn state_of(
    connection: &mut SqliteConnection,
    plan: PlanId,
) -> Result<Option<(String, Option<String>)>, sqlx::Error> {
    sqlx::query_as("SELECT state, cancel FROM plan WHERE id = ?1")
        .bind(plan.0)
        .fetch_optional(connection)
        .await
}

pub(super) async fn insert_plan(
    connection: &mut SqliteConnection,
    plan: &Plan,
    once: Option<&str>,
) -> Result<PlanId, sqlx::Error> {
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO plan (kind, title, subject, state, tasks, created_ms, spec, once) \
         VALUES (?1, ?2, ?3, 'ready', ?4, CAST(unixepoch('subsec') * 1000 AS INTEGER), ?5, ?6) RETURNING id",
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
pub(super) async fn insert_wish(
    connection: &mut SqliteConnection,
    plan: PlanId,
    event: &EventKind,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO event (last, plan, at_ms, bodies) \
         VALUES ((SELECT coalesce(max(last), 0) FROM event) + 1, ?1, CAST(unixepoch('subsec') * 1000 AS INTEGER), ?2)",
    )
    .bind(plan.0)
    .bind(to_json(&[event]))
    .execute(connection)
    .await?;
    Ok(())
}

/// Events of the lease's holder: no row is made unless the lease stands at this very moment.
pub(super) async fn insert_events(
    connection: &mut SqliteConnection,
    lease: &Lease,
    boot: &str,
    events: &[EventKind],
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(
        "INSERT INTO event (last, plan, at_ms, bodies) \
         SELECT (SELECT coalesce(max(last), 0) FROM event) + ?1, id, CAST(unixepoch('subsec') * 1000 AS INTEGER), ?2 \
         FROM plan WHERE id = ?3 AND owner = ?4 AND fence = ?5 AND lease_boot = ?6 AND lease_until > ?7",
    )
    .bind(i64::try_from(events.len()).unwrap_or(i64::MAX))
    .bind(to_json(&events))
    .bind(lease.plan.0)
    .bind(&lease.owner.0)
    .bind(lease.fence.0.cast_signed())
    .bind(boot)
    .bind(boot_ms())
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Milliseconds since the host booted, suspended time included.
pub(super) fn boot_ms() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}
