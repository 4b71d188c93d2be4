//! Commands that run once, whatever happens to us, to the connection or to the machine.
//!
//! A small wrapper on the machine (`unit.sh`) takes a lock for the command's key, refuses a fence older
//! than one that it has seen, runs the command as a systemd unit and leaves its exit code and bounded
//! output in a directory under the key. So asking again re-attaches, and never runs anything twice.

mod error;
mod follow;
mod report;
mod units;

pub use error::RemoteError;
pub use report::UnitState;
pub use units::{How, UnitExit, UnitRequest, Units};
