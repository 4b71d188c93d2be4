//! `cargo xtask lab`: from a bare Debian machine to a running lab, and back to nothing.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::leftovers::Traces;
use crate::progress::say;
use crate::{host, packages, places, process};

/// What to make.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// How many machines
    #[arg(long, default_value_t = 5)]
    machines: u16,
    /// The lab's name
    #[arg(long, default_value = "lab")]
    name: String,
    /// Where everything lives
    #[arg(long, env = "GUYWIRE_DATA", default_value = "/var/lib/guywire")]
    data: PathBuf,
    /// Take all labs in the data directory away again; templates stay there
    #[arg(long)]
    down: bool,
}

/// Makes a lab or takes it away.
pub fn run(options: &Options) -> Result<()> {
    host::root_on_linux("cargo xtask lab")?;
    if !options.down {
        host::room(&options.data)?;
        host::room(&places::target())?;
    }
    packages::ensure(&[packages::LAB])?;
    // Taking down works with any build, and should not wait for a new one.
    if !options.down || !places::release_guywire().exists() {
        build()?;
    }
    if options.down { down(options) } else { up(options) }
}

/// Builds the program.
pub fn build() -> Result<()> {
    say("building guywire (release); the first time takes some minutes");
    process::shown(process::cargo().args(["build", "--locked", "--release", "--package", "guywire"]))
}

fn up(options: &Options) -> Result<()> {
    say(format!("starting lab {} with {} machines", options.name, options.machines));
    let machines = options.machines.to_string();
    let words = ["lab", "up", "--name", &options.name, "--machines", &machines];
    process::shown(guywire(options).args(words))
        .context("the lab did not come up; run this again, it goes on")?;
    // It has just listed what is running.
    println!("\nTry next:\n{}", hints(options));
    Ok(())
}

fn down(options: &Options) -> Result<()> {
    let traces = Traces::of(&options.data)?;
    say(format!("taking lab {} down", options.name));
    if options.data.join("labs").join(&options.name).is_dir() {
        // What is damaged cannot be taken down in order; the sweep takes it as it is.
        if let Err(error) = process::shown(guywire(options).args(["lab", "down", "--name", &options.name])) {
            say(format!("{error:#}; sweeping instead"));
        }
    }
    process::quiet(guywire(options).args(["lab", "sweep"]))?;
    let left = traces.left_after_a_moment()?;
    if !left.is_empty() {
        bail!("this is left of the lab:\n{}\nrun `cargo xtask lab --down` again", left.join("\n"));
    }
    for what in Traces::CHECKED {
        say(format!("checked: no {what}"));
    }
    say(format!("nothing is left; templates stay in {}", options.data.join("templates").display()));
    Ok(())
}

fn guywire(options: &Options) -> Command {
    let mut command = Command::new(places::release_guywire());
    command.env("GUYWIRE_DATA", &options.data);
    command
}

/// Commands that work as they are, from the directory that the reader is in.
fn hints(options: &Options) -> String {
    let program = places::release_guywire();
    let here = std::env::current_dir().unwrap_or_default();
    let program = program.strip_prefix(&here).unwrap_or(&program).display().to_string();
    let mut flags = String::new();
    if options.data != *"/var/lib/guywire" && std::env::var_os("GUYWIRE_DATA").is_none() {
        flags = format!(" --data {}", options.data.display());
    }
    let first = "m1";
    let name = if options.name == "lab" { String::new() } else { format!(" --name {}", options.name) };
    let lines = [
        (format!("lab ssh{flags}{name} {first} uptime"), "a command in a machine"),
        (format!("lab cut{flags}{name} {first}"), "a power cut"),
        (format!("lab boot{flags}{name} {first}"), "and power again: the disk is as it was"),
        (format!("plan list{flags}"), "what was done"),
    ];
    let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or_default();
    let mut text: Vec<String> =
        lines.iter().map(|(line, what)| format!("  {program} {line:<width$}   # {what}")).collect();
    text.push(format!("  cargo xtask lab --down{flags}{name}   # takes everything away"));
    text.join("\n")
}
