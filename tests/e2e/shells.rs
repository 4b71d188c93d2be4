//! What the command line says about itself.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::{harness::Guywire, host::shell};

#[test]
fn completion_scripts_are_ones_that_their_shells_take() {
    let guywire = Guywire::new();
    for name in ["bash", "zsh", "fish"] {
        let script = guywire.ok(&["completion", name]).stdout;
        assert!(script.contains("guywire") && script.contains("sweep"), "{name}");
        if shell(&format!("command -v {name} || true")).is_empty() {
            eprintln!("{name} is not installed, so its script is not tried");
            continue;
        }
        let mut child = Command::new(name).arg("-n").stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{name} does not take its script");
    }
    // What a user types and presses Tab after.
    let script = guywire.file("completion.bash", &guywire.ok(&["completion", "bash"]).stdout);
    let typed = format!(
        "source {script}; COMP_WORDS=(guywire lab d); COMP_CWORD=2; _guywire guywire d lab; echo ${{COMPREPLY[*]}}"
    );
    let output = Command::new("bash").args(["-c", &typed]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "down", "{output:?}");
}

#[test]
fn every_command_has_help() {
    let guywire = Guywire::new();
    let reference = guywire.ok(&["reference"]).stdout;
    let mut seen = 0;
    for heading in reference.lines().filter_map(|line| line.strip_prefix("## guywire")) {
        let mut words: Vec<&str> = heading.split_whitespace().collect();
        words.push("--help");
        let help = guywire.ok(&words).stdout;
        assert!(help.contains("Usage: guywire"), "{words:?}: {help}");
        seen += 1;
    }
    assert!(seen >= 24, "{seen} commands");
    assert!(guywire.ok(&["--version"]).stdout.starts_with("guywire "));
    assert!(!guywire.data().exists(), "none of this needs a data directory");
}
