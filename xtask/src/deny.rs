//! Licences, bans and sources of everything that we depend on, by cargo-deny.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::progress::say;
use crate::{places, process};

/// The version that deny.toml was written for.
const VERSION: &str = "0.20.2";
/// How long fetching the database of advisories may take before we do without, in seconds.
const FETCH: &str = "60";

/// Checks the workspace.
pub fn check() -> Result<()> {
    let deny = ensure()?;
    let run = |words: &[&str]| {
        let mut command = Command::new(&deny);
        command.current_dir(places::root()).args(["--log-level", "error"]).args(words);
        command
    };
    process::quiet(&mut run(&["check", "bans", "licenses", "sources"]))?;
    let fetched = || {
        let mut fetch = Command::new("timeout");
        fetch.arg(FETCH).arg(&deny).current_dir(places::root()).args(["fetch", "db"]);
        process::quiet(&mut fetch).is_ok()
    };
    if has_advisories() || fetched() {
        process::quiet(&mut run(&["check", "--disable-fetch", "advisories"]))?;
        say("bans, licenses, sources and advisories are good");
    } else {
        say(
            "bans, licenses and sources are good; advisories were not checked: the RustSec database is neither here nor in reach",
        );
    }
    Ok(())
}

/// The program, built once for all checkouts.
fn ensure() -> Result<PathBuf> {
    let tools = places::cache()?.join("tools");
    let deny = tools.join("bin/cargo-deny");
    if deny.exists()
        && process::answer(Command::new(&deny).arg("--version")).is_ok_and(|said| said.contains(VERSION))
    {
        return Ok(deny);
    }
    say(format!("building cargo-deny {VERSION}, once; this takes two to four minutes on two cores"));
    let build = tools.join("build");
    let mut install = process::cargo();
    // Unoptimised: it runs for a second, and builds in half the time.
    install.args([
        "install",
        "cargo-deny",
        "--locked",
        "--debug",
        "--force",
        "--quiet",
        "--version",
        VERSION,
    ]);
    install.arg("--root").arg(&tools).arg("--target-dir").arg(&build);
    // Its manifest is not ours: neither are our lints and our lock file.
    process::quiet(install.current_dir("/").env("CARGO_PROFILE_DEV_DEBUG", "0"))
        .context("building cargo-deny")?;
    std::fs::remove_dir_all(&build).with_context(|| format!("removing {}", build.display()))?;
    Ok(deny)
}

/// Whether an earlier run, or a person, has fetched the database.
fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let full = |dir: &Path| dir.join(".git").exists() || dir.join("crates").exists();
    home.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok())
        .is_some_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| full(&entry.path()))))
}
