//! Units on machines, from our side.

use std::time::Duration;

use guywire_plan::Fence;
use guywire_secrets::Masker;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{RemoteError, UnitState, follow::Follow, report::Report};
use crate::ssh::{Door, ExecRequest, FileMode, Pool, SshError, SshErrorKind, Stream};

const WRAPPER: &str = include_str!("unit.sh");
/// Runs the wrapper, or says that it is not there, in one round trip.
const LAUNCH: &str = r#"[ -r "$0" ] || exit 97; exec /bin/sh "$0" "$@""#;
/// The wrapper follows for 20 s at a time and waits for its lock for up to 60 s.
const CALL: Duration = Duration::from_mins(2);
/// How long a machine may be out of reach in one go before we give up: a server's reboot is slow.
const AWAY: Duration = Duration::from_mins(10);
/// How long a unit that is to be stopped may be out of reach before that is reported.
const STOP: Duration = Duration::from_secs(30);

/// Runs commands once. Cheap to clone.
#[derive(Clone)]
pub struct Units {
    pool: Pool,
    masker: Masker,
}

/// A command to run once for its key and attempt.
#[derive(Debug, Clone)]
pub struct UnitRequest {
    /// What the command is for, unique on its machine: the same key is the same work.
    pub key: String,
    /// Who asks.
    pub fence: Fence,
    /// Which try it is, from 1. A later one starts only when no earlier one runs.
    pub attempt: u32,
    /// A POSIX shell script, run as root. What it leaves in the background ends with it.
    pub script: String,
    /// How long it may take; the machine itself stops it then.
    pub timeout: Duration,
    /// How much of its output is kept: the beginning, and of its end a quarter of this.
    pub limit: u64,
}

/// How a unit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitExit {
    /// Its exit code.
    pub code: i32,
    /// The end of its output, without secrets.
    pub output_tail: String,
    /// Whether this call started it.
    pub how: How,
}

/// Whether a call started its unit, as far as it could tell: where the connection broke before the
/// machine said so, it counts as re-attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It did.
    Ran,
    /// The unit was there already, running or ended.
    Reattached,
}

impl Units {
    /// Units through `pool`, whose output loses what `masker` knows.
    pub fn new(pool: Pool, masker: Masker) -> Self {
        Self { pool, masker }
    }

    /// Runs the unit, or re-attaches to it, and waits for its end. `sink` gets all of its output from
    /// the beginning on, masked, each byte once however often the connection drops.
    ///
    /// Dropping the future leaves the unit running. `cancel` stops it and waits until it is dead.
    pub async fn run(
        &self,
        door: &Door,
        request: &UnitRequest,
        cancel: &CancellationToken,
        sink: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<UnitExit, RemoteError> {
        check(door, request)?;
        let mut call = Call {
            units: self,
            door,
            request,
            id: id(&request.key),
            follow: Follow::new(&self.masker, sink),
            how: None,
        };
        let ended = tokio::select! {
            // Cancelled before it began is cancelled too.
            biased;
            () = cancel.cancelled() => None,
            ended = call.until_it_ends() => Some(ended),
        };
        let Some(ended) = ended else {
            self.stop(door, &request.key, request.fence, request.attempt).await?;
            call.follow.finish();
            return Err(RemoteError::Cancelled { machine: door.machine.clone(), key: request.key.clone() });
        };
        ended
    }

    /// What became of the key's last attempt, and the newest fence that was seen.
    pub async fn status(&self, door: &Door, key: &str) -> Result<(Fence, UnitState), RemoteError> {
        match self.call(door, &["status", &id(key)]).await? {
            Report::Status(fence, state) => Ok((fence, state)),
            other => Err(unexpected(door, key, &other)),
        }
    }

    /// Stops whatever runs for the key and returns when it is dead. An `attempt` whose start is still on
    /// its way finds that it is over.
    pub async fn stop(&self, door: &Door, key: &str, fence: Fence, attempt: u32) -> Result<(), RemoteError> {
        let words = ["stop", &id(key), &fence.to_string(), &attempt.to_string()];
        let deadline = Instant::now() + STOP;
        loop {
            match self.call(door, &words).await {
                Err(RemoteError::Ssh(error)) if error.retry() && Instant::now() < deadline => {
                    // Stopping twice does no harm.
                    sleep(Duration::from_millis(500)).await;
                }
                result => return Self::done(door, key, fence, result?),
            }
        }
    }

    /// Makes the machine refuse older fences for this key from now on.
    pub async fn fence(&self, door: &Door, key: &str, fence: Fence) -> Result<(), RemoteError> {
        let report = self.call(door, &["fence", &id(key), &fence.to_string()]).await?;
        Self::done(door, key, fence, report)
    }

    /// Removes all traces of a key that nobody will ask for again, its fence included.
    pub async fn forget(&self, door: &Door, key: &str, fence: Fence) -> Result<(), RemoteError> {
        let report = self.call(door, &["forget", &id(key), &fence.to_string()]).await?;
        Self::done(door, key, fence, report)
    }

    fn done(door: &Door, key: &str, fence: Fence, report: Report) -> Result<(), RemoteError> {
        match report {
            Report::Done => Ok(()),
            Report::Fenced(seen) => Err(fenced(door, seen, fence)),
            other => Err(unexpected(door, key, &other)),
        }
    }

    async fn call(&self, door: &Door, words: &[&str]) -> Result<Report, RemoteError> {
        loop {
            let output = self.pool.exec(door, launch(words).timeout(CALL)).await?;
            match Report::read(output.code, &output.stderr_text()) {
                Report::NoWrapper => self.install(door).await?,
                report => return Ok(report),
            }
        }
    }

    async fn install(&self, door: &Door) -> Result<(), SshError> {
        self.pool.push_file(door, &wrapper_path(), WRAPPER, &FileMode::root(0o755)).await
    }
}

/// One use of [`Units::run`].
struct Call<'a> {
    units: &'a Units,
    door: &'a Door,
    request: &'a UnitRequest,
    id: String,
    follow: Follow<'a>,
    /// Known once the machine has told us of the attempt.
    how: Option<How>,
}

