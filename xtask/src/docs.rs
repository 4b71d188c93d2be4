//! `cargo xtask docs`: documents that are made from the program, and what must hold for the others.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::progress::say;
use crate::{places, process, readme, rules, strings};

/// The command line's reference, made by the program itself.
const REFERENCE: &str = "docs/reference/cli.md";

/// What a check makes sure of, and the check.
type Check = (&'static str, fn() -> Result<()>);

/// What to do.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Change nothing; fail when a generated document is stale or a rule is broken
    #[arg(long)]
    check: bool,
}

/// Writes or checks the documents.
pub fn run(options: &Options) -> Result<()> {
    process::shown(process::cargo().args(["build", "--quiet", "--locked", "--package", "guywire"]))?;
    if options.check {
        return check();
    }
    let path = places::root().join(REFERENCE);
    let dir = path.parent().unwrap_or(&path);
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    std::fs::write(&path, reference()?).with_context(|| format!("writing {}", path.display()))?;
    say(format!("wrote {REFERENCE}"));
    Ok(())
}

/// Checks everything, and tells all that is wrong; the program must be built.
pub fn check() -> Result<()> {
    let checks: [Check; 4] = [
        ("generated documents are fresh", reference_is_fresh),
        ("crates are on the map and know only what they may", rules::check),
        ("no tracked file names this machine", strings::check),
        ("README.md has commands to run", || readme::commands_of_readme().map(drop)),
    ];
    let mut wrong = Vec::new();
    for (what, check) in checks {
        match check() {
            Ok(()) => say(what),
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

fn reference_is_fresh() -> Result<()> {
    let committed = std::fs::read_to_string(places::root().join(REFERENCE)).unwrap_or_default();
    if committed != reference()? {
        bail!("{REFERENCE} is stale: run `cargo xtask docs` and commit it");
    }
    Ok(())
}

fn reference() -> Result<String> {
    let mut guywire = Command::new(places::debug_guywire());
    // What a person's environment sets must not show up as a default.
    process::answer(guywire.arg("reference").env_clear().env("COLUMNS", "100"))
}
