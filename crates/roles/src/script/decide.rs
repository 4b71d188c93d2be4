//! Asking a script: in its sandbox, within its limits.

use std::{
    io::{self, Read as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStderr, ChildStdout, Command},
    sync::Semaphore,
};

use super::{Decision, ScriptInput, answer, payload};
use crate::sandbox::{MARK, Outcome, PACKAGE, Spec};

/// How many scripts decide at once, so that their memory together has a bound too; others wait.
static AT_ONCE: Semaphore = Semaphore::const_new(4);
/// How much longer than its script a sandbox may take.
const GRACE: Duration = Duration::from_secs(10);
/// How much of the end of a script's words is kept.
const TAIL: usize = 64 * 1024;
/// How much of it an error shows.
const SHOWN: usize = 2_000;
/// Where python3 may be.
const PYTHONS: [&str; 3] = ["/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3"];

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
    let Invocation { package, file, input, limits } = invocation;
    let script = || file.clone();
    let command =
        interpreter(package, file).map_err(|what| ScriptError::Unusable { script: script(), what })?;
    let spec = Spec {
        package: package.clone(),
        command,
        time_ms: u64::try_from(limits.time.as_millis()).unwrap_or(u64::MAX),
        memory: limits.memory,
        processes: limits.processes,
    };
    let no_sandbox = |what: String| ScriptError::Sandbox { script: script(), what };
    let turn = AT_ONCE.acquire().await.expect("never closed");
    let ran = run(&spec, starter, &input.to_bytes(), limits).await.map_err(no_sandbox)?;
    drop(turn);
    let Ran { stdout, stderr, outcome } = ran;
    let failed = |how: String| Err(ScriptError::Failed { script: script(), how, stderr: stderr.clone() });
    match outcome {
        None => {
            let what = format!("its answer has more than the {} bytes that are read", limits.answer);
            return Err(ScriptError::Answer { script: script(), what, stderr });
        }
        Some(Outcome::Ended(0)) => {}
        Some(Outcome::Ended(code)) => return failed(format!("ended with exit code {code}")),
        Some(Outcome::Killed(signal)) => {
            // SIGXCPU and SIGKILL are how the kernel ends what is beyond its limits.
            let why = if signal == 24 || signal == 9 {
                ", as happens to one that uses more than it may"
            } else {
                ""
            };
            return failed(format!("was killed by signal {signal}{why}"));
        }
        Some(Outcome::Large) => {
            return failed(format!("used more than {} MiB of memory and was killed", limits.memory >> 20));
        }
        Some(Outcome::Late) => {
            return Err(ScriptError::TooLong { script: script(), seconds: limits.time.as_secs(), stderr });
        }
        Some(Outcome::Cannot(what)) => return Err(no_sandbox(what)),
    }
    let refused = |what: String| ScriptError::Answer { script: script(), what, stderr: stderr.clone() };
    let mut decision = answer::read(&stdout, input).map_err(refused)?;
    // Files may be large and on a slow disk; others must not have to wait for that.
    let package = package.clone();
    let sealed =
        tokio::task::spawn_blocking(move || payload::seal(&package, &mut decision.steps).map(|()| decision));
    sealed.await.map_err(|error| no_sandbox(format!("reading the package: {error}")))?.map_err(refused)
}

/// What came out of a sandbox.
struct Ran {
    stdout: Vec<u8>,
    /// The end of the script's own words.
    stderr: String,
    /// Nothing if it was killed for too long an answer.
    outcome: Option<Outcome>,
}

async fn run(spec: &Spec, starter: &Path, input: &[u8], limits: &ScriptLimits) -> Result<Ran, String> {
    let text = serde_json::to_string(spec).expect("plain data that JSON can hold");
    let mut child = Command::new(starter)
        .arg("sandbox")
        .arg(text)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{} does not start: {error}", starter.display()))?;
    let mut stdin = child.stdin.take().expect("it was asked for");
    let stdout = child.stdout.take().expect("it was asked for");
    let mut stderr = child.stderr.take().expect("it was asked for");
    let feed = async move {
        // A script may decide without reading all of its input; how it ended is told by its end.
        match stdin.write_all(input).await {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    };
    let talk = async { tokio::try_join!(feed, read_answer(stdout, limits.answer), read_tail(&mut stderr)) };
    // The sandbox keeps the time itself; this is for one that hangs.
    let talked = tokio::time::timeout(limits.time + GRACE, talk).await;
    let talked =
        talked.map_err(|_| "the sandbox did not end in time; is this host overloaded?".to_owned())?;
    let ((), stdout, tail) = match talked {
        Ok(all) => all,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            child.kill().await.map_err(|error| format!("the sandbox cannot be killed: {error}"))?;
            // With the sandbox dead, what it had said can be read to its end.
            let tail = read_tail(&mut stderr).await.map_err(|error| error.to_string())?;
            return Ok(Ran { stdout: Vec::new(), stderr: shown(&tail), outcome: None });
        }
        Err(error) => return Err(format!("the sandbox cannot be heard: {error}")),
    };
    let status = child.wait().await.map_err(|error| format!("the sandbox cannot be waited for: {error}"))?;
    let (words, last) = last_line(&tail);
    let told = last.strip_prefix(MARK).filter(|_| status.success());
    let Some(outcome) = told.and_then(|line| serde_json::from_str(line).ok()) else {
        return Err(format!("the sandbox ended without a word ({status}): {}", shown(&tail)));
    };
    Ok(Ran { stdout, stderr: shown(words), outcome: Some(outcome) })
}

