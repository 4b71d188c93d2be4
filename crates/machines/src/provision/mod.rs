//! Machines made by durable plans: a pure planner, and the handlers that its tasks name.
//!
//! [`plan_up`] and its siblings take what is wanted and what is there and return a plan; they do no I/O.
//! [`handlers`] are what an engine needs to execute such plans.

mod change;
mod handlers;
mod planner;

use std::sync::Arc;

pub use change::{MachineChange, plan_change};
pub use handlers::{Machines, handlers, with_causes};
pub use planner::{PlanRefused, plan_claim, plan_down, plan_power, plan_release, plan_remove, plan_up};

use crate::{Infra, InfraError};

/// Opens a place by its name in a plan, such as `lab/demo`.
pub trait Infras: Send + Sync {
    /// The place of that name.
    fn open(&self, infra: &str) -> Result<Arc<dyn Infra>, InfraError>;
}

#[cfg(test)]
mod tests;
