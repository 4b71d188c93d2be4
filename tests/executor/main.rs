//! A process that executes plans with remote units and is stopped, killed and cut off by the tests.
//!
//! `executor DATA LAB submit MACHINE SCRIPT` prints the new plan's number; `executor DATA LAB run PLAN`
//! executes it. In SCRIPT, `{secret:NAME}` stands for a secret. `TERM_MS` sets the lease, `JOURNAL` a
//! `PostgreSQL` database. `LATE=1` makes a careless executor: it does not heed the loss of its lease, and
//! when its unit has ended it sends one more command.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use guywire_machines::{
    Infra, Lab, LabConfig,
    remote::{RemoteError, UnitExit, UnitRequest, UnitState, Units},
    ssh::{Door, KnownHosts, Pool},
};
use guywire_model::{LabName, MachineName};
use guywire_plan::{
    Context, Engine, EngineError, Handler, Handlers, Journal, JournalErrorKind, Options, PlanBuilder, PlanId,
    PlanState, Probe, Retry, TaskError,
    journal::{PostgresJournal, SqliteJournal},
};
use guywire_secrets::{Masker, SecretRef, Store};
use serde::{Deserialize, Serialize};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Runs a script on a machine as a unit.
struct RunUnit {
    data: PathBuf,
    lab: LabName,
    pool: Pool,
    late: bool,
    /// What the handler started goes on when the engine has let go of it; the process waits for it.
    tracker: TaskTracker,
}

#[derive(Serialize, Deserialize)]
struct Work {
    machine: MachineName,
    script: String,
}

impl RunUnit {
    async fn door(&self, machine: &MachineName) -> Result<Door, TaskError> {
        let mut config = LabConfig::new(&self.data, self.lab.clone()).map_err(TaskError::fatal)?;
        let data = self.data.clone();
        config.secrets = Arc::new(move |reference| Store::open(&data)?.get(reference));
        let lab = Lab::open(config).map_err(TaskError::fatal)?;
        lab.door(machine).await.map_err(TaskError::retry)
    }

    fn units(&self) -> Result<Units, TaskError> {
        let secrets = Store::open(&self.data).and_then(|store| store.secrets()).map_err(TaskError::fatal)?;
        Ok(Units::new(self.pool.clone(), Masker::new(&secrets)))
    }

    /// The script with secrets in place of their names.
    fn fill(&self, script: &str) -> Result<String, TaskError> {
        let store = Store::open(&self.data).map_err(TaskError::fatal)?;
        let mut filled = String::new();
        let mut rest = script;
        while let Some((before, after)) = rest.split_once("{secret:") {
            let (name, after) = after.split_once('}').ok_or_else(|| TaskError::fatal("no closing brace"))?;
            let reference: SecretRef = format!("secret:{name}").parse().map_err(TaskError::fatal)?;
            let secret = store.get(&reference).map_err(TaskError::fatal)?;
            filled.push_str(before);
            filled.push_str(secret.expose_str().unwrap_or_default());
            rest = after;
        }
        Ok(filled + rest)
    }
}

impl Handler for RunUnit {
    const NAME: &'static str = "test.unit";
    const VERSION: u32 = 1;
    const RETRY: Retry = Retry { tries: 3, first_ms: 100, most_ms: 100 };
    const TIMEOUT: Duration = Duration::from_mins(2);
    type Input = Work;
    type Output = i32;

    async fn probe(&self, context: &Context, input: &Work) -> Result<Probe<i32>, TaskError> {
        let door = self.door(&input.machine).await?;
        let (_, state) = self.units()?.status(&door, context.key()).await.map_err(TaskError::retry)?;
        eprintln!("probe: {state:?}");
        Ok(match state {
            UnitState::Ended { code: 0, .. } => Probe::Satisfied(0),
            UnitState::Running { .. } => Probe::Running,
            // The script itself looks how far it came.
            UnitState::None | UnitState::Ended { .. } | UnitState::Lost { .. } => Probe::Needed,
        })
    }

