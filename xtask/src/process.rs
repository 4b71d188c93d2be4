//! Running other programs, so that an interrupt or a timeout never leaves one of them behind.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

use crate::interrupt;

/// How often a waiting command looks for an interrupt.
const LOOK: Duration = Duration::from_millis(20);
/// How long a program may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);

/// How long a command may take of which nobody knows how long it should.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Runs a command that talks to the terminal itself; it must succeed.
pub fn shown(command: &mut Command) -> Result<()> {
    let mut child = spawn(command)?;
    let status = wait(&mut child)?;
    must(command, status, "")
}

/// Runs a command quietly and returns what it printed; it must succeed. What it said is in the error.
pub fn quiet(command: &mut Command) -> Result<String> {
    let mut said = String::new();
    let status = followed(command, PATIENCE, &mut |line| {
        said.push_str(line);
        said.push('\n');
    })?;
    must(command, status, &said)?;
    Ok(said)
}

/// What a command printed on its standard output; it must succeed.
pub fn answer(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("starting {}", show(command)))?;
    must(command, output.status, &String::from_utf8_lossy(&output.stderr))?;
    String::from_utf8(output.stdout).with_context(|| format!("what {} printed", show(command)))
}

/// Runs a command and hands on every line that it prints, in the order in which it prints them.
/// One that takes longer than `patience` is ended.
pub fn followed(command: &mut Command, patience: Duration, line: &mut dyn FnMut(&str)) -> Result<ExitStatus> {
    let begin = Instant::now();
    let (read, write) = std::io::pipe().context("making a pipe")?;
    command.stdout(write.try_clone().context("sharing a pipe")?).stderr(write);
    let mut child = spawn(command)?;
    // Our own copies of the pipe's end would keep it open for ever.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for bytes in BufReader::new(read).split(b'\n') {
            let Ok(bytes) = bytes else { return };
            if send.send(String::from_utf8_lossy(&bytes).into_owned()).is_err() {
                return;
            }
        }
    });
    let mut ended = None;
    loop {
        match receive.recv_timeout(LOOK) {
            Ok(text) => line(&text),
            Err(RecvTimeoutError::Disconnected) => break,
            // A program that was left running may hold the pipe: its parent's end is the end.
            Err(RecvTimeoutError::Timeout) if ended.is_some() => break,
            Err(RecvTimeoutError::Timeout) => ended = child.try_wait()?,
        }
        if interrupt::pending() {
            end(&mut child)?;
            bail!("interrupted");
        }
        if begin.elapsed() > patience {
            end(&mut child)?;
            bail!("it did not end within {} s and was ended", patience.as_secs());
        }
    }
    wait(&mut child)
}

/// Starts a program in a process group of its own, which an interrupt of ours reaches as a whole.
pub fn spawn(command: &mut Command) -> Result<Child> {
    if interrupt::pending() {
        bail!("interrupted");
    }
    command.stdin(Stdio::null()).process_group(0);
    command.spawn().with_context(|| format!("starting {}", show(command)))
}

/// Waits for a program; an interrupt ends it.
pub fn wait(child: &mut Child) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("waiting for a program")? {
            return Ok(status);
        }
        if interrupt::pending() {
            end(child)?;
            bail!("interrupted");
        }
        std::thread::sleep(LOOK);
    }
}

/// Ends a program and its process group: first it is asked to, then it is made to.
pub fn end(child: &mut Child) -> Result<()> {
    let group = pid(child.id())?;
    for signal in [Signal::TERM, Signal::KILL] {
        if let Err(error) = rustix::process::kill_process_group(group, signal)
            && error != rustix::io::Errno::SRCH
        {
            return Err(error).context("ending a program");
        }
        let begin = Instant::now();
        while begin.elapsed() < GRACE {
            if child.try_wait().context("waiting for a program")?.is_some() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }
    bail!("process {} does not end", child.id())
}

/// A process id as the kernel's calls take it.
pub fn pid(number: u32) -> Result<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw).with_context(|| format!("{number} is no process id"))
}

/// Cargo, without what the outer cargo told this program about itself: build scripts that look at it
/// would believe that it changed, and run again.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    let told =
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_", "LD_LIBRARY_"];
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| told.iter().any(|told| name.starts_with(told))) {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(crate::places::root());
    cargo
}

/// A command as one would type it.
pub fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    if let Some((_, name)) = words[0].rsplit_once('/')
        && name == "cargo"
    {
        words[0] = String::from(name);
    }
    words.join(" ")
}

fn must(command: &Command, status: ExitStatus, said: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(30)..].join("\n");
    bail!("{} failed ({status}){}{last}", show(command), if last.is_empty() { "" } else { ":\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_come_as_lines_in_order() {
        assert_eq!(quiet(&mut shell("echo one; echo two >&2; printf three")).unwrap(), "one\ntwo\nthree\n");
    }

    #[test]
    fn a_failure_says_what_was_run_and_what_it_said() {
        let error = quiet(&mut shell("echo because; exit 3")).unwrap_err().to_string();
        assert!(error.starts_with("sh -c echo because; exit 3 failed (exit status: 3):\nbecause"), "{error}");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let ended = followed(&mut shell("sleep 60"), Duration::from_millis(100), &mut |_| ());
        assert!(ended.unwrap_err().to_string().contains("did not end within"));
    }

    #[test]
    fn a_program_left_running_does_not_hold_us_up() {
        let begin = Instant::now();
        quiet(&mut shell("sleep 5 & echo started")).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(4));
    }
}
