//! The developer's commands: `cargo xtask lab | test | bench | docs`.

mod bench;
mod deny;
mod docs;
mod host;
mod interrupt;
mod lab;
mod lanes;
mod leftovers;
mod packages;
mod places;
mod postgres;
mod process;
mod progress;
mod python;
mod readme;
mod rules;
mod strings;
mod suite;
mod sweep;
mod tally;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Developer's commands of guywire
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Install what is missing, build, start a lab of machines and say what to try next
    Lab(lab::Options),
    /// Set everything up and run all checks and tests
    Test(suite::Options),
    /// Measure, compare with the bars, print tables and write target/bench/*.json
    Bench(bench::Options),
    /// Write the generated documents, or check them and the architecture's rules
    Docs(docs::Options),
}

fn main() -> ExitCode {
    progress::begin();
    match interrupt::listen().and_then(|()| run(&Command::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Lab(options) => lab::run(options),
        Command::Test(options) => suite::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Docs(options) => docs::run(options),
    }
}
