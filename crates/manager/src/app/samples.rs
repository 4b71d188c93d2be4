//! An application on a database of its own, and nouns to fill it with, for tests.

pub(crate) mod receiver;

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use guywire_model::{HostNumber, Login, MachineName, MachineSpec, Observed};
use guywire_plan::{Engine, Handlers, Options, journal::SqliteJournal};
use jiff::Timestamp;
use serde_json::Map;
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use uuid::Uuid;

use super::{
    App, Config,
    callback::{Callbacks, Outbound},
    works::{MachineOrder, Place, PointOrder, PointPlan, Works, WorksError},
};
use crate::{
    domain::{
        Affected, ChangeType, Direction, Info, Instance, InstanceId, InstantiationState, OnboardingState,
        Operation, OperationId, OperationState, OperationType, OperationalState, PackageId, PackageRecord,
        Stage, Target, Vim, VimId, VnfState, Vnfc,
    },
    store::Store,
};

/// A database and a directory for one test.
pub(crate) struct Ground {
    pub(crate) dir: TempDir,
    postgres: Option<String>,
}

/// Machines that answer, save those that are named.
#[derive(Default)]
pub(crate) struct Machines(pub(crate) Mutex<HashSet<String>>);

impl Ground {
    pub(crate) fn sqlite() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), postgres: None }
    }

    /// Both databases; without a server only the one, and the test says so.
    pub(crate) async fn both() -> Vec<Self> {
        let mut grounds = vec![Self::sqlite()];
        match std::env::var("GUYWIRE_TEST_POSTGRES") {
            Err(_) => {
                eprintln!("GUYWIRE_TEST_POSTGRES is not set: SQLite alone is tested; see `cargo xtask test`");
            }
            Ok(base) => {
                let name = format!("t{}", Uuid::now_v7().simple());
                let mut connection = PgConnection::connect(&base).await.unwrap();
                let statement = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
                sqlx::query(statement).execute(&mut connection).await.unwrap();
                let (head, tail) =
                    base.split_once("/postgres?").expect("the URL names the database `postgres`");
                let url = format!("{head}/{name}?{tail}");
                grounds.push(Self { dir: tempfile::tempdir().unwrap(), postgres: Some(url) });
            }
        }
        grounds
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.postgres.is_some()
    }

    pub(crate) async fn store(&self) -> Store {
        match &self.postgres {
            Some(url) => Store::postgres(url).await.unwrap(),
            None => Store::sqlite(&self.dir.path().join("manager.db")).await.unwrap(),
        }
    }

    pub(crate) async fn app(&self) -> App {
        self.app_with(Outbound::default(), Arc::new(Machines::default())).await
    }

    /// An application as after a start: nothing in memory, all that was committed.
    pub(crate) async fn app_with(&self, outbound: Outbound, works: Arc<Machines>) -> App {
        let data = self.dir.path();
        let journal = SqliteJournal::open(&data.join("journal.db")).await.unwrap();
        let secrets = Arc::new(guywire_secrets::Store::open_with(data, None).unwrap());
        App {
            store: Arc::new(self.store().await),
            engine: Engine::new(Arc::new(journal), Handlers::new(), Options::default()),
            works,
            callbacks: Callbacks::new(&outbound, data, secrets.clone()).unwrap(),
            secrets,
            config: Arc::new(Config {
                data: PathBuf::from(data),
                url: "http://manager.example:9890/".to_owned(),
                nfvo: None,
                outbound,
                packages: guywire_package::Policy::default(),
            }),
        }
    }
}

#[async_trait]
impl Works for Machines {
    async fn place(&self, _: &Vim) -> Result<Place, WorksError> {
        Err(none())
    }

    async fn observe(&self, _: &str) -> Result<Observed, WorksError> {
        Err(none())
    }

    async fn plan_machines(&self, _: &MachineOrder) -> Result<Option<guywire_plan::Plan>, WorksError> {
        Err(none())
    }

    async fn plan_point(&self, _: &PointOrder) -> Result<PointPlan, WorksError> {
        Err(none())
    }

    async fn answers(&self, _: &str, machine: &MachineName) -> Result<bool, WorksError> {
        Ok(!self.0.lock().unwrap().contains(machine.as_str()))
    }
}

