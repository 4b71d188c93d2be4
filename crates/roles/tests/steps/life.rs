//! What steps do, and what becomes of them when things go wrong in the middle.

use std::{fs, time::Duration};

use guywire_machines::provision::MachineChange;
use guywire_model::Power;
use guywire_plan::{Cancel, CancelMode, How, PlanState, TaskIndex};
use guywire_roles::script::{Action, Content, Run, Went};

use crate::harness::{Manager, PASSWORD, World, put, run, script_plan, step, wait};

#[tokio::test(flavor = "multi_thread")]
async fn files_are_put_scripts_run_and_conditions_waited_for() {
    let manager = Manager::new().await;
    let package = tempfile::tempdir().unwrap();
    fs::write(package.path().join("tool"), b"\x00\xffbinary").unwrap();
    let sha256 = "9ef29fd9bb4c3f5a31d7aa9bbb3d23f5e7e4a0b6cc1bd4a5f6a0f5ad9b9dbb52".to_owned();
    let sealed = |sha256: String| Content::File { file: "tool".into(), sha256, size: 8 };
    let mut steps = vec![
        step("text", "m1", put("/etc/life/text", Content::Text("one\n".into()))),
        step(
            "run",
            "m1",
            Action::Run(run("echo did; (sleep 1; touch /run/life.done) & cat /etc/life/text; sleep 2")),
        ),
        step("wait", "m1", wait("test -e /run/life.done", 10)),
    ];
    steps[1].after = vec!["text".into()];
    steps[2].after = vec!["run".into()];
    let id = manager.good(&steps).await;
    assert_eq!(
        manager.ask("m1", "cat /etc/life/text; stat -c '%a %U:%G' /etc/life/text").await,
        "one\n640 root:daemon"
    );
    let (_, view) = manager.engine.load(id).await.unwrap();
    let went: Went = serde_json::from_value(view.tasks[1].output.clone()).unwrap();
    assert_eq!(went.output, "did\none");
    assert_eq!(manager.words(id).await, "did\none\n");

    // A file of another content than the plan's is refused; the right one is put byte by byte.
    let wrong = [step("tool", "m1", put("/opt/tool", sealed(sha256)))];
    let (_, outcome) = manager.run_plan(&script_plan(&wrong, package.path())).await;
    let reason = outcome.reason.unwrap();
    assert!(reason.contains("is not what it was when the plan was made"), "{reason}");
    let sum = manager.ask("m1", r"printf '\000\377binary' | sha256sum | cut -d' ' -f1").await;
    let right = [step("tool", "m1", put("/opt/tool", sealed(sum.clone())))];
    let (_, outcome) = manager.run_plan(&script_plan(&right, package.path())).await;
    assert_eq!(outcome.state, PlanState::Succeeded, "{:?}", outcome.reason);
    assert_eq!(manager.ask("m1", "sha256sum < /opt/tool | cut -d' ' -f1").await, sum);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_is_not_done_again() {
    let manager = Manager::new().await;
    let count = |action: Run| [step("count", "m1", Action::Run(action))];
    let unless = Run {
        unless: Some("test -e /run/once.done".into()),
        ..run("echo x >> /run/once.n; touch /run/once.done")
    };
    let (first, second) = (manager.good(&count(unless.clone())).await, manager.good(&count(unless)).await);
    assert_eq!(manager.ask("m1", "wc -l < /run/once.n").await, "1");
    for (id, wanted) in [(first, How::Applied), (second, How::Satisfied)] {
        assert_eq!(manager.engine.load(id).await.unwrap().1.task(TaskIndex(0)).how, Some(wanted));
    }
    let file = [step("file", "m1", put("/etc/life/again", Content::Text("same".into())))];
    manager.good(&file).await;
    let before = manager.ask("m1", "stat -c %i /etc/life/again").await;
    manager.good(&file).await;
    assert_eq!(manager.ask("m1", "stat -c %i /etc/life/again").await, before, "a file that is right stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_survives_the_manager_and_runs_once() {
    // The first manager lives in a runtime of its own, which ends as if the process was killed.
    let dying = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let first = dying.spawn(Manager::new()).await.unwrap();
    let second = first.successor().await;
    let script = "echo x >> /run/survive.n; touch /run/survive.begun; while [ ! -e /run/survive.go ]; do sleep 0.1; done; echo end";
    let id = first.submit(&[step("long", "m1", Action::Run(run(script)))]).await;
    dying.spawn(async move { first.engine.run(id).await });
    second.until("m1", "test -e /run/survive.begun && echo yes", "yes").await;
    dying.shutdown_background();
    second.ask("m1", "touch /run/survive.go").await;
    let mut tries = 0;
    let outcome = loop {
        match second.engine.run(id).await {
            Ok(report) => break report.outcome,
            // The dead manager's lease runs out by itself.
            Err(error) => assert!(tries < 40, "{error}"),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(250)).await;
    };
    assert_eq!(outcome.state, PlanState::Succeeded, "{:?}", outcome.reason);
    assert_eq!(second.ask("m1", "wc -l < /run/survive.n").await, "1");
    // What it said while nobody listened is heard all the same.
    assert_eq!(second.words(id).await, "end\n");
    let (_, view) = second.engine.load(id).await.unwrap();
    assert_eq!(serde_json::from_value::<Went>(view.tasks[0].output.clone()).unwrap().output, "end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_a_power_cut_took_is_run_again_also_one_that_runs_once() {
    let world = World::new();
    let manager = Manager::of(&world).await;
    let m1 = world.spec.machines[0].clone();
    manager.change(&MachineChange { add: vec![m1.clone()], ..world.change() }).await;
    // The first run waits for ever; the second finds that it is the second.
    let script = "echo x >> /root/cut.n; [ $(wc -l < /root/cut.n) -ge 2 ] || { sync; touch /run/cut.begun; sleep 300; }";
    let id = manager
        .submit(&[step("cut", "m1", Action::Run(Run { once: true, timeout: 400, ..run(script) }))])
        .await;
    let engine = manager.engine.clone();
    let running = tokio::spawn(async move { engine.run(id).await });
    manager.until("m1", "test -e /run/cut.begun && echo yes", "yes").await;
    // Beside the plan that holds the machine's lock, as a power cut comes: by another journal.
    let other = Manager::of(&world).await;
    other.change(&MachineChange { power: vec![(m1.name.clone(), Power::Cut)], ..world.change() }).await;
    other.change(&MachineChange { power: vec![(m1.name.clone(), Power::On)], ..world.change() }).await;
    let outcome = running.await.unwrap().unwrap().outcome;
    assert_eq!(outcome.state, PlanState::Succeeded, "{:?}", outcome.reason);
    assert_eq!(manager.ask("m1", "wc -l < /root/cut.n").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forceful_cancel_stops_the_script_on_the_machine_and_resuming_runs_it() {
    let manager = Manager::new().await;
    let script =
        "echo x >> /run/cancel.n; touch /run/cancel.begun; [ -e /run/cancel.go ] || exec sleep 987.5";
    let id = manager.submit(&[step("long", "m1", Action::Run(run(script)))]).await;
    let engine = manager.engine.clone();
    let running = tokio::spawn(async move { engine.run(id).await });
    manager.until("m1", "test -e /run/cancel.begun && echo yes", "yes").await;
    assert_eq!(manager.ask("m1", "pgrep -cf '^sleep 987.5'").await, "1");
    manager.engine.cancel(id, Cancel { mode: CancelMode::Forceful, undo: false }).await.unwrap();
    let outcome = running.await.unwrap().unwrap().outcome;
    assert_eq!(outcome.state, PlanState::Cancelled, "{:?}", outcome.reason);
    assert_eq!(manager.ask("m1", "pgrep -cf '^sleep 987.5'").await, "0");
    manager.ask("m1", "touch /run/cancel.go").await;
    manager.engine.resume(id).await.unwrap();
    let outcome = manager.engine.run(id).await.unwrap().outcome;
    assert_eq!(outcome.state, PlanState::Succeeded, "{:?}", outcome.reason);
    assert_eq!(manager.ask("m1", "wc -l < /run/cancel.n").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_say_what_the_machine_said_and_only_repeatable_scripts_are_repeated() {
    let manager = Manager::new().await;
    let reason = manager
        .bad(&[step("bad", "m1", Action::Run(run("echo x >> /run/bad.n; echo no such disk >&2; exit 3")))])
        .await;
    assert!(reason.contains("m1: the script ended with exit code 3: no such disk"), "{reason}");
    assert_eq!(manager.ask("m1", "wc -l < /run/bad.n").await, "3");

    let once =
        Run { once: true, unless: Some("test -e /run/mended".into()), ..run("echo x >> /run/bad.1; exit 4") };
    let (id, outcome) = manager.run(&[step("once", "m1", Action::Run(once))]).await;
    assert!(outcome.reason.unwrap().contains("exit code 4"));
    manager.engine.resume(id).await.unwrap();
    let outcome = manager.engine.run(id).await.unwrap().outcome;
    let reason = outcome.reason.unwrap();
    assert!(reason.contains("is to run once only"), "{reason}");
    assert_eq!(manager.ask("m1", "wc -l < /run/bad.1; touch /run/mended").await, "1");
    manager.engine.resume(id).await.unwrap();
    assert_eq!(manager.engine.run(id).await.unwrap().outcome.state, PlanState::Succeeded);

    let reason = manager.bad(&[step("late", "m1", wait("echo not yet; false", 2))]).await;
    assert!(reason.contains("m1: it is not so after 2 s: not yet"), "{reason}");
    let slow = Run { timeout: 1, once: true, ..run("sleep 60") };
    let reason = manager.bad(&[step("slow", "m1", Action::Run(slow))]).await;
    assert!(reason.contains("was stopped after"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_script_did_is_taken_back_by_its_undo() {
    let manager = Manager::new().await;
    let there = Run { undo: Some("rm /run/undo.there".into()), ..run("touch /run/undo.there") };
    let mut steps = [
        step("there", "m1", Action::Run(there)),
        step("hang", "m1", Action::Run(run("touch /run/undo.begun; sleep 60"))),
    ];
    steps[1].after = vec!["there".into()];
    let id = manager.submit(&steps).await;
    let engine = manager.engine.clone();
    let running = tokio::spawn(async move { engine.run(id).await });
    manager.until("m1", "test -e /run/undo.begun && ls /run/undo.there", "/run/undo.there").await;
    manager.engine.cancel(id, Cancel { mode: CancelMode::Forceful, undo: true }).await.unwrap();
    let outcome = running.await.unwrap().unwrap().outcome;
    assert_eq!(outcome.state, PlanState::Undone, "{:?}", outcome.reason);
    assert_eq!(manager.ask("m1", "ls /run/undo.there 2>/dev/null").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_reach_the_machine_and_nobody_else() {
    let manager = Manager::new().await;
    let script = r#"set -x; printf '%s' "${secret:ops/pw}" > /root/secret.run
ps axeww > /root/secret.ps; tr '\0' '\n' < /proc/$$/environ > /root/secret.env; sleep 1"#;
    let mut steps = [
        step("file", "m1", put("/root/secret.file", Content::Text("pw=${secret:ops/pw}\n".into()))),
        step("run", "m1", Action::Run(run(script))),
        step(
            "wait",
            "m1",
            wait(r#"echo "${secret:ops/pw}"; ps axeww >> /root/secret.ps; test -n "${secret:ops/pw}""#, 5),
        ),
        step("fail", "m1", Action::Run(Run { once: true, ..run(r#"echo "bad ${secret:ops/pw}"; exit 1"#) })),
    ];
    for at in 1..steps.len() {
        steps[at].after = vec![steps[at - 1].name.clone()];
    }
    let (id, outcome) = manager.run(&steps).await;
    let reason = outcome.reason.unwrap();
    assert!(reason.contains("bad ***"), "{reason}");
    assert_eq!(manager.ask("m1", "cat /root/secret.run").await, PASSWORD);
    assert_eq!(manager.ask("m1", "cat /root/secret.file").await, format!("pw={PASSWORD}"));
    let told = manager.told(id).await;
    assert!(told.contains("***") && told.contains("${secret:ops/pw}"), "{told}");
    for place in [told, manager.ask("m1", "cat /root/secret.ps /root/secret.env").await] {
        assert!(!place.contains("correct horse"), "{place}");
    }
    let unknown = step("none", "m1", put("/root/none", Content::Text("${secret:none}".into())));
    let reason = manager.bad(&[unknown]).await;
    assert!(reason.contains("none"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn optional_steps_on_a_dead_machine_block_nobody_and_it_can_be_replaced() {
    let world = World::new();
    let manager = Manager::of(&world).await;
    let m2 = world.spec.machines[1].clone();
    manager.change(&MachineChange { add: vec![m2.clone()], ..world.change() }).await;
    // A connection is open, and the machine's death is not told to it.
    manager.ask("m2", "touch /root/old").await;
    manager.change(&MachineChange { power: vec![(m2.name.clone(), Power::Cut)], ..world.change() }).await;
    let began = std::time::Instant::now();
    let mut steps = [
        step("stop", "m2", Action::Run(run("systemctl stop nothing"))),
        step("file", "m2", put("/etc/x", Content::Text("x".into()))),
        step("wait", "m2", wait("true", 3)),
    ];
    for step in &mut steps {
        step.optional = true;
    }
    let id = manager.good(&steps).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let (_, view) = manager.engine.load(id).await.unwrap();
    for task in &view.tasks {
        let went: Went = serde_json::from_value(task.output.clone()).unwrap();
        assert!(went.passed_over.is_some_and(|why| why.contains("m2")), "{task:?}");
    }
    assert!(manager.words(id).await.contains("warning: passed over, since the step is optional"));
    // A step that is not optional and fails on the machine itself is passed over only if asked.
    manager.change(&MachineChange { replace: vec![m2], ..world.change() }).await;
    assert_eq!(manager.ask("m2", "ls /root/old 2>/dev/null; hostname").await, "m2");
    let mut failing = step("failing", "m2", Action::Run(run("exit 1")));
    failing.optional = true;
    manager.good(&[failing]).await;
}
