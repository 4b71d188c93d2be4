//! The README's commands, run as they stand there: what nobody runs soon is wrong.
//!
//! In a code block that is marked `console`, a line that begins with `$ ` is a command; one that ends
//! with a backslash goes on in the next line. All other lines are what the commands print. The
//! commands run one after the other in one shell, in the checkout, with a data directory of their own.

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::sweep::TestDir;
use crate::{places, process};

/// Commands that are not run, and why.
const LEFT_OUT: [(&str, &str); 2] =
    [("cargo xtask test", "it is what runs this"), ("cargo xtask bench", "cargo xtask test --long runs it")];

/// How long all of them may take; they include a build.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// Runs the commands; the first that fails ends it.
pub fn run(dir: &TestDir) -> Result<()> {
    let commands = commands_of_readme()?;
    let data = dir.data("readme");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script(&commands)]).current_dir(places::root());
    shell.env("GUYWIRE_DATA", &data).env("GUYWIRE_TEMPLATES", places::templates()?);
    let mut at = String::new();
    let status = process::followed(&mut shell, PATIENCE, &mut |line| {
        if line.starts_with("$ ") {
            line.clone_into(&mut at);
        }
        println!("    {line}");
    })?;
    if !status.success() {
        bail!("README.md: `{}` failed ({status})", at.trim_start_matches("$ "));
    }
    Ok(())
}

/// Every command in README.md; there is at least one.
pub fn commands_of_readme() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(places::root().join("README.md")).context("reading README.md")?;
    let commands = commands(&text);
    if commands.is_empty() {
        bail!("README.md has no command in a block that is marked `console`");
    }
    Ok(commands)
}

/// The commands in the `console` blocks of a Markdown text.
fn commands(text: &str) -> Vec<String> {
    let (mut commands, mut inside, mut goes_on) = (Vec::<String>::new(), None, false);
    for line in text.lines() {
        if let Some(mark) = line.trim_start().strip_prefix("```") {
            inside = if inside.is_some() { None } else { Some(mark.trim() == "console") };
            goes_on = false;
        } else if inside == Some(true) {
            let part = match line.strip_prefix("$ ") {
                Some(command) => {
                    commands.push(String::new());
                    command
                }
                None if goes_on => line.trim().trim_start_matches("> "),
                None => continue,
            };
            goes_on = part.ends_with('\\');
            if let Some(command) = commands.last_mut() {
                command.push_str(part.trim_end_matches('\\'));
            }
        }
    }
    commands
}

/// One shell script that shows each command before it runs it.
fn script(commands: &[String]) -> String {
    // What is started in the background must not outlive a command that fails.
    let mut script = String::from("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n");
    for command in commands {
        let left_out = LEFT_OUT.iter().find(|(name, _)| command.starts_with(name));
        let note = left_out.map_or(String::new(), |(_, why)| format!("    (not run here: {why})"));
        let shown = format!("$ {command}{note}").replace('\'', r"'\''");
        writeln!(script, "printf '%s\\n' '{shown}'").expect("writing to a String cannot fail");
        if left_out.is_none() {
            writeln!(script, "{command}").expect("writing to a String cannot fail");
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Text with `$ not a command`.\n```console\n$ guywire lab list\nNAME  POWER\n$ guywire lab up \\\n>   --machines 5\ndone\n\
```\n```sh\n$ not run\n```\n  ```console\n$ echo it\\'s\n  ```\n";

    #[test]
    fn commands_are_found_in_console_blocks_only() {
        assert_eq!(commands(TEXT), ["guywire lab list", "guywire lab up   --machines 5", r"echo it\'s"]);
    }

    #[test]
    fn the_script_shows_and_runs_them_but_not_itself() {
        let commands = ["echo 'one'".to_owned(), "cargo xtask test".to_owned(), "echo two".to_owned()];
        let mut shell = Command::new("bash");
        let said = process::quiet(shell.args(["-c", &script(&commands)])).unwrap();
        let expected = "$ echo 'one'\none\n$ cargo xtask test    (not run here: it is what runs this)\n$ echo two\ntwo\n";
        assert_eq!(said, expected);
    }

    #[test]
    fn the_first_failure_ends_the_script() {
        let commands = ["false".to_owned(), "echo two".to_owned()];
        assert!(process::quiet(Command::new("bash").args(["-c", &script(&commands)])).is_err());
    }
}
