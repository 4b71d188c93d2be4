//! Running test programs: those that measure time alone, the others two at a time, as some wait for
//! machines while others compute.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use crate::process::{self, cargo};
use crate::progress::say;
use crate::tally::Tally;
use crate::workspace::{TestProgram, test_programs};

/// Test programs that stop processes past short leases: another program beside them on two cores makes
/// leases run out that should not.
const ALONE: [&str; 2] = ["crates/plan/tests/", "tests/"];
/// How many of the others run at once; each runs as many tests at once as there are cores.
const LANES: usize = 2;
/// Test programs that take longest; they begin first, so that no lane runs alone at the end.
const LONGEST: [&str; 2] = ["crates/machines/tests/lab", "crates/machines/tests/"];
/// How often a long run says that it is still there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// How long one program may take; a test that hangs must not hang whoever runs it.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// What is run.
enum Job {
    Program(TestProgram),
    Documentation,
}

/// Runs all tests; `prepare` gives each program its surroundings, and `words` are its arguments. The
/// sum of all results, and an error that names the programs that failed.
pub fn test(prepare: &(dyn Fn(&mut Command) + Sync), words: &[&str]) -> (Tally, Result<()>) {
    let mut programs = match test_programs() {
        Ok(programs) => programs,
        Err(error) => return (Tally::default(), Err(error)),
    };
    let is_in = |program: &TestProgram, places: &[&str]| {
        places.iter().position(|place| program.source.to_string_lossy().starts_with(place))
    };
    programs.sort_by_key(|program| is_in(program, &LONGEST).unwrap_or(LONGEST.len()));
    let (alone, beside): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| is_in(program, &ALONE).is_some());
    let mut jobs: VecDeque<Job> = beside.into_iter().map(Job::Program).collect();
    if words.is_empty() {
        jobs.push_back(Job::Documentation);
    }
    let jobs = Mutex::new(jobs);
    let done = Mutex::new((Tally::default(), Vec::new()));
    let one = |job: &Job| {
        let (tally, result) = run(job, prepare, words);
        let mut done = done.lock().expect("no lane panics");
        done.0 += tally;
        done.1.extend(result.err().map(|error| format!("{error:#}")));
    };
    for program in alone {
        one(&Job::Program(program));
    }
    let next = || jobs.lock().expect("no lane panics").pop_front();
    let lane = || {
        while let Some(job) = next() {
            one(&job);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
    let (tally, failed) = done.into_inner().expect("no lane panics");
    (tally, if failed.is_empty() { Ok(()) } else { Err(anyhow!("{}", failed.join("; "))) })
}

/// Runs one program and prints what it said as one piece at its end.
fn run(job: &Job, prepare: &(dyn Fn(&mut Command) + Sync), words: &[&str]) -> (Tally, Result<()>) {
    let (mut command, name) = match job {
        Job::Program(program) => {
            let mut command = Command::new(&program.path);
            // As cargo does it.
            command.current_dir(&program.dir).env("CARGO_MANIFEST_DIR", &program.dir);
            (command, program.source.display().to_string())
        }
        Job::Documentation => {
            let mut command = cargo();
            command.args(["test", "--quiet", "--locked", "--workspace", "--doc"]);
            (command, "examples in documentation".to_owned())
        }
    };
    command.args(words);
    prepare(&mut command);
    say(format!("{name}: started"));
    let begin = Instant::now();
    let (mut text, mut tally, mut good, mut sign) = (String::new(), Tally::default(), 0, Instant::now());
    let status = process::followed(&mut command, PATIENCE, &mut |line| {
        tally.read(line);
        good += u32::from(line.starts_with("test ") && line.ends_with(" ... ok"));
        text.push_str(line);
        text.push('\n');
        if sign.elapsed() > SIGN_OF_LIFE {
            say(format!("{name}: {good} passed so far"));
            sign = Instant::now();
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    let result = status.and_then(|status| if status.success() { Ok(()) } else { bail!("{status}") });
    let end = match &result {
        Ok(()) => "passed".to_owned(),
        Err(error) => format!("FAILED ({error:#})"),
    };
    // One print, so that the other lane's lines stay out of it.
    print!("\n     Running {name}\n{text}");
    say(format!("{name}: {end} in {seconds:.1} s"));
    (tally, result.map_err(|error| anyhow!("{name}: {error:#}")))
}
