//! Whatever is killed, at whatever moment: run it again, and everything ends well.

use std::time::{Duration, Instant};

use rand::RngExt;
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    harness::{Guywire, Running, until},
    host::{assert_no_trace, first_processes, lab_id, processes},
};

const MACHINES: [&str; 4] = ["m1", "m2", "m3", "m4"];

/// Every machine is there once, runs, and answers.
fn assert_whole(guywire: &Guywire) {
    let states: Vec<(String, String)> =
        MACHINES.iter().map(|name| ((*name).to_owned(), "running".to_owned())).collect();
    assert_eq!(guywire.states(), states);
    for name in MACHINES {
        assert_eq!(guywire.ssh(name, "hostname"), name);
    }
    assert_eq!(first_processes(&guywire.data()), MACHINES.len(), "no machine runs twice");
}

fn kill_at(guywire: &Guywire, verb: &str, args: &[&str], after: Duration) {
    let mut running = guywire.start(&guywire.lab_args(verb, args));
    std::thread::sleep(after);
    running.signal(Signal::KILL);
    guywire.note(&running.wait());
}

/// How long `up` and `down` take when nobody disturbs them.
fn usual(guywire: &Guywire) -> (Duration, Duration, String) {
    let begin = Instant::now();
    guywire.lab("up", &["--machines", "4"]);
    let up = begin.elapsed();
    let id = lab_id(guywire);
    let begin = Instant::now();
    guywire.lab("down", &[]);
    (up, begin.elapsed(), id)
}

fn survive(guywire: &Guywire, rounds: u32) {
    let (up, down, id) = usual(guywire);
    let mut moments = Vec::new();
    for round in 0..rounds {
        // One random moment in each slice of the time, so that no part of it is left out.
        let moment = |whole: Duration| {
            let share = (f64::from(round) + rand::rng().random_range(0.0..1.0)) / f64::from(rounds);
            whole.mul_f64(share)
        };
        let (in_up, in_down) = (moment(up), moment(down));
        moments.push((in_up, in_down));
        eprintln!("killed at {in_up:.0?} of {up:.0?} up, at {in_down:.0?} of {down:.0?} down");
        kill_at(guywire, "up", &["--machines", "4"], in_up);
        // By the same command, or by name of the plan.
        let unfinished =
            guywire.plans().into_iter().find(|plan| plan["state"] == "running" || plan["state"] == "ready");
        match unfinished {
            Some(plan) if round % 2 == 0 => guywire.ok(&["plan", "resume", &plan["id"].to_string()]),
            _ => guywire.lab("up", &["--machines", "4"]),
        };
        assert_whole(guywire);
        kill_at(guywire, "down", &[], in_down);
        guywire.lab("down", &[]);
        assert_eq!(guywire.states(), []);
        assert_no_trace(&id, &guywire.data());
    }
    // The story: every plan came to its end, and none was left or done by two.
    let plans = guywire.plans();
    let ended = |plan: &Value| plan["state"] == "succeeded" && plan["executing"] == false;
    assert!(plans.iter().all(ended), "{plans:#?}");
    assert!(plans.len() >= rounds as usize, "{}", plans.len());
}

#[test]
fn killed_at_any_moment_it_goes_on() {
    survive(&Guywire::new(), 8);
}

#[test]
fn killed_at_any_moment_it_goes_on_beside_another() {
    survive(&Guywire::new(), 7);
}

/// Starts `up`, with a journal there already.
fn begin_up(guywire: &Guywire, args: &[&str]) -> Running {
    guywire.ok(&["plan", "list"]);
    guywire.start(args)
}

/// The number of the newest plan, when it has begun to make machines.
fn busy_plan(guywire: &Guywire, running: &mut Running) -> String {
    until("a plan makes machines", || {
        let plan = guywire.plans().first()?["id"].to_string();
        let shown = guywire.ok(&["plan", "show", &plan]).stdout;
        assert!(!running.has_ended(), "too early: {shown}");
        (shown.contains("▸ m") || shown.contains("✓ m")).then_some(plan)
    })
}

#[test]
fn an_interrupt_stops_between_tasks_and_resume_finishes() {
    let guywire = Guywire::new();
    let mut running = begin_up(&guywire, &guywire.lab_args("up", &["--machines", "4"]));
    let plan = busy_plan(&guywire, &mut running);
    running.signal(Signal::INT);
    let output = running.wait();
    assert_eq!(output.code, Some(1), "{output:#?}");
    assert!(output.stderr.contains("stopping when running tasks have ended"), "{output:#?}");
    assert_eq!(guywire.plans()[0]["state"], "cancelled", "{output:#?}");
    let shown = guywire.json(&["plan", "show", &plan]).to_string();
    assert!(!shown.contains("\"running\""), "nothing of it runs: {shown}");
    guywire.ok(&["plan", "resume", &plan]);
    assert_whole(&guywire);
    assert_eq!(guywire.plans().len(), 1);
}

#[test]
fn undone_from_another_terminal_nothing_stays() {
    let guywire = Guywire::new();
    let mut running = begin_up(&guywire, &guywire.lab_args("up", &["--machines", "4"]));
    let plan = busy_plan(&guywire, &mut running);
    let asked = guywire.ok(&["plan", "cancel", "--undo", &plan]);
    assert!(asked.stdout.contains("asked the process that executes plan"), "{asked:#?}");
    let output = running.wait();
    assert_eq!(output.code, Some(1), "{output:#?}");
    assert_eq!(guywire.plans()[0]["state"], "undone", "{output:#?}");
    assert_eq!(guywire.states(), []);
    let data = guywire.data().display().to_string();
    until("nothing is left", || processes(&data).is_empty().then_some(()));
    assert!(guywire.ok(&["lab", "sweep"]).stdout.contains("nothing was left"));
}

