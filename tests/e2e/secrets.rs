//! Secrets are references: nothing but the encrypted store, and the process that needs one, has its value.

use std::{
    io::Write,
    os::unix::fs::PermissionsExt,
    panic::AssertUnwindSafe,
    path::Path,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::{
    fence::{executor, submit},
    harness::{Guywire, Running, until},
};

/// A password and a token with characters that shells and JSON write in other ways.
const PASSWORD: &str = "Pa55-kaboom-7\"q'w";
const TOKEN: &str = "tok3n/zebra+41==";

/// All that guywire and systemd have on a machine, but for what units printed.
const ON_MACHINE: &str = "find /var/lib/guywire /run/guywire -type f ! -name output -exec cat {} +
    systemctl show 'guywire-unit-*'; systemctl cat 'guywire-unit-*' 2> /dev/null
    journalctl --no-pager 2> /dev/null; cat /usr/local/lib/guywire/*
    cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null; true";

fn keep(guywire: &Guywire, name: &str, value: &str) {
    let mut child = guywire
        .command(&["secret", "set", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains(&format!("secret:{name}")), "{said}");
}

/// What must not be found: the secrets as they are, in base64, and as JSON writes them.
fn forms() -> Vec<(String, Vec<u8>)> {
    let mut forms = Vec::new();
    for secret in [PASSWORD, TOKEN] {
        forms.push((format!("{secret} itself"), secret.as_bytes().to_vec()));
        forms.push((format!("{secret} in base64"), BASE64_STANDARD.encode(secret).into_bytes()));
        let json = serde_json::to_string(secret).unwrap();
        forms.push((format!("{secret} in JSON"), json.trim_matches('"').as_bytes().to_vec()));
    }
    forms
}

/// The first form of a secret that is in there.
fn found(bytes: &[u8]) -> Option<String> {
    let has = |form: &[u8]| bytes.windows(form.len()).any(|window| window == form);
    forms().into_iter().find(|(_, form)| has(form)).map(|(what, _)| what)
}

fn assert_clean(place: &str, bytes: &[u8]) {
    assert_eq!(found(bytes), None, "in {place}");
}

/// Every file below a directory, but for `except`. Machines' own disks are looked at from the inside.
fn assert_files_clean(dir: &Path, except: &[&str], seen: &mut u32) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            assert_files_clean(&path, except, seen);
        } else if kind.is_file() && !except.iter().any(|name| path.ends_with(name)) {
            assert_clean(&path.display().to_string(), &std::fs::read(&path).unwrap());
            *seen += 1;
        }
    }
}

/// Looks at all command lines and environments on this host until told to stop.
fn watch_processes(stop: &AtomicBool) -> u32 {
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        for entry in std::fs::read_dir("/proc").unwrap() {
            let path = entry.unwrap().path();
            for name in ["cmdline", "environ"] {
                // Others' processes end while we look.
                if let Ok(bytes) = std::fs::read(path.join(name)) {
                    assert_clean(&path.join(name).display().to_string(), &bytes);
                }
            }
        }
        looks += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    looks
}

fn lab_file(guywire: &Guywire) -> String {
    let text = format!(
        "name: {}\nmachines:\n- name: m1\n  login: {{user: ops, password: 'secret:lab/ops'}}\n",
        guywire.name()
    );
    guywire.file("secret.yaml", &text)
}

#[test]
fn no_secret_turns_up_anywhere() {
    let guywire = Guywire::new();
    let stop = AtomicBool::new(false);
    let mut said = Vec::new();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch_processes(&stop));
        // A failure must stop the watcher too, or the scope would wait for it for ever.
        let used = std::panic::catch_unwind(AssertUnwindSafe(|| use_secrets(&guywire)));
        stop.store(true, Ordering::Relaxed);
        said = used.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(watcher.join().unwrap() > 10, "processes were looked at all along");
    });
    assert_clean("what commands printed", guywire.transcript().as_bytes());
    for output in said {
        assert_clean("what the executor printed", (output.stdout + &output.stderr).as_bytes());
    }
    for plan in guywire.plans() {
        let plan = plan["id"].to_string();
        for args in [
            &["plan", "show", &plan] as &[&str],
            &["plan", "show", &plan, "-o", "json"],
            &["plan", "watch", &plan],
        ] {
            let output = guywire.run(args);
            assert_clean(&format!("{args:?}"), (output.stdout + &output.stderr).as_bytes());
        }
    }
    // The journal with its log, known hosts, the lab's records and the machine's whole disk. The store is
    // encrypted, so it is looked at too; what units printed stays on the machine, for root alone.
    let mut seen = 0;
    assert_files_clean(&guywire.data(), &["output"], &mut seen);
    assert!(seen > 20, "{seen} files");
    let printed = guywire.ssh("m1", "cat /var/lib/guywire/units/*/1/output");
    assert!(found(printed.as_bytes()).is_some(), "where a secret is, the look finds it");
    assert_clean("the machine", guywire.ssh("m1", ON_MACHINE).as_bytes());
    let modes = guywire.ssh(
        "m1",
        "find /var/lib/guywire/units -name output -perm /077; find /var/lib/guywire/units -perm /077 -type d",
    );
    assert_eq!(modes, "", "what units printed is root's alone");
}

