//! Remote units inside plans: run once, re-attached, stopped, and refused to those who come late.

use std::{process::Command, time::Duration};

use rustix::process::Signal;

use crate::{
    database::Database,
    harness::{Guywire, Output, Running, until},
};

/// Appends a line, then waits until a file is there.
const GATED: &str = "echo run >> /root/effects; while [ ! -e /root/gate ]; do sleep 0.05; done; echo done";
const OPEN: &str = "touch /root/gate";
const UNITS: &str = "systemctl list-units --all --plain --no-legend 'guywire-unit-*'";

pub fn executor(guywire: &Guywire, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_executor"));
    command.arg(guywire.data()).arg(guywire.name()).args(args).env("TERM_MS", "1500");
    if let Some(url) = guywire.database() {
        command.env("JOURNAL", url);
    }
    command
}

/// Puts a plan with one unit into the journal.
pub fn submit(guywire: &Guywire, machine: &str, script: &str) -> String {
    let output = Running::spawn(&mut executor(guywire, &["submit", machine, script])).wait();
    assert_eq!(output.code, Some(0), "{output:#?}");
    output.stdout.trim().to_owned()
}

fn start(guywire: &Guywire, plan: &str, late: bool) -> Running {
    let mut command = executor(guywire, &["run", plan]);
    if late {
        command.env("LATE", "1");
    }
    Running::spawn(&mut command)
}

fn lab() -> Guywire {
    let guywire = Guywire::new();
    guywire.lab("up", &["--machines", "1"]);
    guywire
}

fn effects(guywire: &Guywire, machine: &str) -> String {
    guywire.ssh(machine, "cat /root/effects 2> /dev/null || true")
}

fn until_begun(guywire: &Guywire, machine: &str) {
    until("the unit has begun", || (!effects(guywire, machine).is_empty()).then_some(()));
}

/// Executes a plan as soon as nobody else does.
fn take_over(guywire: &Guywire, plan: &str) -> Output {
    until("the lease runs out", || {
        let output = start(guywire, plan, false).wait();
        (output.code != Some(22)).then_some(output)
    })
}

/// Stops an executor past its lease while its unit runs, and starts another one. `then` gets both.
fn past_the_lease(
    guywire: &Guywire,
    late: bool,
    then: impl FnOnce(&Guywire, &str, Running, &dyn Fn() -> Output),
) {
    let plan = submit(guywire, "m1", GATED);
    let mut first = start(guywire, &plan, late);
    until_begun(guywire, "m1");
    first.signal(Signal::STOP);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| take_over(guywire, &plan));
        // The first one's lease of 1.5 s runs out, and the second shows its newer fence to the machine.
        until("the second has shown its fence", || {
            let fences = guywire.ssh("m1", "cat /var/lib/guywire/units/*/fence");
            let started = guywire.ssh("m1", "cut -d ' ' -f 1 /var/lib/guywire/units/*/1/started");
            (fences != started).then_some(())
        });
        let second = std::cell::Cell::new(Some(second));
        then(guywire, &plan, first, &|| second.take().expect("asked once").join().unwrap());
    });
    assert_eq!(effects(guywire, "m1"), "run", "it ran once");
}

#[test]
fn who_wakes_up_past_the_lease_cannot_stop_what_another_has_taken_over() {
    past_the_lease(&lab(), false, |guywire, plan, mut first, second| {
        first.signal(Signal::CONT);
        let first = first.wait();
        assert_eq!(first.code, Some(20), "its lease is lost: {first:#?}");
        assert!(first.stderr.contains("unit: refused, fence"), "{first:#?}");
        assert!(guywire.ssh("m1", UNITS).contains("running"), "the unit is the second one's now");
        guywire.ssh("m1", OPEN);
        let second = second();
        assert_eq!(second.code, Some(0), "{second:#?}");
        assert!(second.stderr.contains("unit: Reattached with code 0"), "{second:#?}");
        assert_eq!(guywire.json(&["plan", "show", plan])["state"], "succeeded");
    });
}

