//! What the journal costs: a plan of no-op tasks against as many bare commits.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Report, Row, median};
use crate::progress::say;
use crate::sweep::TestDir;
use crate::{places, process};

/// How often the ratio is measured.
const RUNS: usize = 5;

/// What the plan crate's benchmark prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sample {
    tasks: u64,
    width: u32,
    commits: f64,
    plan_ms: f64,
    bare_ms: f64,
    ratio: f64,
    peak_mb: f64,
}

/// Measures.
pub fn run(dir: &TestDir) -> Result<Report> {
    say("bench plan: building");
    process::shown(process::cargo().args([
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "guywire-plan",
        "--example",
        "bench",
    ]))?;
    let data = dir.data("bench-plan");
    std::fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
    let mut small = Vec::new();
    for run in 1..=RUNS {
        let sample = measure(1000, &data)?;
        say(format!("bench plan: run {run} of {RUNS}: ratio {:.2}", sample.ratio));
        small.push(sample);
    }
    let large = measure(10_000, &data)?;
    let middle = |field: fn(&Sample) -> f64| median(&small.iter().map(field).collect::<Vec<_>>());
    let most_commits = small.iter().map(|sample| sample.commits).fold(0.0, f64::max);
    let rows = vec![
        Row::told("1,000 tasks, 32 wide: time", middle(|sample| sample.plan_ms), "ms"),
        Row::told("as many bare commits: time", middle(|sample| sample.bare_ms), "ms"),
        Row::at_most("ratio of the two, median", 1.5, middle(|sample| sample.ratio), ""),
        Row::at_most("commits", 1200.0, most_commits, ""),
        Row::at_most("10,000 tasks: memory", 150.0, large.peak_mb, "MB"),
    ];
    small.push(large);
    Ok(Report { name: "plan", rows, samples: serde_json::to_value(small)? })
}

fn measure(tasks: u32, data: &Path) -> Result<Sample> {
    let mut bench = Command::new(places::target().join("release/examples/bench"));
    let text = process::answer(bench.args([&tasks.to_string(), "32"]).arg(data))?;
    serde_json::from_str(text.trim()).with_context(|| format!("what the benchmark printed: {text}"))
}
