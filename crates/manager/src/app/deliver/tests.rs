//! Real deliveries to a real server, with stops and crashes in between, on both databases.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::run;
use crate::{
    app::{
        App,
        samples::{
            self, Ground,
            receiver::{Mood, Receiver},
        },
    },
    domain::{Api, Filter, Instance, InstantiationState, Subscription, SubscriptionId, Verbosity},
    store::{Delivery, Store},
};

struct Running(JoinHandle<()>, CancellationToken);

impl Running {
    fn start(app: &App) -> Self {
        let stop = CancellationToken::new();
        Self(tokio::spawn(run(app.clone(), stop.clone())), stop)
    }

    async fn stop(self) {
        self.1.cancel();
        self.0.await.unwrap();
    }

    /// Ends as a crash does: in the middle of whatever it does.
    async fn crash(self) {
        self.0.abort();
        assert!(self.0.await.unwrap_err().is_cancelled());
    }
}

async fn subscribe(store: &Store, callback: &str) -> SubscriptionId {
    let subscription = Subscription {
        id: SubscriptionId::new(),
        api: Api::LcmV1,
        callback: callback.to_owned(),
        filter: Filter::default(),
        verbosity: Verbosity::Full,
        auth: None,
        created: samples::at(0),
    };
    store.insert_subscription(&subscription).await.unwrap();
    subscription.id
}

/// Makes changes that are told of; returns the instances' ids in their order.
async fn changes(store: &Store, count: usize) -> Vec<String> {
    let package = samples::package();
    let package = crate::domain::PackageRecord { vnfd: None, ..package };
    store.insert_package(&package).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..count {
        let instance = samples::instance(&package, Vec::new());
        let bare = Instance { state: InstantiationState::NotInstantiated, info: None, ..instance };
        store.insert_instance(&bare).await.unwrap();
        ids.push(bare.id.to_string());
    }
    ids
}

