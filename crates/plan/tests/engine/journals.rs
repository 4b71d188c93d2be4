//! What both journals promise, asked of both.

use std::{collections::BTreeSet, time::Duration};

use guywire_plan::{
    Cancel, CancelMode, Cursor, Engine, EventKind, ExecutorId, Handlers, JournalErrorKind, Options, Plan,
    PlanBuilder, PlanState, ScopeIndex, TaskIndex, follow, journal::Batch,
};

use crate::{
    stores::Store,
    world::{Input, Mark, World, handlers, sample},
};

const TERM: Duration = Duration::from_secs(10);

fn small(subject: Option<&str>) -> Plan {
    let mut plan = PlanBuilder::new("small", "small");
    if let Some(subject) = subject {
        plan = plan.subject(subject);
    }
    let phase = plan.phase("only");
    plan.task::<Mark>(phase, "a", &Input::named("a")).add();
    plan.build().unwrap()
}

fn output(text: &str) -> EventKind {
    EventKind::TaskOutput { task: TaskIndex(0), attempt: 1, text: text.to_owned() }
}

#[tokio::test]
async fn a_plan_comes_back_as_it_went_in() {
    for store in Store::both().await {
        let journal = store.open().await;
        let plan = sample("x", true);
        let id = journal.create(&plan).await.unwrap();
        drop(journal);
        let journal = store.open().await;
        assert_eq!(journal.plan(id).await.unwrap(), plan);
        let header = journal.header(id).await.unwrap();
        assert_eq!(
            (header.state, header.tasks as usize, header.executing),
            (PlanState::Ready, plan.tasks.len(), false)
        );
        assert_eq!(journal.list(10).await.unwrap().len(), 1);
        let missing = journal.plan(guywire_plan::PlanId(99)).await.unwrap_err();
        assert_eq!(missing.kind, JournalErrorKind::NotFound);
        assert!(missing.to_string().contains("guywire plan list"), "{missing}");
    }
}

#[tokio::test]
async fn a_subject_has_one_unfinished_plan() {
    for store in Store::both().await {
        let journal = store.open().await;
        let first = journal.create(&small(Some("lab/demo"))).await.unwrap();
        let busy = journal.create(&small(Some("lab/demo"))).await.unwrap_err();
        assert_eq!(busy.kind, JournalErrorKind::Busy { plan: first });
        journal.create(&small(Some("lab/other"))).await.unwrap();
        let lease = journal.acquire(first, &ExecutorId::new(), TERM).await.unwrap();
        let end = EventKind::PlanEnded { state: PlanState::Succeeded, reason: None };
        let batch = Batch { events: vec![end], state: Some(PlanState::Succeeded), ..Batch::default() };
        journal.append(&lease, &batch).await.unwrap();
        let second = journal.create(&small(Some("lab/demo"))).await.unwrap();
        assert_eq!(journal.latest("lab/demo").await.unwrap().unwrap().id, second);
    }
}

#[tokio::test]
async fn two_racing_creations_of_one_subject_have_one_winner() {
    for store in Store::both().await {
        let journals = [store.open().await, store.open().await];
        for round in 0..20 {
            let plan = small(Some(&format!("lab/{round}")));
            let (one, two) = tokio::join!(journals[0].create(&plan), journals[1].create(&plan));
            assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1, "round {round}");
        }
    }
}

