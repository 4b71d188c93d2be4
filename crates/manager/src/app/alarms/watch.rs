//! Looks at machines and operations again and again, raises alarms and clears them.
//!
//! Several managers may watch the same database: an alarm that two of them raise at once is one alarm.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::StreamExt as _;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{machine_key, machine_silent, operation_failed};
use crate::{
    app::App,
    domain::{Alarm, AppError, Instance, InstanceId, Operation, OperationState, VnfState, Vnfc},
    store::{InstanceColumn, InstanceQuery, OperationQuery},
};

/// How often in a row a machine does not answer before it raises an alarm: one lost packet is no trouble.
const MISSES: u32 = 3;
/// How many machines are asked at a time.
const AT_ONCE: usize = 16;
/// How many instances are read at a time.
const PAGE: u32 = 200;
/// How long an alarm that is over can still be read: a machine that comes and goes must not fill the disk.
const REMEMBERED: Duration = Duration::from_hours(30 * 24);
/// The longest that a machine has to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Machines that have not answered lately.
#[derive(Debug, Default)]
struct Silent(HashMap<(InstanceId, String), (u32, Timestamp)>);

/// Whether a machine answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Answers,
    Silent,
    Unknown,
}

/// What a look at a machine leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Raise(Timestamp),
    Clear,
    Nothing,
}

/// Watches until it is stopped.
pub async fn watch(app: App, stop: CancellationToken) {
    let mut silent = Silent::default();
    let mut every = tokio::time::interval(app.config.outbound.watch_every.max(Duration::from_millis(10)));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = every.tick() => {}
        }
        let look = async {
            look_at_machines(&app, &mut silent).await?;
            look_at_operations(&app).await
        };
        let done = tokio::select! {
            () = stop.cancelled() => return,
            done = look => done,
        };
        if let Err(error) = done {
            tracing::warn!(%error, source = ?error.source, "machines could not be watched; trying again");
        }
    }
}

