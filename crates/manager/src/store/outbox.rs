//! Notifications, written in the transaction of the change that they tell of.

use super::{Arg, Store, StoreError, Tx, to_json};
use crate::{
    app::notices,
    domain::{Notice, Subscription},
};

impl Store {
    /// Puts what each subscriber wants to hear of these changes into the outbox.
    pub(super) async fn publish(tx: &mut Tx<'_>, notices: &[Notice]) -> Result<(), StoreError> {
        if notices.is_empty() {
            return Ok(());
        }
        let rows = tx.fetch("SELECT doc FROM subscription ORDER BY id", &[]).await?;
        let subscriptions: Vec<Subscription> =
            rows.iter().map(|row| row.json(0)).collect::<Result<_, _>>()?;
        let now = jiff::Timestamp::now().as_millisecond();
        for notice in notices {
            for subscription in &subscriptions {
                let Some(body) = notices::render(subscription, notice) else { continue };
                let seq = tx
                    .fetch(
                        "UPDATE counter SET value = value + 1 WHERE name = 'notification' RETURNING value",
                        &[],
                    )
                    .await?;
                let seq = seq.first().ok_or_else(|| StoreError::stale("the outbox's counter"))?.int(0)?;
                tx.execute(
                    "INSERT INTO notification (seq, subscription, created_ms, body) VALUES ($1, $2, $3, $4)",
                    &[Arg::from(seq), subscription.id.to_string().into(), now.into(), to_json(&body).into()],
                )
                .await?;
            }
        }
        Ok(())
    }
}
