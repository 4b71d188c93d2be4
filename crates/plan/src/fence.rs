//! The number that tells an executor's commands from those of its successor.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Grows each time that a lease is taken, across all plans of one journal. Whoever acts on the world
/// shows its fence, and whatever was shown a higher one refuses the lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