/// How the script is started inside the sandbox.
fn interpreter(package: &Path, file: &str) -> Result<Vec<String>, String> {
    let mut head = [0; 2];
    let about = payload::open(package, file).and_then(|mut opened| {
        let about = opened.metadata().map_err(|error| error.to_string())?;
        let count = opened.read(&mut head).map_err(|error| error.to_string())?;
        Ok((about, count))
    });
    let (about, count) = about?;
    if rustix::process::geteuid().is_root() {
        check_readable(package, file)?;
    }
    let mode = about.permissions().mode();
    let inside = format!("{PACKAGE}/{file}");
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    match extension {
        Some("py") => {
            let found = PYTHONS.iter().find(|path| Path::new(path).exists());
            let python = found.ok_or("it needs python3, which this host does not have; install python3")?;
            Ok(vec![(*python).to_owned(), inside])
        }
        Some("sh") => Ok(vec!["/bin/sh".to_owned(), inside]),
        _ if count == 2 && &head == b"#!" && mode & 0o111 != 0 => Ok(vec![inside]),
        _ => Err("it is of no kind that can be run; name it .py for python3 or .sh for /bin/sh, or make it executable and begin it with #!".to_owned()),
    }
}

/// Whether somebody else than the owner can read the script and enter the directories on the way.
fn check_readable(package: &Path, file: &str) -> Result<(), String> {
    let way = Path::new(file).ancestors().map(|part| package.join(part));
    for path in way {
        let about =
            path.metadata().map_err(|error| format!("{} cannot be looked at: {error}", path.display()))?;
        let (needed, wanted) = if about.is_dir() { (0o005, "0755") } else { (0o004, "0644") };
        let mode = about.permissions().mode() & 0o7777;
        if mode & needed != needed {
            let name = path.strip_prefix(package).unwrap_or(&path).display().to_string();
            let name = if name.is_empty() { "the package's directory" } else { &name };
            return Err(format!(
                "{name} has mode {mode:04o}, and in the sandbox another user reads it; packages are extracted with {wanted} (is the umask 0022?)"
            ));
        }
    }
    Ok(())
}

/// Reads to the end; more than `most` bytes is an error of kind `FileTooLarge`.
async fn read_answer(from: ChildStdout, most: usize) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut answer).await?;
    if answer.len() > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(answer) }
}

/// Reads to the end and keeps the last of it.
async fn read_tail(from: &mut ChildStderr) -> io::Result<Vec<u8>> {
    let mut tail = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        match from.read(&mut buffer).await? {
            0 => break,
            count => tail.extend_from_slice(&buffer[..count]),
        }
        // In large steps, so that a stream of small chunks is not moved about all the time.
        if tail.len() > 2 * TAIL {
            tail.drain(..tail.len() - TAIL);
        }
    }
    let from = tail.len().saturating_sub(TAIL);
    Ok(tail.split_off(from))
}

/// What stands before the last line, and that line.
fn last_line(text: &[u8]) -> (&[u8], &str) {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let at = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (before, last) = text.split_at(at);
    (before, std::str::from_utf8(last).unwrap_or_default())
}

fn shown(words: &[u8]) -> String {
    String::from_utf8_lossy(words).trim().to_owned()
}

/// The end of a script's words, for an error: all of them would drown it.
fn words(stderr: &str) -> String {
    if stderr.is_empty() {
        return String::new();
    }
    let from = stderr.len().saturating_sub(SHOWN);
    let from = (from..stderr.len()).find(|at| stderr.is_char_boundary(*at)).unwrap_or_default();
    format!(". It said: {}{}", if from > 0 { "…" } else { "" }, &stderr[from..])
}
