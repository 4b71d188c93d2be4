//! Programs of the host that do part of the work: `ip`, `nft`, `mmdebstrap`.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use super::error::{Result, unavailable, unsupported, while_doing};

/// Runs a program with `input` on its standard input and answers what it printed.
pub(super) fn run(package: &str, command: &mut Command, input: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.env("LC_ALL", "C").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| missing(&name, package, error))?;
    let mut stdin = child.stdin.take().expect("it was asked for");
    match stdin.write_all(input.as_bytes()) {
        // It ended early; what it printed says why.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other.map_err(while_doing(format_args!("writing to {name}")))?,
    }
    drop(stdin);
    let output = child.wait_with_output().map_err(while_doing(format_args!("waiting for {name}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(4).collect();
    Err(unavailable(format!("{name} failed ({}): {}", output.status, said.join("; "))))
}

/// The error of a program that could not be started.
pub(super) fn missing(name: &str, package: &str, error: io::Error) -> crate::InfraError {
    if error.kind() == io::ErrorKind::NotFound {
        return unsupported(format!(
            "the lab needs the program {name}, which is not there; install the Debian package {package}"
        ));
    }
    while_doing(format_args!("starting {name}"))(error)
}