fn none() -> WorksError {
    WorksError { reason: "these machines only answer".to_owned(), retry: false }
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(crate) fn package() -> PackageRecord {
    let vnfd = serde_json::json!({
        "id": "vnfd-hello", "version": "1.0", "provider": "Guywire", "product_name": "Hello", "software_version": "2.0",
        "description": null, "vnfm_info": ["Guywire"], "flavours": [], "configurable_properties": {},
        "modifiable_attributes": {}, "inputs": {},
    });
    PackageRecord {
        id: PackageId::new(),
        rev: 1,
        onboarding: OnboardingState::Onboarded,
        operational: OperationalState::Enabled,
        created: at(0),
        user_defined: Map::new(),
        failure: None,
        content: None,
        vnfd: Some(serde_json::from_value(vnfd).unwrap()),
        vnfd_files: Vec::new(),
        artifacts: Vec::new(),
        signer: None,
        warnings: Vec::new(),
        failure_status: None,
    }
}

pub(crate) fn vnfc(id: &str, vdu: &str) -> Vnfc {
    Vnfc {
        id: id.to_owned(),
        resource: Uuid::now_v7(),
        vdu: vdu.to_owned(),
        machine: MachineSpec {
            name: id.parse().unwrap(),
            site: "a".parse().unwrap(),
            number: HostNumber(11),
            template: "base".parse().unwrap(),
            login: Login { user: "root".to_owned(), authorized_keys: Vec::new(), password: None },
            volumes: Vec::new(),
        },
        addresses: None,
    }
}

/// An instantiated one.
pub(crate) fn instance(package: &PackageRecord, vnfcs: Vec<Vnfc>) -> Instance {
    Instance {
        id: InstanceId::new(),
        rev: 1,
        name: Some("greeter".to_owned()),
        description: None,
        vnfd_id: "vnfd-hello".to_owned(),
        package: package.id,
        provider: "Guywire".to_owned(),
        product: "Hello".to_owned(),
        software_version: "2.0".to_owned(),
        vnfd_version: "1.0".to_owned(),
        state: InstantiationState::Instantiated,
        operation: None,
        created: at(0),
        metadata: Map::new(),
        extensions: Map::new(),
        configurable: Map::new(),
        vims: BTreeMap::new(),
        info: Some(Info {
            flavour: "simple".to_owned(),
            level: None,
            vnf_state: VnfState::Started,
            scale: BTreeMap::new(),
            vnfcs,
            ext_links: Vec::new(),
            infra: "lab/vnf".to_owned(),
            vim: VimId::new(),
            vim_connection: "vim1".to_owned(),
            inputs: Map::new(),
        }),
    }
}

pub(crate) fn target(add: Vec<Vnfc>, remove: Vec<Vnfc>) -> Target {
    Target {
        infra: "lab/vnf".to_owned(),
        vim: VimId::new(),
        vim_connection: "vim1".to_owned(),
        flavour: "simple".to_owned(),
        level: Some("one".to_owned()),
        scale: BTreeMap::new(),
        add,
        replace: Vec::new(),
        remove,
        power: None,
        vnf_state: VnfState::Started,
        one_by_one: false,
        ext_links: Vec::new(),
        package: None,
        inputs: Map::new(),
        vims: BTreeMap::new(),
    }
}

pub(crate) fn operation(instance: &Instance, kind: OperationType, state: OperationState) -> Operation {
    let added = vnfc("hello-0", "hello");
    Operation {
        id: OperationId::new(),
        rev: 1,
        instance: instance.id,
        operation: kind,
        state,
        entered: at(2),
        started: at(1),
        automatic: false,
        params: Map::new(),
        grant: None,
        cancel: None,
        error: None,
        affected: vec![Affected { id: Uuid::now_v7(), change: ChangeType::Added, vnfc: added.clone() }],
        changed_info: None,
        changed_ext: Vec::new(),
        warnings: Vec::new(),
        stage: Stage::Machines,
        direction: Direction::Forward,
        resumes: 0,
        plan: None,
        plans: Vec::new(),
        target: Some(target(vec![added], Vec::new())),
    }
}

/// An instance in the database, with machines, as an operation left it.
pub(crate) async fn stored_instance(store: &Store, vnfcs: Vec<Vnfc>) -> Instance {
    let package = package();
    store.insert_package(&package).await.unwrap();
    let mut whole = instance(&package, vnfcs);
    let bare = Instance { state: InstantiationState::NotInstantiated, info: None, ..whole.clone() };
    store.insert_instance(&bare).await.unwrap();
    let mut operation = operation(&whole, OperationType::Instantiate, OperationState::Processing);
    store.accept_operation(&operation, &bare, &[]).await.unwrap();
    operation.state = OperationState::Completed;
    let step = crate::store::Step { instance: Some(&whole), ..crate::store::Step::default() };
    store.advance(&operation, step).await.unwrap();
    whole.rev = 2;
    whole
}
