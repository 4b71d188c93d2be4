//! How fast machines come up, against the shell script that does the same on the same root.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::baseline::{Baseline, base_root};
use super::memory;
use super::{BASELINE, Report, Row, median};
use crate::progress::say;
use crate::sweep::TestDir;
use crate::{interrupt, lab, places, process};

/// How often each side is measured.
const RUNS: usize = 3;
/// The labs' sizes.
const FEW: u8 = 5;
const MANY: u8 = 20;

/// Guywire's side; dropping it removes its labs.
struct Ours {
    data: PathBuf,
    log: PathBuf,
}

/// One time that a lab came up.
struct Sample {
    seconds: f64,
    peak: f64,
}

/// Measures.
pub fn run(dir: &TestDir) -> Result<Report> {
    lab::build()?;
    let data = dir.data("bench-lab");
    std::fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
    let ours = Ours { log: data.join("log"), data };
    say("bench lab: warming up; the base root is made if it is not there");
    ours.up(1)?;
    ours.down()?;
    let baseline = Baseline::new(dir.data(BASELINE), base_root(&places::templates()?)?)?;
    baseline.up(1)?;
    baseline.remove()?;
    let (mut mine, mut theirs, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
    let mut staying = (0, 0.0);
    for run in 1..=RUNS {
        settle();
        let seconds = baseline.up(FEW)?.as_secs_f64();
        baseline.remove()?;
        settle();
        let sample = ours.up(FEW)?;
        staying = memory::running(&places::release_guywire())?;
        ours.down()?;
        say(format!(
            "bench lab: run {run} of {RUNS}: script {seconds:.2} s, guywire {:.2} s",
            sample.seconds
        ));
        theirs.push(seconds);
        mine.push(sample.seconds);
        peaks.push(sample.peak);
    }
    settle();
    let many = ours.up(MANY)?;
    let stay_many = memory::running(&places::release_guywire())?;
    ours.down()?;
    let (few, script) = (median(&mine), median(&theirs));
    let linear = few / f64::from(FEW) * f64::from(MANY);
    let own = peaks.iter().copied().fold(many.peak, f64::max) + staying.1.max(stay_many.1);
    let rows = vec![
        Row::told("5 machines by the shell script, median", script, "s"),
        Row::told("5 machines by guywire lab up, median", few, "s"),
        Row::at_most("ratio of the two", 1.3, few / script, ""),
        Row::at_most("20 machines (linear)", linear, many.seconds, "s"),
        Row::at_most("own memory, peak and what stays", 60.0, own, "MB"),
    ];
    let samples = json!({
        "script_seconds": theirs, "guywire_seconds": mine, "guywire_20_seconds": many.seconds,
        "peak_mb": peaks, "peak_20_mb": many.peak,
        "processes_that_stay": staying.0.max(stay_many.0), "their_mb": staying.1.max(stay_many.1),
    });
    Ok(Report { name: "lab", rows, samples })
}

impl Ours {
    fn up(&self, machines: u8) -> Result<Sample> {
        let log = std::fs::File::create(&self.log).context("making a log")?;
        let mut command = self.guywire()?;
        command.args(["lab", "up", "--machines", &machines.to_string()]);
        command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log));
        let begin = Instant::now();
        let ended = memory::peak_until_end(process::spawn(&mut command)?);
        let seconds = begin.elapsed().as_secs_f64();
        let said = || std::fs::read_to_string(&self.log).unwrap_or_default();
        let peak = ended.with_context(|| format!("guywire lab up: {}", said().trim()))?;
        Ok(Sample { seconds, peak })
    }

    fn down(&self) -> Result<()> {
        process::quiet(self.guywire()?.args(["lab", "down"])).map(drop)
    }

    fn guywire(&self) -> Result<Command> {
        let mut command = Command::new(places::release_guywire());
        command.env("GUYWIRE_DATA", &self.data).env("GUYWIRE_TEMPLATES", places::templates()?);
        Ok(command)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let sweep = || process::quiet(self.guywire()?.args(["lab", "sweep"]));
        if let Err(error) = interrupt::while_cleaning(sweep) {
            say(format!("{error:#}"));
        }
    }
}

/// Lets what the run before has left to write reach the disk, so that it is not counted here.
fn settle() {
    rustix::fs::sync();
    std::thread::sleep(Duration::from_millis(500));
}
