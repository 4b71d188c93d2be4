//! Server-sent events: what happens, as it happens.
//!
//! A stream of an operation carries whole states (`operation`, `plan`) whenever they change, and the events between
//! them (`event`), each with the number from which a client that lost its connection goes on (`Last-Event-ID`).

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use guywire_plan::{Cursor, Event, EventKind, PlanId, PlanView};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

use super::{OperationDoc, found, plan};
use crate::{
    app::App,
    domain::{AppError, OperationId, OperationState},
    http::{Answer, Call, Reply},
};

/// The media type of server-sent events.
pub const MEDIA: &str = "text/event-stream";

/// How often somebody who hears nothing is told that we are there: proxies cut silent connections.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long a change of another manager on the same database may go unnoticed.
const LOOK: Duration = Duration::from_millis(1000);
/// Pause between two looks, so that a burst of changes is told of at once.
const BURST: Duration = Duration::from_millis(100);
/// How many events are read at once.
const PAGE: u32 = 500;
/// Messages that wait for a slow reader; after that the producer waits as well.
const QUEUE: usize = 64;

/// What happens in an operation, until it comes to rest.
pub async fn of_operation(call: Call) -> Answer {
    let operation = found(&call, call.id("vnfLcmOpOccId")?).await?;
    let after = last_event(&call)?;
    let (sender, reply) = channel();
    let follower = Follower {
        app: call.app.clone(),
        id: operation.id,
        after,
        sender,
        plans: BTreeMap::new(),
        shown: None,
        loud: tokio::time::Instant::now(),
    };
    let stop = call.shared.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            done = follower.run() => if let Err(Gone::Broken(error)) = done {
                // The client comes again and goes on after the last event that it has.
                tracing::warn!(operation = %operation.id, error = %error.detail, "an event stream ended early");
            }
        }
    });
    Ok(reply)
}

/// That something changed. What did is for the client to ask.
pub async fn of_everything(call: Call) -> Answer {
    let (sender, reply) = channel();
    let (app, stop) = (call.app.clone(), call.shared.stop.clone());
    tokio::spawn(async move {
        let mut before = None;
        let mut loud = tokio::time::Instant::now();
        loop {
            // Listening begins before looking, so that nothing falls between the two.
            let changed = app.store.changed();
            tokio::pin!(changed);
            let now = match fingerprint(&app).await {
                Ok(now) => now,
                Err(error) => {
                    tracing::warn!(error = %error.detail, "an event stream ended early");
                    return;
                }
            };
            let message = match before {
                // The first look is what later ones are compared with.
                None => Some(message("hello", None, &json!({}))),
                Some(ref known) if *known != now => {
                    Some(message("changed", None, &json!({"types": differing(known, &now)})))
                }
                Some(_) if loud.elapsed() > HEARTBEAT => Some(Bytes::from_static(b": here\n\n")),
                Some(_) => None,
            };
            before = Some(now);
            if let Some(message) = message {
                loud = tokio::time::Instant::now();
                if sender.send(message).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sender.closed() => return,
                () = changed => tokio::time::sleep(BURST).await,
                () = tokio::time::sleep(LOOK * 2) => {}
            }
        }
    });
    Ok(reply)
}

/// Texts that change with what they stand for; cheap, whatever the number of instances.
async fn fingerprint(app: &App) -> Result<BTreeMap<&'static str, String>, AppError> {
    let mut all = BTreeMap::new();
    for (name, query) in [
        ("instances", "SELECT count(*) || '/' || coalesce(max(id), '') FROM instance"),
        (
            "operations",
            "SELECT count(*) || '/' || coalesce(sum(rev), 0) || '/' || coalesce((SELECT max(id) FROM operation), '') \
             FROM operation WHERE state IN ('STARTING', 'PROCESSING', 'ROLLING_BACK', 'FAILED_TEMP')",
        ),
        ("packages", "SELECT coalesce(sum(rev), 0) || '/' || count(*) FROM package"),
        ("alarms", "SELECT coalesce(sum(rev), 0) || '/' || count(*) FROM alarm"),
        (
            "subscriptions",
            "SELECT coalesce(sum(delivered + failures), 0) || '/' || count(*) FROM subscription",
        ),
    ] {
        let rows = app.store.db().read(query, &[]).await?;
        let text = rows.first().map(|row| row.text(0)).transpose()?.unwrap_or_default();
        all.insert(name, text);
    }
    Ok(all)
}

fn differing(
    before: &BTreeMap<&'static str, String>,
    now: &BTreeMap<&'static str, String>,
) -> Vec<&'static str> {
    now.iter().filter(|(name, text)| before.get(*name) != Some(text)).map(|(name, _)| *name).collect()
}

/// Why a stream ends before its operation rests.
enum Gone {
    /// Nobody listens any more.
    Deaf,
    /// We cannot go on.
    Broken(AppError),
}

