//! A lab in a directory of its own, and an engine that works on it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use guywire_machines::{
    Infra, InfraError, Lab, LabConfig, SecretSource,
    provision::{self, Infras, MachineChange, Machines, plan_change},
    ssh::{ExecRequest, Identity, KnownHosts, Pool},
    sweep,
};
use guywire_model::{Egress, LabName, LabSpec, Login, MachineName, Observed};
use guywire_plan::{
    Engine, EventKind, Handlers, Journal, Options, Outcome, Plan, PlanId, PlanState, journal::SqliteJournal,
};
use guywire_roles::script::{Action, Content, Put, Run, ScriptPlan, Scripts, Step, Wait, handlers, plan};
use guywire_secrets::{Secret, StoreError};

use crate::starter::starter;

pub const INFRA: &str = "lab/steps";
pub const PASSWORD: &str = "correct horse battery's \"staple\"";

/// Two machines that all tests of this process share, gone with the last of them.
pub struct World {
    data: PathBuf,
    dir: tempfile::TempDir,
    pub spec: LabSpec,
}

struct OneLab(PathBuf);

impl Infras for OneLab {
    fn open(&self, infra: &str) -> Result<Arc<dyn Infra>, InfraError> {
        assert_eq!(infra, INFRA);
        Ok(Arc::new(open(&self.0)))
    }
}

/// One process's worth of engine and connections.
pub struct Manager {
    pub engine: Engine,
    pub pool: Pool,
    pub world: Arc<World>,
    journal: Arc<tempfile::TempDir>,
}

static WORLD: Mutex<Weak<World>> = Mutex::new(Weak::new());

impl World {
    /// The shared world, with `m1` and `m2` running.
    pub fn shared() -> Arc<Self> {
        let mut shared = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(world) = shared.upgrade() {
            return world;
        }
        // On a thread of its own, since tests call this from inside their runtimes.
        let made = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let world = Self::new();
                let manager = Manager::of(&world).await;
                let change = MachineChange { add: world.spec.machines.clone(), ..world.change() };
                manager.change(&change).await;
                drop(manager);
                world
            })
        });
        let world = made.join().unwrap();
        *shared = Arc::downgrade(&world);
        world
    }

    /// A world of its own, with no machine yet.
    pub fn new() -> Arc<Self> {
        assert!(rustix::process::geteuid().is_root(), "these tests make machines: run them as root");
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().canonicalize().unwrap();
        let identity = Identity::ensure(&data).unwrap();
        let login = Login {
            user: "root".into(),
            authorized_keys: vec![identity.public().to_owned()],
            password: None,
        };
        let spec = LabSpec::of_machines(LabName::new("steps").unwrap(), 2, Egress::None, &login);
        Arc::new(Self { data, dir, spec })
    }

    /// A change that changes nothing yet.
    pub fn change(&self) -> MachineChange {
        MachineChange {
            kind: "vnf.machines".into(),
            title: "machines".into(),
            subject: None,
            infra: INFRA.into(),
            egress: self.spec.egress,
            sites: self.spec.sites.clone(),
            templates: self.spec.templates.clone(),
            add: Vec::new(),
            replace: Vec::new(),
            remove: Vec::new(),
            power: Vec::new(),
            one_by_one: false,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that failed must not spoil the next one.
        match sweep(&self.data) {
            Ok(_) => {}
            Err(error) => eprintln!("sweeping {}: {error}", self.dir.path().display()),
        }
    }
}

impl Manager {
    /// A manager of the shared world.
    pub async fn new() -> Self {
        Self::of(&World::shared()).await
    }

    /// A manager of a world, with a journal of its own: tests do not wait for each other's locks.
    pub async fn of(world: &Arc<World>) -> Self {
        Self::with(world, Arc::new(tempfile::tempdir().unwrap())).await
    }

    /// Another manager on the same journal.
    pub async fn successor(&self) -> Self {
        Self::with(&self.world, self.journal.clone()).await
    }

    async fn with(world: &Arc<World>, dir: Arc<tempfile::TempDir>) -> Self {
        let pool = Pool::new(KnownHosts::new(&world.data));
        let machines = Machines { infras: Arc::new(OneLab(world.data.clone())), pool: pool.clone() };
        let secrets: SecretSource = Arc::new(|reference| match reference.name() {
            "ops/pw" => Ok(Secret::new(PASSWORD)),
            other => Err(StoreError::NotFound(other.to_owned())),
        });
        let scripts = Scripts::new(machines.clone(), secrets);
        let all = handlers(provision::handlers(Handlers::new(), &machines), &scripts);
        let journal: Arc<dyn Journal> =
            Arc::new(SqliteJournal::open(&dir.path().join("journal.db")).await.unwrap());
        let options = Options { term: Duration::from_secs(3), ..Options::default() };
        Self { engine: Engine::new(journal, all, options), pool, world: world.clone(), journal: dir }
    }

