//! Delivers notifications: in order for each subscriber, to all subscribers at once.
//!
//! A notification leaves the outbox after its receiver has answered with success. A crash in between repeats it with
//! the same id. Of several managers that share a database one delivers to a subscriber at a time; when it falls
//! silent, another takes over after [`LEASE`]. A manager that was frozen for longer than that may then repeat the one
//! notification that it was sending; the receiver knows it by its id.

mod backoff;
#[cfg(test)]
mod tests;
mod worker;

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    task::{Id, JoinSet},
};
use tokio_util::sync::CancellationToken;

use super::App;
use crate::{domain::SubscriptionId, store::StoreError};

/// How long a subscriber is ours without word from us.
const LEASE: Duration = Duration::from_secs(6);
/// How often we look for what other managers have written, and for whose time has come.
const LOOK: Duration = Duration::from_millis(500);
/// How long requests under way may take to end when we are stopped.
const FAREWELL: Duration = Duration::from_secs(5);
/// How many subscribers that answer are called at a time.
const WELL: usize = 192;
/// How many that did not answer the last time: however many are dead, they take no room from the others.
const TROUBLED: usize = 64;

/// Workers, at most one a subscriber.
struct Workers {
    app: App,
    owner: Arc<str>,
    stop: CancellationToken,
    well: Arc<Semaphore>,
    troubled: Arc<Semaphore>,
    tasks: JoinSet<()>,
    busy: HashMap<Id, SubscriptionId>,
    /// Turns the list of who is next, so that nobody is always the last.
    turn: usize,
}

/// Delivers until it is stopped.
pub async fn run(app: App, stop: CancellationToken) {
    let store = app.store.clone();
    let mut workers = Workers {
        owner: store.deliverer().into(),
        app,
        stop: stop.clone(),
        well: Arc::new(Semaphore::new(WELL)),
        troubled: Arc::new(Semaphore::new(TROUBLED)),
        tasks: JoinSet::new(),
        busy: HashMap::new(),
        turn: 0,
    };
    while !stop.is_cancelled() {
        // Asked for before we look, so that what is written while we look wakes us.
        let mut changed = pin!(store.changed());
        if futures::poll!(changed.as_mut()).is_ready() {
            continue;
        }
        if let Err(error) = workers.start().await {
            tracing::warn!(%error, source = ?error.source, "the outbox cannot be read; trying again");
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = changed => {}
            () = workers.one_ends() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    let ends = async {
        while !workers.tasks.is_empty() {
            workers.one_ends().await;
        }
    };
    if tokio::time::timeout(FAREWELL, ends).await.is_err() {
        tracing::info!("requests to subscribers were broken off; they are repeated after the next start");
        workers.tasks.shutdown().await;
    }
}

impl Workers {
    /// Starts a worker for each subscriber that something waits for and that has none.
    async fn start(&mut self) -> Result<(), StoreError> {
        let now = self.app.store.now_ms().await?;
        let mut due = self.app.store.due(&self.owner, now).await?;
        let busy: HashSet<SubscriptionId> = self.busy.values().copied().collect();
        due.retain(|due| !busy.contains(&due.subscription));
        if due.is_empty() {
            return Ok(());
        }
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn % due.len();
        due.rotate_left(turn);
        for due in due {
            let pool = if due.failures == 0 { &self.well } else { &self.troubled };
            let Ok(permit) = pool.clone().try_acquire_owned() else { continue };
            let (app, owner, stop) = (self.app.clone(), self.owner.clone(), self.stop.clone());
            let task = self.tasks.spawn(async move {
                worker::serve(&app, due, &owner, &stop).await;
                drop(permit);
            });
            self.busy.insert(task.id(), due.subscription);
        }
        Ok(())
    }

    /// Waits until a worker has ended; for ever, if there is none.
    async fn one_ends(&mut self) {
        match self.tasks.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, ()))) => {
                self.busy.remove(&id);
            }
            Some(Err(error)) => {
                self.busy.remove(&error.id());
                tracing::error!(%error, "a delivery ended in a way that it never should");
            }
        }
    }
}
