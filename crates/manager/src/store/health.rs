//! How the store itself fares.

use jiff::Timestamp;

use super::{Row, Store, StoreError};

impl Store {
    /// How many notifications wait, and since when the oldest does.
    pub async fn notification_backlog(&self) -> Result<(i64, Option<Timestamp>), StoreError> {
        let rows = self.db.read("SELECT count(*), min(created_ms) FROM notification", &[]).await?;
        rows.first().map_or(Ok((0, None)), |row| Ok((row.int(0)?, oldest(row)?)))
    }

    /// Whether something could be written: a transaction that changes nothing is begun and given up.
    pub async fn is_writable(&self) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        tx.execute("UPDATE counter SET value = value WHERE name = 'notification'", &[]).await.map(drop)
    }
}

fn oldest(row: &Row) -> Result<Option<Timestamp>, StoreError> {
    let time = row.int_or_none(1)?.map(Timestamp::from_millisecond).transpose();
    time.map_err(|error| StoreError::damaged("created_ms", sqlx::Error::Decode(error.into())))
}