async fn until(store: &Store, id: SubscriptionId, what: &str, fits: impl Fn(&Delivery) -> bool) -> Delivery {
    let begin = Instant::now();
    loop {
        let (_, delivery) = store.delivery(id).await.unwrap().unwrap();
        if fits(&delivery) {
            return delivery;
        }
        assert!(begin.elapsed() < Duration::from_secs(40), "{what}: {delivery:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn told(body: &Value) -> String {
    body["vnfInstanceId"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_through_failures_and_a_restart() {
    for ground in Ground::both().await {
        let receiver = Receiver::start().await;
        receiver.mood(Mood::Answer(503, Vec::new(), r#"{"status":503,"detail":"asleep"}"#.to_owned()));
        let app = ground.app().await;
        let id = subscribe(&app.store, &receiver.hook()).await;
        let ids = changes(&app.store, 4).await;
        let running = Running::start(&app);
        let state = until(&app.store, id, "a failure", |state| state.failures > 0).await;
        assert_eq!(state.waiting, 4, "nothing is skipped");
        assert!(state.last_error.unwrap().contains("503 Service Unavailable: asleep"));
        assert!(state.next_try.is_some() && state.last_error_at.is_some() && state.last_success_at.is_none());
        running.stop().await;
        let failed = receiver.seen().len();

        receiver.status(204);
        let app = ground.app().await;
        let running = Running::start(&app);
        let state = until(&app.store, id, "all delivered", |state| state.waiting == 0).await;
        assert_eq!((state.delivered, state.failures, state.dropped), (4, 0, 0));
        let seen = receiver.seen();
        let after: Vec<String> = seen[failed..].iter().map(|seen| told(&seen.body)).collect();
        assert_eq!(after, ids);
        assert!(seen[..=failed].iter().all(|it| it.body["id"] == seen[0].body["id"]), "one id for all tries");
        let link = seen[failed].body["_links"]["vnfInstance"]["href"].as_str().unwrap();
        assert_eq!(link, format!("http://manager.example:9890/vnflcm/v1/vnf_instances/{}", ids[0]));
        assert_eq!(seen[failed].headers["content-type"], "application/json");

        // What is written while it runs goes out at once, without anybody looking at a clock.
        let later = changes(&app.store, 1).await;
        let all = receiver.wait_for(seen.len() + 1).await;
        assert_eq!(told(&all.last().unwrap().body), later[0]);
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_the_middle_repeats_the_same_notification() {
    for ground in Ground::both().await {
        let receiver = Receiver::start().await;
        receiver.mood(Mood::Hang);
        let app = ground.app().await;
        let id = subscribe(&app.store, &receiver.hook()).await;
        let ids = changes(&app.store, 2).await;
        let running = Running::start(&app);
        receiver.wait_for(1).await;
        running.crash().await;
        receiver.status(200);
        let app = ground.app().await;
        let begin = Instant::now();
        let running = Running::start(&app);
        let seen = receiver.wait_for(3).await;
        // One file has one manager, which does not wait for itself; on a server the lease must run out.
        assert_eq!(begin.elapsed() > Duration::from_secs(3), ground.is_postgres());
        assert_eq!(seen[0].body, seen[1].body, "word for word, with its id");
        assert_eq!([told(&seen[1].body), told(&seen[2].body)], [ids[0].clone(), ids[1].clone()]);
        until(&app.store, id, "both recorded", |state| state.delivered == 2 && state.waiting == 0).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_and_slow_subscribers_delay_nobody_else() {
    let ground = Ground::sqlite();
    let (slow, well) = (Receiver::start().await, Receiver::start().await);
    slow.mood(Mood::Hang);
    let app = ground.app().await;
    let first = subscribe(&app.store, &slow.hook()).await;
    // Nobody listens on the port that a server has just left.
    let gone = { Receiver::start().await.hook() };
    let dead = subscribe(&app.store, &gone).await;
    let last = subscribe(&app.store, &well.hook()).await;
    let running = Running::start(&app);
    let begin = Instant::now();
    let ids = changes(&app.store, 20).await;
    let seen = well.wait_for(20).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(seen.iter().map(|seen| told(&seen.body)).collect::<Vec<_>>(), ids);
    until(&app.store, last, "all", |state| state.waiting == 0).await;
    until(&app.store, first, "none", |state| state.waiting == 20).await;
    let state = until(&app.store, dead, "refused", |state| state.failures > 0).await;
    assert!(state.last_error.unwrap().starts_with("no connection: "));
    running.1.cancel();
    let begin = Instant::now();
    running.0.await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(8), "a stop does not wait for the slow one");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_deliver_each_once_and_in_order() {
    for ground in Ground::both().await.into_iter().filter(Ground::is_postgres) {
        let receiver = Receiver::start().await;
        let (one, two) = (ground.app().await, ground.app().await);
        let id = subscribe(&one.store, &receiver.hook()).await;
        let (a, b) = tokio::join!(changes(&one.store, 30), changes(&two.store, 30));
        let order = one.store.waiting(id, 100).await.unwrap();
        let order: Vec<String> = order.iter().map(|letter| told(&letter.body)).collect();
        assert_eq!(order.len(), a.len() + b.len());
        let running = [Running::start(&one), Running::start(&two)];
        until(&one.store, id, "all", |state| state.waiting == 0).await;
        let more = changes(&two.store, 10).await;
        until(&one.store, id, "more", |state| state.delivered == 70).await;
        for one in running {
            one.stop().await;
        }
        let seen: Vec<String> = receiver.seen().iter().map(|seen| told(&seen.body)).collect();
        assert_eq!(seen, [order, more].concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_older_than_a_day_is_given_up_and_the_rest_waits() {
    for ground in Ground::both().await {
        let receiver = Receiver::start().await;
        receiver.status(500);
        let app = ground.app().await;
        let id = subscribe(&app.store, &receiver.hook()).await;
        changes(&app.store, 3).await;
        {
            let mut writer = app.store.db().writer().await;
            let mut tx = writer.begin().await.unwrap();
            let day = 86_400_000_i64;
            tx.execute("UPDATE notification SET created_ms = created_ms - $1 WHERE seq <= 2", &[day.into()])
                .await
                .unwrap();
            tx.commit().await.unwrap();
        }
        let running = Running::start(&app);
        let state = until(&app.store, id, "dropped", |state| state.dropped > 0).await;
        assert_eq!((state.dropped, state.waiting, state.delivered), (2, 1, 0));
        assert!(state.last_error.unwrap().contains("500"));
        assert!(!receiver.seen().is_empty(), "however old, it was tried");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_goes_away_hinders_no_change() {
    for ground in Ground::both().await {
        let store = Arc::new(ground.store().await);
        let package = samples::package();
        store.insert_package(&package).await.unwrap();
        for _ in 0..30 {
            let id = subscribe(&store, "http://127.0.0.1:1/").await;
            let instance = samples::instance(&package, Vec::new());
            let bare = Instance { state: InstantiationState::NotInstantiated, info: None, ..instance };
            let (made, gone) = tokio::join!(store.insert_instance(&bare), store.delete_subscription(id));
            made.unwrap();
            assert!(gone.unwrap());
        }
        assert_eq!(store.notification_backlog().await.unwrap().0, 0, "nothing waits for those who are gone");
    }
}
