//! Who may ask, and for what.

use serde::{Deserialize, Serialize};

/// What somebody may do. Each role may do what those before it may.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look.
    Reader,
    /// Change VNFs, packages and subscriptions.
    Operator,
    /// Change VIMs and who may do what.
    Admin,
}

/// Somebody who has proved who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The credential's name.
    pub name: String,
    /// What it may do.
    pub role: Role,
}
