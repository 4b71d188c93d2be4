//! What Prometheus is told. Labels have bounds: routes of the table, handlers of plans, words of SOL003.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::{Duration, Instant},
};

use guywire_plan::{Cursor, Event, EventKind, Journal, JournalError, PlanId, TaskIndex};
use http::Method;
use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio_util::sync::CancellationToken;

use super::{Access, Answer, Call, Reply, Route};
use crate::{
    app::App,
    domain::{AppError, ErrorKind},
};

/// The media type of the text format.
const MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Plans that are watched at once; past that, the durations of some tasks are not told.
const PLANS: usize = 1000;
/// Events that are read at once.
const PAGE: u32 = 500;

/// Counts.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    tasks: Family<TaskLabels, Histogram>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    method: &'static str,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabels {
    handler: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    r#type: String,
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: String,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("guywire");
        let requests = Family::default();
        registry.register("http_requests", "Requests that were answered", requests.clone());
        let durations: Family<RouteLabels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 15)));
        registry.register("http_request_duration_seconds", "Time until an answer began", durations.clone());
        let tasks: Family<TaskLabels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.01, 2.0, 18)));
        registry.register(
            "plan_task_duration_seconds",
            "Time of one attempt at a task, of all plans in the journal, whichever manager ran it",
            tasks.clone(),
        );
        Self { registry, requests, durations, tasks }
    }

    pub(super) fn request(&self, route: &'static str, method: &Method, status: u16, took: Duration) {
        let method = word(method);
        let labels = RequestLabels { route, method, status: status.into() };
        self.requests.get_or_create(&labels).inc();
        self.durations.get_or_create(&RouteLabels { route, method }).observe(took.as_secs_f64());
    }

    /// All of it as text: what was counted here, and what the database says now.
    async fn text(&self, app: &App) -> Result<String, AppError> {
        let mut now = Registry::with_prefix("guywire");
        let operations = Family::<OperationLabels, Gauge>::default();
        for (r#type, state, count) in app.store.count_operations().await? {
            operations.get_or_create(&OperationLabels { r#type, state }).set(count);
        }
        now.register("operations", "Operations by type and state", operations);
        let instances = Family::<StateLabels, Gauge>::default();
        for (state, count) in app.store.count_instances().await? {
            instances.get_or_create(&StateLabels { state }).set(count);
        }
        now.register("vnf_instances", "VNF instances by state", instances);
        let (waiting, oldest) = app.store.notification_backlog().await?;
        let backlog: Gauge = Gauge::default();
        backlog.set(waiting);
        now.register("notification_backlog", "Notifications that wait for delivery", backlog);
        let age: Gauge = Gauge::default();
        age.set(oldest.map_or(0, |oldest| Timestamp::now().duration_since(oldest).as_secs().max(0)));
        now.register("notification_oldest_age_seconds", "Age of the notification that waits longest", age);
        let mut text = String::new();
        let failed = |error: std::fmt::Error| {
            AppError::new(ErrorKind::Internal, "the metrics could not be written").because(error)
        };
        prometheus_client::encoding::text::encode_registry(&mut text, &self.registry).map_err(failed)?;
        encode(&mut text, &now).map_err(failed)?;
        Ok(text)
    }

    /// Measures tasks from the journal's events until told to stop.
    pub(super) async fn watch(&self, journal: &dyn Journal, stop: CancellationToken) {
        let mut cursor = None;
        let mut watched = Watched::default();
        while !stop.is_cancelled() {
            let look = async {
                let at = match cursor {
                    Some(at) => at,
                    None => newest(journal).await?,
                };
                let events = journal.events(None, at, PAGE).await?;
                for event in &events {
                    if let Some((labels, seconds)) = watched.see(journal, event).await? {
                        self.tasks.get_or_create(&labels).observe(seconds);
                    }
                }
                let at = events.last().map_or(at, |event| event.seq);
                if events.is_empty() {
                    journal.changed(at, Duration::from_secs(5)).await?;
                }
                Ok::<Cursor, JournalError>(at)
            };
            let done = tokio::select! {
                () = stop.cancelled() => return,
                done = look => done,
            };
            match done {
                Ok(at) => cursor = Some(at),
                Err(error) => {
                    tracing::warn!(%error, "the durations of tasks cannot be read for now");
                    // The database is away: whoever needs it says so louder.
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
            }
        }
    }
}

/// Tasks that have begun, by plan.
#[derive(Default)]
struct Watched {
    plans: HashMap<PlanId, (Vec<String>, HashMap<TaskIndex, Timestamp>)>,
}

impl Watched {
    async fn see(
        &mut self,
        journal: &dyn Journal,
        event: &Event,
    ) -> Result<Option<(TaskLabels, f64)>, JournalError> {
        let (task, result) = match &event.kind {
            EventKind::TaskStarted { task, .. } => {
                if self.plans.len() >= PLANS && !self.plans.contains_key(&event.plan) {
                    self.plans.clear();
                }
                let (_, starts) = match self.plans.entry(event.plan) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => {
                        let plan = journal.plan(event.plan).await?;
                        let names = plan.tasks.into_iter().map(|task| task.handler.name).collect();
                        place.insert((names, HashMap::new()))
                    }
                };
                starts.insert(*task, event.at);
                return Ok(None);
            }
            EventKind::TaskSucceeded { task, .. } => (task, "succeeded"),
            EventKind::TaskFailed { task, .. } => (task, "failed"),
            EventKind::TaskStopped { task, .. } => (task, "stopped"),
            EventKind::PlanEnded { .. } | EventKind::PlanSuperseded { .. } => {
                self.plans.remove(&event.plan);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        let Some((names, starts)) = self.plans.get_mut(&event.plan) else { return Ok(None) };
        let Some((began, handler)) = starts.remove(task).zip(names.get(task.at())) else { return Ok(None) };
        let seconds = event.at.duration_since(began).as_secs_f64().max(0.0);
        Ok(Some((TaskLabels { handler: handler.clone(), result }, seconds)))
    }
}

/// The number of the last event. Numbers have no gaps, so that a few looks find it in a journal of any length.
async fn newest(journal: &dyn Journal) -> Result<Cursor, JournalError> {
    let follows = async |at: i64| journal.events(None, Cursor(at), 1).await.map(|events| !events.is_empty());
    let (mut low, mut step) = (0, 1024);
    while follows(low + step).await? {
        low += step;
        step *= 2;
    }
    let mut high = low + step;
    while low < high {
        let middle = low + (high - low) / 2;
        if follows(middle).await? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(Cursor(low))
}

/// The methods that there are; anything else is one word, since callers choose it.
fn word(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    known.into_iter().find(|word| *word == method.as_str()).unwrap_or("other")
}

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/metrics", Access::Reader, metrics)
            .doc("operations", "Metrics for Prometheus")
            .answers_media(200, MEDIA, "The metrics"),
    ]
}

async fn metrics(call: Call) -> Answer {
    let began = Instant::now();
    let text = call.shared.metrics.text(&call.app).await?;
    tracing::debug!(ms = began.elapsed().as_millis(), "metrics were gathered");
    Ok(Reply::bytes(MEDIA, text))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use guywire_plan::{
        Context, Engine, Handler, Handlers, Options, PlanBuilder, Probe, TaskError, journal::SqliteJournal,
    };

    use super::*;

    struct Wait;

    impl Handler for Wait {
        type Input = u64;
        type Output = ();
        const NAME: &'static str = "test.wait";
        const VERSION: u32 = 1;

        async fn probe(&self, _: &Context, _: &u64) -> Result<Probe<()>, TaskError> {
            Ok(Probe::Needed)
        }

        async fn apply(&self, _: &Context, milliseconds: &u64) -> Result<(), TaskError> {
            tokio::time::sleep(Duration::from_millis(*milliseconds)).await;
            Ok(())
        }
    }

    #[tokio::test]
    async fn durations_of_tasks_are_read_from_the_journal() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = SqliteJournal::open(&dir.path().join("journal.db")).await.expect("a journal");
        let engine = Engine::new(Arc::new(journal), Handlers::new().with(Wait), Options::default());
        let run = async || {
            let mut plan = PlanBuilder::new("test", "a test");
            let phase = plan.phase("one");
            plan.task::<Wait>(phase, "wait", &100).add();
            let id = engine.submit(&plan.build().expect("a plan")).await.expect("accepted");
            engine.run(id).await.expect("executed");
        };
        run().await;
        let journal = engine.journal().clone();
        let mut last = Cursor(0);
        for event in journal.events(None, last, 1000).await.expect("events") {
            last = event.seq;
        }
        assert_eq!(newest(&*journal).await.expect("found"), last);

        let (metrics, stop) = (Arc::new(Metrics::new()), CancellationToken::new());
        let watching = (metrics.clone(), journal.clone(), stop.clone());
        let watch = tokio::spawn(async move { watching.0.watch(&*watching.1, watching.2).await });
        let told = |what: &str| {
            let mut text = String::new();
            encode(&mut text, &metrics.registry).expect("written");
            let name = format!("guywire_plan_task_duration_seconds_{what}");
            let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_default();
            let value = line.strip_prefix("{handler=\"test.wait\",result=\"succeeded\"} ");
            value.map_or(0.0, |value| value.parse::<f64>().expect("a number"))
        };
        let mut tries = 0;
        while told("count") < 1.0 {
            // Whatever ran before the watch began is not counted; so it is run until one is.
            run().await;
            tries += 1;
            assert!(tries < 50, "no task was seen");
        }
        assert!(told("sum") / told("count") >= 0.09, "{} {}", told("sum"), told("count"));
        stop.cancel();
        watch.await.expect("it ended well");
    }
}
