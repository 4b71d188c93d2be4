//! What callers may ask for, as SOL003 writes it. Both versions of the interface share these types: where 2.6.1 has
//! a list and 3.3.1 a map, either is taken.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::domain::{CancelMode, VimConnection, VnfState};

/// Creates an instance.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateVnfRequest {
    /// The descriptor that it follows.
    pub vnfd_id: String,
    /// A name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnf_instance_name: Option<String>,
    /// More words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnf_instance_description: Option<String>,
    /// Free attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// Makes machines for an instance.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstantiateVnfRequest {
    /// The flavour.
    pub flavour_id: String,
    /// The level; the flavour's default one if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instantiation_level_id: Option<String>,
    /// Scale levels by aspect, in the place of a level's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_scale_level_info: Option<Vec<ScaleInfo>>,
    /// External networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ext_virtual_links: Vec<ExtVirtualLinkData>,
    /// Networks inside the VNF that somebody else manages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ext_managed_virtual_links: Vec<Map<String, Value>>,
    /// Where machines are made.
    #[serde(default, skip_serializing_if = "VimConnections::is_empty")]
    pub vim_connection_info: VimConnections,
    /// A language for texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub localization_language: Option<String>,
    /// Parameters of the package.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub additional_params: Map<String, Value>,
    /// Attributes that the VNFD declares.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// Configuration that the VNFD declares.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub vnf_configurable_properties: Map<String, Value>,
}

/// Scales an aspect by steps.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScaleVnfRequest {
    /// Out or in.
    #[serde(rename = "type")]
    pub kind: ScaleType,
    /// The aspect.
    pub aspect_id: String,
    /// How many steps.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub number_of_steps: u32,
    /// Parameters of the package.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub additional_params: Map<String, Value>,
}

/// Out or in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ScaleType {
    /// More machines.
    ScaleOut,
    /// Fewer machines.
    ScaleIn,
}

/// Scales all aspects to a level.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScaleVnfToLevelRequest {
    /// An instantiation level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instantiation_level_id: Option<String>,
    /// Or scale levels by aspect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_info: Option<Vec<ScaleInfo>>,
    /// Parameters of the package.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub additional_params: Map<String, Value>,
}

/// The scale of one aspect.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScaleInfo {
    /// The aspect.
    pub aspect_id: String,
    /// How far out.
    pub scale_level: u32,
    /// The flavour, which 3.x allows to be named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnfd_id: Option<String>,
}

/// Changes to another flavour.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeVnfFlavourRequest {
    /// The flavour.
    pub new_flavour_id: String,
    /// The level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instantiation_level_id: Option<String>,
    /// Scale levels by aspect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_scale_level_info: Option<Vec<ScaleInfo>>,
    /// External networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ext_virtual_links: Vec<ExtVirtualLinkData>,
    /// Networks inside the VNF that somebody else manages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ext_managed_virtual_links: Vec<Map<String, Value>>,
    /// Where machines are made.
    #[serde(default, skip_serializing_if = "VimConnections::is_empty")]
    pub vim_connection_info: VimConnections,
    /// Parameters of the package.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub additional_params: Map<String, Value>,
    /// Attributes that the VNFD declares.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// Configuration that the VNFD declares.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub vnf_configurable_properties: Map<String, Value>,
}

/// Switches machines on or off.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OperateVnfRequest {
    /// The state to come to.
    pub change_state_to: VnfState,
    /// Components; all if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnfc_instance_id: Vec<String>,
    /// How machines are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_type: Option<StopType>,
    /// How long a graceful stop may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_stop_timeout: Option<u32>,
    /// Parameters of the package.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub additional_params: Map<String, Value>,
}

/// Whether machines are asked or cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StopType {
    /// At once.
    Forceful,
    /// Asked first.
    Graceful,
}

/// Makes machines anew.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealVnfRequest {
    /// Components by their name or the id of their resource; all if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnfc_instance_id: Vec<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// A script that the VNFD names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heal_script: Option<String>,
    /// Parameters of the package; `all: true` heals all.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub additional_params: Map<String, Value>,
}

/// Removes an instance's machines.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TerminateVnfRequest {
    /// At once, or after the package has had its say.
    pub termination_type: StopType,
    /// How long the package may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_termination_timeout: Option<u32>,
    /// Parameters of the package.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub additional_params: Map<String, Value>,
}

/// Changes external networks.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeExtVnfConnectivityRequest {
    /// The networks.
    pub ext_virtual_links: Vec<ExtVirtualLinkData>,
    /// Where they are.
    #[serde(default, skip_serializing_if = "VimConnections::is_empty")]
    pub vim_connection_info: VimConnections,
    /// Parameters of the package.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub additional_params: Map<String, Value>,
}