impl Call<'_> {
    async fn until_it_ends(&mut self) -> Result<UnitExit, RemoteError> {
        let mut away_since = None;
        let mut reached = None;
        let mut pause = Duration::from_millis(100);
        loop {
            let report = match self.once().await {
                Ok(report) => report,
                Err(error) if error.retry() => {
                    let since = *away_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > AWAY {
                        return Err(error.into());
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let stands_still = reached == Some(self.follow.offset());
            reached = Some(self.follow.offset());
            away_since = None;
            pause = Duration::from_millis(100);
            match report {
                Report::Running | Report::NoWrapper => {}
                // The machine forgot it: its disk was put back, or somebody tidied up.
                Report::Unknown => return Err(self.lost("is not known there any more")),
                Report::Lost => return Err(self.lost("was cut off by a reboot or killed")),
                Report::Fenced(seen) => return Err(fenced(self.door, seen, self.request.fence)),
                Report::Exit { size, .. } if size > self.follow.offset() && stands_still => {
                    let what = format!("the output of unit {} cannot be read to its end", self.request.key);
                    return Err(RemoteError::Machine { machine: self.door.machine.clone(), what });
                }
                // More output came while the end was told.
                Report::Exit { size, .. } if size > self.follow.offset() => {}
                Report::Exit { code, stopped, seconds, .. } => return self.ended(code, stopped, seconds),
                other => return Err(unexpected(self.door, &self.request.key, &other)),
            }
        }
    }

    /// One call of the wrapper: starts until the machine has said that it did, then follows.
    async fn once(&mut self) -> Result<Report, SshError> {
        let UnitRequest { key, fence, attempt, script, timeout, limit } = self.request;
        let (attempt, offset) = (attempt.to_string(), self.follow.offset().to_string());
        let request = if self.how.is_some() {
            launch(&["follow", &self.id, &attempt, &offset])
        } else {
            let fence = fence.to_string();
            let (limit, seconds, size) =
                (limit.to_string(), timeout.as_secs().max(1).to_string(), script.len().to_string());
            launch(&["start", &self.id, &fence, &attempt, &limit, &seconds, &size, &offset, key])
                .stdin(script.clone())
        };
        let mut stderr = Vec::new();
        let follow = &mut self.follow;
        let code = self
            .units
            .pool
            .exec_long(self.door, request.timeout(CALL), &mut |stream, chunk| match stream {
                Stream::Out => follow.take(chunk),
                Stream::Err => stderr.extend_from_slice(&chunk[..chunk.len().min(64 * 1024)]),
            })
            .await;
        let stderr = String::from_utf8_lossy(&stderr);
        self.how = self.how.or_else(|| Report::how(&stderr));
        let report = Report::read(code?, &stderr);
        if report == Report::NoWrapper {
            self.units.install(self.door).await?;
        }
        Ok(report)
    }

    fn ended(&mut self, code: i32, stopped: bool, seconds: u64) -> Result<UnitExit, RemoteError> {
        let output_tail = self.follow.finish();
        if !stopped {
            return Ok(UnitExit { code, output_tail, how: self.how.unwrap_or(How::Reattached) });
        }
        let (machine, key) = (self.door.machine.clone(), self.request.key.clone());
        if seconds >= self.request.timeout.as_secs().max(1) {
            return Err(RemoteError::TimedOut { machine, key, seconds });
        }
        Err(self.lost("was stopped by somebody else or by a shutdown"))
    }

    fn lost(&mut self, what: &str) -> RemoteError {
        self.follow.finish();
        RemoteError::Lost {
            machine: self.door.machine.clone(),
            key: self.request.key.clone(),
            attempt: self.request.attempt,
            what: what.to_owned(),
        }
    }
}

/// A key may hold anything; its hash is a good name for a unit and a directory.
fn id(key: &str) -> String {
    hex(&Sha256::digest(key)[..16])
}

fn wrapper_path() -> String {
    format!("/usr/local/lib/guywire/unit-{}", hex(&Sha256::digest(WRAPPER)[..8]))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

fn launch(words: &[&str]) -> ExecRequest {
    let path = wrapper_path();
    ExecRequest::argv(["/bin/sh", "-c", LAUNCH, &path].iter().chain(words).copied())
}

fn check(door: &Door, request: &UnitRequest) -> Result<(), RemoteError> {
    let problem = if request.attempt == 0 {
        "attempts are counted from 1"
    } else if i64::try_from(request.fence.0).is_err() {
        "the fence is beyond what a shell counts to"
    } else if request.key.contains(['\n', '\0']) {
        "a unit's key is one line of text"
    } else if request.script.contains('\0') {
        "a script with a NUL byte is none"
    } else {
        return Ok(());
    };
    Err(SshError::new(SshErrorKind::Invalid, door, problem).into())
}

fn fenced(door: &Door, seen: Fence, ours: Fence) -> RemoteError {
    RemoteError::Fenced { machine: door.machine.clone(), seen, ours }
}

fn unexpected(door: &Door, key: &str, report: &Report) -> RemoteError {
    let machine = door.machine.clone();
    match report {
        Report::Busy(other) => RemoteError::Busy { machine, key: key.to_owned(), other: *other },
        Report::Trouble(what) => RemoteError::Machine { machine, what: what.clone() },
        other => {
            RemoteError::Machine { machine, what: format!("the unit wrapper answered {other:?} out of turn") }
        }
    }
}
