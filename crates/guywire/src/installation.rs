//! One installation: a data directory and what is in it, wired together.

use std::{
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use async_trait::async_trait;
use guywire_machines::{
    Infra, InfraError, InfraErrorKind, Lab, LabConfig, SecretSource,
    provision::{self, Infras, Machines},
    ssh::{Identity, KnownHosts, Pool},
};
use guywire_model::{LabName, LabSpec, Login};
use guywire_plan::{
    Engine, Handlers, Journal, Options, Plan, Planner, TaskError,
    journal::{PostgresJournal, SqliteJournal},
};
use guywire_roles::script::{self, Scripts};
use guywire_secrets::Store;
use serde_json::Value;

use crate::cli::Global;

/// Where an installation keeps everything, and how its parts are reached.
#[derive(Clone)]
pub struct Installation {
    data: PathBuf,
    templates: PathBuf,
    database: Option<String>,
}

impl Installation {
    /// Finds or makes the data directory.
    pub fn new(global: &Global) -> anyhow::Result<Self> {
        let data = data_directory(global)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&data).with_context(|| {
            format!("data directory {}: cannot be made; choose another with --data", data.display())
        })?;
        let data = data
            .canonicalize()
            .with_context(|| format!("data directory {}: cannot be entered", data.display()))?;
        let mode = std::fs::metadata(&data)?.permissions().mode();
        if mode & 0o022 != 0 {
            let path = data.display();
            bail!(
                "data directory {path}: mode {:04o} lets others write into it; run `chmod 700 {path}`",
                mode & 0o7777
            );
        }
        if let Some(url) = &global.database {
            refuse_password_argument(url)?;
            if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
                let scheme = url.split(':').next().unwrap_or_default();
                bail!(
                    "--database: {scheme:?} is not a kind of database that can be used; write postgres://HOST/DATABASE"
                );
            }
        }
        let templates = global.templates.clone().unwrap_or_else(|| data.join("templates"));
        Ok(Self { data, templates, database: global.database.clone() })
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The journal of plans.
    pub async fn journal(&self) -> anyhow::Result<Arc<dyn Journal>> {
        Ok(match &self.database {
            Some(url) => Arc::new(PostgresJournal::open(url).await?),
            None => Arc::new(SqliteJournal::open(&self.data.join("journal.db")).await?),
        })
    }

    /// The database that is shared with others, if one is.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// An engine with all handlers that need nothing but this installation.
    pub async fn engine(&self) -> anyhow::Result<Engine> {
        self.engine_with(&self.pool(), Handlers::new(), Options::default()).await
    }

    /// The same with further handlers.
    pub async fn engine_with(
        &self,
        pool: &Pool,
        handlers: Handlers,
        options: Options,
    ) -> anyhow::Result<Engine> {
        let infras = Arc::new(self.clone());
        let machines = Machines { infras: infras.clone(), pool: pool.clone() };
        let data = self.data.clone();
        let secrets: SecretSource = Arc::new(move |reference| Store::open(&data)?.get(reference));
        let handlers = provision::handlers(handlers, &machines).with_planner("lab.up", UpPlanner(infras));
        let handlers = script::handlers(handlers, &Scripts::new(machines, secrets));
        Ok(Engine::new(self.journal().await?, handlers, options))
    }

    /// Connections to machines.
    pub fn pool(&self) -> Pool {
        Pool::new(KnownHosts::new(&self.data))
    }

    /// The encrypted store.
    pub fn secrets(&self) -> anyhow::Result<Store> {
        Ok(Store::open(&self.data)?)
    }

    /// Who is let into machines that name nobody else: root with this installation's key.
    pub fn default_login(&self) -> anyhow::Result<Login> {
        let identity = Identity::ensure(&self.data)?;
        Ok(Login { user: "root".into(), authorized_keys: vec![identity.public().to_owned()], password: None })
    }

    /// A lab of this installation, there or not.
    pub fn lab(&self, name: &LabName) -> Result<Lab, InfraError> {
        let mut config = LabConfig::new(&self.data, name.clone())?;
        config.templates.clone_from(&self.templates);
        let data = self.data.clone();
        config.secrets = Arc::new(move |reference| Store::open(&data)?.get(reference));
        Lab::open(config)
    }
}

impl Infras for Installation {
    fn open(&self, infra: &str) -> Result<Arc<dyn Infra>, InfraError> {
        let unknown = || {
            let message = format!("no place is called {infra:?}; places are called lab/NAME or hosts/FILE");
            InfraError::new(InfraErrorKind::NotFound, message)
        };
        match infra.split_once('/') {
            Some(("lab", name)) => Ok(Arc::new(self.lab(&LabName::new(name).map_err(|_| unknown())?)?)),
            Some(("hosts", file)) => crate::hosts::open(self, Path::new(file)),
            _ => Err(unknown()),
        }
    }
}

/// Plans a lab anew when the handlers of an unfinished plan are of another version.
struct UpPlanner(Arc<Installation>);

#[async_trait]
impl Planner for UpPlanner {
    async fn plan(&self, request: &Value) -> Result<Option<Plan>, TaskError> {
        let lab: LabSpec = serde_json::from_value(request.clone()).map_err(TaskError::fatal)?;
        let infra = format!("lab/{}", lab.name);
        let observed =
            self.0.open(&infra).map_err(TaskError::fatal)?.observe().await.map_err(TaskError::fatal)?;
        provision::plan_up(&infra, &lab, &observed).map_err(TaskError::fatal)
    }
}

/// The data directory, there or not.
pub fn data_directory(global: &Global) -> anyhow::Result<PathBuf> {
    global.data.clone().map_or_else(default_data, Ok)
}

fn default_data() -> anyhow::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/guywire"));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    Ok(data.context("no data directory: HOME is not set; name one with --data")?.join("guywire"))
}

/// Everybody on the host can read a command line.
fn refuse_password_argument(url: &str) -> anyhow::Result<()> {
    let on_command_line = std::env::args().any(|argument| argument.contains(url));
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let has_password =
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) || url.contains("password=");
    if on_command_line && has_password {
        bail!(
            "--database: this URL has a password in it, which every process of this host can read from the command line; \
             put the URL into GUYWIRE_DATABASE, or the password into ~/.pgpass"
        );
    }
    Ok(())
}
