//! Machines and roles for the manager: where its orders meet those who can plan them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use guywire_machines::{
    Infra, InfraError,
    provision::{self, Infras, MachineChange},
    ssh::{ExecRequest, Pool},
};
use guywire_manager::{
    app::works::{MachineOrder, Place, PointOrder, PointPlan, Works, WorksError},
    domain::{Vim, VimType},
};
use guywire_model::{
    Egress, HostNumber, LabName, LabSpec, MachineName, Observed, SiteName, SiteSpec, TemplateName,
    TemplateSpec,
};
use guywire_package::Role;
use guywire_plan::Plan;
use guywire_roles::script::{
    Change, Invocation, ScriptInput, ScriptLimits, ScriptMachine, ScriptPlan, ScriptVnf, decide, plan,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{hosts, installation::Installation};

/// How long a machine may take to say that it is there.
const ANSWER: Duration = Duration::from_secs(5);

/// Plans with the machines and roles of this installation.
pub struct LocalWorks {
    installation: Arc<Installation>,
    pool: Pool,
    /// Our own program, which becomes sandboxes.
    program: PathBuf,
}

/// What a VIM of type `lab` needs to know.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabInterface {
    lab: LabName,
    #[serde(default)]
    networks: Vec<SiteSpec>,
    #[serde(default)]
    egress: Egress,
    #[serde(default)]
    templates: Vec<LabTemplate>,
}

/// What machines of a lab can start from. Content of the host's own files is not for the network to ask for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabTemplate {
    name: TemplateName,
    #[serde(default)]
    packages: Vec<String>,
}

/// What a VIM of type `hosts` needs to know.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostsInterface {
    inventory: PathBuf,
}

impl LocalWorks {
    /// Works of this installation.
    pub fn new(installation: Arc<Installation>, pool: Pool) -> anyhow::Result<Self> {
        Ok(Self { installation, pool, program: std::env::current_exe()? })
    }

    fn infra(&self, name: &str) -> Result<Arc<dyn Infra>, WorksError> {
        self.installation.open(name).map_err(|error| trouble(&error))
    }

    fn lab(&self, vim: &Vim) -> Result<Place, WorksError> {
        let interface: LabInterface = read_interface(vim)?;
        let default = |name: &'static str| SiteName::new(name).expect("a valid constant");
        let sites = match &interface.networks[..] {
            [] => vec![SiteSpec { name: default(LabSpec::DEFAULT_SITE), v4: None, v6: None }],
            networks => networks.to_vec(),
        };
        let base = TemplateSpec {
            name: TemplateName::new(LabSpec::DEFAULT_TEMPLATE).expect("a valid constant"),
            packages: Vec::new(),
            content: Vec::new(),
        };
        let templates = interface.templates.into_iter().map(|template| TemplateSpec {
            name: template.name,
            packages: template.packages,
            content: Vec::new(),
        });
        let login = self.installation.default_login().map_err(|error| refused(format!("{error:#}")))?;
        Ok(Place {
            infra: format!("lab/{}", interface.lab),
            sites,
            egress: interface.egress,
            templates: std::iter::once(base).chain(templates).collect(),
            hosts: None,
            login,
        })
    }

    fn hosts(&self, vim: &Vim) -> Result<Place, WorksError> {
        let interface: HostsInterface = read_interface(vim)?;
        let file = interface
            .inventory
            .canonicalize()
            .map_err(|error| refused(format!("inventory {}: {error}", interface.inventory.display())))?;
        let inventory = hosts::read(&file).map_err(|error| refused(format!("{error:#}")))?;
        // Numbers tell hosts apart where machines are spoken for.
        let machines = (1u16..).zip(&inventory.hosts).map(|(number, host)| {
            let mut machine = hosts::machine(host);
            machine.number = HostNumber(number);
            machine
        });
        let machines: Vec<_> = machines.collect();
        let template = TemplateName::new("host").expect("a valid constant");
        let login = self.installation.default_login().map_err(|error| refused(format!("{error:#}")))?;
        Ok(Place {
            infra: format!("hosts/{}", file.display()),
            sites: vec![SiteSpec {
                name: SiteName::new("hosts").expect("a valid constant"),
                v4: None,
                v6: None,
            }],
            egress: Egress::None,
            templates: vec![TemplateSpec { name: template, packages: Vec::new(), content: Vec::new() }],
            hosts: Some(machines),
            login,
        })
    }

    /// The package's files, unpacked once for each content.
    async fn unpacked(&self, csar: &Path, sha256: &str) -> Result<PathBuf, WorksError> {
        let dir = self.installation.data().join("packages").join("unpacked").join(sha256);
        if dir.is_dir() {
            return Ok(dir);
        }
        let (csar, into) = (csar.to_owned(), dir.clone());
        let done = tokio::task::spawn_blocking(move || unpack(&csar, &into)).await;
        done.map_err(|error| refused(error.to_string()))??;
        Ok(dir)
    }
}

