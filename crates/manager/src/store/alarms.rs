//! Alarms: one open alarm a trouble, each change with its notification in the same transaction.

use jiff::Timestamp;

use super::{Row, Store, StoreError, StoreErrorKind, Tx, to_json};
use crate::domain::{AckState, Alarm, AlarmId, Instance, InstanceId, Notice, Operation, Severity};

/// What a raised alarm led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    /// It is new.
    New,
    /// It was open with another severity, and has this one now.
    Changed,
    /// It was open like this already.
    Known,
}

impl Store {
    /// Raises an alarm, unless the same trouble has an open one: that one takes over another severity.
    pub async fn raise_alarm(&self, alarm: &Alarm, instance: &Instance) -> Result<Raised, StoreError> {
        match self.raise_once(alarm, instance).await {
            // Another manager has raised it at the same moment.
            Err(error) if error.kind == StoreErrorKind::Taken => Ok(Raised::Known),
            other => other,
        }
    }

    async fn raise_once(&self, alarm: &Alarm, instance: &Instance) -> Result<Raised, StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let (raised, told) = match open(&mut tx, alarm.instance, &alarm.key).await? {
            None => {
                insert(&mut tx, alarm).await?;
                (Raised::New, alarm.clone())
            }
            Some(known) if known.severity == alarm.severity => return Ok(Raised::Known),
            Some(mut known) => {
                known.severity = alarm.severity;
                known.changed = Some(alarm.event_time);
                known.cause.clone_from(&alarm.cause);
                known.details.clone_from(&alarm.details);
                // It is worse or better than what somebody has seen.
                known.ack = AckState::Unacknowledged;
                known.acknowledged = None;
                update(&mut tx, &known).await?;
                (Raised::Changed, known)
            }
        };
        let notice =
            Notice::Alarm { alarm: Box::new(told), instance: Box::new(instance.clone()), cleared: false };
        self.conclude(tx, &[notice]).await?;
        Ok(raised)
    }

    /// Clears the open alarm of a trouble; whether there was one.
    pub async fn clear_alarm(
        &self,
        instance: &Instance,
        key: &str,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let Some(mut alarm) = open(&mut tx, instance.id, key).await? else { return Ok(false) };
        alarm.severity = Severity::Cleared;
        alarm.cleared = Some(at);
        alarm.changed = Some(at);
        update(&mut tx, &alarm).await?;
        let notice =
            Notice::Alarm { alarm: Box::new(alarm), instance: Box::new(instance.clone()), cleared: true };
        self.conclude(tx, &[notice]).await?;
        Ok(true)
    }

    /// Writes what somebody said of an alarm that was read at its present revision.
    pub async fn update_alarm(&self, alarm: &Alarm) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        update(&mut tx, alarm).await?;
        tx.commit().await
    }

    /// Forgets the alarms of instances that are gone, and those that are over and were raised before a time.
    pub async fn forget_alarms(&self, before: Timestamp) -> Result<u64, StoreError> {
        // Ids begin with the time at which they were made.
        let millis = u64::try_from(before.as_millisecond()).unwrap_or(0);
        let before = uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid().to_string();
        let none = self
            .db
            .read(
                "SELECT a.id FROM alarm a WHERE (a.cleared = 1 AND a.id < $1) \
                 OR NOT EXISTS (SELECT 1 FROM instance i WHERE i.id = a.instance) LIMIT 1",
                &[before.as_str().into()],
            )
            .await?
            .is_empty();
        if none {
            return Ok(0);
        }
        self.write_one(
            "DELETE FROM alarm WHERE (cleared = 1 AND id < $1) \
             OR NOT EXISTS (SELECT 1 FROM instance i WHERE i.id = alarm.instance)",
            &[before.into()],
        )
        .await
    }

    /// One alarm.
    pub async fn alarm(&self, id: AlarmId) -> Result<Option<Alarm>, StoreError> {
        let rows = self.db.read("SELECT doc, rev FROM alarm WHERE id = $1", &[id.to_string().into()]).await?;
        rows.first().map(parse).transpose()
    }

    /// A page of alarms, the oldest first.
    pub async fn alarms(&self, after: Option<AlarmId>, limit: u32) -> Result<Vec<Alarm>, StoreError> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let rows = self
            .db
            .read(
                "SELECT doc, rev FROM alarm WHERE id > $1 ORDER BY id LIMIT $2",
                &[after.into(), i64::from(limit).into()],
            )
            .await?;
        rows.iter().map(parse).collect()
    }

    /// Operations that wait for somebody since they failed.
    pub async fn failed_operations(&self) -> Result<Vec<Operation>, StoreError> {
        let rows =
            self.db.read("SELECT doc FROM operation WHERE state = 'FAILED_TEMP' ORDER BY id", &[]).await?;
        rows.iter().map(|row| row.json(0)).collect()
    }

    /// Alarms of troubles that are not over.
    pub async fn open_alarms(&self) -> Result<Vec<Alarm>, StoreError> {
        let rows = self.db.read("SELECT doc, rev FROM alarm WHERE cleared = 0 ORDER BY id", &[]).await?;
        rows.iter().map(parse).collect()
    }
}

async fn open(tx: &mut Tx<'_>, instance: InstanceId, key: &str) -> Result<Option<Alarm>, StoreError> {
    let rows = tx
        .fetch(
            "SELECT doc, rev FROM alarm WHERE instance = $1 AND key = $2 AND cleared = 0",
            &[instance.to_string().into(), key.into()],
        )
        .await?;
    rows.first().map(parse).transpose()
}

async fn insert(tx: &mut Tx<'_>, alarm: &Alarm) -> Result<(), StoreError> {
    tx.execute(
        "INSERT INTO alarm (id, rev, instance, key, severity, cleared, doc) VALUES ($1, 1, $2, $3, $4, 0, $5)",
        &[
            alarm.id.to_string().into(),
            alarm.instance.to_string().into(),
            alarm.key.as_str().into(),
            alarm.severity.as_str().into(),
            to_json(alarm).into(),
        ],
    )
    .await
    .map(drop)
}

async fn update(tx: &mut Tx<'_>, alarm: &Alarm) -> Result<(), StoreError> {
    let done = tx
        .execute(
            "UPDATE alarm SET rev = rev + 1, severity = $3, cleared = $4, doc = $5 WHERE id = $1 AND rev = $2",
            &[
                alarm.id.to_string().into(),
                alarm.rev.into(),
                alarm.severity.as_str().into(),
                i64::from(alarm.cleared.is_some()).into(),
                to_json(alarm).into(),
            ],
        )
        .await?;
    if done == 0 { Err(StoreError::stale("the alarm")) } else { Ok(()) }
}

fn parse(row: &Row) -> Result<Alarm, StoreError> {
    let mut alarm: Alarm = row.json(0)?;
    alarm.rev = row.int(1)?;
    Ok(alarm)
}
