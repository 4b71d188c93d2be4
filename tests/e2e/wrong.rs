//! Wrong input: each a message that says where and what to do, the right exit code, and nothing half made.

use std::{
    os::unix::fs::PermissionsExt,
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    harness::{Guywire, Output, Running, binary},
    host::processes,
};

const FAILED: i32 = 1;
const USAGE: i32 = 2;

/// Nothing of a lab is there: no machine, no plan, no process.
fn assert_nothing_made(guywire: &Guywire) {
    assert!(guywire.ok(&["lab", "sweep"]).stdout.contains("nothing was left"));
    assert_eq!(guywire.plans().len(), 0, "no plan was made");
    assert_eq!(processes(&guywire.data().display().to_string()), [""; 0]);
}

#[test]
fn a_lab_file_with_a_mistake_is_refused_with_its_line() {
    let guywire = Guywire::new();
    let head = "name: demo\nsites:\n- {name: s, v4: 10.78.0.0/24}\nmachines:\n";
    let cases: &[(&str, String, &[&str])] = &[
        ("unknown field", format!("{head}- {{name: a, colour: red}}\n"), &[":5: ", "colour"]),
        ("unknown field on top", format!("colour: red\n{head}- name: a\n"), &[":1: ", "colour"]),
        ("duplicate machine", format!("{head}- name: a\n- name: b\n- name: a\n"), &[":7: machine a is there twice"]),
        (
            "address outside",
            format!("{head}- {{name: a, address: 10.79.0.7}}\n"),
            &[":5: machine a: address 10.79.0.7 is outside 10.78.0.0/24; choose one from 10.78.0.2"],
        ),
        (
            "address twice",
            format!("{head}- {{name: a, address: 10.78.0.7}}\n- {{name: b, address: 10.78.0.7}}\n"),
            &[":6: machine b: its address is taken twice"],
        ),
        ("no address at all", format!("{head}- {{name: a, address: 10.78}}\n"), &[":5: ", "address"]),
        ("unknown site", format!("{head}- {{name: a, site: t}}\n"), &[":5: machine a: no site t here; the sites are s"]),
        ("unknown template", format!("{head}- {{name: a, template: t}}\n"), &[":5: machine a: no template t"]),
        ("bad machine name", format!("{head}- {{name: A_b}}\n"), &[":5: ", "machine name \"A_b\"", "use 1 to"]),
        ("bad YAML", format!("{head}- {{name: a\n"), &["bad.yaml:"]),
        ("a tab", format!("{head}\t- name: a\n"), &["bad.yaml:5: "]),
        ("not YAML at all", "\u{1}\u{2}\u{3}".to_owned(), &["bad.yaml:1: "]),
        ("empty", String::new(), &["bad.yaml:1: "]),
        ("a list", "- a\n- b\n".to_owned(), &["bad.yaml:1: "]),
        ("no machines", "name: demo\n".to_owned(), &["bad.yaml:", "machines"]),
        ("bad subnet", "name: demo\nsites: [{name: s, v4: 10.0.0.0/99}]\nmachines: []\n".into(), &[":2: "]),
        ("bad secret", format!("{head}- name: a\n  login: {{user: a, password: hunter2}}\n"), &[":6: ", "secret:"]),
        ("huge", format!("{head}#{}\n", "x".repeat(2 << 20)), &["bad.yaml: its ", "bytes are more than"]),
        ("deep", format!("name: {}\n", "[".repeat(100_000)), &["bad.yaml:1: "]),
        (
            "many aliases",
            "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\n".into(),
            &["bad.yaml:"],
        ),
    ];
    for (what, text, words) in cases {
        let file = guywire.file("bad.yaml", text);
        let begin = Instant::now();
        let output = guywire.run(&["lab", "up", "--file", &file]);
        assert!(begin.elapsed() < Duration::from_secs(5), "{what} takes long");
        assert_eq!(output.code, Some(FAILED), "{what}: {output:#?}");
        assert!(output.stderr.starts_with(&format!("error: {file}")), "{what} names the file: {output:#?}");
        for word in *words {
            assert!(output.stderr.contains(word), "{what} should say {word:?}: {}", output.stderr);
        }
        assert!(!output.stderr.contains("hunter2"), "{what} repeats a password: {output:#?}");
    }
    assert_nothing_made(&guywire);
}

