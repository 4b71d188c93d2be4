//! One subscriber's notifications, one after the other.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{
    LEASE,
    backoff::{PATIENCE, pause},
};
use crate::{
    app::{App, callback::Outgoing},
    domain::{Subscription, SubscriptionId},
    notices,
    store::{Due, Failed, StoreError, StoreErrorKind, Waiting},
};

/// How often our right is renewed while we work.
const RENEW: Duration = Duration::from_millis(1_500);
/// How many notifications are read at a time.
const BATCH: u32 = 20;
/// How many are delivered before others have their turn.
const SHIFT: usize = 200;
/// How long a subscriber is left alone after the database has failed us.
const AFTER_TROUBLE: Duration = Duration::from_secs(2);

/// Delivers what waits for one subscriber, until nothing does, it fails, or the shift is over.
pub(super) async fn serve(app: &App, due: Due, owner: &str, stop: &CancellationToken) {
    let work = Work { app, id: due.subscription, owner };
    let done = match work.renew().await {
        Ok(true) => {
            let done = work.deliver(due.failures, stop).await;
            let let_go = app.store.disown(due.subscription, owner).await;
            done.and(let_go)
        }
        Ok(false) => return,
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => {}
        Err(error) if error.kind == StoreErrorKind::Stale => {
            tracing::info!(subscription = %due.subscription, "another manager delivers by now");
        }
        Err(error) => {
            tracing::warn!(subscription = %due.subscription, %error, source = ?error.source, "the outbox failed");
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(AFTER_TROUBLE) => {}
            }
        }
    }
}

/// One subscriber being served.
struct Work<'a> {
    app: &'a App,
    id: SubscriptionId,
    owner: &'a str,
}

impl Work<'_> {
    async fn deliver(&self, mut failures: i64, stop: &CancellationToken) -> Result<(), StoreError> {
        let store = &self.app.store;
        let Some(subscription) = store.subscription(self.id).await? else { return Ok(()) };
        let (mut sent, mut renewed) = (0, Instant::now());
        while sent < SHIFT {
            let letters = store.waiting(self.id, BATCH).await?;
            if letters.is_empty() {
                return Ok(());
            }
            for letter in letters {
                if stop.is_cancelled() {
                    return Ok(());
                }
                if renewed.elapsed() >= RENEW {
                    self.keep().await?;
                    renewed = Instant::now();
                }
                let seq = letter.seq;
                match self.send_and_renew(&subscription, letter).await? {
                    Ok(()) => store.delivered(self.id, self.owner, seq, store.now_ms().await?).await?,
                    Err(reason) => return self.failed(failures, &reason).await,
                }
                (failures, sent) = (0, sent + 1);
            }
        }
        Ok(())
    }

    /// Sends one notification, and tells the others meanwhile that we are still there.
    async fn send_and_renew(
        &self,
        subscription: &Subscription,
        letter: Waiting,
    ) -> Result<Result<(), String>, StoreError> {
        let mut sending = pin!(self.send(subscription, letter));
        loop {
            tokio::select! {
                outcome = &mut sending => return Ok(outcome),
                () = tokio::time::sleep(RENEW) => self.keep().await?,
            }
        }
    }

    async fn send(&self, subscription: &Subscription, mut letter: Waiting) -> Result<(), String> {
        notices::with_address(&mut letter.body, &self.app.config.url);
        let callbacks = &self.app.callbacks;
        let credentials = subscription.auth.as_ref().map(|auth| callbacks.credentials(auth)).transpose();
        let credentials = credentials.map_err(|error| error.reason)?;
        let request = Outgoing::post(&subscription.callback, letter.body.to_string());
        let answer = callbacks.send(&request, credentials.as_ref()).await.map_err(|error| error.reason)?;
        // SOL003 asks for 204; somebody who says another word of success has it all the same.
        if answer.status.is_success() { Ok(()) } else { Err(answer.complaint()) }
    }

    async fn failed(&self, failures: i64, reason: &str) -> Result<(), StoreError> {
        let now = self.app.store.now_ms().await?;
        let next = now + millis(pause(failures + 1, rand::random()));
        let outcome =
            self.app.store.failed(self.id, self.owner, reason, now, next, now - millis(PATIENCE)).await?;
        match outcome {
            Failed::Dropped(count) => tracing::error!(
                subscription = %self.id, reason, count,
                "notifications could not be delivered for a day and are given up"
            ),
            Failed::Waits if failures == 0 => tracing::warn!(
                subscription = %self.id, reason,
                "a notification could not be delivered; it is tried again for a day"
            ),
            Failed::Waits => {
                tracing::debug!(subscription = %self.id, failures, reason, "not delivered again");
            }
        }
        Ok(())
    }

    async fn renew(&self) -> Result<bool, StoreError> {
        let now = self.app.store.now_ms().await?;
        self.app.store.own(self.id, self.owner, now, now + millis(LEASE)).await
    }

    async fn keep(&self) -> Result<(), StoreError> {
        if self.renew().await? { Ok(()) } else { Err(StoreError::stale("the subscription")) }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
