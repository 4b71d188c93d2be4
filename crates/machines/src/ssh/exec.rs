//! Commands on machines.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig, client::Msg};
use tokio::time::timeout;

use super::{
    Door, Pool, SshError, SshErrorKind,
    connection::{Connection, Slot, dropped},
    quote,
};

/// How much of the input is handed over at once.
const PIECE: usize = 256 * 1024;
/// The last line of every script that we send. Where it is missing, the connection broke in the middle.
const WHOLE: &str = "# guywire: whole";
/// What a shell runs to take a script from its input: all of it first, and half of it never. The
/// script is on no command line, since it may hold secrets.
const READ_SCRIPT: &str = r##"script=$(cat) || exit
case $script in *"# guywire: whole") ;; *) echo "script cut short" >&2; exit 125;; esac
eval "$script" </dev/null"##;

/// A command and its bounds.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    /// What to run. As anybody but root it goes through `sudo -n`.
    pub command: Command,
    /// What it reads; a script reads nothing.
    pub stdin: Bytes,
    /// When it is given up. What it started may still run.
    pub timeout: Duration,
    /// How much of each of its outputs is kept; the rest is read and thrown away.
    pub max_output: usize,
}

/// What to run.
#[derive(Debug, Clone)]
pub enum Command {
    /// A program and its arguments, which everybody on the machine can see: no secrets.
    Argv(Vec<String>),
    /// A POSIX shell script, which nobody else sees.
    Script(String),
}

/// What a command left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its exit code; 128 and the signal's number where it was killed.
    pub code: i32,
    /// The beginning of its output.
    pub stdout: Vec<u8>,
    /// The beginning of its error output.
    pub stderr: Vec<u8>,
    /// Whether there was more of either.
    pub truncated: bool,
}

/// Which output a chunk came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl ExecRequest {
    /// A command with usual bounds: a minute, and a megabyte of output.
    pub fn new(command: Command) -> Self {
        Self { command, stdin: Bytes::new(), timeout: Duration::from_mins(1), max_output: 1 << 20 }
    }

    /// A program and its arguments with usual bounds.
    pub fn argv<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::new(Command::Argv(words.into_iter().map(Into::into).collect()))
    }

    /// A script with usual bounds.
    pub fn script(text: impl Into<String>) -> Self {
        Self::new(Command::Script(text.into()))
    }

    /// The same with this input.
    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Bytes>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// The same with this much time.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same with this much output.
    #[must_use]
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = bytes;
        self
    }
}

impl ExecOutput {
    /// Standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text, without the last newline.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim_end().to_owned()
    }
}

impl Pool {
    /// Runs a command and waits for its end.
    pub async fn exec(&self, door: &Door, request: ExecRequest) -> Result<ExecOutput, SshError> {
        let limit = request.max_output;
        let mut output = ExecOutput { code: 0, stdout: Vec::new(), stderr: Vec::new(), truncated: false };
        output.code = self
            .exec_streaming(door, request, &mut |stream, chunk| {
                let kept = if stream == Stream::Out { &mut output.stdout } else { &mut output.stderr };
                let room = limit.saturating_sub(kept.len()).min(chunk.len());
                kept.extend_from_slice(&chunk[..room]);
                output.truncated |= room < chunk.len();
            })
            .await?;
        Ok(output)
    }