    pub async fn observe(&self) -> Observed {
        open(&self.world.data).observe().await.unwrap()
    }

    /// Changes machines; the plan must succeed.
    pub async fn change(&self, change: &MachineChange) {
        let plan = plan_change(change, &self.observe().await).unwrap().expect("something to do");
        let outcome = self.run_plan(&plan).await.1;
        assert_eq!(outcome.state, PlanState::Succeeded, "{:?}", outcome.reason);
    }

    pub async fn submit(&self, steps: &[Step]) -> PlanId {
        self.engine.submit(&script_plan(steps, Path::new("/nowhere"))).await.unwrap()
    }

    pub async fn run_plan(&self, plan: &Plan) -> (PlanId, Outcome) {
        let id = self.engine.submit(plan).await.unwrap();
        (id, self.engine.run(id).await.unwrap().outcome)
    }

    /// Runs steps to their end, whatever that is.
    pub async fn run(&self, steps: &[Step]) -> (PlanId, Outcome) {
        self.run_plan(&script_plan(steps, Path::new("/nowhere"))).await
    }

    /// Runs steps that must succeed.
    pub async fn good(&self, steps: &[Step]) -> PlanId {
        let (id, outcome) = self.run(steps).await;
        assert_eq!(outcome.state, PlanState::Succeeded, "{:?}", outcome.reason);
        id
    }

    /// Runs steps that must fail, and gives the reason.
    pub async fn bad(&self, steps: &[Step]) -> String {
        let (_, outcome) = self.run(steps).await;
        assert_eq!(outcome.state, PlanState::Failed);
        outcome.reason.unwrap()
    }

    /// What a command on a machine prints.
    pub async fn ask(&self, machine: &str, script: &str) -> String {
        let door = open(&self.world.data).door(&name(machine)).await.unwrap();
        let output = self.pool.exec(&door, ExecRequest::script(script)).await.unwrap();
        output.stdout_text().trim().to_owned()
    }

    /// Waits until a command on a machine prints this.
    pub async fn until(&self, machine: &str, script: &str, wanted: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let said = self.ask(machine, script).await;
            if said == wanted {
                return;
            }
            assert!(Instant::now() < end, "{script} says {said:?}, not {wanted:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// All events of a plan as text, as anybody can read them.
    pub async fn told(&self, plan: PlanId) -> String {
        let events = self.engine.journal().events(Some(plan), guywire_plan::Cursor(0), 10_000).await.unwrap();
        let spec = serde_json::to_string(&self.engine.journal().plan(plan).await.unwrap()).unwrap();
        format!("{spec}\n{events:?}")
    }

    /// What the tasks of a plan said.
    pub async fn words(&self, plan: PlanId) -> String {
        let events = self.engine.journal().events(Some(plan), guywire_plan::Cursor(0), 10_000).await.unwrap();
        let word = |kind: EventKind| match kind {
            EventKind::TaskOutput { text, .. } => text,
            _ => String::new(),
        };
        events.into_iter().map(|event| word(event.kind)).collect()
    }
}

pub fn script_plan(steps: &[Step], package: &Path) -> Plan {
    let order = ScriptPlan {
        kind: "vnf.script".into(),
        title: "steps".into(),
        subject: None,
        infra: INFRA.into(),
        package_dir: package.into(),
    };
    plan(&order, steps).unwrap().unwrap()
}

pub fn step(title: &str, machine: &str, action: Action) -> Step {
    Step { name: title.into(), machine: name(machine), after: Vec::new(), optional: false, action }
}

pub fn run(script: impl Into<String>) -> Run {
    Run { script: script.into(), timeout: 30, unless: None, undo: None, once: false }
}

pub fn wait(script: &str, timeout: u64) -> Action {
    Action::Wait(Wait { script: script.into(), timeout, every: 1 })
}

pub fn put(path: &str, content: Content) -> Action {
    Action::Put(Put { path: path.into(), mode: 0o640, owner: "root:daemon".into(), content })
}

pub fn name(machine: &str) -> MachineName {
    MachineName::new(machine).unwrap()
}

fn open(data: &Path) -> Lab {
    let mut config = LabConfig::new(data, LabName::new("steps").unwrap()).unwrap();
    config.templates = templates();
    config.starter = starter();
    Lab::open(config).unwrap()
}

/// Templates take a minute to make, so they outlive a run.
fn templates() -> PathBuf {
    if let Some(dir) = std::env::var_os("GUYWIRE_TEMPLATES") {
        return dir.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or("/root".into())).join(".cache");
    let templates = cache.unwrap_or_else(home).join("guywire/templates");
    std::fs::create_dir_all(&templates).unwrap();
    templates
}
