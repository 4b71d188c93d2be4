//! Where machines come from and how they are reached.

pub mod hosts;
mod infra;
pub mod remote;
pub mod ssh;

pub use infra::{Infra, InfraError, InfraErrorKind, Progress};
