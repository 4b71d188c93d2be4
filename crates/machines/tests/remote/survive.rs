//! What units promise when something breaks.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use guywire_machines::remote::{How, RemoteError, UnitRequest, UnitState};
use guywire_plan::Fence;
use tokio_util::sync::CancellationToken;

use crate::harness::{Manager, Seen, counted, environment_for_child, machines_for_test, unit};

const LINES: &str = "i=0; while [ $i -lt 40 ]; do i=$((i + 1)); echo line $i; sleep 0.1; done; exit 9";

fn lines() -> String {
    (1..=40).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat()
}

#[tokio::test]
async fn a_dropped_connection_loses_and_repeats_nothing() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let (script, count) = counted(LINES);
    let request = unit(script);
    let seen = Seen::default();
    let running = async {
        let seen = seen.clone();
        manager.units.run(&door, &request, &CancellationToken::new(), &mut |chunk| seen.take(chunk)).await
    };
    let cutting = async {
        for line in ["line 3\n", "line 12\n", "line 30\n"] {
            seen.wait_for(line).await;
            manager.cut_connection(&door).await;
        }
    };
    let (exit, ()) = tokio::join!(running, cutting);
    let exit = exit.unwrap();
    assert_eq!((exit.code, exit.how), (9, How::Ran));
    assert_eq!(seen.text(), lines());
    assert_eq!(manager.ask(&door, &count).await, "1\n");
}

#[tokio::test]
async fn another_process_takes_over_after_a_kill() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let (script, count) = counted(LINES);
    let request = unit(script);
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "survive::the_process_that_is_killed", "--ignored", "--nocapture"])
        .envs(environment_for_child(&door))
        .env("UNIT_KEY", &request.key)
        .env("UNIT_SCRIPT", &request.script)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    manager.wait_started(&door, &request.key).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    process.kill().unwrap();
    process.wait().unwrap();
    let (exit, output) = manager.run(&door, &UnitRequest { fence: Fence(6), ..request }).await.unwrap();
    assert_eq!((exit.code, exit.how, output), (9, How::Reattached, lines()));
    assert_eq!(manager.ask(&door, &count).await, "1\n");
}

/// Not a test: what [`another_process_takes_over_after_a_kill`] starts and kills.
#[tokio::test]
#[ignore = "runs as a process of another test"]
async fn the_process_that_is_killed() {
    // Run with all other ignored tests, it has no parent and nothing to do.
    if std::env::var("UNIT_KEY").is_err() {
        return;
    }
    let door = machines_for_test().remove(0).door;
    let env = |name| std::env::var(name).unwrap();
    let request = UnitRequest { key: env("UNIT_KEY"), ..unit(env("UNIT_SCRIPT")) };
    Manager::new().run(&door, &request).await.unwrap();
}

#[tokio::test]
async fn a_power_cut_in_the_middle_is_lost_and_never_run_again_by_itself() {
    let machine = machines_for_test().remove(2);
    let (manager, door) = (Manager::new(), &machine.door);
    let (script, count) = counted("echo begun; sleep 60");
    let request = unit(script);
    let ended = unit("echo before; exit 7");
    manager.run(door, &ended).await.unwrap();
    let seen = Seen::default();
    let running = tokio::spawn({
        let (door, request, seen) = (door.clone(), request.clone(), seen.clone());
        async move {
            let take = &mut |chunk: &[u8]| seen.take(chunk);
            Manager::new().units.run(&door, &request, &CancellationToken::new(), take).await
        }
    });
    seen.wait_for("begun").await;
    machine.cut().await;
    machine.boot().await;
    let error = tokio::time::timeout(Duration::from_mins(1), running).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(&error, RemoteError::Lost { attempt: 1, .. }), "{error}");
    // A process that hears of it later is told the same.
    let error = manager.run(door, &request).await.unwrap_err();
    assert!(matches!(&error, RemoteError::Lost { .. }), "{error}");
    assert_eq!(manager.units.status(door, &request.key).await.unwrap().1, UnitState::Lost { attempt: 1 });
    assert_eq!(manager.ask(door, &count).await, "1\n");
    let (exit, output) = manager.run(door, &ended).await.unwrap();
    assert_eq!((exit.code, output.as_str()), (7, "before\n"), "what had ended is still known");
    let next = UnitRequest { attempt: 2, script: "echo second".into(), ..request };
    assert_eq!(manager.run(door, &next).await.unwrap().1, "second\n");
}

#[tokio::test]
async fn a_hung_machine_delays_no_other_and_is_waited_for() {
    let machines = machines_for_test();
    let (well, hung) = (&machines[0].door, &machines[1].door);
    let manager = Manager::new();
    manager.ask(well, "true").await;
    let (script, count) = counted(LINES);
    let request = unit(script);
    let seen = Seen::default();
    let on_hung = async {
        let seen = seen.clone();
        manager.units.run(hung, &request, &CancellationToken::new(), &mut |chunk| seen.take(chunk)).await
    };
    let meanwhile = async {
        seen.wait_for("line 5\n").await;
        // Nothing gets through to it for 12 s: long enough to lose the connection.
        let stop =
            "setsid sh -c 'p=$(pgrep -x sshd); kill -STOP $p; sleep 12; kill -CONT $p' >/dev/null 2>&1 &";
        Manager::new().ask(hung, stop).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let start = Instant::now();
        for _ in 0..5 {
            assert_eq!(manager.run(well, &unit("echo well")).await.unwrap().1, "well\n");
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    };
    let (exit, ()) = tokio::join!(on_hung, meanwhile);
    assert_eq!(exit.unwrap().code, 9);
    assert_eq!(seen.text(), lines());
    assert_eq!(manager.ask(hung, &count).await, "1\n");
}
