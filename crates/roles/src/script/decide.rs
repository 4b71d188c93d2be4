//! Asking a script: in its sandbox, within its limits.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Decision, ScriptInput};

/// A script to ask, and what.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The directory of the extracted package. Its files must be readable for everybody (0644, and 0755
    /// for directories), though the way to it need not be: in the sandbox another user reads them.
    pub package: PathBuf,
    /// The script's path in it, such as `Scripts/hello.py`.
    pub file: String,
    /// What it is asked.
    pub input: ScriptInput,
    /// What it may use.
    pub limits: ScriptLimits,
}

/// What a script may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptLimits {
    /// How long it may take.
    pub time: Duration,
    /// The memory of each of its processes, in bytes.
    pub memory: u64,
    /// How many processes and threads it may have.
    pub processes: u64,
    /// The largest answer, in bytes.
    pub answer: usize,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), memory: 512 << 20, processes: 32, answer: 4 << 20 }
    }
}

/// Why a script gave no answer that could be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// It cannot be run at all.
    #[error("script {script}: {what}")]
    Unusable {
        /// The script.
        script: String,
        /// What is wrong, and what is possible.
        what: String,
    },
    /// This host gives no sandbox to run it in.
    #[error("script {script} was not run: {what}")]
    Sandbox {
        /// The script.
        script: String,
        /// What is missing, and what to do.
        what: String,
    },
    /// It ran and said that it failed, or was killed.
    #[error("script {script} {how}; correct the request or the package{}", words(.stderr))]
    Failed {
        /// The script.
        script: String,
        /// How it ended: `ended with exit code 1`.
        how: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// It did not end in time.
    #[error("script {script} did not end within {seconds} s and was killed; it only decides, and leaves waiting to its steps{}", words(.stderr))]
    TooLong {
        /// The script.
        script: String,
        /// The time that it had.
        seconds: u64,
        /// The end of its standard error.
        stderr: String,
    },
    /// Its answer cannot be used.
    #[error("script {script}: {what}{}", words(.stderr))]
    Answer {
        /// The script.
        script: String,
        /// What is wrong, with its place.
        what: String,
        /// The end of its standard error.
        stderr: String,
    },
}

impl ScriptError {
    /// Whether asking again can help without a change of the package or the request.
    pub fn retry(&self) -> bool {
        matches!(self, Self::Sandbox { .. })
    }
}

/// Runs the script in a sandbox and reads what it decided. `starter` is our own program, which is
/// started again as `STARTER sandbox SPEC` and becomes the sandbox.
pub async fn decide(invocation: &Invocation, starter: &Path) -> Result<Decision, ScriptError> {
    let _ = (invocation, starter);
    todo!()
}

fn words(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(". It said: {stderr}") }
}