#[async_trait]
impl Works for LocalWorks {
    async fn place(&self, vim: &Vim) -> Result<Place, WorksError> {
        match vim.kind {
            VimType::Lab => self.lab(vim),
            VimType::Hosts => self.hosts(vim),
            VimType::Kubernetes => Err(refused(format!(
                "VIM {} is a Kubernetes cluster, which makes no machines; name a VIM of type lab or hosts",
                vim.name
            ))),
        }
    }

    async fn observe(&self, infra: &str) -> Result<Observed, WorksError> {
        self.infra(infra)?.observe().await.map_err(|error| trouble(&error))
    }

    async fn plan_machines(&self, order: &MachineOrder) -> Result<Option<Plan>, WorksError> {
        let observed = self.observe(&order.place.infra).await?;
        let change = MachineChange {
            kind: "vnf.machines".to_owned(),
            title: order.title.clone(),
            subject: Some(order.subject.clone()),
            infra: order.place.infra.clone(),
            egress: order.place.egress,
            sites: order.place.sites.clone(),
            templates: order.place.templates.clone(),
            add: order.add.clone(),
            replace: order.replace.clone(),
            remove: order.remove.clone(),
            power: order.power.clone(),
            one_by_one: order.one_by_one,
        };
        provision::plan_change(&change, &observed).map_err(|error| refused(error.to_string()))
    }

    async fn plan_point(&self, order: &PointOrder) -> Result<PointPlan, WorksError> {
        let file = match order.implementation.role {
            Role::Script => order.implementation.file.clone().ok_or_else(|| {
                refused(format!("{}: {} names no file", order.point, order.implementation.name))
            })?,
            Role::Kubernetes | Role::PrivateRegistry => {
                return Err(refused(format!(
                    "{}: {} is a role that this guywire does not have yet",
                    order.point, order.implementation.name
                )));
            }
        };
        let package = self.unpacked(&order.csar, &order.sha256).await?;
        let text = |key: &str| order.vnf.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let machines = order.machines.iter().map(|machine| ScriptMachine {
            name: machine.name.clone(),
            vdu: machine.vdu.clone(),
            vnfc: machine.vnfc.clone(),
            change: match machine.change {
                "added" => Change::Added,
                "removed" => Change::Removed,
                "replaced" => Change::Replaced,
                _ => Change::Kept,
            },
            addresses: machine.addresses,
        });
        let invocation = Invocation {
            package: package.clone(),
            file,
            input: ScriptInput {
                operation: order.operation.as_str().to_owned(),
                point: order.point.clone(),
                vnf: ScriptVnf {
                    id: text("id"),
                    name: text("name"),
                    vnfd_id: text("vnfdId"),
                    flavour_id: text("flavourId"),
                },
                request: order.request.clone(),
                machines: machines.collect(),
                outputs: serde_json::Map::new(),
            },
            limits: ScriptLimits::default(),
        };
        let decision = decide(&invocation, &self.program)
            .await
            .map_err(|error| WorksError { reason: error.to_string(), retry: error.retry() })?;
        let order = ScriptPlan {
            kind: "vnf.script".to_owned(),
            title: order.title.clone(),
            subject: Some(order.subject.clone()),
            infra: order.infra.clone(),
            package_dir: package,
        };
        let plan = plan(&order, &decision.steps).map_err(|error| refused(error.to_string()))?;
        Ok(PointPlan { plan, warnings: decision.warnings })
    }

    async fn answers(&self, infra: &str, machine: &MachineName) -> Result<bool, WorksError> {
        let door = self.infra(infra)?.door(machine).await.map_err(|error| trouble(&error))?;
        // A command, since a connection that is still open proves nothing.
        Ok(self.pool.exec(&door, ExecRequest::argv(["true"]).timeout(ANSWER)).await.is_ok())
    }
}

/// Unpacks beside the place and moves it there whole, so that nobody sees half of it.
fn unpack(csar: &Path, into: &Path) -> Result<(), WorksError> {
    let io =
        |error: std::io::Error| WorksError { reason: format!("{}: {error}", into.display()), retry: true };
    let parent = into.parent().unwrap_or(into);
    std::fs::create_dir_all(parent).map_err(io)?;
    let fresh = parent.join(format!(".new-{}", uuid::Uuid::now_v7().simple()));
    guywire_package::extract(csar, &fresh, &guywire_package::Policy::default())
        .map_err(|error| refused(error.to_string()))?;
    match std::fs::rename(&fresh, into) {
        // Somebody else was faster with the same content.
        Err(_) if into.is_dir() => std::fs::remove_dir_all(&fresh).map_err(io),
        done => done.map_err(io),
    }
}

fn read_interface<T: serde::de::DeserializeOwned>(vim: &Vim) -> Result<T, WorksError> {
    serde_json::from_value(Value::Object(vim.interface.clone()))
        .map_err(|error| refused(format!("VIM {}: interfaceInfo: {error}", vim.name)))
}

fn trouble(error: &InfraError) -> WorksError {
    WorksError { reason: provision::with_causes(error), retry: error.retry() }
}

fn refused(reason: String) -> WorksError {
    WorksError { reason, retry: false }
}