#[test]
fn who_wakes_up_past_the_lease_is_refused_by_the_machine() {
    refused_by_the_machine(&lab());
}

#[test]
fn who_wakes_up_past_the_lease_in_postgres_is_refused_by_the_machine() {
    let database = Database::new("fence");
    let guywire = Guywire::with_database(&database.url());
    guywire.lab("up", &["--machines", "1"]);
    refused_by_the_machine(&guywire);
}

fn refused_by_the_machine(guywire: &Guywire) {
    past_the_lease(guywire, true, |guywire, plan, mut first, second| {
        guywire.ssh("m1", OPEN);
        let second = second();
        assert_eq!(second.code, Some(0), "{second:#?}");
        let before = guywire.json(&["plan", "show", plan]);
        first.signal(Signal::CONT);
        let first = first.wait();
        assert_eq!(first.code, Some(20), "its lease is lost: {first:#?}");
        assert!(first.stderr.contains("late unit: refused, fence"), "{first:#?}");
        assert_eq!(guywire.ssh("m1", UNITS), "", "nothing was started");
        assert_eq!(guywire.json(&["plan", "show", plan]), before, "it records nothing");
    });
}

#[test]
fn a_forceful_cancel_stops_the_unit_on_the_machine() {
    let guywire = lab();
    let plan = submit(&guywire, "m1", "echo run >> /root/effects; sleep 600; echo late >> /root/effects");
    let running = start(&guywire, &plan, false);
    until_begun(&guywire, "m1");
    let units = guywire.ssh("m1", UNITS);
    let unit = units.split_whitespace().next().expect("a unit").to_owned();
    assert_eq!(guywire.ssh("m1", &format!("systemctl is-active {unit}")), "active");
    guywire.ok(&["plan", "cancel", "--force", &plan]);
    let output = running.wait();
    assert_eq!(output.code, Some(10), "{output:#?}");
    let state = guywire.run(&guywire.lab_args("ssh", &["m1", &format!("systemctl is-active {unit}")]));
    assert_eq!((state.code, state.stdout.trim()), (Some(3), "inactive"));
    assert_eq!(guywire.ssh("m1", "pgrep -x sleep || echo none"), "none");
    assert_eq!(effects(&guywire, "m1"), "run");
}

#[test]
fn a_killed_executor_s_unit_is_found_again() {
    let guywire = lab();
    let plan = submit(&guywire, "m1", GATED);
    for _ in 0..3 {
        let mut running = start(&guywire, &plan, false);
        until_begun(&guywire, "m1");
        std::thread::sleep(Duration::from_millis(300));
        running.signal(Signal::KILL);
        running.wait();
    }
    guywire.ssh("m1", OPEN);
    let output = take_over(&guywire, &plan);
    assert_eq!(output.code, Some(0), "{output:#?}");
    assert_eq!(effects(&guywire, "m1"), "run", "it ran once");
    let shown = guywire.json(&["plan", "show", &plan]);
    assert_eq!(shown["phases"][0]["tasks"][0]["attempt"], 1, "a crash of ours is no attempt of the task");
}

#[test]
fn a_power_cut_in_the_middle_is_probed_and_goes_on() {
    let guywire = lab();
    // Looks how far it came: what it finds half done it finishes.
    let script = "if [ -e /root/begun ]; then echo finished >> /root/effects; exit 0; fi\n\
                  echo begun >> /root/effects; touch /root/begun; sync; sleep 600";
    let plan = submit(&guywire, "m1", script);
    let running = start(&guywire, &plan, false);
    until_begun(&guywire, "m1");
    guywire.lab("cut", &["m1"]);
    guywire.lab("boot", &["m1"]);
    let output = running.wait();
    assert_eq!(output.code, Some(0), "{output:#?}");
    assert!(output.stderr.contains("cut off by a reboot"), "{output:#?}");
    assert!(output.stderr.contains("probe: Lost { attempt: 1 }"), "{output:#?}");
    assert_eq!(effects(&guywire, "m1"), "begun\nfinished");
}
