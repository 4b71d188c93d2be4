//! What the manager does, whoever asks: operations, packages, subscriptions, alarms.

pub mod access;
pub mod alarms;
pub mod callback;
pub mod deliver;
pub mod grant;
pub mod hiding;
pub mod lcm;
pub mod packages;
pub mod requests;
#[cfg(test)]
pub(crate) mod samples;
pub mod subscriptions;
pub mod vims;
pub mod works;

use std::{path::PathBuf, sync::Arc};

use guywire_plan::Engine;
use guywire_secrets::Store as Secrets;

use crate::store::Store;

/// All that the application needs, wired by whoever starts it. Cheap to clone.
#[derive(Clone)]
pub struct App {
    /// What is kept.
    pub store: Arc<Store>,
    /// Executes plans.
    pub engine: Engine,
    /// How machines and roles are planned for.
    pub works: Arc<dyn works::Works>,
    /// The encrypted store of secrets.
    pub secrets: Arc<Secrets>,
    /// Calls others.
    pub callbacks: callback::Callbacks,
    /// How the manager is set up.
    pub config: Arc<Config>,
}

/// How the manager is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where packages' contents lie, among other things.
    pub data: PathBuf,
    /// The address under which others reach us, for links and notifications: `http://127.0.0.1:9890`.
    pub url: String,
    /// The NFVO that grants operations; without one they are granted locally.
    pub nfvo: Option<Nfvo>,
    /// How others are called.
    pub outbound: callback::Outbound,
    /// How packages are judged.
    pub packages: guywire_package::Policy,
}

/// An NFVO that grants operations.
#[derive(Debug, Clone)]
pub struct Nfvo {
    /// The root of its API, before `/grant/v1`.
    pub url: String,
    /// How we prove who we are.
    pub auth: Option<crate::domain::CallbackAuth>,
}
