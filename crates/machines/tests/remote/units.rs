//! What units promise while nothing breaks.

use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use guywire_machines::remote::{How, RemoteError, UnitRequest, UnitState};
use guywire_plan::Fence;
use guywire_secrets::Secret;
use tokio_util::sync::CancellationToken;

use crate::harness::{Manager, Seen, counted, machines_for_test, unit};

#[tokio::test]
async fn a_unit_runs_once_and_can_be_read_afterwards() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let (script, count) = counted("echo out; echo err >&2; exit 3");
    let first = unit(script);
    let (exit, output) = manager.run(&door, &first).await.unwrap();
    assert_eq!((exit.code, exit.how, output.as_str()), (3, How::Ran, "out\nerr\n"));
    assert_eq!(exit.output_tail, output);
    let (again, output) = manager.run(&door, &first).await.unwrap();
    assert_eq!((again.code, again.how, output.as_str()), (3, How::Reattached, "out\nerr\n"));
    assert_eq!(manager.ask(&door, &count).await, "1\n");
    let state = manager.units.status(&door, &first.key).await.unwrap();
    assert_eq!(state, (Fence(5), UnitState::Ended { attempt: 1, code: 3 }));

    let second = UnitRequest { attempt: 2, ..first.clone() };
    assert_eq!(manager.run(&door, &second).await.unwrap().0.how, How::Ran);
    assert_eq!(manager.ask(&door, &count).await, "2\n");
    assert_eq!(
        manager.run(&door, &first).await.unwrap().0.how,
        How::Reattached,
        "the first can still be read"
    );

    manager.units.forget(&door, &first.key, Fence(5)).await.unwrap();
    assert_eq!(manager.units.status(&door, &first.key).await.unwrap(), (Fence(0), UnitState::None));
}

#[tokio::test]
async fn an_older_fence_is_refused_once_a_newer_was_seen() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let (script, count) = counted("sleep 3; echo done");
    let old = unit(script);
    let running = tokio::spawn({
        let (door, old) = (door.clone(), old.clone());
        async move { Manager::new().run(&door, &old).await }
    });
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // A newer manager takes the work over while it runs: it re-attaches, and the older one is out.
    let new = UnitRequest { fence: Fence(6), ..old.clone() };
    let (exit, output) = manager.run(&door, &new).await.unwrap();
    assert_eq!((exit.code, exit.how, output.as_str()), (0, How::Reattached, "done\n"));
    running.await.unwrap().unwrap();
    for request in [old.clone(), UnitRequest { attempt: 2, ..old.clone() }] {
        match manager.run(&door, &request).await.unwrap_err() {
            RemoteError::Fenced { seen, ours, .. } => assert_eq!((seen, ours), (Fence(6), Fence(5))),
            other => panic!("{other}"),
        }
    }
    manager.units.fence(&door, &old.key, Fence(9)).await.unwrap();
    let error = manager.units.stop(&door, &old.key, Fence(8), 1).await.unwrap_err();
    assert!(matches!(error, RemoteError::Fenced { seen: Fence(9), .. }), "{error}");
    assert!(matches!(manager.run(&door, &new).await.unwrap_err(), RemoteError::Fenced { .. }));
    assert_eq!(manager.ask(&door, &count).await, "1\n");
}

#[tokio::test]
async fn callers_at_the_same_time_get_one_run() {
    let machine = machines_for_test().remove(0);
    let door = machine.door.clone();
    let (script, count) = counted("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; exit 4");
    let request = unit(script);
    let callers = (0..5).map(|_| {
        let (door, request) = (door.clone(), request.clone());
        // Each with connections of its own, as separate processes have.
        tokio::spawn(async move { Manager::new().run(&door, &request).await.unwrap() })
    });
    let mut ran = 0;
    for caller in callers.collect::<Vec<_>>() {
        let (exit, output) = caller.await.unwrap();
        assert_eq!((exit.code, output.as_str()), (4, "1\n2\n3\n4\n5\n"));
        ran += i32::from(exit.how == How::Ran);
    }
    assert_eq!((ran, Manager::new().ask(&door, &count).await.as_str()), (1, "1\n"));
}

#[tokio::test]
async fn a_later_attempt_waits_for_the_earlier_one_to_end() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let first = unit("sleep 60");
    let (cancel, seen) = (CancellationToken::new(), Seen::default());
    let running = tokio::spawn({
        let (door, first, cancel, seen) = (door.clone(), first.clone(), cancel.clone(), seen.clone());
        async move { Manager::new().units.run(&door, &first, &cancel, &mut |chunk| seen.take(chunk)).await }
    });
    manager.wait_started(&door, &first.key).await;
    let second = UnitRequest { attempt: 2, ..first.clone() };
    match manager.run(&door, &second).await.unwrap_err() {
        RemoteError::Busy { other, .. } => assert_eq!(other, 1),
        other => panic!("{other}"),
    }
    cancel.cancel();
    assert!(matches!(running.await.unwrap().unwrap_err(), RemoteError::Cancelled { .. }));
}