async fn look_at_machines(app: &App, silent: &mut Silent) -> Result<(), AppError> {
    app.store.forget_alarms(Timestamp::now() - REMEMBERED).await?;
    let open = app.store.open_alarms().await?;
    let mut known: HashSet<(InstanceId, String)> =
        open.into_iter().map(|alarm| (alarm.instance, alarm.key)).collect();
    let mut seen = HashSet::new();
    let mut query = InstanceQuery {
        limit: PAGE,
        bodies: true,
        equal: vec![(InstanceColumn::State, vec!["INSTANTIATED".to_owned()])],
        ..InstanceQuery::default()
    };
    loop {
        let page = app.store.instances(&query).await?;
        for instance in &page {
            if busy(instance) {
                // Its machines come and go: what is known of them says nothing. Alarms stay until it is done.
                known.retain(|(of, _)| *of != instance.id);
                continue;
            }
            for (vnfc, answer) in ask(app, instance).await {
                let (at, key) = (Timestamp::now(), (instance.id, machine_key(&vnfc)));
                let verdict = silent.judge(&key, answer, known.remove(&key), at);
                seen.insert(key);
                act(app, instance, &vnfc, verdict).await?;
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE as usize => query.after = Some(last.id),
            _ => break,
        }
    }
    silent.0.retain(|key, _| seen.contains(key));
    // Machines that are gone, or switched off on purpose, are no trouble any more.
    for (instance, key) in known.into_iter().filter(|(_, key)| key.starts_with("machine/")) {
        if let Some(instance) = app.store.instance(instance).await?.filter(|it| it.operation.is_none()) {
            app.store.clear_alarm(&instance, &key, Timestamp::now()).await?;
        }
    }
    Ok(())
}

/// Whether an operation is at work on the instance.
fn busy(instance: &Instance) -> bool {
    instance.operation.is_some()
}

async fn ask(app: &App, instance: &Instance) -> Vec<(Vnfc, Seen)> {
    let Some(info) = instance.info.as_ref().filter(|info| info.vnf_state == VnfState::Started) else {
        return Vec::new();
    };
    futures::stream::iter(info.vnfcs.clone())
        .map(|vnfc| async {
            let answer = app.works.answers(&info.infra, &vnfc.machine.name);
            let seen = match tokio::time::timeout(ANSWER, answer).await {
                Ok(Ok(true)) => Seen::Answers,
                Ok(Ok(false)) | Err(_) => Seen::Silent,
                Ok(Err(error)) => {
                    tracing::debug!(machine = %vnfc.machine.name, %error, "cannot tell whether a machine answers");
                    Seen::Unknown
                }
            };
            (vnfc, seen)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

impl Silent {
    fn judge(&mut self, key: &(InstanceId, String), seen: Seen, raised: bool, at: Timestamp) -> Verdict {
        match seen {
            Seen::Unknown => Verdict::Nothing,
            Seen::Answers => {
                self.0.remove(key);
                if raised { Verdict::Clear } else { Verdict::Nothing }
            }
            Seen::Silent => {
                let (misses, since) = self.0.entry(key.clone()).or_insert((0, at));
                *misses = misses.saturating_add(1);
                if *misses >= MISSES && !raised { Verdict::Raise(*since) } else { Verdict::Nothing }
            }
        }
    }
}

async fn act(app: &App, before: &Instance, vnfc: &Vnfc, verdict: Verdict) -> Result<(), AppError> {
    if verdict == Verdict::Nothing {
        return Ok(());
    }
    // Asking took a while: an operation may have begun, for which the machine is silent with good reason.
    let now = app.store.instance(before.id).await?;
    let Some(instance) = now.filter(|now| now.rev == before.rev && !busy(now)) else { return Ok(()) };
    match verdict {
        Verdict::Raise(since) => {
            let alarm = machine_silent(&instance, vnfc, since);
            tracing::warn!(instance = %instance.id, machine = %vnfc.machine.name, "a machine does not answer");
            app.store.raise_alarm(&alarm, &instance).await?;
        }
        Verdict::Clear => {
            tracing::info!(instance = %instance.id, machine = %vnfc.machine.name, "a machine answers again");
            app.store.clear_alarm(&instance, &machine_key(vnfc), Timestamp::now()).await?;
        }
        Verdict::Nothing => {}
    }
    Ok(())
}

/// Raises what a crash kept an operation from raising, and clears what is over.
async fn look_at_operations(app: &App) -> Result<(), AppError> {
    for operation in app.store.failed_operations().await? {
        if let Some(instance) = app.store.instance(operation.instance).await? {
            app.store.raise_alarm(&operation_failed(&operation), &instance).await?;
        }
    }
    for alarm in app.store.open_alarms().await? {
        let Some(id) = alarm.key.strip_prefix("operation/").and_then(|id| id.parse().ok()) else { continue };
        let operation = app.store.operation(id).await?;
        if is_over(app, &alarm, operation.as_ref()).await?
            && let Some(instance) = app.store.instance(alarm.instance).await?
        {
            app.store.clear_alarm(&instance, &alarm.key, Timestamp::now()).await?;
        }
    }
    Ok(())
}

/// An operation's trouble is over when it has come to a good end, or was given up and a later one has.
async fn is_over(app: &App, alarm: &Alarm, operation: Option<&Operation>) -> Result<bool, AppError> {
    let Some(operation) = operation else { return Ok(true) };
    Ok(match operation.state {
        OperationState::Completed | OperationState::RolledBack => true,
        OperationState::Failed => {
            let query =
                OperationQuery { after: Some(operation.id), limit: 100, instance: Some(alarm.instance) };
            let later = app.store.operations(&query).await?;
            later.iter().any(|later| later.state == OperationState::Completed)
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_misses_in_a_row_raise_once_and_an_answer_clears() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let key = (InstanceId::new(), "machine/a".to_owned());
        let mut silent = Silent::default();
        let steps = [
            (Seen::Silent, false, Verdict::Nothing),
            (Seen::Silent, false, Verdict::Nothing),
            (Seen::Answers, false, Verdict::Nothing),
            (Seen::Silent, false, Verdict::Nothing),
            (Seen::Unknown, false, Verdict::Nothing),
            (Seen::Silent, false, Verdict::Nothing),
            (Seen::Silent, false, Verdict::Raise(at(3))),
            (Seen::Silent, true, Verdict::Nothing),
            (Seen::Unknown, true, Verdict::Nothing),
            (Seen::Answers, true, Verdict::Clear),
            (Seen::Answers, false, Verdict::Nothing),
        ];
        for (second, (seen, raised, verdict)) in steps.into_iter().enumerate() {
            let now = at(i64::try_from(second).unwrap());
            assert_eq!(silent.judge(&key, seen, raised, now), verdict, "step {second}");
        }
        assert!(silent.0.is_empty());
    }
}