#[test]
fn a_plan_that_nobody_executes_is_cancelled_by_whoever_asks() {
    let guywire = Guywire::new();
    let mut running = begin_up(&guywire, &guywire.lab_args("up", &["--machines", "3"]));
    let plan = busy_plan(&guywire, &mut running);
    running.signal(Signal::KILL);
    running.wait();
    guywire.fails(&["plan", "watch", &plan], 1, &["nobody executes", "guywire plan resume"]);
    assert!(guywire.ok(&["plan", "list"]).stdout.contains("interrupted"));
    let shown = guywire.ok(&["plan", "show", &plan]).stdout;
    assert!(shown.contains("guywire plan resume"), "{shown}");
    guywire.ok(&["plan", "cancel", "--undo", &plan]);
    assert_eq!(guywire.plans()[0]["state"], "undone");
    assert!(guywire.ok(&["lab", "sweep"]).stdout.contains("nothing was left"));
}

#[test]
fn a_cancel_right_after_a_kill_is_not_left_to_the_dead() {
    let guywire = Guywire::new();
    let mut running = begin_up(&guywire, &guywire.lab_args("up", &["--machines", "2"]));
    let plan = busy_plan(&guywire, &mut running);
    running.signal(Signal::KILL);
    running.wait();
    guywire.ok(&["plan", "cancel", "--undo", &plan]);
    assert_eq!(guywire.plans()[0]["state"], "undone");
}

#[test]
fn a_second_up_takes_over_when_the_first_dies() {
    let guywire = Guywire::new();
    let args = guywire.lab_args("up", &["--machines", "4"]);
    let mut first = begin_up(&guywire, &args);
    busy_plan(&guywire, &mut first);
    // Stopped, not dead: the second finds it executing and follows, or waits for the database if the first
    // was stopped in the middle of a transaction.
    first.signal(Signal::STOP);
    let second = guywire.start(&args);
    std::thread::sleep(Duration::from_millis(500));
    first.signal(Signal::KILL);
    first.wait();
    let output = second.wait();
    assert_eq!(output.code, Some(0), "{output:#?}");
    assert!(output.stderr.contains("going on with it"), "{output:#?}");
    assert_eq!(guywire.plans().len(), 1);
    assert_whole(&guywire);
}

#[test]
fn two_first_commands_at_once_both_work() {
    for _ in 0..5 {
        let guywire = Guywire::new();
        let outputs = [(); 3].map(|()| guywire.start(&["plan", "list"])).map(Running::wait);
        assert!(outputs.iter().all(|output| output.code == Some(0)), "{outputs:#?}");
    }
}

#[test]
fn a_second_up_follows_the_first() {
    let guywire = Guywire::new();
    let args = guywire.lab_args("up", &["--machines", "4"]);
    let mut first = begin_up(&guywire, &args);
    busy_plan(&guywire, &mut first);
    let second = guywire.start(&args);
    let third = guywire.start(&["plan", "watch", "1"]);
    let outputs: Vec<_> = [first, second, third].into_iter().map(Running::wait).collect();
    for output in &outputs {
        assert_eq!(output.code, Some(0), "{outputs:#?}");
    }
    assert!(outputs[1].stderr.contains("another process executes plan 1; following it"), "{:#?}", outputs[1]);
    assert_eq!(guywire.plans().len(), 1, "what one does the other need not do");
    let events = |output: &crate::harness::Output| output.stderr.matches("✓ m").count();
    assert_eq!((events(&outputs[0]), events(&outputs[2])), (12, 12), "each saw every task end once");
    assert_whole(&guywire);
}

#[test]
fn labs_of_two_data_directories_come_up_at_once() {
    let (one, two) = (Guywire::new(), Guywire::new());
    let start = |guywire: &Guywire| guywire.start(&["lab", "up", "--name", "same", "--machines", "2"]);
    let outputs = [start(&one), start(&two)].map(Running::wait);
    for output in &outputs {
        assert_eq!(output.code, Some(0), "{outputs:#?}");
    }
    let list = |guywire: &Guywire| guywire.json(&["lab", "list"]).as_array().unwrap().clone();
    let (ours, theirs) = (list(&one), list(&two));
    let addresses: std::collections::BTreeSet<String> =
        ours.iter().chain(&theirs).flat_map(|m| [m["ipv4"].to_string(), m["ipv6"].to_string()]).collect();
    assert_eq!(addresses.len(), 8, "no address is there twice: {addresses:?}");
    // One lab's machines do not reach the other's.
    let dial =
        format!("timeout 2 bash -c '< /dev/tcp/{}/22' 2> /dev/null", theirs[0]["ipv4"].as_str().unwrap());
    assert_ne!(one.run(&["lab", "ssh", "--name", "same", "m1", &dial]).code, Some(0));
    one.ok(&["lab", "down", "--name", "same"]);
    assert_eq!(two.ok(&["lab", "ssh", "--name", "same", "m1", "hostname"]).stdout, "m1\n");
}
