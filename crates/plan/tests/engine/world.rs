//! A small world on disk that plans act upon, with a memory of all that was ever done to it, and the
//! handlers that do it. The processes under test and the tests that judge them share this file.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use guywire_plan::{
    Context, Handler, Handlers, OnFailure, Plan, PlanBuilder, Probe, Retry, ScopeIndex, TaskError, TaskIndex,
};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The world's directory. Its memory of deeds is also its state: a deed and its effect are one write, so
/// that a death between them is impossible and the count of deeds is the count of effects.
#[derive(Debug, Clone)]
pub struct World {
    dir: PathBuf,
}

/// What was done, in order: verb, task, fence.
pub type Deed = (String, String, u64);

impl World {
    pub fn new(dir: &Path) -> Self {
        std::fs::create_dir_all(dir.join("fence")).unwrap();
        Self { dir: dir.to_owned() }
    }

    /// Acts under a lock, unless somebody with a higher fence was here: what a node's wrapper does. A guarded
    /// deed that is done already is remembered as a `DOUBLE`.
    fn act(&self, verb: &str, name: &str, context: &Context, guarded: bool) -> Result<(), TaskError> {
        let lock = File::create(self.dir.join("lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let fence_file = self.dir.join("fence").join(context.key().replace('/', "_"));
        let seen: u64 =
            std::fs::read_to_string(&fence_file).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        if context.fence().0 < seen {
            self.note("REFUSED", name, context.fence().0);
            return Err(TaskError::fatal("an older fence"));
        }
        // Replaced whole: a death in the middle must not leave an empty fence.
        let new = fence_file.with_extension("new");
        std::fs::write(&new, context.fence().0.to_string()).unwrap();
        std::fs::rename(&new, &fence_file).unwrap();
        let verb = if guarded && self.is_done(name) { "DOUBLE" } else { verb };
        self.note(verb, name, context.fence().0);
        abort_at_effect();
        Ok(())
    }

    /// Whether the last that was done to a task is doing it.
    pub fn is_done(&self, name: &str) -> bool {
        let last = self.deeds().into_iter().rfind(|(verb, deed, _)| deed == name && verb != "REFUSED");
        last.is_some_and(|(verb, ..)| verb == "apply" || verb == "begin" || verb == "DOUBLE")
    }

    fn note(&self, verb: &str, name: &str, fence: u64) {
        let mut log = OpenOptions::new().create(true).append(true).open(self.dir.join("log")).unwrap();
        log.write_all(format!("{verb}\t{name}\t{fence}\n").as_bytes()).unwrap();
    }

    pub fn deeds(&self) -> Vec<Deed> {
        let text = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let deed = |line: &str| {
            let mut words = line.split('\t');
            let mut word = || words.next().unwrap().to_owned();
            (word(), word(), word().parse().unwrap())
        };
        text.lines().map(deed).collect()
    }

    /// How often a verb was done to each task.
    pub fn counts(&self, verb: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (_, name, _) in self.deeds().into_iter().filter(|(done, ..)| done == verb) {
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

/// Dies in the middle of a handler, after an effect and before anybody has recorded it.
fn abort_at_effect() {
    use std::sync::atomic::{AtomicI64, Ordering};
    static LEFT: AtomicI64 = AtomicI64::new(i64::MIN);
    if LEFT.load(Ordering::SeqCst) == i64::MIN {
        let wanted =
            std::env::var("ABORT_EFFECT").ok().and_then(|text| text.parse().ok()).unwrap_or(i64::MAX);
        LEFT.store(wanted, Ordering::SeqCst);
    }
    if LEFT.fetch_sub(1, Ordering::SeqCst) == 1 {
        std::process::abort();
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub name: String,
    /// How many attempts fail before one succeeds.
    #[serde(default)]
    pub failures: u32,
    /// How long it takes.
    #[serde(default)]
    pub pause_ms: u64,
}

impl Input {
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), failures: 0, pause_ms: 0 }
    }
}

/// Idempotent: may be applied again after a crash.
pub struct Mark(pub World);
/// Guarded: applied twice, it leaves a `DOUBLE` in the world's memory.
pub struct Once(pub World);
/// Always fails.
pub struct Fail;
/// The next version of `Mark`.
pub struct Mark2(pub World);
/// Cannot be taken back.
pub struct Final(pub World);
/// Runs until told to stop.
pub struct Endless(pub World);

const QUICK: Retry = Retry { tries: 4, first_ms: 1, most_ms: 5 };

impl Handler for Mark {
    const NAME: &'static str = "mark";
    const VERSION: u32 = 1;
    const RETRY: Retry = QUICK;
    type Input = Input;
    type Output = String;

    async fn probe(&self, _: &Context, input: &Input) -> Result<Probe<String>, TaskError> {
        Ok(if self.0.is_done(&input.name) { Probe::Satisfied(input.name.clone()) } else { Probe::Needed })
    }

    async fn apply(&self, context: &Context, input: &Input) -> Result<String, TaskError> {
        if context.attempt() <= input.failures {
            return Err(TaskError::retry("not yet"));
        }
        if input.pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(input.pause_ms)).await;
        }
        context.check()?;
        self.0.act("apply", &input.name, context, false)?;
        Ok(input.name.clone())
    }

    async fn verify(&self, _: &Context, input: &Input, _: &String) -> Result<(), TaskError> {
        if self.0.is_done(&input.name) { Ok(()) } else { Err(TaskError::retry("it had no effect")) }
    }

    async fn undo(&self, context: &Context, input: &Input) -> Result<(), TaskError> {
        self.0.act("undo", &input.name, context, false)
    }
}

impl Handler for Once {
    const NAME: &'static str = "once";
    const VERSION: u32 = 1;
    const GUARDED: bool = true;
    const RETRY: Retry = QUICK;
    type Input = Input;
    type Output = String;