#[tokio::test]
async fn cancel_kills_all_of_a_unit() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    // One child in a session of its own, and one that takes no notice of a polite request.
    let request = unit("setsid sleep 4321 & sh -c 'trap \"\" TERM; sleep 4321' & echo ready; sleep 4321");
    let (cancel, seen) = (CancellationToken::new(), Seen::default());
    let running = tokio::spawn({
        let (door, request, cancel, seen) = (door.clone(), request.clone(), cancel.clone(), seen.clone());
        async move { Manager::new().units.run(&door, &request, &cancel, &mut |chunk| seen.take(chunk)).await }
    });
    seen.wait_for("ready").await;
    cancel.cancel();
    let start = Instant::now();
    assert!(matches!(running.await.unwrap().unwrap_err(), RemoteError::Cancelled { .. }));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(manager.ask(&door, "pgrep -f 'sleep 4321' || echo none").await, "none\n");
    // The same attempt does not come back to life, from a caller that did not hear of it.
    assert!(matches!(manager.run(&door, &request).await.unwrap_err(), RemoteError::Lost { .. }));
}

#[tokio::test]
async fn a_start_that_is_overtaken_by_its_cancel_does_nothing() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let (script, count) = counted("");
    let request = unit(script);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = manager.units.run(&door, &request, &cancel, &mut |_| ()).await.unwrap_err();
    assert!(matches!(error, RemoteError::Cancelled { .. }));
    assert!(matches!(manager.run(&door, &request).await.unwrap_err(), RemoteError::Lost { .. }));
    assert_eq!(manager.ask(&door, &format!("{count} 2>/dev/null || echo never")).await, "never\n");
}

#[tokio::test]
async fn a_unit_past_its_time_is_stopped_by_the_machine() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let request = UnitRequest { timeout: Duration::from_secs(2), ..unit("echo begun; sleep 60") };
    let start = Instant::now();
    let error = manager.run(&door, &request).await.unwrap_err();
    assert!(matches!(error, RemoteError::TimedOut { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[tokio::test]
async fn output_is_bounded_and_keeps_its_end() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let request = UnitRequest { limit: 40_000, ..unit("echo first; seq 1 1000000; echo last; exit 1") };
    let (exit, output) = manager.run(&door, &request).await.unwrap();
    assert_eq!(exit.code, 1);
    assert!(output.starts_with("first\n1\n") && output.ends_with("1000000\nlast\n"));
    assert!(output.contains("[guywire: output cut here") && output.len() < 40_200, "{}", output.len());
    assert!(exit.output_tail.ends_with("last\n") && exit.output_tail.len() <= 32 * 1024);
}

#[tokio::test]
async fn what_a_script_leaves_behind_does_not_keep_the_unit() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let start = Instant::now();
    let (exit, output) = manager.run(&door, &unit("sleep 300 & echo done; exit 2")).await.unwrap();
    assert_eq!((exit.code, output.as_str()), (2, "done\n"));
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[tokio::test]
async fn secrets_in_scripts_are_seen_nowhere() {
    const SECRET: &str = "S3cr3t'of \"the\" $script";
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    manager.masker.add(&Secret::new(SECRET));
    let quoted = guywire_machines::ssh::quote([SECRET]);
    let script = format!(
        "s={quoted}\necho \"plain $s\"\nprintf %s \"$s\" | base64\nset -x\n: \"$s\"\nset +x\nprintf 'S3cr3t'; sleep 1; echo \"'of \\\"the\\\" \\$script\"\nsleep 1"
    );
    let request = unit(script);
    let seen = Seen::default();
    let running = async {
        let seen = seen.clone();
        manager.units.run(&door, &request, &CancellationToken::new(), &mut |chunk| seen.take(chunk)).await
    };
    let looking = async {
        seen.wait_for("plain ***").await;
        let script = "for u in $(systemctl list-units --plain --no-legend 'guywire-unit-*' | cut -d' ' -f1); do systemctl show $u; systemctl cat $u; done
            ps axww -o args; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; journalctl -n 200
            if grep -rl S3cr3 /run/guywire /run/systemd/transient; then echo IN A FILE; fi";
        manager.ask(&door, script).await
    };
    let (exit, looked) = tokio::join!(running, looking);
    let (exit, output) = (exit.unwrap(), seen.text());
    assert!(looked.contains("MainPID=") && !looked.contains("S3cr3t"), "{looked}");
    assert!(!looked.contains("IN A FILE"), "the script is gone once it is read: {looked}");
    assert_eq!(exit.code, 0);
    for text in [&output, &exit.output_tail] {
        assert!(!text.contains("S3cr3t") && !text.contains(&BASE64_STANDARD.encode(SECRET)), "{text}");
        assert_eq!(text.matches("***").count(), 4, "{text}");
    }
    let kept =
        manager.ask(&door, "cd /var/lib/guywire && stat -c %a . units && ls -A units/*/*/ | sort -u").await;
    assert!(kept.starts_with("700\n700\n") && !kept.contains("script"), "{kept}");
}

#[tokio::test]
async fn many_units_share_one_connection() {
    let (manager, door) = (Manager::new(), machines_for_test().remove(0).door);
    let all: Vec<_> = (0..20).map(|n| unit(format!("echo {n}; sleep 1; echo end"))).collect();
    let runs = all.iter().map(|request| manager.run(&door, request));
    for (n, result) in futures::future::join_all(runs).await.into_iter().enumerate() {
        assert_eq!(result.unwrap().1, format!("{n}\nend\n"));
    }
}