/// A machine with a password, and units that have secrets in them, show them, and fail with them.
fn use_secrets(guywire: &Guywire) -> Vec<crate::harness::Output> {
    keep(guywire, "lab/ops", PASSWORD);
    keep(guywire, "app/token", TOKEN);
    let listed = guywire.ok(&["secret", "list"]).stdout;
    assert!(listed.contains("lab/ops") && listed.contains("secret:app/token"), "{listed}");
    guywire.ok(&["lab", "up", "--file", &lab_file(guywire)]);
    assert_eq!(guywire.ssh("m1", "whoami; sudo -n whoami"), "root\nroot", "entered with the password");
    assert!(guywire.ssh("m1", "grep ^ops: /etc/shadow").starts_with("ops:$6$"), "a hash, not the password");
    let uses = "token='{secret:app/token}'; test ${#token} -eq 16; touch /root/begun; while [ ! -e /root/seen ]; do sleep 0.1; done";
    let shows = "echo 'token {secret:app/token}'; printf %s '{secret:app/token}' | base64; echo '{secret:app/token}' >&2";
    let fails = "echo 'cannot log in with {secret:app/token}' >&2; exit 5";
    let mut outputs = Vec::new();
    for (script, code) in [(uses, 0), (shows, 0), (fails, 11)] {
        let plan = submit(guywire, "m1", script);
        let running = Running::spawn(&mut executor(guywire, &["run", &plan]));
        if script == uses {
            // Until the unit has opened its script, that is a file in /run, in memory and root's alone; a look
            // that comes so early finds the secret there.
            let begun = "ls /root/begun 2> /dev/null || true";
            until("the unit has begun", || (!guywire.ssh("m1", begun).is_empty()).then_some(()));
            let while_it_runs = guywire.ssh("m1", ON_MACHINE);
            assert!(while_it_runs.contains("ActiveState=active"), "{while_it_runs}");
            assert_clean("the machine while a unit runs", while_it_runs.as_bytes());
            guywire.ssh("m1", "touch /root/seen");
        }
        let output = running.wait();
        assert_eq!(output.code, Some(code), "{output:#?}");
        let events = guywire.run(&["plan", "watch", &plan]).stderr;
        if script == shows {
            assert_eq!(events.matches("***").count(), 3, "masked where it was: {events}");
        }
        outputs.push(output);
    }
    outputs
}

#[test]
fn an_open_key_file_is_refused_with_advice() {
    let guywire = Guywire::new();
    keep(&guywire, "one", TOKEN);
    let key = guywire.data().join("secrets.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let advice = format!("chmod 600 {}", key.display());
    guywire.fails(&["secret", "list"], 1, &[&advice]);
    guywire.fails(&["secret", "rm", "one"], 1, &[&advice]);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(guywire.ok(&["secret", "list"]).stdout.contains("one"));
    keep(&guywire, "lab/ops", PASSWORD);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    guywire.fails(&["lab", "up", "--file", &lab_file(&guywire)], 1, &["m1", &advice]);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    guywire.ok(&["secret", "rm", "lab/ops"]);
    guywire.ok(&["secret", "rm", "one"]);
    assert!(guywire.ok(&["secret", "list"]).stdout.contains("no secrets"));
}

#[test]
fn a_secret_that_is_not_there_is_named_and_nothing_stays() {
    let guywire = Guywire::new();
    let output =
        guywire.fails(&["lab", "up", "--file", &lab_file(&guywire)], 1, &["lab/ops", "guywire secret set"]);
    assert!(!output.stdout.contains("m1"), "{output:#?}");
    assert!(guywire.ok(&["lab", "sweep"]).stdout.contains("nothing was left"));
}
