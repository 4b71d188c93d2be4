//! What machines become: pure planners beside their task handlers.
//!
//! [`script`] is the role that a package brings along itself: its script decides, in a [`sandbox`], on
//! steps, and the steps become tasks of a plan.

pub mod sandbox;
pub mod script;