    async fn apply(&self, context: &Context, input: &Work) -> Result<i32, TaskError> {
        context.check()?;
        let (door, units) = (self.door(&input.machine).await?, self.units()?);
        let request = UnitRequest {
            key: context.key().to_owned(),
            fence: context.fence(),
            attempt: context.attempt(),
            script: self.fill(&input.script)?,
            timeout: Duration::from_mins(2),
            limit: 1 << 20,
        };
        let stop = if self.late { CancellationToken::new() } else { context.stop().clone() };
        let (words, late) = (context.clone(), self.late);
        let ended = self.tracker.spawn(async move {
            let say = &mut |chunk: &[u8]| words.say(String::from_utf8_lossy(chunk));
            let ended = units.run(&door, &request, &stop, say).await;
            tell("unit", &ended);
            if late {
                let (attempt, script) = (request.attempt + 1, "echo late >> /root/effects".to_owned());
                let request = UnitRequest { attempt, script, ..request };
                tell("late unit", &units.run(&door, &request, &stop, &mut |_| ()).await);
            }
            ended
        });
        match ended.await.map_err(TaskError::fatal)? {
            Ok(UnitExit { code: 0, .. }) => Ok(0),
            Ok(exit) => {
                Err(TaskError::fatal(format!("it ended with code {}: {}", exit.code, exit.output_tail)))
            }
            // A later attempt may look how far this one came.
            Err(error @ RemoteError::Lost { .. }) => Err(TaskError::retry(error)),
            Err(error) => Err(TaskError { retry: error.retry(), reason: error.to_string() }),
        }
    }
}

/// For the test that reads our standard error.
fn tell(what: &str, ended: &Result<UnitExit, RemoteError>) {
    match ended {
        Ok(exit) => eprintln!("{what}: {:?} with code {}", exit.how, exit.code),
        Err(RemoteError::Fenced { seen, ours, .. }) => {
            eprintln!("{what}: refused, fence {ours} is older than {seen}");
        }
        Err(error) => eprintln!("{what}: {error}"),
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, lab, verb, rest @ ..] = arguments.as_slice() else { return Ok(ExitCode::from(2)) };
    let data = PathBuf::from(data);
    let journal: Arc<dyn Journal> = match std::env::var("JOURNAL") {
        Ok(url) => Arc::new(PostgresJournal::open(&url).await?),
        Err(_) => Arc::new(SqliteJournal::open(&data.join("journal.db")).await?),
    };
    let tracker = TaskTracker::new();
    let pool = Pool::new(KnownHosts::new(&data));
    let late = std::env::var_os("LATE").is_some();
    let handler = RunUnit { data, lab: LabName::new(lab.as_str())?, pool, late, tracker: tracker.clone() };
    let term = std::env::var("TERM_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let options = Options { term: Duration::from_millis(term), ..Options::default() };
    let engine = Engine::new(journal, Handlers::new().with(handler), options);
    match (verb.as_str(), rest) {
        ("submit", [machine, script]) => {
            let mut plan = PlanBuilder::new("test.unit", format!("run a unit on {machine}"));
            let phase = plan.phase("unit");
            let work = Work { machine: MachineName::new(machine.as_str())?, script: script.clone() };
            plan.task::<RunUnit>(phase, "unit", &work).add();
            println!("{}", engine.submit(&plan.build()?).await?);
            Ok(ExitCode::SUCCESS)
        }
        ("run", [plan]) => {
            let ended = engine.run(PlanId(plan.parse().context("a plan's number")?)).await;
            tracker.close();
            tracker.wait().await;
            Ok(code(ended))
        }
        _ => Ok(ExitCode::from(2)),
    }
}

fn code(ended: Result<guywire_plan::Report, EngineError>) -> ExitCode {
    match ended {
        Ok(report) => {
            eprintln!("{:?}", report.outcome);
            match report.outcome.state {
                PlanState::Succeeded => ExitCode::SUCCESS,
                PlanState::Cancelled => ExitCode::from(10),
                _ => ExitCode::from(11),
            }
        }
        Err(error) => {
            eprintln!("{error}");
            match error {
                EngineError::Journal(error) if error.kind == JournalErrorKind::Lost => ExitCode::from(20),
                EngineError::Journal(error) if error.kind == JournalErrorKind::Executing => {
                    ExitCode::from(22)
                }
                _ => ExitCode::from(1),
            }
        }
    }
}
