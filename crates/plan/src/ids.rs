//! Identifiers of this crate, each a type of its own.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A plan of one journal: small numbers, since people type them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanId(pub i64);

/// A task's position in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskIndex(pub u32);

/// A scope's position in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeIndex(pub u32);

/// How far a reader of the event stream has come: the number of the last event it has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub i64);

/// One executing process; never used twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExecutorId(pub String);

impl TaskIndex {
    /// As an index into a slice.
    pub fn at(self) -> usize {
        self.0 as usize
    }

    /// From an index into a slice.
    pub fn from_at(at: usize) -> Self {
        Self(u32::try_from(at).expect("a plan is bounded far below 2^32 tasks"))
    }
}

impl ScopeIndex {
    /// As an index into a slice.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

impl ExecutorId {
    /// A new one.
    pub fn new() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

impl Default for ExecutorId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PlanId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl fmt::Display for ExecutorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
