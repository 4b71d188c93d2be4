//! A process that can read its package and the system's programs, and do nothing else.

use std::{convert::Infallible, ffi::OsStr};

/// Where the package is in the sandbox.
pub const PACKAGE: &str = "/package";

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SandboxError(String);

/// Becomes the sandbox that `spec` describes; run by [`decide`](crate::script::decide) as
/// `STARTER sandbox SPEC`.
///
/// The process must have a single thread. It never returns in success: it exits when the script has ended.
pub fn sandbox(spec: &OsStr) -> Result<Infallible, SandboxError> {
    Err(SandboxError(format!("{spec:?}")))
}
