//! An operation: one change of an instance's life, and where it stands.

use std::collections::BTreeMap;

use guywire_model::Power;
use guywire_plan::PlanId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ExtLink, InstanceId, OperationId, PackageId, Problem, VimConnection, VimId, VnfState, Vnfc};

/// The id that an NFVO gave to a grant.
pub type GrantId = String;

/// One lifecycle change (`VnfLcmOpOcc`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: OperationId,
    /// Counts changes; every write is conditional on it.
    #[serde(skip)]
    pub rev: i64,
    /// The instance.
    pub instance: InstanceId,
    /// What is done.
    pub operation: OperationType,
    /// Where it stands.
    pub state: OperationState,
    /// Since when.
    pub entered: Timestamp,
    /// When it was accepted.
    pub started: Timestamp,
    /// Whether nobody asked for it.
    pub automatic: bool,
    /// The request, secrets as references.
    pub params: Map<String, Value>,
    /// The grant, where an NFVO gave one.
    pub grant: Option<GrantId>,
    /// How somebody wants it to stop.
    pub cancel: Option<CancelMode>,
    /// Why it failed.
    pub error: Option<Problem>,
    /// What was changed.
    pub affected: Vec<Affected>,
    /// What changed in the instance's own attributes.
    pub changed_info: Option<Value>,
    /// External networks that changed.
    pub changed_ext: Vec<ExtLink>,
    /// What was accepted and ignored.
    pub warnings: Vec<String>,
    /// The stage that runs or comes next.
    pub stage: Stage,
    /// Forward, or back to the state before.
    pub direction: Direction,
    /// How often somebody has asked that the present plan go on.
    pub resumes: u32,
    /// The plan of the present stage.
    pub plan: Option<PlanId>,
    /// All plans of the operation, the oldest first.
    pub plans: Vec<PlanId>,
    /// What it aims at, once that is decided.
    pub target: Option<Target>,
}

/// What is done to an instance.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OperationType {
    /// Machines are made for it.
    Instantiate,
    /// An aspect is scaled by steps.
    Scale,
    /// All aspects are scaled to a level.
    ScaleToLevel,
    /// Another flavour.
    ChangeFlavour,
    /// Its machines are removed.
    Terminate,
    /// Machines are made anew.
    Heal,
    /// Machines are switched on or off.
    Operate,
    /// Other external networks.
    ChangeExtConn,
    /// Other attributes.
    ModifyInfo,
    /// Another package.
    ChangeVnfpkg,
}

/// Where an operation stands (SOL003).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OperationState {
    /// Accepted; a grant is asked for.
    Starting,
    /// Its plans run.
    Processing,
    /// Done.
    Completed,
    /// Stopped for a reason that we cannot remove; retry, rollback or fail.
    FailedTemp,
    /// Given up.
    Failed,
    /// On its way back to the state before.
    RollingBack,
    /// Back in the state before.
    RolledBack,
}

/// The stages of an operation, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// An NFVO is asked.
    Grant,
    /// The package's steps before machines change.
    Start,
    /// Machines are made, removed or switched.
    Machines,
    /// The package's steps after machines have changed.
    End,
    /// The outcome is recorded.
    Finish,
}

/// Which way an operation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To what was asked for.
    Forward,
    /// To the state before.
    Back,
}

/// How an operation is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CancelMode {
    /// Running tasks end, none starts.
    Graceful,
    /// Running tasks are stopped too.
    Forceful,
}

/// A machine that an operation touches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Affected {
    /// The id of this change.
    pub id: uuid::Uuid,
    /// How it is touched.
    pub change: ChangeType,
    /// The machine as it is or was.
    pub vnfc: Vnfc,
}

/// How something is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChangeType {
    /// It is made.
    Added,
    /// It is removed.
    Removed,
    /// It stays and changes.
    Modified,
    /// It is only for a while.
    Temporary,
}

/// What an operation aims at. It is decided once, and stored before anything acts on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The place.
    pub infra: String,
    /// Its VIM.
    pub vim: VimId,
    /// The caller's name of that VIM.
    pub vim_connection: String,
    /// The flavour afterwards.
    pub flavour: String,
    /// The level afterwards.
    pub level: Option<String>,
    /// The scale afterwards.
    pub scale: BTreeMap<String, u32>,
    /// Machines to make.
    pub add: Vec<Vnfc>,
    /// Machines to make anew, each with the resource that stands there now.
    pub replace: Vec<(Vnfc, uuid::Uuid)>,
    /// Machines to remove.
    pub remove: Vec<Vnfc>,
    /// Machines to switch, and how.
    pub power: Option<(Power, Vec<Vnfc>)>,
    /// On or off afterwards.
    pub vnf_state: VnfState,
    /// Whether machines are made anew one after the other.
    pub one_by_one: bool,
    /// External networks afterwards.
    pub ext_links: Vec<ExtLink>,
    /// The package afterwards, where it changes.
    pub package: Option<(PackageId, String)>,
    /// Parameters afterwards.
    pub inputs: Map<String, Value>,
    /// VIM connections afterwards.
    pub vims: BTreeMap<String, VimConnection>,
}

impl OperationType {
    /// The word of SOL003.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Instantiate => "INSTANTIATE",
            Self::Scale => "SCALE",
            Self::ScaleToLevel => "SCALE_TO_LEVEL",
            Self::ChangeFlavour => "CHANGE_FLAVOUR",
            Self::Terminate => "TERMINATE",
            Self::Heal => "HEAL",
            Self::Operate => "OPERATE",
            Self::ChangeExtConn => "CHANGE_EXT_CONN",
            Self::ModifyInfo => "MODIFY_INFO",
            Self::ChangeVnfpkg => "CHANGE_VNFPKG",
        }
    }

    /// The word of SOL001's LCM interface: `<word>_start` and `<word>_end`.
    pub fn point(self) -> &'static str {
        match self {
            Self::Instantiate => "instantiate",
            Self::Scale => "scale",
            Self::ScaleToLevel => "scale_to_level",
            Self::ChangeFlavour => "change_flavour",
            Self::Terminate => "terminate",
            Self::Heal => "heal",
            Self::Operate => "operate",
            Self::ChangeExtConn => "change_external_connectivity",
            Self::ModifyInfo => "modify_information",
            Self::ChangeVnfpkg => "change_current_package",
        }
    }
}

impl OperationState {
    /// The word of SOL003.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "STARTING",
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::FailedTemp => "FAILED_TEMP",
            Self::Failed => "FAILED",
            Self::RollingBack => "ROLLING_BACK",
            Self::RolledBack => "ROLLED_BACK",
        }
    }

    /// Whether the instance waits for it.
    pub fn is_unfinished(self) -> bool {
        self.is_active() || self == Self::FailedTemp
    }

    /// Whether we have something to do for it.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Starting | Self::Processing | Self::RollingBack)
    }
}