#[test]
fn a_command_line_with_a_mistake_is_refused() {
    let guywire = Guywire::new();
    let missing = guywire.data().join("missing.yaml").display().to_string();
    let directory = std::env::temp_dir().display().to_string();
    let lab = guywire.name().to_owned();
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&[], USAGE, &["Usage"]),
        (&["lab", "explode"], USAGE, &["unrecognized subcommand 'explode'"]),
        (&["lab", "upp"], USAGE, &["'up'"]),
        (&["lab", "up", "--machines", "0"], USAGE, &["0 is not in 1..=189"]),
        (&["lab", "up", "--machines", "10000"], USAGE, &["10000 is not in 1..=189"]),
        (&["lab", "up", "--machines", "many"], USAGE, &["'many'"]),
        (&["lab", "up", "--name", "Bad_Name"], USAGE, &["lab name \"Bad_Name\"", "use 1 to"]),
        (&["lab", "up", "--name", "../../etc"], USAGE, &["lab name"]),
        (&["lab", "up", "--colour"], USAGE, &["--colour"]),
        (&["lab", "list", "-o", "xml"], USAGE, &["xml", "json"]),
        (&["lab", "up", "--file", "a", "--machines", "2"], USAGE, &["cannot be used with"]),
        (&["lab", "up", "--file", &missing], FAILED, &["missing.yaml: cannot be read", "No such file"]),
        (&["lab", "up", "--file", &directory], FAILED, &[&directory, "cannot be read"]),
        (&["lab", "ssh", "--name", &lab, "m9", "true"], FAILED, &["m9"]),
        (&["lab", "cut", "--name", &lab, "m9"], FAILED, &["there is no machine m9"]),
        (&["lab", "boot", "--name", &lab, "m9"], FAILED, &["there is no machine m9"]),
        (&["lab", "rm", "--name", &lab, "m9"], FAILED, &["there is no machine m9"]),
        (&["plan", "show", "77"], FAILED, &["plan 77", "journal.db"]),
        (&["plan", "watch", "77"], FAILED, &["plan 77"]),
        (&["plan", "resume", "77"], FAILED, &["plan 77"]),
        (&["plan", "cancel", "77"], FAILED, &["plan 77"]),
        (&["plan", "show", "seven"], USAGE, &["seven"]),
        (&["plan", "show", "-1"], USAGE, &["-1"]),
        (&["plan", "show", "99999999999999999999"], USAGE, &["99999999999999999999"]),
        (&["secret", "set", "no spaces please"], FAILED, &["secret:"]),
        (&["secret", "set", "empty"], FAILED, &["no value", "guywire secret set empty < FILE"]),
        (&["secret", "rm", "nobody"], FAILED, &["no secret nobody", "guywire secret list"]),
        (&["hosts", "list", "--inventory", &missing], FAILED, &["missing.yaml: cannot be read"]),
        (&["hosts", "claim", "--inventory", &missing], FAILED, &["missing.yaml: cannot be found"]),
        (&["completion", "tcsh"], USAGE, &["tcsh"]),
        (
            &["plan", "list", "--database", "postgres://me:pass@localhost/db"],
            FAILED,
            &["--database", "GUYWIRE_DATABASE"],
        ),
        (
            &["plan", "list", "--database", "mysql://localhost/db"],
            FAILED,
            &["\"mysql\" is not", "postgres://"],
        ),
    ];
    for (args, code, words) in cases {
        let output = guywire.fails(args, *code, words);
        assert!(!output.stderr.contains("me:pass"), "{args:?} repeats a password: {output:#?}");
    }
    assert_nothing_made(&guywire);
}

