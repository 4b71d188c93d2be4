//! Notifications, written in the transaction of the change that they tell of, and kept until they are delivered.
//!
//! A notification is deleted after its receiver has answered. A crash between the answer and the deletion repeats it,
//! with the same id: at least once, in order, never lost.

use jiff::Timestamp;
use uuid::Uuid;

use super::{Arg, Db, Row, Store, StoreError, Tx, to_json};
use crate::{
    domain::{Notice, PackageRecord, Subscription, SubscriptionId, UsageState},
    notices::{self, Stamp},
};

/// A notification that waits for its delivery.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Its place in the order of all notifications.
    pub seq: i64,
    /// When the change was made.
    pub created_ms: i64,
    /// What the receiver gets.
    pub body: serde_json::Value,
}

/// A subscription that something waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Which one.
    pub subscription: SubscriptionId,
    /// How often in a row delivery to it has failed.
    pub failures: i64,
}

/// How delivery to a subscription fares.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delivery {
    /// Notifications that wait.
    pub waiting: i64,
    /// How often in a row the first of them has failed.
    pub failures: i64,
    /// When it is tried again, if it has failed.
    pub next_try: Option<Timestamp>,
    /// Why it failed last.
    pub last_error: Option<String>,
    /// When it failed last.
    pub last_error_at: Option<Timestamp>,
    /// When something was delivered last.
    pub last_success_at: Option<Timestamp>,
    /// How many were delivered.
    pub delivered: i64,
    /// How many were given up.
    pub dropped: i64,
}

/// What became of a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// It is tried again.
    Waits,
    /// So many notifications were too old and are given up.
    Dropped(i64),
}

impl Store {
    /// Ends a change: what subscribers hear of it is written with it, and whoever waits for changes is woken.
    pub(super) async fn conclude(&self, mut tx: Tx<'_>, notices: &[Notice]) -> Result<(), StoreError> {
        Self::publish(&mut tx, notices).await?;
        tx.commit().await?;
        self.tell();
        Ok(())
    }

    /// Puts what each subscriber wants to hear of these changes into the outbox. It is the last thing that a
    /// transaction does: the counter is taken here, and whoever holds it waits for nothing else but subscriptions.
    pub(super) async fn publish(tx: &mut Tx<'_>, notices: &[Notice]) -> Result<(), StoreError> {
        if notices.is_empty() {
            return Ok(());
        }
        let rows = tx.fetch("SELECT doc FROM subscription ORDER BY id", &[]).await?;
        let subscriptions: Vec<Subscription> =
            rows.iter().map(|row| row.json(0)).collect::<Result<_, _>>()?;
        if subscriptions.is_empty() {
            return Ok(());
        }
        let at = Timestamp::now();
        let mut letters = Vec::new();
        for notice in notices {
            let usage = match notice {
                Notice::PackageOnboarded(package) | Notice::PackageChanged { package, .. } => {
                    Some(Self::usage(tx, package).await?)
                }
                _ => None,
            };
            for subscription in &subscriptions {
                let stamp = Stamp { id: Uuid::now_v7(), at, usage };
                if let Some(body) = notices::render(subscription, notice, stamp) {
                    letters.push((subscription.id.to_string(), to_json(&body)));
                }
            }
        }
        if letters.is_empty() {
            return Ok(());
        }
        let count = i64::try_from(letters.len()).unwrap_or(i64::MAX);
        let last = tx
            .fetch(
                "UPDATE counter SET value = value + $1 WHERE name = 'notification' RETURNING value",
                &[count.into()],
            )
            .await?;
        let last = last.first().ok_or_else(|| StoreError::stale("the outbox's counter"))?.int(0)?;
        for (seq, (subscription, body)) in (last - count + 1..).zip(letters) {
            // Holds the subscription until this is committed: somebody who deletes it at this moment comes before us,
            // and then there is nobody to be told, or after us, and takes the notification along.
            let there = tx
                .execute(
                    "UPDATE subscription SET failures = failures WHERE id = $1",
                    &[subscription.as_str().into()],
                )
                .await?;
            if there == 0 {
                continue;
            }
            tx.execute(
                "INSERT INTO notification (seq, subscription, created_ms, body) VALUES ($1, $2, $3, $4)",
                &[Arg::from(seq), subscription.into(), at.as_millisecond().into(), body.into()],
            )
            .await?;
        }
        Ok(())
    }

    async fn usage(tx: &mut Tx<'_>, package: &PackageRecord) -> Result<UsageState, StoreError> {
        let rows = tx
            .fetch("SELECT id FROM instance WHERE package = $1 LIMIT 1", &[package.id.to_string().into()])
            .await?;
        Ok(if rows.is_empty() { UsageState::NotInUse } else { UsageState::InUse })
    }

