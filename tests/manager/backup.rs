//! Backups of a manager at work, and what a manager that is restored from one knows.

use std::{
    fs,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};

use crate::{
    harness::{Guywire, until},
    http::Http,
    manager::Manager,
};

const FAILED: i32 = 1;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Waits until an operation rests, which may take as long as tries on machines that are gone; its state.
fn settled(manager: &Manager, operation: &str) -> String {
    for _ in 0..600 {
        let state = text(&manager.json(&["op", "show", operation])["operationState"]);
        if !["STARTING", "PROCESSING"].contains(&state.as_str()) {
            return state;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    panic!("it does not come to rest: {:#}", manager.json(&["op", "show", operation]));
}

#[test]
fn a_restored_manager_knows_what_was_and_goes_on() {
    let there = Guywire::new();
    let file = there.data().with_file_name("files").join("backup").display().to_string();
    let manager = Manager::start();
    let mut secret = manager.command(&["secret", "set", "deep"]);
    let mut secret = secret.stdin(Stdio::piped()).spawn().expect("it starts");
    std::io::Write::write_all(&mut secret.stdin.take().expect("a pipe"), b"hunter2-hunter2")
        .expect("it is read");
    assert!(secret.wait().expect("it ends").success());
    let package = manager.upload_hello();
    let csar = fs::read(manager.hello()).expect("a package");
    let standing = text(&manager.json(&["vnf", "create", "Hello", "--name", "standing"])["id"]);
    manager.ok(&["vnf", "instantiate", &standing, "--level", "small", "--wait"]);
    let growing = text(&manager.json(&["vnf", "create", "Hello", "--name", "growing"])["id"]);
    let operation = text(&manager.json(&["vnf", "instantiate", &growing])["operation"]);
    manager.until_state(&operation, "PROCESSING");

    // Others change things all the while.
    let http = Http::new(&manager.url, &manager.token);
    let vnfd = text(&http.get(&format!("/vnflcm/v2/vnf_instances/{standing}"))["vnfdId"]);
    let over = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut made = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let body = json!({"vnfdId": vnfd, "vnfInstanceName": format!("load {}", made.len())});
                made.push(text(&http.post("/vnflcm/v2/vnf_instances", &body).json()["id"]));
            }
            made
        });
        let output = manager.run(&["manager", "backup", &file]);
        over.store(true, Ordering::Relaxed);
        assert_eq!(output.code, Some(0), "{output:?}\n{}", manager.said());
        load.join().expect("the load does not fail")
    });
    let token = manager.token.clone();
    manager.until_state(&operation, "COMPLETED");
    drop(manager);

    there.ok(&["manager", "restore", &file]);
    let restored = Manager::start_as_is(there, &[]);
    assert_eq!(restored.token, token, "who was let in still is");
    let names = restored.json(&["vnf", "list"]);
    assert!(names.as_array().is_some_and(|all| all.len() >= 2), "{names:#}");
    let known: Vec<String> = names.as_array().expect("a list").iter().map(|one| text(&one["id"])).collect();
    let loaded = made.iter().take_while(|id| known.contains(id)).count();
    assert!(
        made[loaded..].iter().all(|id| !known.contains(id)),
        "what is there is what was there at one moment"
    );
    println!("{} instances were made while the backup was, {loaded} are in it", made.len());
    assert!(restored.ok(&["secret", "list"]).stdout.contains("deep"));
    assert_eq!(restored.json(&["package", "show", &package])["onboardingState"], "ONBOARDED");
    let again = restored.file("again.csar", None);
    restored.ok(&["package", "download", &package, &again.display().to_string()]);
    assert_eq!(fs::read(&again).expect("its content"), csar);
    // What was under way is picked up. Disks are not part of a backup: where its machines were there already, it ends in
    // FAILED_TEMP with a reason, and is given up.
    let state = settled(&restored, &operation);
    println!("what was under way is {state}");
    if state == "FAILED_TEMP" {
        let record = restored.json(&["op", "show", &operation]);
        assert!(record["error"]["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{record:#}");
        restored.ok(&["op", "fail", &operation]);
    } else {
        assert_eq!(state, "COMPLETED");
    }
    // Machines that were lost with the host are made anew.
    restored.ok(&["vnf", "heal", &standing, "--all", "--wait"]);
    restored.ok(&["vnf", "terminate", &standing, "--wait"]);
}

#[test]
fn a_backup_that_cannot_be_is_refused() {
    let manager = Manager::start();
    let path = |name: &str| manager.file(name, None).display().to_string();
    let file = path("backup");
    manager.ok(&["manager", "backup", &file]);
    manager.fails(&["manager", "backup", &file], FAILED, &[&file, "a file that is not there yet"]);
    assert!(fs::metadata(&file).is_ok_and(|found| found.len() > 0), "the first one is still there");
    let nowhere = path("no/such/directory/backup");
    manager.fails(&["manager", "backup", &nowhere], FAILED, &[&nowhere]);
    manager.fails(&["manager", "restore", &file], FAILED, &["is there already", "an empty directory"]);

    let empty = Guywire::new();
    empty.fails(&["manager", "backup", &path("other")], FAILED, &["no manager has worked here"]);
    assert!(!manager.file("other", None).exists());
    empty.fails(&["manager", "restore", &path("missing")], FAILED, &["missing", "cannot be read"]);
    let noise = manager.file("noise", Some("this is no backup")).display().to_string();
    empty.fails(&["manager", "restore", &noise], FAILED, &[&noise, "it is no backup"]);
    let csar = manager.hello().display().to_string();
    empty.fails(&["manager", "restore", &csar], FAILED, &[&csar, "it is no backup of a manager"]);
    // One that lost its end, and one that lost some bytes in the middle: nothing of them is taken.
    let whole = fs::read(&file).expect("a backup");
    let cut = manager.file("cut", None);
    fs::write(&cut, &whole[..whole.len() / 2]).expect("it is written");
    empty.fails(&["manager", "restore", &cut.display().to_string()], FAILED, &["it is no backup"]);
    let mut bent = whole.clone();
    let at = whole.len() / 2;
    bent[at..at + 16].fill(0x55);
    fs::write(&cut, &bent).expect("it is written");
    empty.fails(&["manager", "restore", &cut.display().to_string()], FAILED, &["cut"]);
    empty.ok(&["manager", "restore", &file]);
    let restored = Manager::start_as_is(empty, &[]);
    assert_eq!(restored.token, manager.token);

    let server =
        std::env::var("GUYWIRE_TEST_POSTGRES").expect("GUYWIRE_TEST_POSTGRES is set by `cargo xtask test`");
    let shared = Guywire::with_database(&server);
    shared.fails(&["manager", "backup", &path("other")], FAILED, &["PostgreSQL", "pg_dump"]);
    shared.fails(&["manager", "restore", &file], FAILED, &["PostgreSQL", "--database"]);
    until("nothing is left half made", || (!manager.file("other", None).exists()).then_some(()));
}
