//! Alarms in both databases, and a watch over machines that fall silent.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{machine_key, machine_silent, operation_failed, operation_key};
use crate::{
    app::{
        App,
        callback::Outbound,
        samples::{self, Ground, Machines},
    },
    domain::{
        AckState, Alarm, Api, Filter, OperationState, OperationType, Severity, Subscription, SubscriptionId,
        Verbosity,
    },
    store::{Raised, Step, Store, StoreErrorKind},
};

async fn listener(store: &Store) -> SubscriptionId {
    let subscription = Subscription {
        id: SubscriptionId::new(),
        api: Api::Fm,
        callback: "http://127.0.0.1:1/".to_owned(),
        filter: Filter::default(),
        verbosity: Verbosity::Full,
        auth: None,
        created: samples::at(0),
    };
    store.insert_subscription(&subscription).await.unwrap();
    subscription.id
}

async fn told(store: &Store, listener: SubscriptionId) -> Vec<String> {
    let waiting = store.waiting(listener, 100).await.unwrap();
    waiting.iter().map(|letter| letter.body["notificationType"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn one_alarm_a_trouble_each_change_told_once() {
    for ground in Ground::both().await {
        let store = ground.store().await;
        let vnfc = samples::vnfc("hello-0", "hello");
        let instance = samples::stored_instance(&store, vec![vnfc.clone()]).await;
        let listener = listener(&store).await;
        let alarm = machine_silent(&instance, &vnfc, samples::at(1));
        let again = Alarm { id: crate::domain::AlarmId::new(), ..alarm.clone() };
        let minor = Alarm { severity: Severity::Minor, ..again.clone() };
        assert_eq!(store.raise_alarm(&alarm, &instance).await.unwrap(), Raised::New);
        assert_eq!(store.raise_alarm(&again, &instance).await.unwrap(), Raised::Known);
        assert_eq!(store.raise_alarm(&minor, &instance).await.unwrap(), Raised::Changed);
        let open = store.open_alarms().await.unwrap();
        assert_eq!(open.len(), 1);
        assert_eq!((open[0].id, open[0].severity, open[0].rev), (alarm.id, Severity::Minor, 2));
        let key = machine_key(&vnfc);
        assert!(store.clear_alarm(&instance, &key, samples::at(9)).await.unwrap());
        assert!(!store.clear_alarm(&instance, &key, samples::at(9)).await.unwrap(), "it is over already");
        let over = store.alarm(alarm.id).await.unwrap().unwrap();
        assert_eq!((over.severity, over.cleared), (Severity::Cleared, Some(samples::at(9))));
        assert_eq!(
            store.raise_alarm(&again, &instance).await.unwrap(),
            Raised::New,
            "a new trouble, a new alarm"
        );
        assert_eq!(
            told(&store, listener).await,
            ["AlarmNotification", "AlarmNotification", "AlarmClearedNotification", "AlarmNotification"]
        );
        let mut stale = store.alarm(again.id).await.unwrap().unwrap();
        stale.ack = AckState::Acknowledged;
        store.update_alarm(&stale).await.unwrap();
        assert_eq!(store.update_alarm(&stale).await.unwrap_err().kind, StoreErrorKind::Stale);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_that_raise_at_once_raise_one() {
    for ground in Ground::both().await {
        let (one, two) = (ground.store().await, ground.store().await);
        let vnfc = samples::vnfc("hello-0", "hello");
        let instance = samples::stored_instance(&one, vec![vnfc.clone()]).await;
        let listener = listener(&one).await;
        for round in 1..=10 {
            let (a, b) = (
                machine_silent(&instance, &vnfc, samples::at(1)),
                machine_silent(&instance, &vnfc, samples::at(1)),
            );
            let (a, b) = tokio::join!(one.raise_alarm(&a, &instance), two.raise_alarm(&b, &instance));
            let raised = [a.unwrap(), b.unwrap()];
            assert!(raised.contains(&Raised::New) && raised.contains(&Raised::Known), "{raised:?}");
            assert_eq!(told(&one, listener).await.len(), 2 * round - 1);
            assert!(one.clear_alarm(&instance, &machine_key(&vnfc), samples::at(2)).await.unwrap());
        }
    }
}

async fn until(app: &App, what: &str, fits: impl Fn(&[Alarm]) -> bool) -> Vec<Alarm> {
    let begin = Instant::now();
    loop {
        let alarms = app.store.alarms(None, 100).await.unwrap();
        if fits(&alarms) {
            return alarms;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}: {alarms:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_and_operations_are_watched() {
    let ground = Ground::sqlite();
    let machines = Arc::new(Machines::default());
    let outbound = Outbound { watch_every: Duration::from_millis(30), ..Outbound::default() };
    let app = ground.app_with(outbound, machines.clone()).await;
    let vnfcs = vec![samples::vnfc("hello-0", "hello"), samples::vnfc("hello-1", "hello")];
    let instance = samples::stored_instance(&app.store, vnfcs.clone()).await;
    let stop = CancellationToken::new();
    let watching = tokio::spawn(super::watch(app.clone(), stop.clone()));

    machines.0.lock().unwrap().insert("hello-1".to_owned());
    let alarms = until(&app, "a silent machine", |alarms| alarms.len() == 1).await;
    assert_eq!(alarms[0].key, "machine/hello-1");
    assert_eq!((alarms[0].severity, alarms[0].vnfc.as_deref()), (Severity::Critical, Some("hello-1")));
    assert_eq!(alarms[0].resource, Some(("vim1".to_owned(), vnfcs[1].resource)));
    machines.0.lock().unwrap().clear();
    until(&app, "it answers", |alarms| alarms[0].cleared.is_some()).await;

    // An operation is at work: its machines may be silent. It fails, which is a trouble of its own.
    let mut operation = samples::operation(&instance, OperationType::Heal, OperationState::Processing);
    app.store.accept_operation(&operation, &instance, &[]).await.unwrap();
    machines.0.lock().unwrap().extend(["hello-0".to_owned(), "hello-1".to_owned()]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(app.store.alarms(None, 100).await.unwrap().len(), 1, "no alarm while an operation works");
    operation.state = OperationState::FailedTemp;
    app.store.advance(&operation, Step::default()).await.unwrap();
    let alarms = until(&app, "a failed operation", |alarms| alarms.len() == 2).await;
    assert_eq!((alarms[1].key.clone(), alarms[1].severity), (operation_key(&operation), Severity::Major));
    assert_eq!(alarms[1].details[1], "retry it, roll it back, or mark it as failed");
    operation.rev += 1;
    operation.state = OperationState::Completed;
    machines.0.lock().unwrap().clear();
    app.store.advance(&operation, Step::default()).await.unwrap();
    until(&app, "it came to a good end", |alarms| alarms[1].cleared.is_some()).await;

    stop.cancel();
    watching.await.unwrap();
}

#[tokio::test]
async fn alarms_go_with_their_instance_and_say_when_they_were_seen() {
    let ground = Ground::sqlite();
    let app = ground.app().await;
    let mut gone = samples::instance(&samples::package(), Vec::new());
    let operation = samples::operation(&gone, OperationType::Scale, OperationState::FailedTemp);
    gone.info = None;
    super::raise(&app, &operation_failed(&operation), &gone).await.unwrap();
    let alarm = app.store.open_alarms().await.unwrap().remove(0);
    let seen = super::acknowledge(&app, alarm, AckState::Acknowledged).await.unwrap();
    assert!(seen.acknowledged.is_some_and(|at| at <= Timestamp::now()));
    let error = super::acknowledge(&app, seen, AckState::Acknowledged).await.unwrap_err();
    assert!(error.detail.contains("its ackState is \"ACKNOWLEDGED\" already"), "{error}");
    assert_eq!(
        app.store.forget_alarms(Timestamp::UNIX_EPOCH).await.unwrap(),
        1,
        "its instance is not in the database"
    );
    assert!(app.store.alarms(None, 10).await.unwrap().is_empty());

    let vnfc = samples::vnfc("hello-0", "hello");
    let instance = samples::stored_instance(&app.store, vec![vnfc.clone()]).await;
    super::raise(&app, &machine_silent(&instance, &vnfc, samples::at(0)), &instance).await.unwrap();
    let (past, later) =
        (Timestamp::now() - Duration::from_secs(60), Timestamp::now() + Duration::from_secs(60));
    assert_eq!(app.store.forget_alarms(later).await.unwrap(), 0, "an open alarm is never forgotten");
    assert!(super::clear(&app, &instance, &machine_key(&vnfc)).await.unwrap());
    assert_eq!(app.store.forget_alarms(past).await.unwrap(), 0);
    assert_eq!(app.store.forget_alarms(later).await.unwrap(), 1);
}