#[test]
fn an_inventory_with_a_mistake_is_refused_with_its_line() {
    let guywire = Guywire::new();
    let key = guywire.file("open.key", "not a key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let host = format!("hosts:\n- {{name: a, address: 127.0.0.1, user: root, key_file: {key}");
    let open = format!("run `chmod 600 {key}`");
    let cases: &[(&str, String, &[&str])] = &[
        ("open key", format!("{host}}}\n"), &["a", &open]),
        ("unknown field", format!("{host}, colour: red}}\n"), &["bad.yaml:2: ", "colour"]),
        ("bad port", format!("{host}, port: 65536}}\n"), &["bad.yaml:2: host a: there is no port 65536"]),
        ("bad host key", format!("{host}, host_key: nonsense}}\n"), &["bad.yaml:2: host a: host_key"]),
        ("no user", "hosts:\n- {name: a, address: 10.0.0.1}\n".into(), &["bad.yaml:2: host a: no user"]),
        (
            "bad address",
            "hosts:\n- {name: a, address: 10.0.0.1:22}\n".into(),
            &["bad.yaml:2: ", "without port"],
        ),
        (
            "twice",
            format!("{host}}}\n- {{name: a, address: 10.0.0.2, user: root, key_file: k}}\n"),
            &["bad.yaml:3: host a is there twice"],
        ),
        ("none", "hosts: []\n".into(), &["bad.yaml: it lists no hosts"]),
    ];
    for (what, text, words) in cases {
        let file = guywire.file("bad.yaml", text);
        let output = guywire.run(&["hosts", "list", "--inventory", &file]);
        assert_eq!(output.code, Some(FAILED), "{what}: {output:#?}");
        let said = output.stdout + &output.stderr;
        for word in *words {
            assert!(said.contains(word), "{what} should say {word:?}: {said}");
        }
    }
}

#[test]
fn a_host_that_does_not_answer_is_given_up_in_bounded_time() {
    let guywire = Guywire::new();
    guywire.ok(&["secret", "list"]);
    // Nobody listens on one, and packets to the other are lost: it is on a lab's network without a machine.
    guywire.lab("up", &["--machines", "1"]);
    let address = guywire.machines()[0]["ipv4"].as_str().unwrap().to_owned();
    let lost = format!("{}.99", address.rsplit_once('.').unwrap().0);
    let key = guywire.data().join("id_ed25519").display().to_string();
    let file = guywire.file(
        "away.yaml",
        &format!("defaults: {{user: root, key_file: {key}}}\nhosts:\n- {{name: closed, address: 127.0.0.1, port: 1}}\n- {{name: lost, address: {lost}}}\n"),
    );
    let begin = Instant::now();
    let output = guywire.run(&["hosts", "list", "--inventory", &file]);
    assert_eq!(output.code, Some(FAILED), "{output:#?}");
    assert!(output.stdout.contains("closed") && output.stdout.contains("127.0.0.1:1"), "{output:#?}");
    let begin_claim = Instant::now();
    let listing = begin.elapsed();
    guywire.fails(&["hosts", "claim", "--inventory", &file, "closed"], FAILED, &["closed"]);
    let claiming = begin_claim.elapsed();
    eprintln!("gave up listing after {listing:.1?}, claiming after {claiming:.1?}");
    assert!(
        listing < Duration::from_secs(30) && claiming < Duration::from_secs(60),
        "{listing:?} {claiming:?}"
    );
}

#[test]
fn an_ended_plan_is_neither_resumed_nor_cancelled() {
    let guywire = Guywire::new();
    guywire.lab("up", &["--machines", "1"]);
    guywire.fails(&["plan", "resume", "1"], FAILED, &["plan 1 is succeeded", "nothing to go on with"]);
    guywire.fails(&["plan", "cancel", "1"], FAILED, &["plan 1", "succeeded"]);
    guywire.fails(&guywire.lab_args("ssh", &["m7", "true"]), FAILED, &["m7", "m1"]);
    guywire.fails(&guywire.lab_args("cut", &["m7"]), FAILED, &["there is no machine m7; there are m1"]);
    // Another machine of the same name is not what is there.
    let text = format!(
        "name: {}\nsites: [{{name: site1}}]\nmachines:\n- name: m1\n  login: {{user: eve, password: secret:eve}}\n",
        guywire.name()
    );
    let file = guywire.file("other.yaml", &text);
    guywire.fails(&["lab", "up", "--file", &file], FAILED, &["m1", "login", "guywire lab rm m1"]);
    assert_eq!(guywire.plans().len(), 1);
}

#[test]
fn a_damaged_or_closed_data_directory_is_named() {
    let guywire = Guywire::new();
    guywire.ok(&["plan", "list"]);
    let data = guywire.data();
    let journal = data.join("journal.db").display().to_string();
    for name in ["journal.db-wal", "journal.db-shm"] {
        match std::fs::remove_file(data.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }
    std::fs::write(&journal, "this is no database, it only looks like a file of one".repeat(200)).unwrap();
    guywire.fails(&["plan", "list"], FAILED, &[&journal]);
    guywire.fails(&guywire.lab_args("up", &["--machines", "1"]), FAILED, &[&journal]);
    std::fs::remove_file(&journal).unwrap();
    std::fs::create_dir(&journal).unwrap();
    guywire.fails(&["plan", "list"], FAILED, &[&journal]);
    std::fs::remove_dir(&journal).unwrap();
    assert_nothing_made(&guywire);

    // Others could put their own keys there.
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    guywire.fails(
        &["plan", "list"],
        FAILED,
        &["lets others write", &format!("chmod 700 {}", data.display())],
    );
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();

    let file = guywire.file("plain", "");
    guywire.fails(&["plan", "list", "--data", &file], FAILED, &[&file]);
    guywire.fails(&["plan", "list", "--data", &format!("{file}/below")], FAILED, &["plain/below", "--data"]);
    guywire.fails(&["plan", "list", "--data", "/proc/nowhere"], FAILED, &["/proc/nowhere", "--data"]);
    guywire.fails(&["lab", "list", "--data", ""], USAGE, &["--data"]);

    // The installation's own key, open to others.
    guywire.lab("up", &["--machines", "1"]);
    let key = data.join("id_ed25519");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let advice = format!("chmod 600 {}", key.display());
    guywire.fails(&guywire.lab_args("up", &["--machines", "2"]), FAILED, &["id_ed25519", &advice]);
    guywire.fails(&guywire.lab_args("ssh", &["m1", "true"]), FAILED, &["id_ed25519", &advice]);
}

/// Runs a command where the data directory is on a file system that `mount` has made of `DIR`.
fn in_mount(guywire: &Guywire, mount: &str, args: &[&str]) -> Output {
    let script =
        format!("{}\nexec \"$0\" \"$@\"", mount.replace("DIR", &guywire.data().display().to_string()));
    let plain = guywire.command(args);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", &script]).arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = Running::spawn(&mut command).wait();
    guywire.note(&output);
    output
}

#[test]
fn a_read_only_or_full_disk_is_named_and_loses_nothing() {
    let guywire = Guywire::new();
    guywire.lab("up", &["--machines", "1"]);
    let before = guywire.plans();
    let up = guywire.lab_args("up", &["--machines", "2"]);
    let read_only = "mount --bind DIR DIR; mount -o remount,bind,ro DIR";
    let full = "mount -t tmpfs -o size=120k,mode=700 tmpfs DIR";
    for (mount, words) in [(read_only, ["cannot be written", "journal.db"]), (full, ["full", "journal.db"])] {
        let output = in_mount(&guywire, mount, &up);
        assert_eq!(output.code, Some(FAILED), "{output:#?}");
        let said = output.stderr.to_lowercase();
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {output:#?}");
    }
    assert_eq!(guywire.plans(), before);
    assert_eq!(guywire.ssh("m1", "hostname"), "m1");
    guywire.ok(&up);
    assert_eq!(guywire.states().len(), 2);
}

#[test]
fn without_root_it_says_so() {
    let guywire = Guywire::new();
    // A place that anybody may look into (the tests' own may be below root's home), with a copy of the
    // binary that anybody may run.
    let dir = tempfile::Builder::new().prefix("guywire-e2e-nobody-").tempdir_in("/var/tmp").unwrap();
    let place = dir.path();
    std::fs::copy(binary(), place.join("guywire")).unwrap();
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o777)).unwrap();
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(place.join("guywire"))
            .args(args);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", place).current_dir("/");
        Running::spawn(&mut command).wait()
    };
    let up = as_nobody(&["lab", "up", "--machines", "1"]);
    assert_eq!(up.code, Some(FAILED), "{up:#?}");
    assert!(up.stderr.contains("needs root") && up.stderr.contains("sudo"), "{up:#?}");
    // What needs no root works without.
    assert_eq!(as_nobody(&["plan", "list"]).code, Some(0));
    let closed = as_nobody(&["plan", "list", "--data", "/root/guywire-of-nobody"]);
    assert_eq!(closed.code, Some(FAILED), "{closed:#?}");
    assert!(
        closed.stderr.contains("/root/guywire-of-nobody") && closed.stderr.contains("--data"),
        "{closed:#?}"
    );
    guywire.ok(&["plan", "list"]);
    let ours = as_nobody(&["plan", "list", "--data", &guywire.data().display().to_string()]);
    assert_eq!(ours.code, Some(FAILED), "{ours:#?}");
}
