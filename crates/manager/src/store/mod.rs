//! What is kept: one transaction a change, its notifications in the same one.

mod alarms;
mod credentials;
mod db;
mod error;
mod health;
mod instances;
mod machines;
mod operations;
mod outbox;
mod packages;
mod subscriptions;
mod vims;

use std::path::Path;

pub use alarms::Raised;
pub use credentials::Right;
pub use db::{Arg, Db, Row, Tx, Writer, copy_sqlite};
pub use error::{StoreError, StoreErrorKind};
pub use instances::{InstanceColumn, InstanceQuery};
pub use machines::Claimed;
pub use operations::{OperationQuery, Step};
pub use outbox::{Delivery, Due, Failed, Waiting};

/// The manager's database.
pub struct Store {
    db: Db,
    /// Wakes those who deliver notifications and drive operations in this process.
    changed: tokio::sync::Notify,
}

impl Store {
    /// Opens or makes the `SQLite` file.
    pub async fn sqlite(path: &Path) -> Result<Self, StoreError> {
        Ok(Self::on(Db::sqlite(path).await?))
    }

    /// Opens the `PostgreSQL` database.
    pub async fn postgres(url: &str) -> Result<Self, StoreError> {
        Ok(Self::on(Db::postgres(url).await?))
    }

    fn on(db: Db) -> Self {
        Self { db, changed: tokio::sync::Notify::new() }
    }

    /// The database itself.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Whether it answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.db.read("SELECT 1", &[]).await.map(drop)
    }

    /// Ends after the next change that this process makes, counted from this call on.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Tells those who wait that something was committed.
    pub(crate) fn tell(&self) {
        self.changed.notify_waiters();
    }
}

fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("our own types are plain data that JSON can hold")
}

#[cfg(test)]
mod tests;
