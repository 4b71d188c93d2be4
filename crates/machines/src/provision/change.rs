//! A change of some machines of a place: added, replaced, removed, switched. No I/O.

use guywire_model::{Egress, MachineName, MachineSpec, Observed, Power, SiteSpec, TemplateSpec};
use guywire_plan::Plan;
use serde::{Deserialize, Serialize};

use super::PlanRefused;

/// What is to become of some machines; all others of the place are left alone. A machine is named once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineChange {
    /// The plan's kind, such as `vnf.machines`.
    pub kind: String,
    /// One line for people.
    pub title: String,
    /// What it is about: one unfinished plan for each.
    pub subject: Option<String>,
    /// The place, such as `lab/demo`.
    pub infra: String,
    /// Whether the place's machines reach the world outside.
    pub egress: Egress,
    /// All sites of the place.
    pub sites: Vec<SiteSpec>,
    /// The templates that new machines start from.
    pub templates: Vec<TemplateSpec>,
    /// Machines that are to be there and to run.
    pub add: Vec<MachineSpec>,
    /// Machines that are destroyed, then made anew under the same name and number.
    pub replace: Vec<MachineSpec>,
    /// Machines that are to be gone; their volumes stay.
    pub remove: Vec<MachineName>,
    /// Machines whose power switch is turned.
    pub power: Vec<(MachineName, Power)>,
    /// Replaces one machine after the other.
    pub one_by_one: bool,
}

/// The change as a plan; `None` if all is as wanted. If it fails, what was done stays.
pub fn plan_change(change: &MachineChange, observed: &Observed) -> Result<Option<Plan>, PlanRefused> {
    let _ = (change, observed);
    todo!()
}
