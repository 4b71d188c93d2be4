//! What the manager costs its users, against bare commits and a bare server of the same run, and against what was
//! measured of `OpenStack` Tacker 16 on a machine of this kind.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Report, Row};
use crate::progress::say;
use crate::sweep::TestDir;
use crate::{places, process};

/// As many as an operator of a large site might have.
const INSTANCES: usize = 50_000;
/// A hundredth of what Tacker takes for a create.
const CREATE_MS: f64 = 4.6;

/// What the manager crate's load prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sample {
    ready_ms: f64,
    idle_mb: f64,
    full_mb: f64,
    instances: usize,
    commit_ms: f64,
    create_ms: f64,
    create_p99_ms: f64,
    reply_ms: f64,
    show_ms: f64,
    show_p99_ms: f64,
    list_ms: f64,
    in_flight: usize,
    in_flight_errors: f64,
    page_by_name_ms: f64,
    page_by_state_ms: f64,
    page_by_metadata_ms: f64,
}

/// Measures.
pub fn run(dir: &TestDir) -> Result<Report> {
    say("bench manager: building");
    process::shown(process::cargo().args([
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "guywire",
        "--package",
        "guywire-manager",
        "--bins",
        "--example",
        "load",
    ]))?;
    let data = dir.data("bench-manager");
    std::fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
    let package = data.join("hello.csar");
    let mut pack = Command::new(places::release_guywire());
    pack.args(["package", "pack"]).arg(places::root().join("examples/hello")).arg(&package);
    process::shown(&mut pack)?;
    say(format!("bench manager: measuring, with {INSTANCES} instances at the end"));
    let sample = measure(&package, &data)?;
    let rows = vec![
        Row::at_most("ready after start", 300.0, sample.ready_ms, "ms"),
        Row::at_most("memory when idle", 40.0, sample.idle_mb, "MB"),
        Row::told("a bare commit, p50", sample.commit_ms, "ms"),
        Row::at_most("create, p50", CREATE_MS, sample.create_ms, "ms"),
        Row::at_most("create against a bare commit", 8.0, sample.create_ms / sample.commit_ms, ""),
        Row::told("create, p99", sample.create_p99_ms, "ms"),
        Row::told("a bare reply of the same size, p50", sample.reply_ms, "ms"),
        Row::told("show, p50", sample.show_ms, "ms"),
        Row::at_most("show against a bare reply", 3.0, sample.show_ms / sample.reply_ms, ""),
        Row::told("show, p99", sample.show_p99_ms, "ms"),
        Row::at_most("list of 200, p50", 4.0, sample.list_ms, "ms"),
        Row::at_most(
            format!("{} requests in flight: errors", sample.in_flight),
            0.0,
            sample.in_flight_errors,
            "",
        ),
        Row::at_most(format!("{INSTANCES} instances: page by name"), 30.0, sample.page_by_name_ms, "ms"),
        Row::at_most(format!("{INSTANCES} instances: page by state"), 30.0, sample.page_by_state_ms, "ms"),
        // No index knows free attributes: the database looks at every head until the page is full.
        Row::told(format!("{INSTANCES} instances: by metadata"), sample.page_by_metadata_ms, "ms"),
        Row::at_most(format!("{INSTANCES} instances: memory"), 120.0, sample.full_mb, "MB"),
    ];
    Ok(Report { name: "manager", rows, samples: serde_json::to_value(&sample)? })
}

fn measure(package: &Path, data: &Path) -> Result<Sample> {
    let mut load = Command::new(places::target().join("release/examples/load"));
    load.arg(places::release_guywire()).args([package, data]).arg(INSTANCES.to_string());
    load.env("GUYWIRE_TEMPLATES", places::templates()?);
    let text = process::answer(&mut load)?;
    serde_json::from_str(text.trim()).with_context(|| format!("the manager's load printed {text:?}"))
}
