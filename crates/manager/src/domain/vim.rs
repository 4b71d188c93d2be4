//! VIMs: places that make machines.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::VimId;

/// A place that makes machines, as it is registered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vim {
    /// Its id.
    pub id: VimId,
    /// A unique name.
    pub name: String,
    /// Words from people.
    pub description: Option<String>,
    /// What kind of place it is.
    pub kind: VimType,
    /// Whether it is used when a request names none; one at most is.
    pub default: bool,
    /// When it was registered.
    pub created: Timestamp,
    /// When it was changed last.
    pub updated: Option<Timestamp>,
    /// What the kind needs to know: `lab` and `networks` for a lab, `inventory` for hosts, `endpoint` for Kubernetes.
    pub interface: Map<String, Value>,
    /// Credentials, as references to secrets.
    pub access: Map<String, Value>,
    /// Anything else.
    pub extra: Map<String, Value>,
}

/// Kinds of places.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum VimType {
    /// Namespaces of this host.
    Lab,
    /// Existing machines.
    Hosts,
    /// A cluster.
    Kubernetes,
}

/// A VIM as a request or an instance names it (`VimConnectionInfo`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VimConnection {
    /// A registered VIM's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vim_id: Option<String>,
    /// Its type, in this or the long form of SOL003.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vim_type: Option<String>,
    /// What the type needs to know.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub interface_info: Map<String, Value>,
    /// Credentials; secrets are kept as references.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub access_info: Map<String, Value>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

impl VimType {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Lab, Self::Hosts, Self::Kubernetes];

    /// The short word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Hosts => "hosts",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// Reads the short word or the long form of SOL003 3.3.1, such as `ETSINFV.KUBERNETES.V_1`.
    pub fn parse(text: &str) -> Option<Self> {
        let long = text.strip_prefix("ETSINFV.").and_then(|rest| rest.split('.').next());
        let word = long.unwrap_or(text).to_ascii_lowercase();
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}
