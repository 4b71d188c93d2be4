//! What a script reads: one JSON object on its standard input.

use guywire_model::{AddressPair, MachineName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the protocol between scripts and us.
pub const PROTOCOL: u32 = 1;

/// What a script is asked: the operation, the request, and the machines as they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ScriptInput {
    /// The operation, such as `INSTANTIATE`.
    pub operation: String,
    /// The point in it, such as `instantiate_end`.
    pub point: String,
    /// Which VNF instance it is about.
    pub vnf: ScriptVnf,
    /// The request's attributes. Secrets in it are references, `secret:NAME`; these are the ones that
    /// the script's steps may use.
    pub request: Map<String, Value>,
    /// The machines of the instance.
    pub machines: Vec<ScriptMachine>,
    /// What earlier points of the operation left for this one.
    #[serde(default)]
    pub outputs: Map<String, Value>,
}

/// The VNF instance that a script is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ScriptVnf {
    /// Its id.
    pub id: String,
    /// The name that a person gave it.
    pub name: String,
    /// The descriptor that it was made from.
    pub vnfd_id: String,
    /// Its flavour.
    pub flavour_id: String,
}

/// One machine as a script sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptMachine {
    /// Its name, which steps refer to.
    pub name: MachineName,
    /// The VDU that it is one of.
    pub vdu: String,
    /// The VNFC instance that it is, such as `hello-0`.
    pub vnfc: String,
    /// What this operation does with it.
    pub change: Change,
    /// Its addresses; none if it is not there (any more), and then it can have no steps.
    pub addresses: Option<AddressPair>,
}

/// What an operation does with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It is new.
    Added,
    /// It stays as it is.
    Kept,
    /// It goes: at the operation's start it may be there still.
    Removed,
    /// It is made anew under the same name.
    Replaced,
}

/// The object as it is written: with what is the same for all scripts.
#[derive(Serialize)]
struct Wire<'a> {
    protocol: u32,
    #[serde(flatten)]
    input: &'a ScriptInput,
    /// Where the script finds its package.
    package: &'static str,
}

impl ScriptInput {
    /// The bytes that the script reads.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let wire = Wire { protocol: PROTOCOL, input: self, package: crate::sandbox::PACKAGE };
        serde_json::to_vec(&wire).expect("plain data that JSON can hold")
    }
}