    async fn probe(&self, _: &Context, input: &Input) -> Result<Probe<String>, TaskError> {
        if input.name.starts_with("uncertain") {
            return Ok(Probe::Uncertain("the node does not answer".into()));
        }
        Ok(if self.0.is_done(&input.name) { Probe::Satisfied(input.name.clone()) } else { Probe::Needed })
    }

    async fn apply(&self, context: &Context, input: &Input) -> Result<String, TaskError> {
        if context.attempt() <= input.failures {
            return Err(TaskError::retry("not yet"));
        }
        self.0.act("apply", &input.name, context, true)?;
        Ok(input.name.clone())
    }

    async fn undo(&self, context: &Context, input: &Input) -> Result<(), TaskError> {
        Mark(self.0.clone()).undo(context, input).await
    }
}

impl Handler for Fail {
    const NAME: &'static str = "fail";
    const VERSION: u32 = 1;
    const RETRY: Retry = Retry { tries: 2, first_ms: 1, most_ms: 1 };
    type Input = Input;
    type Output = ();

    async fn probe(&self, _: &Context, _: &Input) -> Result<Probe<()>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, _: &Context, _: &Input) -> Result<(), TaskError> {
        Err(TaskError::retry("it never works"))
    }
}

impl Handler for Mark2 {
    const NAME: &'static str = "mark";
    const VERSION: u32 = 2;
    type Input = Input;
    type Output = String;

    async fn probe(&self, context: &Context, input: &Input) -> Result<Probe<String>, TaskError> {
        Handler::probe(&Mark(self.0.clone()), context, input).await
    }

    async fn apply(&self, context: &Context, input: &Input) -> Result<String, TaskError> {
        Handler::apply(&Mark(self.0.clone()), context, input).await
    }
}

impl Handler for Final {
    const NAME: &'static str = "final";
    const VERSION: u32 = 1;
    const IRREVERSIBLE: bool = true;
    type Input = Input;
    type Output = String;