    /// The time by which several managers agree: the database server's, or this host's where there is none.
    pub async fn now_ms(&self) -> Result<i64, StoreError> {
        match &self.db {
            Db::Sqlite { .. } => Ok(Timestamp::now().as_millisecond()),
            Db::Postgres { .. } => {
                let rows = self
                    .db
                    .read("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[])
                    .await?;
                rows.first().map_or_else(|| Err(StoreError::stale("the clock")), |row| row.int(0))
            }
        }
    }

    /// Who a process is to others that deliver from the same database. A `SQLite` file has one manager only, which
    /// therefore is the same one after a restart and has not to wait for itself.
    pub fn deliverer(&self) -> String {
        match &self.db {
            Db::Sqlite { .. } => "this-host".to_owned(),
            Db::Postgres { .. } => Uuid::now_v7().to_string(),
        }
    }

    /// Subscriptions that something waits for, whose time has come and that nobody else delivers to.
    pub async fn due(&self, owner: &str, now_ms: i64) -> Result<Vec<Due>, StoreError> {
        let rows = self
            .db
            .read(
                "SELECT s.id, s.failures FROM subscription s WHERE s.next_ms <= $1 \
                 AND (s.owner IS NULL OR s.owner = $2 OR s.owner_until <= $1) \
                 AND EXISTS (SELECT 1 FROM notification n WHERE n.subscription = s.id) ORDER BY s.id",
                &[now_ms.into(), owner.into()],
            )
            .await?;
        rows.iter().map(|row| Ok(Due { subscription: id(row)?, failures: row.int(1)? })).collect()
    }

    /// Takes or keeps the right to deliver to a subscription; whether that went well.
    pub async fn own(
        &self,
        subscription: SubscriptionId,
        owner: &str,
        now_ms: i64,
        until_ms: i64,
    ) -> Result<bool, StoreError> {
        let changed = self
            .write_one(
                "UPDATE subscription SET owner = $2, owner_until = $4 WHERE id = $1 \
                 AND (owner IS NULL OR owner = $2 OR owner_until <= $3)",
                &[subscription.to_string().into(), owner.into(), now_ms.into(), until_ms.into()],
            )
            .await?;
        Ok(changed > 0)
    }

    /// Lets others deliver.
    pub async fn disown(&self, subscription: SubscriptionId, owner: &str) -> Result<(), StoreError> {
        self.write_one(
            "UPDATE subscription SET owner = NULL, owner_until = NULL WHERE id = $1 AND owner = $2",
            &[subscription.to_string().into(), owner.into()],
        )
        .await
        .map(drop)
    }

    /// The first notifications that wait for a subscription.
    pub async fn waiting(
        &self,
        subscription: SubscriptionId,
        limit: u32,
    ) -> Result<Vec<Waiting>, StoreError> {
        let rows = self
            .db
            .read(
                "SELECT seq, created_ms, body FROM notification WHERE subscription = $1 ORDER BY seq LIMIT $2",
                &[subscription.to_string().into(), i64::from(limit).into()],
            )
            .await?;
        rows.iter()
            .map(|row| Ok(Waiting { seq: row.int(0)?, created_ms: row.int(1)?, body: row.json(2)? }))
            .collect()
    }

    /// Records that a notification was delivered. `Stale` if somebody else delivers by now.
    pub async fn delivered(
        &self,
        subscription: SubscriptionId,
        owner: &str,
        seq: i64,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let ours = tx
            .execute(
                "UPDATE subscription SET failures = 0, next_ms = 0, last_success_ms = $3, delivered = delivered + 1 \
                 WHERE id = $1 AND owner = $2",
                &[subscription.to_string().into(), owner.into(), now_ms.into()],
            )
            .await?;
        if ours == 0 {
            return Err(StoreError::stale("the subscription"));
        }
        tx.execute("DELETE FROM notification WHERE seq = $1", &[seq.into()]).await?;
        tx.commit().await
    }

    /// Records that a try failed. What was written before `too_old_ms` is given up. `Stale` if somebody else
    /// delivers by now.
    pub async fn failed(
        &self,
        subscription: SubscriptionId,
        owner: &str,
        error: &str,
        now_ms: i64,
        next_ms: i64,
        too_old_ms: i64,
    ) -> Result<Failed, StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let ours = tx
            .execute(
                "UPDATE subscription SET failures = failures + 1, next_ms = $3, last_error = $4, last_error_ms = $5 \
                 WHERE id = $1 AND owner = $2",
                &[
                    subscription.to_string().into(),
                    owner.into(),
                    next_ms.into(),
                    error.into(),
                    now_ms.into(),
                ],
            )
            .await?;
        if ours == 0 {
            return Err(StoreError::stale("the subscription"));
        }
        let dropped = tx
            .execute(
                "DELETE FROM notification WHERE subscription = $1 AND created_ms <= $2",
                &[subscription.to_string().into(), too_old_ms.into()],
            )
            .await?;
        let dropped = i64::try_from(dropped).unwrap_or(i64::MAX);
        if dropped > 0 {
            tx.execute(
                "UPDATE subscription SET dropped = dropped + $2 WHERE id = $1",
                &[subscription.to_string().into(), dropped.into()],
            )
            .await?;
        }
        tx.commit().await?;
        Ok(if dropped > 0 { Failed::Dropped(dropped) } else { Failed::Waits })
    }

    pub(super) async fn write_one(&self, sql: &'static str, args: &[Arg]) -> Result<u64, StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let changed = tx.execute(sql, args).await?;
        tx.commit().await?;
        Ok(changed)
    }
}

fn id(row: &Row) -> Result<SubscriptionId, StoreError> {
    let damaged = |error: uuid::Error| StoreError::damaged("id", sqlx::Error::Decode(error.into()));
    row.text(0)?.parse().map_err(damaged)
}
