//! Where machines come from and how they are reached.

pub mod hosts;
mod infra;
mod lab;
pub mod provision;
pub mod remote;
pub mod ssh;

pub use infra::{Infra, InfraError, InfraErrorKind, Progress};
pub use lab::{InitError, Lab, LabConfig, SecretSource, Swept, machine_init, process, sweep};