    /// Runs a command, hands every chunk of its output to `sink` as it comes, without bound, and gives
    /// its exit code. `sink` must be quick: the other users of this machine's connection wait for it.
    pub async fn exec_streaming(
        &self,
        door: &Door,
        request: ExecRequest,
        sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<i32, SshError> {
        self.run(door, request, false, sink).await
    }

    /// The same for a command that waits for long, of which others must not have to wait for the end.
    pub(crate) async fn exec_long(
        &self,
        door: &Door,
        request: ExecRequest,
        sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<i32, SshError> {
        self.run(door, request, true, sink).await
    }

    async fn run(
        &self,
        door: &Door,
        request: ExecRequest,
        long: bool,
        sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<i32, SshError> {
        let (line, stdin) = command_line(door, request.command, request.stdin)?;
        let (connection, Slot { channel, permits }) = self.channel(door, long).await?;
        let (reader, writer) = channel.split();
        let mut running = Running { writer: Some(Arc::new(writer)), permits, connection };
        let Ok(ended) = timeout(request.timeout, running.finish(door, reader, line, stdin, sink)).await
        else {
            let message = format!(
                "a command did not end within {:.1} s; look what holds it up there",
                request.timeout.as_secs_f32()
            );
            // Where it is the connection that hangs, the next caller gets a fresh one.
            if !running.answers().await {
                self.discard(door, &running.connection).await;
            }
            return Err(SshError::new(SshErrorKind::Timeout, door, message));
        };
        ended
    }
}

/// A command in flight. Dropped before its end, it closes its channel.
struct Running {
    writer: Option<Arc<ChannelWriteHalf<Msg>>>,
    permits: Vec<tokio::sync::OwnedSemaphorePermit>,
    connection: Arc<Connection>,
}

impl Running {
    async fn finish(
        &mut self,
        door: &Door,
        mut reader: ChannelReadHalf,
        line: String,
        stdin: Bytes,
        sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<i32, SshError> {
        let writer = Arc::clone(self.writer.as_ref().expect("present until the end"));
        let feed = async move {
            // The answer to the request is looked at when it comes: input need not wait for it.
            writer.exec(true, line).await?;
            let mut rest = stdin;
            while !rest.is_empty() {
                writer.data_bytes(rest.split_to(PIECE.min(rest.len()))).await?;
            }
            writer.eof().await
        };
        tokio::pin!(feed);
        let mut handed_over = false;
        let mut code = None;
        loop {
            let message = tokio::select! {
                message = reader.wait() => message,
                // A command may end without reading its input: how it ended is told by the channel.
                _ = &mut feed, if !handed_over => { handed_over = true; continue }
            };
            match message {
                Some(ChannelMsg::Data { data }) => sink(Stream::Out, &data),
                Some(ChannelMsg::ExtendedData { data, ext: 1 }) => sink(Stream::Err, &data),
                Some(ChannelMsg::ExitStatus { exit_status }) => {
                    code = Some(i32::try_from(exit_status).unwrap_or(i32::MAX));
                }
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => code = Some(128 + number(&signal_name)),
                Some(ChannelMsg::Failure) => {
                    let message = format!("it runs no commands for {}; check that user's shell", door.user);
                    return Err(SshError::new(SshErrorKind::Protocol, door, message));
                }
                Some(ChannelMsg::Close) | None => break,
                Some(_) => {}
            }
        }
        let code = code.ok_or_else(|| dropped(door))?;
        self.writer = None;
        Ok(code)
    }

    /// Whether the connection still moves; a little time is enough, since it is otherwise idle.
    async fn answers(&self) -> bool {
        self.connection.ping(Duration::from_secs(2)).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let (permits, connection) = (std::mem::take(&mut self.permits), Arc::clone(&self.connection));
        // Outside a runtime everything has ended anyway.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = writer.close().await {
                    tracing::debug!(%error, "the channel was gone before it was closed");
                }
                drop((permits, connection));
            });
        }
    }
}

/// What the machine's shell is told, and what the command reads.
fn command_line(door: &Door, command: Command, stdin: Bytes) -> Result<(String, Bytes), SshError> {
    let invalid = |message: &str| Err(SshError::new(SshErrorKind::Invalid, door, message));
    let (words, stdin) = match command {
        Command::Argv(words) if words.is_empty() => return invalid("a command without a program"),
        Command::Argv(words) => (words, stdin),
        Command::Script(_) if !stdin.is_empty() => {
            return invalid("a script has no input of its own; put it into a file first");
        }
        Command::Script(text) => {
            let words = ["/bin/sh", "-c", READ_SCRIPT].map(str::to_owned).to_vec();
            (words, Bytes::from(format!("{text}\n{WHOLE}\n")))
        }
    };
    if words.iter().any(|word| word.contains('\0')) {
        return invalid("an argument holds a NUL byte, which no command can be given");
    }
    let sudo = if door.unprivileged() { &["sudo", "-n", "--"][..] } else { &[] };
    let all = sudo.iter().copied().chain(words.iter().map(String::as_str));
    Ok((quote(all), stdin))
}

fn number(signal: &Sig) -> i32 {
    match signal {
        Sig::HUP => 1,
        Sig::INT => 2,
        Sig::QUIT => 3,
        Sig::ILL => 4,
        Sig::ABRT => 6,
        Sig::FPE => 8,
        Sig::KILL => 9,
        Sig::USR1 => 10,
        Sig::SEGV => 11,
        Sig::PIPE => 13,
        Sig::ALRM => 14,
        // The usual one, and the best guess for those that SSH has no name for.
        Sig::TERM | Sig::Custom(_) => 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::{Auth, HostKey};

    #[test]
    fn others_than_root_go_through_sudo_and_scripts_stay_off_the_command_line() {
        let door = |user: &str| Door {
            machine: "m1".into(),
            host: "fd00::1".into(),
            port: 22,
            user: user.into(),
            auth: Auth::KeyFile("k".into()),
            host_key: HostKey::PinOnFirstUse,
        };
        let line =
            |user: &str, request: ExecRequest| command_line(&door(user), request.command, request.stdin);
        assert_eq!(line("root", ExecRequest::argv(["echo", "a b"])).unwrap().0, "echo 'a b'");
        assert_eq!(line("ops", ExecRequest::argv(["echo", "a b"])).unwrap().0, "sudo -n -- echo 'a b'");
        let (shown, stdin) = line("ops", ExecRequest::script("echo secret")).unwrap();
        assert!(shown.starts_with("sudo -n -- /bin/sh -c ") && !shown.contains("secret"), "{shown}");
        assert_eq!(stdin, "echo secret\n# guywire: whole\n");
        let error = line("root", ExecRequest::script("cat").stdin("x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "m1 ([fd00::1]:22): a script has no input of its own; put it into a file first"
        );
        assert!(line("root", ExecRequest::argv(["a\0b"])).is_err());
    }
}
