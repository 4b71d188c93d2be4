//! `cargo xtask test`: everything that must hold, part after part, and a table at the end.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::postgres::Server;
use crate::progress::{elapsed, say};
use crate::sweep::TestDir;
use crate::tally::Tally;
use crate::workspace::test_programs;
use crate::{bench, deny, docs, host, interrupt, lanes, packages, places, process, python, readme};

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run the ignored tests and the benchmarks too
    #[arg(long)]
    long: bool,
    /// Run one part only; can be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
}

/// One part of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// rustfmt
    Format,
    /// clippy, every warning an error
    Lint,
    /// The program, the examples, and all tests
    Build,
    /// Generated documents, the architecture's rules, strings that must not be there
    Docs,
    /// Licences, bans, sources and advisories of dependencies
    Deny,
    /// All tests of all crates, with labs and `PostgreSQL`
    Tests,
    /// The commands in README.md, as they stand there
    Readme,
    /// Tests that are ignored otherwise (--long)
    Ignored,
    /// Ten thousand mutated requests and ten thousand mutated packages (--long)
    Fuzz,
    /// Benchmarks and their bars (--long)
    Bench,
}

impl Part {
    /// In the order in which they run: what fails fast comes first.
    const ALL: [Self; 10] = [
        Self::Format,
        Self::Lint,
        Self::Build,
        Self::Docs,
        Self::Deny,
        Self::Tests,
        Self::Readme,
        Self::Ignored,
        Self::Fuzz,
        Self::Bench,
    ];

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn is_long(self) -> bool {
        matches!(self, Self::Ignored | Self::Fuzz | Self::Bench)
    }

    fn makes_machines(self) -> bool {
        matches!(self, Self::Tests | Self::Readme | Self::Ignored | Self::Fuzz | Self::Bench)
    }
}

/// Words in the names of the tests that are the part `fuzz`.
const FUZZ: [&str; 2] = ["fuzz_ten_thousand", "ten_thousand_bent"];

/// How a part ended.
struct Outcome {
    part: Part,
    error: Option<String>,
    seconds: f64,
}

/// Runs the suite.
pub fn run(options: &Options) -> Result<()> {
    let wanted = |part: &Part| match options.only.as_slice() {
        [] => options.long || !part.is_long(),
        only => only.contains(part),
    };
    let parts: Vec<Part> = Part::ALL.into_iter().filter(wanted).collect();
    let machines = parts.iter().any(|part| part.makes_machines());
    if machines {
        host::root_on_linux("cargo xtask test")?;
        host::room(&places::cache()?)?;
        host::room(&places::target())?;
    }
    packages::ensure(if machines { &[packages::LAB, packages::TEST] } else { &[packages::LAB] })?;
    let dir = TestDir::take()?;
    let (mut tally, mut outcomes) = (Tally::default(), Vec::new());
    for part in parts {
        if interrupt::pending() {
            break;
        }
        say(format!("{}: started", part.name()));
        let begin = Instant::now();
        let (count, result) = run_part(part, &dir);
        tally += count;
        let error = result.err().map(|error| format!("{error:#}"));
        let seconds = begin.elapsed().as_secs_f64();
        match &error {
            None => say(format!("{}: good in {seconds:.1} s", part.name())),
            Some(error) => say(format!("{}: FAILED: {error}", part.name())),
        }
        outcomes.push(Outcome { part, error, seconds });
    }
    drop(dir);
    sum_up(&outcomes, tally)
}

fn run_part(part: Part, dir: &TestDir) -> (Tally, Result<()>) {
    let cargo = |words: &[&str]| process::shown(process::cargo().args(words));
    let plain = |result| (Tally::default(), result);
    match part {
        Part::Format => plain(cargo(&["fmt", "--all", "--check"])),
        Part::Lint => plain(cargo(&[
            "clippy",
            "--quiet",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])),
        Part::Build => plain(
            cargo(&["build", "--locked", "--workspace", "--examples", "--bins"])
                .and_then(|()| test_programs().map(drop)),
        ),
        Part::Docs => plain(docs::check()),
        Part::Deny => plain(deny::check()),
        Part::Tests => tests(dir, &[]),
        Part::Ignored => tests(dir, &["--ignored", "--skip", FUZZ[0], "--skip", FUZZ[1]]),
        // What they print are figures, which are worth seeing when all is well too.
        Part::Fuzz => tests(dir, &["--ignored", "--nocapture", FUZZ[0], FUZZ[1]]),
        Part::Readme => plain(readme::run(dir)),
        Part::Bench => plain(bench::run_in(dir, &[])),
    }
}

/// The crates' tests in their surroundings.
fn tests(dir: &TestDir, words: &[&str]) -> (Tally, Result<()>) {
    let around = || -> Result<_> {
        let server = Server::start()?;
        say(format!("PostgreSQL answers at {}", server.url()));
        make_base(dir)?;
        Ok((server, places::templates()?, python::openstack()?, python::schemathesis()?))
    };
    let (server, templates, openstack, schemathesis) = match around() {
        Ok(around) => around,
        Err(error) => return (Tally::default(), Err(error)),
    };
    let prepare = |command: &mut Command| {
        command.env("GUYWIRE_TEST_POSTGRES", server.url());
        command.env("GUYWIRE_TEMPLATES", &templates);
        command.env("GUYWIRE_TEST_OPENSTACK", &openstack);
        command.env("GUYWIRE_TEST_SCHEMATHESIS", &schemathesis);
        command.env("GUYWIRE_TEST_CHROMIUM", "/usr/bin/chromium");
        command.env("GUYWIRE_TEST_ARTIFACTS", places::artifacts());
        command.env("TMPDIR", dir.temporary());
    };
    lanes::test(&prepare, words)
}

/// Makes the base system that lab machines start from, so that no test's time is spent on it.
fn make_base(dir: &TestDir) -> Result<()> {
    say("bringing a lab machine up, so that the base system is there for all tests");
    for words in [&["lab", "up", "--machines", "1"] as &[&str], &["lab", "down"]] {
        let mut guywire = Command::new(places::debug_guywire());
        guywire.env("GUYWIRE_DATA", dir.data("base")).env("GUYWIRE_TEMPLATES", places::templates()?);
        process::shown(guywire.args(words))?;
    }
    Ok(())
}

fn sum_up(outcomes: &[Outcome], tally: Tally) -> Result<()> {
    println!("\n{:<10} {:<8} {:>8}", "part", "result", "seconds");
    for outcome in outcomes {
        let result = if outcome.error.is_some() { "FAILED" } else { "good" };
        println!("{:<10} {:<8} {:>8.1}", outcome.part.name(), result, outcome.seconds);
    }
    println!("{:<10} {:<8} {:>8.1}\n", "all", "", elapsed().as_secs_f64());
    let bad: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.error.is_some()).collect();
    for Outcome { part, error, .. } in &bad {
        println!("{}: {}", part.name(), error.as_deref().unwrap_or_default());
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if interrupt::asked() {
        bail!("interrupted");
    }
    if !bad.is_empty() {
        bail!("{} of {} parts failed", bad.len(), outcomes.len());
    }
    Ok(())
}
