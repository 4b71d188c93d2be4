//! From steps to a plan. No I/O.

use std::path::PathBuf;

use guywire_plan::{Plan, PlanError};

use super::Step;

/// What a plan of a script's steps is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptPlan {
    /// The plan's kind, such as `vnf.script`.
    pub kind: String,
    /// One line for people.
    pub title: String,
    /// What it is about: one unfinished plan for each.
    pub subject: Option<String>,
    /// The place that the machines are in, such as `lab/demo`.
    pub infra: String,
    /// The directory of the extracted package, for files that steps put.
    pub package_dir: PathBuf,
}

/// The steps as tasks; `None` if there are none.
pub fn plan(order: &ScriptPlan, steps: &[Step]) -> Result<Option<Plan>, PlanError> {
    let _ = (order, steps);
    todo!()
}
