//! Who wants to hear of what.

use guywire_secrets::SecretRef;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    EventType, OperationState, OperationType, OperationalState, Severity, SubscriptionId, UsageState,
};

/// Somebody who wants to hear.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// Its id.
    pub id: SubscriptionId,
    /// Which interface it belongs to.
    pub api: Api,
    /// Where notifications go.
    pub callback: String,
    /// Which ones.
    pub filter: Filter,
    /// How much is told.
    pub verbosity: Verbosity,
    /// How we prove who we are.
    pub auth: Option<CallbackAuth>,
    /// When it was made.
    pub created: Timestamp,
}

/// The interface that a subscription belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// `/vnflcm/v1`
    LcmV1,
    /// `/vnflcm/v2`
    LcmV2,
    /// `/vnfpkgm/v1`
    Pkgm,
    /// `/vnffm/v1`
    Fm,
}

/// How much a notification tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verbosity {
    /// All.
    #[default]
    Full,
    /// Without what can be read again.
    Short,
}

/// Which notifications are wanted. An empty list means all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// Kinds of notifications.
    pub notification_types: Vec<String>,
    /// Operations, for the kind that is about them.
    pub operation_types: Vec<OperationType>,
    /// States, likewise.
    pub operation_states: Vec<OperationState>,
    /// Instances, or packages.
    pub instances: InstanceFilter,
    /// What only packages have.
    #[serde(default)]
    pub packages: PackageFilter,
    /// What only alarms have.
    #[serde(default)]
    pub faults: FaultFilter,
    /// The filter as it was given, to be shown again.
    pub given: Option<Value>,
}

/// Which instances (`VnfInstanceSubscriptionFilter`), or packages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceFilter {
    /// Descriptors.
    pub vnfd_ids: Vec<String>,
    /// Providers with their products and versions, as SOL003 nests them.
    pub products: Vec<Value>,
    /// Instances, or packages.
    pub ids: Vec<String>,
    /// Instances by name.
    pub names: Vec<String>,
}

/// Which packages, by what only packages have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PackageFilter {
    /// Whether they may be instantiated.
    pub operational: Vec<OperationalState>,
    /// Whether instances follow them.
    pub usage: Vec<UsageState>,
    /// Managers that they say they work with.
    pub vnfm_info: Vec<String>,
}

/// Which alarms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultFilter {
    /// Kinds of resources at fault: `COMPUTE`, `STORAGE`, `NETWORK`.
    pub resource_types: Vec<String>,
    /// How bad they are.
    pub severities: Vec<Severity>,
    /// Kinds of trouble.
    pub event_types: Vec<EventType>,
    /// Probable causes, word for word.
    pub causes: Vec<String>,
}

/// How we prove to a callback who we are. Secrets are references.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum CallbackAuth {
    /// User and password.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: SecretRef,
    },
    /// A token from a token endpoint.
    OAuth2 {
        /// The client's id.
        client: String,
        /// Its secret; none with a certificate alone.
        secret: Option<SecretRef>,
        /// The token endpoint.
        endpoint: String,
    },
    /// The manager's own client certificate.
    Mtls,
}

/// A change that subscribers may want to hear of, before it is known who they are.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// An operation entered a state, or asked to be told of.
    Operation {
        /// The operation as it is now.
        operation: Box<super::Operation>,
        /// The instance that it is about.
        instance: Box<super::Instance>,
    },
    /// An instance was created.
    InstanceCreated(Box<super::Instance>),
    /// An instance was deleted.
    InstanceDeleted(Box<super::Instance>),
    /// A package was onboarded.
    PackageOnboarded(Box<super::PackageRecord>),
    /// A package changed its state, or is gone (`deleted`).
    PackageChanged {
        /// The package.
        package: Box<super::PackageRecord>,
        /// Whether it is gone.
        deleted: bool,
    },
    /// An alarm was raised or changed.
    Alarm {
        /// The alarm.
        alarm: Box<super::Alarm>,
        /// The instance's attributes that filters look at.
        instance: Box<super::Instance>,
        /// Whether it is over.
        cleared: bool,
    },
}

impl Api {
    /// Where the interface begins.
    pub fn root(self) -> &'static str {
        match self {
            Self::LcmV1 => "/vnflcm/v1",
            Self::LcmV2 => "/vnflcm/v2",
            Self::Pkgm => "/vnfpkgm/v1",
            Self::Fm => "/vnffm/v1",
        }
    }

    /// The word under which the database keeps it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LcmV1 => "lcm-v1",
            Self::LcmV2 => "lcm-v2",
            Self::Pkgm => "pkgm",
            Self::Fm => "fm",
        }
    }

    /// The kinds of notifications that it has.
    pub fn notification_types(self) -> &'static [&'static str] {
        match self {
            Self::LcmV1 | Self::LcmV2 => &[
                "VnfLcmOperationOccurrenceNotification",
                "VnfIdentifierCreationNotification",
                "VnfIdentifierDeletionNotification",
            ],
            Self::Pkgm => &["VnfPackageOnboardingNotification", "VnfPackageChangeNotification"],
            Self::Fm => &["AlarmNotification", "AlarmClearedNotification"],
        }
    }
}
