//! Packages as the manager keeps them.

use guywire_package::{Rejection, Vnfd};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::PackageId;

/// A package, from its creation on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackageRecord {
    /// Its id.
    pub id: PackageId,
    /// Counts changes; every write is conditional on it.
    #[serde(skip)]
    pub rev: i64,
    /// How far its content has come.
    pub onboarding: OnboardingState,
    /// Whether it may be instantiated.
    pub operational: OperationalState,
    /// When it was created.
    pub created: Timestamp,
    /// Free attributes of the caller.
    pub user_defined: Map<String, Value>,
    /// Why its content was refused the last time.
    pub failure: Option<Rejection>,
    /// The content's file name in the package directory, size and sha256.
    pub content: Option<(String, u64, String)>,
    /// The descriptor, parsed once.
    pub vnfd: Option<Vnfd>,
    /// Files that make up the descriptor.
    pub vnfd_files: Vec<String>,
    /// All other files, by path: algorithm, hash, size.
    pub artifacts: Vec<guywire_package::Artifact>,
    /// Who signed it.
    pub signer: Option<String>,
    /// What was accepted with a doubt.
    pub warnings: Vec<String>,
    /// The HTTP status that goes with `failure`, where it is not the content's fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_status: Option<u16>,
}

/// How far a package's content has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OnboardingState {
    /// There is none, or what there was has been refused.
    Created,
    /// It is on its way.
    Uploading,
    /// It is being read.
    Processing,
    /// It can be used.
    Onboarded,
}

/// Whether a package may be instantiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OperationalState {
    /// It may.
    Enabled,
    /// It may not.
    Disabled,
}

/// Whether instances follow a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UsageState {
    /// Some do.
    InUse,
    /// None does.
    NotInUse,
}

impl OnboardingState {
    /// The word that SOL003 has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Uploading => "UPLOADING",
            Self::Processing => "PROCESSING",
            Self::Onboarded => "ONBOARDED",
        }
    }
}

impl OperationalState {
    /// The word that SOL003 has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "ENABLED",
            Self::Disabled => "DISABLED",
        }
    }
}
