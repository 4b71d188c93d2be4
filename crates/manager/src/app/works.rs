//! The seam to machines and roles: the manager says what, others plan how.

use std::path::PathBuf;

use async_trait::async_trait;
use guywire_model::{AddressPair, Egress, MachineName, MachineSpec, Observed, Power, SiteSpec, TemplateSpec};
use guywire_plan::Plan;
use serde_json::{Map, Value};

use crate::domain::{OperationType, Vim};

/// Plans work on machines. Nothing here changes the world: plans do.
#[async_trait]
pub trait Works: Send + Sync {
    /// What a VIM can do for machines, or why it cannot make any.
    async fn place(&self, vim: &Vim) -> Result<Place, WorksError>;

    /// All that is in a place.
    async fn observe(&self, infra: &str) -> Result<Observed, WorksError>;

    /// A plan that makes, removes or switches machines; `None` if nothing is to be done.
    async fn plan_machines(&self, order: &MachineOrder) -> Result<Option<Plan>, WorksError>;

    /// A plan for what a package does at one point of an operation; `None` if that is nothing.
    async fn plan_point(&self, order: &PointOrder) -> Result<PointPlan, WorksError>;

    /// Whether a machine answers.
    async fn answers(&self, infra: &str, machine: &MachineName) -> Result<bool, WorksError>;
}

/// A place that can make machines.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its name for plans, such as `lab/vnf`.
    pub infra: String,
    /// Its networks by name.
    pub sites: Vec<SiteSpec>,
    /// Whether its machines reach the world.
    pub egress: Egress,
    /// What machines can start from, the default first.
    pub templates: Vec<TemplateSpec>,
    /// Machines that exist already and can be taken, if it has only such.
    pub hosts: Option<Vec<MachineSpec>>,
    /// Who is let into machines.
    pub login: guywire_model::Login,
}

/// Machines to be changed.
#[derive(Debug, Clone)]
pub struct MachineOrder {
    /// One line for people.
    pub title: String,
    /// What the plan is about: at most one unfinished plan of a subject.
    pub subject: String,
    /// The place.
    pub place: Place,
    /// To be made.
    pub add: Vec<MachineSpec>,
    /// To be made anew under the same name.
    pub replace: Vec<MachineSpec>,
    /// Whether those are made anew one after the other.
    pub one_by_one: bool,
    /// To be removed.
    pub remove: Vec<MachineName>,
    /// To be switched.
    pub power: Vec<(MachineName, Power)>,
}

/// A point of an operation at which a package has its say.
#[derive(Debug, Clone)]
pub struct PointOrder {
    /// One line for people.
    pub title: String,
    /// What the plan is about.
    pub subject: String,
    /// The place.
    pub infra: String,
    /// The operation.
    pub operation: OperationType,
    /// The point, such as `instantiate_end`.
    pub point: String,
    /// Who speaks.
    pub implementation: guywire_package::Implementation,
    /// The package's content.
    pub csar: PathBuf,
    /// Its sha256: the name under which it is unpacked.
    pub sha256: String,
    /// The instance: id, name, vnfdId, flavourId.
    pub vnf: Map<String, Value>,
    /// The request, secrets as references.
    pub request: Map<String, Value>,
    /// The instance's machines.
    pub machines: Vec<PointMachine>,
}

/// A machine as a package sees it.
#[derive(Debug, Clone)]
pub struct PointMachine {
    /// Its name.
    pub name: MachineName,
    /// Its VDU.
    pub vdu: String,
    /// The component.
    pub vnfc: String,
    /// `added`, `kept`, `removed` or `replaced`.
    pub change: &'static str,
    /// Its addresses.
    pub addresses: Option<AddressPair>,
}

/// What a package does at a point.
#[derive(Debug, Clone, Default)]
pub struct PointPlan {
    /// The plan.
    pub plan: Option<Plan>,
    /// What was accepted and ignored.
    pub warnings: Vec<String>,
}

/// Why nothing was planned.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct WorksError {
    /// What was wrong, where, and what to do. Never a secret.
    pub reason: String,
    /// Whether another try can help.
    pub retry: bool,
}