    async fn probe(&self, context: &Context, input: &Input) -> Result<Probe<String>, TaskError> {
        Handler::probe(&Mark(self.0.clone()), context, input).await
    }

    async fn apply(&self, context: &Context, input: &Input) -> Result<String, TaskError> {
        Handler::apply(&Mark(self.0.clone()), context, input).await
    }
}

impl Handler for Endless {
    const NAME: &'static str = "endless";
    const VERSION: u32 = 1;
    type Input = Input;
    type Output = ();

    async fn probe(&self, _: &Context, input: &Input) -> Result<Probe<()>, TaskError> {
        Ok(if self.0.is_done(&input.name) { Probe::Running } else { Probe::Needed })
    }

    async fn apply(&self, context: &Context, input: &Input) -> Result<(), TaskError> {
        self.0.act("begin", &input.name, context, false)?;
        context.say("running on a node");
        context.stop().cancelled().await;
        self.0.act("stopped", &input.name, context, false)?;
        Err(TaskError::retry("stopped"))
    }
}

pub fn handlers(world: &World) -> Handlers {
    Handlers::new()
        .with(Mark(world.clone()))
        .with(Once(world.clone()))
        .with(Fail)
        .with(Final(world.clone()))
        .with(Endless(world.clone()))
}

/// A plan with parallel branches, nested locks on two nodes, retries, guarded steps and a gate. With
/// `fails` it ends in a task that never works, and everything is undone.
pub fn sample(prefix: &str, fails: bool) -> Plan {
    let on_failure = if fails { OnFailure::Undo } else { OnFailure::Stop };
    let mut plan =
        PlanBuilder::new("sample", format!("sample {prefix}")).on_failure(on_failure).width("disk", 2);
    let name = |task: &str| format!("{prefix}{task}");
    let input = |task: &str| Input::named(&name(task));
    let first = plan.phase("prepare");
    let root = plan.task::<Mark>(first, name("root"), &input("root")).add();
    let mut branches = Vec::new();
    for branch in ["a", "b", "c"] {
        let one = format!("{branch}1");
        let flaky = Input { failures: 2, ..input(&one) };
        let begin = plan.task::<Mark>(first, name(&one), &flaky).after([root]).uses("disk").add();
        let two = format!("{branch}2");
        branches.push(
            plan.task::<Once>(first, name(&two), &Input { failures: 1, ..input(&two) })
                .after([begin])
                .uses("disk")
                .add(),
        );
    }
    let second = plan.gated_phase("nodes");
    let nodes: Vec<TaskIndex> =
        ["n1", "n2"].iter().map(|node| locked_node(&mut plan, second, prefix, node, &branches)).collect();
    let last = plan.gated_phase("finish");
    let join = plan.task::<Once>(last, name("join"), &input("join")).after(nodes).add();
    if fails {
        plan.task::<Fail>(last, name("fail"), &input("fail")).after([join]).add();
    }
    plan.build().unwrap()
}

/// Two pairs of lock and unlock, one inside the other, around a guarded step.
fn locked_node(
    plan: &mut PlanBuilder,
    phase: u32,
    prefix: &str,
    node: &str,
    after: &[TaskIndex],
) -> TaskIndex {
    let name = |task: &str| format!("{prefix}{node}.{task}");
    let input = |task: &str| Input::named(&name(task));
    let outer: ScopeIndex = plan.scope(format!("node/{node}"), None);
    let inner = plan.scope(format!("node/{node}"), Some(outer));
    plan.task::<Mark>(phase, name("lock"), &input("lock")).enters(outer).after(after.iter().copied()).add();
    plan.task::<Mark>(phase, name("drain"), &input("drain")).enters(inner).add();
    plan.task::<Once>(phase, name("work"), &Input { failures: 1, ..input("work") }).within(inner).add();
    plan.task::<Mark>(phase, name("undrain"), &input("undrain")).exits(inner).add();
    plan.task::<Mark>(phase, name("unlock"), &input("unlock")).exits(outer).add()
}