#[tokio::test]
async fn a_key_is_accepted_once_also_after_its_plan_has_ended() {
    for store in Store::both().await {
        let journals = [store.open().await, store.open().await];
        let plan = Plan { once: Some("op/1/machines".into()), ..small(Some("op/1")) };
        let (one, two) = tokio::join!(journals[0].create(&plan), journals[1].create(&plan));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one, two);
        let lease = journals[0].acquire(one, &ExecutorId::new(), TERM).await.unwrap();
        let end = EventKind::PlanEnded { state: PlanState::Succeeded, reason: None };
        let batch = Batch { events: vec![end], state: Some(PlanState::Succeeded), ..Batch::default() };
        journals[0].append(&lease, &batch).await.unwrap();
        assert_eq!(journals[1].create(&plan).await.unwrap(), one, "the work was done");
        assert_eq!(journals[1].find("op/1/machines").await.unwrap(), Some(one));
        assert_eq!(journals[1].find("op/1/end").await.unwrap(), None);
        assert_eq!(journals[1].list(10).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_plan_that_is_given_up_lets_go_of_its_locks_and_stays_down() {
    for store in Store::both().await {
        let journal = store.open().await;
        let plan = journal.create(&small(Some("op/3"))).await.unwrap();
        let active = journal.abandon(plan, "no").await.unwrap_err();
        assert_eq!(active.kind, JournalErrorKind::State, "a plan that may still run is not given up");
        let lease = journal.acquire(plan, &ExecutorId::new(), TERM).await.unwrap();
        let end = EventKind::PlanEnded { state: PlanState::Failed, reason: None };
        let batch = Batch {
            events: vec![end],
            state: Some(PlanState::Failed),
            lock: vec!["node/a".into()],
            ..Batch::default()
        };
        journal.append(&lease, &batch).await.unwrap();
        journal.release(&lease).await.unwrap();
        assert_eq!(journal.locks().await.unwrap().len(), 1);
        journal.abandon(plan, "the operation was given up").await.unwrap();
        journal.abandon(plan, "again").await.unwrap();
        assert!(journal.locks().await.unwrap().is_empty());
        assert_eq!(journal.request_resume(plan).await.unwrap_err().kind, JournalErrorKind::State);
        let engine = Engine::new(journal, Handlers::new(), Options::default());
        assert_eq!(engine.load(plan).await.unwrap().1.state, PlanState::Abandoned);
    }
}

#[tokio::test]
async fn a_successor_inherits_the_key() {
    for store in Store::both().await {
        let journal = store.open().await;
        let plan = Plan { once: Some("k".into()), ..small(Some("op/2")) };
        let old = journal.create(&plan).await.unwrap();
        let lease = journal.acquire(old, &ExecutorId::new(), TERM).await.unwrap();
        let new = journal.supersede(&lease, &small(Some("op/2")), "newer handlers").await.unwrap();
        assert_eq!(journal.find("k").await.unwrap(), Some(new));
        assert_eq!(journal.create(&plan).await.unwrap(), new);
    }
}

#[tokio::test]
async fn locks_are_taken_whole_or_not_at_all() {
    for store in Store::both().await {
        let journal = store.open().await;
        let me = ExecutorId::new();
        let one = journal.create(&small(None)).await.unwrap();
        let two = journal.create(&small(None)).await.unwrap();
        let one = journal.acquire(one, &me, TERM).await.unwrap();
        let two = journal.acquire(two, &me, TERM).await.unwrap();
        let enter = |resources: &[&str]| Batch {
            events: vec![EventKind::ScopeEntered { scope: ScopeIndex(0) }],
            lock: resources.iter().map(ToString::to_string).collect(),
            ..Batch::default()
        };
        journal.append(&one, &enter(&["node/b"])).await.unwrap();
        let refused = journal.append(&two, &enter(&["node/a", "node/b"])).await.unwrap_err();
        assert_eq!(refused.kind, JournalErrorKind::Locked { resource: "node/b".into(), holder: one.plan });
        assert_eq!(journal.locks().await.unwrap().len(), 1, "node/a was not taken");
        assert_eq!(
            journal.events(Some(two.plan), Cursor(0), 100).await.unwrap().len(),
            1,
            "nor anything recorded"
        );
        let leave = Batch { events: vec![output("x")], unlock: vec!["node/b".into()], ..Batch::default() };
        journal.append(&one, &leave).await.unwrap();
        journal.append(&two, &enter(&["node/a", "node/b"])).await.unwrap();
    }
}

#[tokio::test]
async fn the_stream_has_no_gaps_and_the_order_of_commits() {
    for store in Store::both().await {
        let (writers, per_writer) = (4, 40);
        let reader = store.open().await;
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..writers {
            let journal = store.open().await;
            tasks.spawn(async move {
                let id = journal.create(&small(None)).await.unwrap();
                let lease = journal.acquire(id, &ExecutorId::new(), TERM).await.unwrap();
                for at in 0..per_writer {
                    let events = (0..=at % 3).map(|part| output(&format!("{writer} {at} {part}"))).collect();
                    journal.append(&lease, &Batch { events, ..Batch::default() }).await.unwrap();
                }
            });
        }
        // A reader with a cursor, all the while: it must see every number once, in order.
        let mut cursor = Cursor(0);
        let expected = writers * (1 + (0..per_writer).map(|at| at % 3 + 1).sum::<i64>());
        while cursor.0 < expected {
            reader.changed(cursor, Duration::from_secs(5)).await.unwrap();
            for event in reader.events(None, cursor, 7).await.unwrap() {
                assert_eq!(event.seq, Cursor(cursor.0 + 1));
                cursor = event.seq;
            }
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        assert_eq!(reader.events(None, cursor, 10).await.unwrap(), vec![]);
    }
}

#[tokio::test]
async fn a_follower_sees_each_event_once_while_the_plan_runs() {
    for store in Store::both().await {
        let world = World::new(&store.world());
        let engine = Engine::new(store.open().await, handlers(&world), Options::default());
        let id = engine.submit(&sample("", false)).await.unwrap();
        let watcher = store.open().await;
        let watching = tokio::spawn(async move {
            let mut seen = Vec::new();
            follow(&*watcher, id, Cursor(0), |event| seen.push(event.clone())).await.unwrap();
            seen
        });
        engine.run(id).await.unwrap();
        let seen = watching.await.unwrap();
        let numbers: BTreeSet<Cursor> = seen.iter().map(|event| event.seq).collect();
        assert_eq!(numbers.len(), seen.len(), "none twice");
        assert_eq!(seen, engine.journal().events(Some(id), Cursor(0), 1000).await.unwrap(), "none missed");
        assert!(matches!(
            seen.last().unwrap().kind,
            EventKind::PlanEnded { state: PlanState::Succeeded, .. }
        ));
    }
}

#[tokio::test]
async fn wishes_are_taken_from_anybody_but_only_when_they_make_sense() {
    for store in Store::both().await {
        let world = World::new(&store.world());
        let engine = Engine::new(store.open().await, handlers(&world), Options::default());
        let id = engine.submit(&small(None)).await.unwrap();
        let refused = engine.resume(id).await.unwrap_err().to_string();
        assert!(refused.contains("is ready: it cannot be resumed"), "{refused}");
        let cancel = Cancel { mode: CancelMode::Graceful, undo: false };
        let elsewhere = Engine::new(store.open().await, Handlers::new(), Options::default());
        elsewhere.cancel(id, cancel).await.unwrap();
        assert_eq!(engine.run(id).await.unwrap().outcome.state, PlanState::Cancelled);
        assert!(world.deeds().is_empty(), "cancelled before anything started");
        assert!(elsewhere.cancel(id, cancel).await.is_err(), "it has ended");
        engine.resume(id).await.unwrap();
        assert_eq!(engine.run(id).await.unwrap().outcome.state, PlanState::Succeeded);
    }
}