impl<E: Into<AppError>> From<E> for Gone {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

/// Follows one operation for one listener.
struct Follower {
    app: App,
    id: OperationId,
    /// What the listener has already.
    after: Cursor,
    sender: mpsc::Sender<Bytes>,
    plans: BTreeMap<PlanId, Followed>,
    shown: Option<OperationDoc>,
    loud: tokio::time::Instant,
}

/// A plan that is followed.
struct Followed {
    plan: guywire_plan::Plan,
    view: PlanView,
}

impl Follower {
    async fn run(mut self) -> Result<(), Gone> {
        loop {
            let operation = self.app.store.operation(self.id).await?;
            // Operations are not deleted; one that is gone has nothing more to tell.
            let Some(operation) = operation else { return Ok(()) };
            let document = OperationDoc::of(&operation);
            // An operation begins before its plans and ends after them; a listener hears of both in that order.
            let mut news = operation.state.is_active() && self.operation(&document).await?;
            for id in &operation.plans {
                news |= self.plan(*id).await?;
            }
            news |= self.operation(&document).await?;
            if news {
                continue;
            }
            if !operation.state.is_active() {
                return self.send("end", None, &json!({"operationState": operation.state})).await;
            }
            self.wait(operation.state).await?;
        }
    }

    /// Tells where the operation stands, unless that was told; whether it was not.
    async fn operation(&mut self, document: &OperationDoc) -> Result<bool, Gone> {
        if self.shown.as_ref() == Some(document) {
            return Ok(false);
        }
        self.send("operation", None, document).await?;
        self.shown = Some(document.clone());
        Ok(true)
    }

    /// Tells what is new in a plan; whether anything is.
    async fn plan(&mut self, id: PlanId) -> Result<bool, Gone> {
        let journal = self.app.engine.journal().clone();
        if !self.plans.contains_key(&id) {
            let plan = journal.plan(id).await.map_err(unreadable)?;
            let view = PlanView::new(id, &plan);
            self.plans.insert(id, Followed { plan, view });
            self.snapshot(id).await?;
        }
        let Some(cursor) = self.plans.get(&id).map(|followed| followed.view.cursor) else { return Ok(false) };
        let events = journal.events(Some(id), cursor, PAGE).await.map_err(unreadable)?;
        if events.is_empty() {
            return Ok(false);
        }
        for event in events {
            if let Some(followed) = self.plans.get_mut(&id) {
                followed.view.see(&event);
            }
            if event.seq > self.after {
                self.send("event", Some(event.seq), &outside(&event)).await?;
            }
        }
        self.snapshot(id).await?;
        Ok(true)
    }

    async fn snapshot(&mut self, id: PlanId) -> Result<(), Gone> {
        let Some(Followed { plan, view }) = self.plans.get(&id) else { return Ok(()) };
        let document = plan::document(plan, view, Timestamp::now());
        self.send("plan", None, &document).await
    }

    async fn wait(&mut self, state: OperationState) -> Result<(), Gone> {
        let cursor = self.plans.values().map(|followed| followed.view.cursor).max().unwrap_or_default();
        let journal = self.app.engine.journal().clone();
        tokio::select! {
            // A plan's own events come through the journal, a new plan or state through the store.
            changed = journal.changed(cursor, LOOK) => changed.map_err(unreadable)?,
            () = self.app.store.changed() => {}
            () = self.sender.closed() => return Err(Gone::Deaf),
        }
        tokio::time::sleep(BURST / 4).await;
        if self.loud.elapsed() > HEARTBEAT {
            let comment = Bytes::from(format!(": {}\n\n", state.as_str()));
            self.loud = tokio::time::Instant::now();
            self.sender.send(comment).await.map_err(|_| Gone::Deaf)?;
        }
        Ok(())
    }

    async fn send(&mut self, event: &str, id: Option<Cursor>, data: &impl Serialize) -> Result<(), Gone> {
        self.loud = tokio::time::Instant::now();
        self.sender.send(message(event, id, data)).await.map_err(|_| Gone::Deaf)
    }
}

/// An event as others may see it: what a task found out stays inside.
fn outside(event: &Event) -> Event {
    let mut event = event.clone();
    if let EventKind::TaskSucceeded { output, .. } = &mut event.kind {
        *output = Value::Null;
    }
    event
}

fn message(event: &str, id: Option<Cursor>, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).expect("documents are plain data that JSON can hold");
    let id = id.map(|id| format!("id: {}\n", id.0)).unwrap_or_default();
    // JSON has no line breaks of its own, so it is one line.
    Bytes::from(format!("event: {event}\n{id}data: {data}\n\n"))
}

fn channel() -> (mpsc::Sender<Bytes>, Reply) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    let reply = Reply::stream(MEDIA, body)
        .with_header(http::header::CACHE_CONTROL, "no-store")
        // Some proxies would otherwise gather events before they pass them on.
        .with_header(http::HeaderName::from_static("x-accel-buffering"), "no");
    (sender, reply)
}

fn last_event(call: &Call) -> Result<Cursor, AppError> {
    let Some(value) = call.headers.get("last-event-id") else { return Ok(Cursor::default()) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Cursor).ok_or_else(|| {
        AppError::invalid(
            "Last-Event-ID is no number that this manager sent; leave it out to hear everything",
        )
    })
}

fn unreadable(error: guywire_plan::JournalError) -> AppError {
    AppError::new(
        crate::domain::ErrorKind::Internal,
        "the journal cannot be read; the manager's log says more",
    )
    .because(error)
}