/// Changes to another package.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeCurrentVnfPkgRequest {
    /// The descriptor to follow from now on.
    pub vnfd_id: String,
    /// External networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ext_virtual_links: Vec<ExtVirtualLinkData>,
    /// Networks inside the VNF that somebody else manages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ext_managed_virtual_links: Vec<Map<String, Value>>,
    /// Where machines are made.
    #[serde(default, skip_serializing_if = "VimConnections::is_empty")]
    pub vim_connection_info: VimConnections,
    /// Parameters of the package: `upgrade_type` (`RollingUpdate`), `vdu_params` with a `vdu_id` for each VDU whose
    /// machines are made anew. Without them, machines of VDUs that differ are.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub additional_params: Map<String, Value>,
    /// Attributes that the VNFD declares.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// Configuration that the VNFD declares.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub vnf_configurable_properties: Map<String, Value>,
}

/// Changes an instance's own attributes (RFC 7396: `null` removes).
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VnfInfoModificationRequest {
    /// The name; `null` removes it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub vnf_instance_name: Option<Option<String>>,
    /// The description; `null` removes it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub vnf_instance_description: Option<Option<String>>,
    /// Another descriptor of the same product, while there are no machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnfd_id: Option<String>,
    /// The same by the package's id, as 2.6.1 has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnf_pkg_id: Option<String>,
    /// Configuration that the VNFD declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnf_configurable_properties: Option<Map<String, Value>>,
    /// Free attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Attributes that the VNFD declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Map<String, Value>>,
    /// Where machines stand.
    #[serde(default, skip_serializing_if = "VimConnections::is_empty")]
    pub vim_connection_info: VimConnections,
    /// Attributes of components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnfc_info_modifications: Vec<VnfcInfoModification>,
}

/// Changes a component's attributes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VnfcInfoModification {
    /// The component.
    pub id: String,
    /// Configuration.
    pub vnfc_configurable_properties: Map<String, Value>,
}

/// Cancels an operation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRequest {
    /// How.
    pub cancel_mode: CancelMode,
}

/// An external network and the connection points on it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtVirtualLinkData {
    /// The caller's name of it.
    pub id: String,
    /// The VIM that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vim_connection_id: Option<String>,
    /// Who provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_provider_id: Option<String>,
    /// The network in the VIM: in a lab, a site's name.
    pub resource_id: String,
    /// The connection points on it.
    #[serde(default)]
    pub ext_cps: Vec<VnfExtCpData>,
    /// Ports that exist already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ext_link_ports: Vec<Map<String, Value>>,
}

/// A connection point and its addresses.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VnfExtCpData {
    /// The connection point in the VNFD.
    pub cpd_id: String,
    /// One entry for each instance of it: a list in 2.6.1, a map in 3.3.1.
    #[serde(default)]
    pub cp_config: Value,
}

/// VIM connections: a list with ids in 2.6.1, a map in 3.3.1.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(with = "Value")]
pub struct VimConnections(pub BTreeMap<String, VimConnection>);

impl VimConnections {
    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for VimConnections {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let value = Value::deserialize(deserializer)?;
        let entries: Vec<(String, Value)> = match value {
            Value::Null => Vec::new(),
            Value::Object(map) => map.into_iter().collect(),
            Value::Array(list) => {
                let named = |item: Value| match item {
                    Value::Object(mut map) => match map.remove("id") {
                        Some(Value::String(id)) if !id.is_empty() => Ok((id, Value::Object(map))),
                        _ => Err(D::Error::custom("each entry of the list needs an id, a text")),
                    },
                    _ => Err(D::Error::custom("each entry of the list must be an object")),
                };
                list.into_iter().map(named).collect::<Result<_, _>>()?
            }
            _ => return Err(D::Error::custom("expected a list of objects with ids, or a map of objects")),
        };
        let mut connections = BTreeMap::new();
        for (id, value) in entries {
            let connection: VimConnection =
                serde_json::from_value(value).map_err(|error| D::Error::custom(format!("{id}: {error}")))?;
            if connections.insert(id.clone(), connection).is_some() {
                return Err(D::Error::custom(format!("{id} is there twice")));
            }
        }
        Ok(Self(connections))
    }
}

/// Tells an attribute that is missing from one that is `null`.
#[allow(clippy::option_option, reason = "missing and null are two things in a merge patch")]
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

fn one() -> u32 {
    1
}
