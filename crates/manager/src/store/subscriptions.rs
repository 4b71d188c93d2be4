//! Subscriptions, and how delivery to them fares.

use jiff::Timestamp;

use super::{Delivery, Row, Store, StoreError, to_json};
use crate::domain::{Api, Subscription, SubscriptionId};

impl Store {
    /// Keeps a new subscription.
    pub async fn insert_subscription(&self, subscription: &Subscription) -> Result<(), StoreError> {
        self.write_one(
            "INSERT INTO subscription (id, api, doc) VALUES ($1, $2, $3)",
            &[
                subscription.id.to_string().into(),
                subscription.api.as_str().into(),
                to_json(subscription).into(),
            ],
        )
        .await
        .map(drop)
    }

    /// One subscription of any interface.
    pub async fn subscription(&self, id: SubscriptionId) -> Result<Option<Subscription>, StoreError> {
        let rows =
            self.db.read("SELECT doc FROM subscription WHERE id = $1", &[id.to_string().into()]).await?;
        rows.first().map(|row| row.json(0)).transpose()
    }

    /// All subscriptions of an interface, the oldest first, from after an id on.
    pub async fn subscriptions(
        &self,
        api: Api,
        after: Option<SubscriptionId>,
        limit: u32,
    ) -> Result<Vec<Subscription>, StoreError> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let rows = self
            .db
            .read(
                "SELECT doc FROM subscription WHERE api = $1 AND id > $2 ORDER BY id LIMIT $3",
                &[api.as_str().into(), after.into(), i64::from(limit).into()],
            )
            .await?;
        rows.iter().map(|row| row.json(0)).collect()
    }

    /// Forgets a subscription with all that waits for it; whether it was there.
    pub async fn delete_subscription(&self, id: SubscriptionId) -> Result<bool, StoreError> {
        let gone = self.write_one("DELETE FROM subscription WHERE id = $1", &[id.to_string().into()]).await?;
        Ok(gone > 0)
    }

    /// One subscription of any interface, and how delivery to it fares.
    pub async fn delivery(&self, id: SubscriptionId) -> Result<Option<(Subscription, Delivery)>, StoreError> {
        let rows = self.db.read(DELIVERY_OF_ONE, &[id.to_string().into()]).await?;
        rows.first().map(parse).transpose()
    }

    /// Subscriptions of all interfaces, the oldest first, and how delivery to them fares.
    pub async fn deliveries(
        &self,
        after: Option<SubscriptionId>,
        limit: u32,
    ) -> Result<Vec<(Subscription, Delivery)>, StoreError> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let rows = self.db.read(DELIVERIES, &[after.into(), i64::from(limit).into()]).await?;
        rows.iter().map(parse).collect()
    }
}

const DELIVERY_OF_ONE: &str = "SELECT s.doc, s.failures, s.next_ms, s.last_error, s.last_error_ms, \
     s.last_success_ms, s.delivered, s.dropped, \
     (SELECT count(*) FROM notification n WHERE n.subscription = s.id) FROM subscription s WHERE s.id = $1";
const DELIVERIES: &str = "SELECT s.doc, s.failures, s.next_ms, s.last_error, s.last_error_ms, \
     s.last_success_ms, s.delivered, s.dropped, \
     (SELECT count(*) FROM notification n WHERE n.subscription = s.id) FROM subscription s WHERE s.id > $1 \
     ORDER BY s.id LIMIT $2";

fn parse(row: &Row) -> Result<(Subscription, Delivery), StoreError> {
    let time = |ms: Option<i64>| ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let (failures, waiting) = (row.int(1)?, row.int(8)?);
    let delivery = Delivery {
        waiting,
        failures,
        next_try: if failures > 0 && waiting > 0 { time(Some(row.int(2)?)) } else { None },
        last_error: row.text_or_none(3)?,
        last_error_at: time(row.int_or_none(4)?),
        last_success_at: time(row.int_or_none(5)?),
        delivered: row.int(6)?,
        dropped: row.int(7)?,
    };
    Ok((row.json(0)?, delivery))
}
