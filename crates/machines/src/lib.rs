//! Where machines come from and how they are reached.

mod infra;

pub use infra::{Infra, InfraError, InfraErrorKind, Progress};
