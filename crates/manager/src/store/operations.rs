//! Operations: every write is conditional on what was read, and carries its notifications.

use super::{Row, Store, StoreError, to_json};
use crate::domain::{Instance, InstanceId, Notice, Operation, OperationId, OperationState, Vnfc};

/// Which operations a page of a list holds.
#[derive(Debug, Clone, Default)]
pub struct OperationQuery {
    /// Those after this id.
    pub after: Option<OperationId>,
    /// How many at most.
    pub limit: u32,
    /// Of this instance only.
    pub instance: Option<InstanceId>,
}

const SELECT: &str = "SELECT doc, rev FROM operation WHERE id = $1";

impl Store {
    /// Accepts an operation. `Taken` if the instance has another unfinished one; `Stale` if the instance is not the
    /// one that it was decided on. Whether it is told of is for the caller to say.
    pub async fn accept_operation(
        &self,
        operation: &Operation,
        instance: &Instance,
        notices: &[Notice],
    ) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        // Also on PostgreSQL nobody deletes or changes the instance until this is committed.
        let same = tx
            .execute(
                "UPDATE instance SET rev = rev WHERE id = $1 AND rev = $2",
                &[instance.id.to_string().into(), instance.rev.into()],
            )
            .await?;
        if same == 0 {
            return Err(StoreError::stale("the instance"));
        }
        tx.execute(
            "INSERT INTO operation (id, rev, instance, type, state, started_ms, entered_ms, doc) \
             VALUES ($1, 1, $2, $3, $4, $5, $6, $7)",
            &[
                operation.id.to_string().into(),
                operation.instance.to_string().into(),
                operation.operation.as_str().into(),
                operation.state.as_str().into(),
                operation.started.as_millisecond().into(),
                operation.entered.as_millisecond().into(),
                to_json(operation).into(),
            ],
        )
        .await?;
        self.conclude(tx, notices).await
    }

    /// One operation.
    pub async fn operation(&self, id: OperationId) -> Result<Option<Operation>, StoreError> {
        let rows = self.db.read(SELECT, &[id.to_string().into()]).await?;
        rows.first().map(parse).transpose()
    }

    /// A page of operations, the oldest first.
    pub async fn operations(&self, query: &OperationQuery) -> Result<Vec<Operation>, StoreError> {
        let after = query.after.map(|id| id.to_string()).unwrap_or_default();
        let limit = i64::from(query.limit);
        let rows = match query.instance {
            Some(instance) => {
                self.db
                    .read(
                        "SELECT doc, rev FROM operation WHERE instance = $1 AND id > $2 ORDER BY id LIMIT $3",
                        &[instance.to_string().into(), after.into(), limit.into()],
                    )
                    .await?
            }
            None => {
                self.db
                    .read(
                        "SELECT doc, rev FROM operation WHERE id > $1 ORDER BY id LIMIT $2",
                        &[after.into(), limit.into()],
                    )
                    .await?
            }
        };
        rows.iter().map(parse).collect()
    }

    /// Operations that we have something to do for, the oldest first.
    pub async fn active_operations(&self) -> Result<Vec<OperationId>, StoreError> {
        let rows = self
            .db
            .read(
                "SELECT id FROM operation WHERE state IN ('STARTING', 'PROCESSING', 'ROLLING_BACK') ORDER BY id",
                &[],
            )
            .await?;
        let id = |row: &Row| {
            let text = row.text(0)?;
            let wrong = |error: uuid::Error| StoreError::damaged("id", sqlx::Error::Decode(error.into()));
            text.parse().map_err(wrong)
        };
        rows.iter().map(id).collect()
    }

    /// How many operations there are, by type and state.
    pub async fn count_operations(&self) -> Result<Vec<(String, String, i64)>, StoreError> {
        let rows =
            self.db.read("SELECT type, state, count(*) FROM operation GROUP BY type, state", &[]).await?;
        rows.iter().map(|row| Ok((row.text(0)?, row.text(1)?, row.int(2)?))).collect()
    }

    /// Writes an operation that was decided on its present revision, with all that belongs to the same step:
    /// the instance where it changes, machines that are spoken for or let go, and what subscribers hear.
    pub async fn advance(&self, operation: &Operation, step: Step<'_>) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        // The instance before its operation, as when one is accepted: in PostgreSQL an operation that ends and one that
        // is accepted at the same moment would else wait for each other.
        if let Some(instance) = step.instance {
            Self::put_instance(&mut tx, instance).await?;
        }
        let done = tx
            .execute(
                "UPDATE operation SET rev = rev + 1, state = $3, entered_ms = $4, doc = $5 WHERE id = $1 AND rev = $2",
                &[
                    operation.id.to_string().into(),
                    operation.rev.into(),
                    operation.state.as_str().into(),
                    operation.entered.as_millisecond().into(),
                    to_json(operation).into(),
                ],
            )
            .await?;
        if done == 0 {
            return Err(StoreError::stale("the operation"));
        }
        if let Some((infra, machines)) = step.claim {
            Self::claim_machines(&mut tx, infra, operation.instance, machines).await?;
        }
        if let Some(kept) = step.keep {
            Self::keep_machines(&mut tx, operation.instance, kept).await?;
        }
        self.conclude(tx, &step.notices).await
    }
}

/// What belongs to one step of an operation.
#[derive(Debug, Default)]
pub struct Step<'a> {
    /// The instance, where it changes.
    pub instance: Option<&'a Instance>,
    /// Machines in a place that are spoken for from now on.
    pub claim: Option<(&'a str, &'a [Vnfc])>,
    /// The machines that the instance keeps; all others are let go.
    pub keep: Option<&'a [Vnfc]>,
    /// What subscribers may want to hear.
    pub notices: Vec<Notice>,
}

fn parse(row: &Row) -> Result<Operation, StoreError> {
    let mut operation: Operation = row.json(0)?;
    operation.rev = row.int(1)?;
    debug_assert!(operation.state != OperationState::Starting || operation.error.is_none());
    Ok(operation)
}
