//! `cargo xtask bench`: what was asked, what was measured, and whether that is good enough.

mod baseline;
mod lab;
mod manager;
mod memory;
mod plan;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;

use crate::progress::say;
use crate::sweep::TestDir;
use crate::{host, packages, places};

/// Where the shell script has its machines, in the tests' directory.
const BASELINE: &str = "bench-baseline";

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run one benchmark only; can be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<Name>,
}

/// A benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The plan engine's journal against bare commits
    Plan,
    /// Lab machines against the shell script that does the same
    Lab,
    /// The manager's answers against bare commits and a bare server
    Manager,
}

/// One line of a table.
#[derive(Debug, Serialize)]
pub struct Row {
    what: String,
    asked: String,
    measured: String,
    good: bool,
}

/// What a benchmark found: the table, and all numbers behind it.
#[derive(Debug, Serialize)]
pub struct Report {
    name: &'static str,
    rows: Vec<Row>,
    samples: serde_json::Value,
}

impl Row {
    /// A measurement that must not be more than a bar.
    fn at_most(what: impl Into<String>, bar: f64, measured: f64, unit: &str) -> Self {
        Self {
            what: what.into(),
            asked: format!("at most {}", number(bar, unit)),
            measured: number(measured, unit),
            good: measured <= bar,
        }
    }

    /// A measurement without a bar.
    fn told(what: impl Into<String>, measured: f64, unit: &str) -> Self {
        Self { what: what.into(), asked: String::new(), measured: number(measured, unit), good: true }
    }
}

/// Runs benchmarks by themselves.
pub fn run(options: &Options) -> Result<()> {
    host::root_on_linux("cargo xtask bench")?;
    host::room(&places::cache()?)?;
    packages::ensure(&[packages::LAB, packages::TEST])?;
    run_in(&TestDir::take()?, &options.only)
}

/// Runs benchmarks, all if none is named.
pub fn run_in(dir: &TestDir, only: &[Name]) -> Result<()> {
    let wanted = |name: &Name| only.is_empty() || only.contains(name);
    let mut bad = Vec::new();
    for name in [Name::Plan, Name::Manager, Name::Lab].into_iter().filter(wanted) {
        let report = match name {
            Name::Plan => plan::run(dir),
            Name::Lab => lab::run(dir),
            Name::Manager => manager::run(dir),
        }?;
        print!("\n{}\n", table(&report));
        let out = places::target().join("bench");
        std::fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
        let file = out.join(format!("{}.json", report.name));
        std::fs::write(&file, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| format!("writing {}", file.display()))?;
        say(format!("wrote {}", file.display()));
        let missed = report.rows.iter().filter(|row| !row.good);
        bad.extend(missed.map(|row| format!("{}: {} ({})", row.what, row.measured, row.asked)));
    }
    if !bad.is_empty() {
        bail!("bars were missed:\n{}", bad.join("\n"));
    }
    Ok(())
}

/// Removes what an interrupted benchmark left outside of labs. Whether there was anything.
pub fn sweep(dir: &Path) -> Result<bool> {
    let left = dir.join(BASELINE);
    let found = left.is_dir();
    if found {
        drop(baseline::Baseline::new(left, PathBuf::from("/"))?);
    }
    Ok(found)
}

/// The middle one.
fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

fn number(value: f64, unit: &str) -> String {
    let digits = if value >= 100.0 || value.fract() == 0.0 { 0 } else { 2 };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

fn table(report: &Report) -> String {
    let verdict = |row: &Row| match (row.good, row.asked.is_empty()) {
        (true, true) => "",
        (true, false) => "good",
        (false, _) => "MISSED",
    };
    let line = |what: &str, asked: &str, measured: &str, verdict: &str| {
        format!("{what:<44} {asked:>16} {measured:>14}  {verdict}").trim_end().to_owned() + "\n"
    };
    let mut text = line(report.name, "asked", "measured", "verdict");
    for row in &report.rows {
        text += &line(&row.what, &row.asked, &row.measured, verdict(row));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_bars() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[1.0, 2.0]) - 1.5).abs() < f64::EPSILON);
        assert!(Row::at_most("ratio", 1.5, 1.5, "").good);
        assert!(!Row::at_most("ratio", 1.5, f64::NAN, "").good, "what was not measured is not good");
    }

    #[test]
    fn the_table_says_what_was_missed() {
        let rows = vec![Row::at_most("ratio", 1.5, 1.75, ""), Row::told("time", 120.4, "ms")];
        let text = table(&Report { name: "plan", rows, samples: serde_json::Value::Null });
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["ratio", "at", "most", "1.50", "1.75", "MISSED"]);
        assert_eq!(words[2], ["time", "120", "ms"]);
    }
}
