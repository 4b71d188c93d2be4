//! The main job: a lab comes up, is worked with, and goes away without a trace.

use serde_json::Value;

use crate::{
    harness::Guywire,
    host::{assert_no_trace, lab_id, traces},
};

fn running(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), "running".to_owned())).collect()
}

#[test]
fn a_lab_comes_up_is_used_and_leaves_no_trace() {
    let guywire = Guywire::new();
    let up = guywire.lab("up", &["--machines", "3"]);
    for line in ["LAB ", "m1 ready", "m3 "] {
        assert!(up.stdout.contains(line) || up.stderr.contains(line), "{line}: {up:#?}");
    }
    let id = lab_id(&guywire);
    assert!(traces(&id, &guywire.data()).len() > 10, "the look for traces sees a lab that is up");

    lists(&guywire);
    commands(&guywire);
    names(&guywire);
    power(&guywire);

    guywire.lab("rm", &["m3"]);
    assert_eq!(guywire.states(), running(&["m1", "m2"]));
    assert!(!guywire.ssh("m1", "cat /etc/hosts").contains("m3"), "its name goes with it");
    guywire.ssh("m1", "echo kept > /root/kept");
    guywire.lab("up", &["--machines", "4"]);
    assert_eq!(guywire.states(), running(&["m1", "m2", "m3", "m4"]));
    assert_eq!(guywire.ssh("m1", "cat /root/kept"), "kept", "those that were there stay as they are");
    let again = guywire.lab("up", &["--machines", "4"]);
    assert!(again.stderr.contains("is as it should be"), "{again:#?}");

    guywire.lab("down", &[]);
    assert_no_trace(&id, &guywire.data());
    assert_eq!(guywire.states(), []);
    assert!(guywire.lab("down", &[]).stderr.contains("there is no lab"));
    assert!(guywire.ok(&["lab", "sweep"]).stdout.contains("nothing was left"));
}

/// Tables for people, JSON for programs.
fn lists(guywire: &Guywire) {
    let table = guywire.ok(&["lab", "list"]).stdout;
    assert!(table.starts_with("LAB "), "{table}");
    assert_eq!(table.lines().count(), 4, "{table}");
    assert_eq!(guywire.states(), running(&["m1", "m2", "m3"]));
    let machine = &guywire.machines()[0];
    for field in ["lab", "site", "machine", "state", "ipv4", "ipv6", "template"] {
        assert!(machine[field].is_string(), "{field}: {machine}");
    }

    let table = guywire.ok(&["plan", "list"]).stdout;
    assert!(table.starts_with("PLAN ") && table.contains("succeeded"), "{table}");
    let plans = guywire.plans();
    assert_eq!((plans.len(), &plans[0]["state"]), (1, &Value::from("succeeded")));
    let plan = plans[0]["id"].to_string();

    let drawing = guywire.ok(&["plan", "show", &plan]).stdout;
    assert!(drawing.contains("✓ m2 create") && drawing.contains(" s"), "{drawing}");
    let shown = guywire.json(&["plan", "show", &plan]);
    let tasks: Vec<&Value> = shown["phases"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|phase| phase["tasks"].as_array().unwrap())
        .collect();
    assert_eq!(tasks.len(), 11, "networks, template, and three of create, power, ready: {shown}");
    assert!(tasks.iter().all(|task| task["state"] == "succeeded" && task["attempt"] == 1), "{shown}");
    // A plan that has ended is told from its beginning.
    let watched = guywire.ok(&["plan", "watch", &plan]).stderr;
    assert!(watched.contains("✓ m3 ready") && watched.contains("succeeded"), "{watched}");
}

/// A command's exit code is ours, and its two outputs stay apart.
fn commands(guywire: &Guywire) {
    let args = guywire.lab_args("ssh", &["m1", "echo out; echo err >&2; exit 42"]);
    let output = guywire.run(&args);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(42), "out\n", "err\n"));
    let words = guywire.lab("ssh", &["m1", "printf", "%s|", "two words", "$HOME", "-x"]);
    assert_eq!(words.stdout, "two words|$HOME|-x|", "several words are an argument each");
    assert_eq!(guywire.ssh("m2", "hostname"), "m2");
    let large = guywire.lab("ssh", &["m1", "head -c 3000000 /dev/zero | tr '\\0' x"]).stdout;
    assert_eq!(large.len(), 3_000_000, "nothing of a long output is lost");
}

/// Machines know each other by name in both families.
fn names(guywire: &Guywire) {
    for machine in guywire.machines() {
        let (name, v4, v6) = (&machine["machine"], &machine["ipv4"], &machine["ipv6"]);
        let name = name.as_str().unwrap();
        assert_eq!(*v4, guywire.ssh("m1", &format!("getent ahostsv4 {name} | awk 'NR==1 {{print $1}}'")));
        assert_eq!(*v6, guywire.ssh("m1", &format!("getent ahostsv6 {name} | awk 'NR==1 {{print $1}}'")));
    }
    // Through the network, to the other's SSH server, in each family.
    for family in ["v4", "v6"] {
        let dial = format!(
            "a=$(getent ahosts{family} m2 | awk 'NR==1 {{print $1}}'); exec 3<> /dev/tcp/$a/22; head -c 7 <&3"
        );
        assert_eq!(guywire.lab("ssh", &["m1", "bash", "-c", &dial]).stdout, "SSH-2.0", "{family}");
    }
}

/// A power cut takes processes and leaves the disk.
fn power(guywire: &Guywire) {
    guywire.ssh("m2", "echo before > /root/disk; echo gone > /run/memory; sync");
    guywire.lab("cut", &["m2"]);
    assert_eq!(guywire.states()[1], ("m2".to_owned(), "off".to_owned()));
    guywire.lab("cut", &["m2"]);
    let args = guywire.lab_args("ssh", &["m2", "true"]);
    assert_eq!(guywire.run(&args).code, Some(1), "nobody answers");
    guywire.lab("boot", &["m2"]);
    assert_eq!(
        guywire.ssh("m2", "cat /root/disk; ls /run/memory 2>&1 || true").lines().next(),
        Some("before")
    );
    guywire.lab("boot", &["m2"]);
}
