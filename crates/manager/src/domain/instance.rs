//! A VNF instance: what it is, and what it consists of once it is instantiated.

use std::collections::BTreeMap;

use guywire_model::{AddressPair, MachineSpec};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{InstanceId, OperationId, PackageId, VimConnection, VimId};

/// A package that was, or can be, instantiated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Its id.
    pub id: InstanceId,
    /// Counts changes; every write is conditional on it.
    #[serde(skip)]
    pub rev: i64,
    /// A name that people give.
    pub name: Option<String>,
    /// More words from people.
    pub description: Option<String>,
    /// The descriptor that it follows.
    pub vnfd_id: String,
    /// The package that holds the descriptor.
    pub package: PackageId,
    /// From the descriptor.
    pub provider: String,
    /// From the descriptor.
    pub product: String,
    /// From the descriptor.
    pub software_version: String,
    /// From the descriptor.
    pub vnfd_version: String,
    /// Whether machines stand behind it.
    pub state: InstantiationState,
    /// The unfinished operation, if there is one; kept by the store.
    #[serde(skip)]
    pub operation: Option<OperationId>,
    /// When it was created.
    pub created: Timestamp,
    /// Free attributes of the caller.
    pub metadata: Map<String, Value>,
    /// Attributes that the VNFD declares and the caller sets.
    pub extensions: Map<String, Value>,
    /// Configuration that the VNFD declares.
    pub configurable: Map<String, Value>,
    /// Where it stands, by the caller's own names.
    pub vims: BTreeMap<String, VimConnection>,
    /// What it consists of; there if and only if it is instantiated.
    pub info: Option<Info>,
}

/// Whether machines stand behind an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InstantiationState {
    /// None.
    NotInstantiated,
    /// There are.
    Instantiated,
}

/// What an instantiated VNF consists of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// The flavour.
    pub flavour: String,
    /// The instantiation level that was asked for last, if the scale still is what it says.
    pub level: Option<String>,
    /// Whether its machines are switched on.
    pub vnf_state: VnfState,
    /// How far each aspect is scaled out.
    pub scale: BTreeMap<String, u32>,
    /// Its machines, the oldest first.
    pub vnfcs: Vec<Vnfc>,
    /// External networks as they were given.
    pub ext_links: Vec<ExtLink>,
    /// The place that its machines stand in, such as `lab/vnf`.
    pub infra: String,
    /// The VIM that stands for it.
    pub vim: VimId,
    /// The caller's name of that VIM in `vims`.
    pub vim_connection: String,
    /// The `additionalParams` of instantiate, secrets as references: scale and heal need nothing sent again.
    pub inputs: Map<String, Value>,
}

/// Whether a VNF's machines are switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum VnfState {
    /// They are.
    Started,
    /// They are not.
    Stopped,
}

/// One VNF component: a VDU on a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vnfc {
    /// Its name within the instance, such as `hello-0`; it stays when the machine is made anew.
    pub id: String,
    /// The id of the resource behind it; each machine that is made has a new one.
    pub resource: uuid::Uuid,
    /// The VDU.
    pub vdu: String,
    /// The machine.
    pub machine: MachineSpec,
    /// Its addresses, once they are known.
    pub addresses: Option<AddressPair>,
}

/// An external network that connection points are on, as SOL003 gives it (`ExtVirtualLinkData`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtLink {
    /// The caller's name of it.
    pub id: String,
    /// The VIM that has it, by the caller's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vim_connection_id: Option<String>,
    /// The network in the VIM: in a lab, a site's name.
    pub resource_id: String,
    /// The connection points on it, as they were given.
    #[serde(default)]
    pub ext_cps: Vec<Value>,
}
