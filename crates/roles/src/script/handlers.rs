//! The tasks of scripts' plans.

use guywire_machines::{SecretSource, provision::Machines, remote::Units};
use guywire_plan::Handlers;
use guywire_secrets::Masker;
use serde::{Deserialize, Serialize};

/// What all handlers of scripts' steps share.
#[derive(Clone)]
pub struct Scripts {
    /// The way to places and machines.
    pub machines: Machines,
    /// Commands that run once.
    pub units: Units,
    /// Opens references to secrets, at the moment of their use.
    pub secrets: SecretSource,
    /// Knows the secrets that were used; the one that `units` masks with.
    pub masker: Masker,
}

/// What a step left, for who asks for the plan's outputs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Went {
    /// The end of what its script printed, without secrets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// Why an optional step that failed was passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<String>,
}

impl Scripts {
    /// With units and a masker of its own.
    pub fn new(machines: Machines, secrets: SecretSource) -> Self {
        let masker = Masker::default();
        let units = Units::new(machines.pool.clone(), masker.clone());
        Self { machines, units, secrets, masker }
    }
}

/// Adds the handlers of scripts' steps.
pub fn handlers(handlers: Handlers, scripts: &Scripts) -> Handlers {
    let _ = scripts;
    handlers
}
