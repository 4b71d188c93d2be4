//! Our own command line against a manager, the whole life of a VNF.

use serde_json::Value;

use crate::{
    callback::Callback,
    harness::{Running, until},
    manager::Manager,
};

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Names of an instance's components.
fn components(manager: &Manager, vnf: &str) -> Vec<String> {
    let shown = manager.json(&["vnf", "show", vnf]);
    let all = shown["instantiatedVnfInfo"]["vnfcResourceInfo"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| text(&one["id"])).collect()
}

#[test]
fn a_vnf_lives_from_its_package_to_its_end() {
    let manager = Manager::start();
    let callback = Callback::start();
    let subscription = manager.json(&["subscription", "create", &callback.url]);
    let package = manager.upload_hello();
    let shown = manager.json(&["package", "show", &package]);
    assert_eq!(
        (&shown["onboardingState"], &shown["usageState"]),
        (&"ONBOARDED".into(), &"NOT_IN_USE".into())
    );
    let vnfd = text(&shown["vnfdId"]);
    // By its VNFD's id, by its product's name, by the beginning and by the end of its id.
    for name in [vnfd.as_str(), "Hello", &package[..23], &package[28..]] {
        assert_eq!(manager.json(&["package", "show", name])["id"], package.as_str(), "{name}");
    }
    manager.fails(&["package", "vnfd", &package], 1, &["several files", "--zip FILE"]);
    let zip = manager.file("vnfd.zip", None).display().to_string();
    manager.ok(&["package", "vnfd", &package, "--zip", &zip]);
    assert!(std::fs::read(&zip).expect("it is saved").starts_with(b"PK"));
    manager.fails(&["package", "vnfd", &package, "--zip", &zip], 1, &["choose another name"]);
    let artifact = manager.ok(&["package", "artifact", &package, "Scripts/hello.py"]).stdout;
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hello/Scripts/hello.py");
    assert_eq!(artifact, std::fs::read_to_string(tree).expect("the script"));

    let vnf = text(&manager.json(&["vnf", "create", "Hello", "--name", "greeter"])["id"]);
    assert_eq!(manager.json(&["vnf", "show", "greeter"])["id"], vnf.as_str());
    // The package has one flavour, so none has to be named.
    let output = manager.ok(&["vnf", "instantiate", "greeter", "--wait"]);
    assert!(output.stderr.contains("INSTANTIATE PROCESSING"), "progress is shown: {}", output.stderr);
    assert!(output.stderr.contains('✓'), "tasks are shown: {}", output.stderr);
    assert!(output.stdout.contains("COMPLETED"));
    let before = components(&manager, "greeter");
    assert_eq!(before.len(), 2);
    let table = manager.ok(&["vnf", "show", "greeter"]).stdout;
    for component in &before {
        assert!(table.contains(component.as_str()), "{table}");
    }

    manager.ok(&["vnf", "scale", "greeter", "--aspect", "hello_instance", "--out", "1", "--wait"]);
    assert_eq!(components(&manager, "greeter").len(), 3);
    manager.ok(&["vnf", "scale", "greeter", "--aspect", "hello_instance", "--in", "1", "--wait"]);
    assert_eq!(components(&manager, "greeter"), before);
    manager.ok(&["vnf", "heal", "greeter", "--vnfc", &before[0], "--cause", "a test", "--wait"]);
    assert_eq!(components(&manager, "greeter"), before, "a component keeps its name");
    manager.ok(&["vnf", "operate", "greeter", "stop", "--wait"]);
    assert_eq!(manager.json(&["vnf", "show", "greeter"])["instantiatedVnfInfo"]["vnfState"], "STOPPED");
    manager.ok(&["vnf", "operate", "greeter", "start", "--wait"]);
    manager.ok(&["vnf", "modify", "greeter", "--name", "host", "--metadata", "floor=3", "--wait"]);
    assert_eq!(manager.json(&["vnf", "show", "host"])["metadata"]["floor"], 3);
    assert_eq!(manager.json(&["package", "show", &package])["usageState"], "IN_USE");

    let operations = manager.json(&["op", "list", "--vnf", "host"]);
    let kinds: Vec<String> =
        operations.as_array().expect("a list").iter().map(|one| text(&one["operation"])).collect();
    assert_eq!(kinds, ["INSTANTIATE", "SCALE", "SCALE", "HEAL", "OPERATE", "OPERATE", "MODIFY_INFO"]);
    let first = text(&operations[0]["id"]);
    let drawn = manager.ok(&["op", "show", &first]).stdout;
    assert!(drawn.contains("plan ") && drawn.contains("succeeded"), "{drawn}");
    let watched = manager.ok(&["op", "watch", &first]);
    assert!(watched.stderr.contains('✓'), "what is over is told again: {}", watched.stderr);

    manager.ok(&["vnf", "terminate", "host", "--wait"]);
    manager.ok(&["vnf", "delete", "host"]);
    manager.ok(&["package", "delete", &package, "--disable"]);
    assert_eq!(manager.json(&["vnf", "list"]), Value::Array(vec![]));
    assert_eq!(manager.json(&["package", "list"]), Value::Array(vec![]));

    let id = text(&subscription["id"]);
    let told = until("all is told", || {
        let shown = manager.json(&["subscription", "show", &id]);
        (shown["delivery"]["waiting"] == 0).then_some(shown)
    });
    let heard = callback.heard();
    assert_eq!(told["delivery"]["delivered"], heard.len());
    let kind = |at: usize| text(&heard[at]["notificationType"]);
    assert_eq!(kind(0), "VnfIdentifierCreationNotification");
    assert_eq!(kind(heard.len() - 1), "VnfIdentifierDeletionNotification");
    manager.ok(&["subscription", "delete", &id]);
    assert_eq!(manager.json(&["subscription", "list"]), Value::Array(vec![]));
    assert!(!manager.guywire.transcript().contains(&manager.token), "a token is never printed");
}

#[test]
fn a_watch_outlives_the_manager_that_it_watches() {
    let mut manager = Manager::start();
    manager.upload_hello();
    let vnf = text(&manager.json(&["vnf", "create", "Hello"])["id"]);
    let mut command = manager.command(&["vnf", "instantiate", &vnf, "--wait"]);
    let waiting = Running::spawn(&mut command);
    until("a plan runs", || {
        let all = manager.json(&["op", "list"]);
        (all[0]["operationState"] == "PROCESSING").then_some(())
    });
    manager.restart();
    let output = waiting.wait();
    assert_eq!(output.code, Some(0), "{output:#?}\n{}", manager.said());
    assert!(output.stderr.contains("the manager is away"), "{}", output.stderr);
    assert!(output.stdout.contains("COMPLETED"), "{output:?}");
    manager.ok(&["vnf", "terminate", &vnf, "--force", "--wait"]);
}

#[test]
fn an_operation_can_be_cancelled_retried_rolled_back_and_given_up() {
    let manager = Manager::start();
    manager.upload_hello();
    let vnf = text(&manager.json(&["vnf", "create", "Hello", "--name", "n"])["id"]);
    let operation = text(&manager.json(&["vnf", "instantiate", &vnf, "--param", "delay=3"])["operation"]);
    until("it is under way", || {
        (manager.json(&["op", "show", &operation])["operationState"] == "PROCESSING").then_some(())
    });
    manager.ok(&["op", "cancel", &operation, "--force", "--wait"]);
    let record = manager.until_state(&operation, "FAILED_TEMP");
    assert!(record["error"]["detail"].is_string(), "{record}");
    let listed = manager.fails(&["vnf", "delete", "n"], 1, &["409", "not deleted"]);
    assert!(!listed.stderr.contains("panicked"));
    manager.ok(&["op", "retry", &operation, "--wait"]);
    assert_eq!(components(&manager, "n").len(), 2);

    let scale = ["vnf", "scale", "n", "--aspect", "hello_instance", "--out", "1", "--param", "delay=3"];
    let operation = text(&manager.json(&scale)["operation"]);
    until("it is under way", || {
        (manager.json(&["op", "show", &operation])["operationState"] == "PROCESSING").then_some(())
    });
    manager.ok(&["op", "cancel", &operation, "--force", "--wait"]);
    manager.ok(&["op", "rollback", &operation, "--wait"]);
    manager.until_state(&operation, "ROLLED_BACK");
    assert_eq!(components(&manager, "n").len(), 2);

    let operation = text(&manager.json(&scale)["operation"]);
    until("it is under way", || {
        (manager.json(&["op", "show", &operation])["operationState"] == "PROCESSING").then_some(())
    });
    manager.ok(&["op", "cancel", &operation, "--force", "--wait"]);
    assert_eq!(manager.json(&["op", "fail", &operation])["operationState"], "FAILED");
    manager.ok(&["vnf", "terminate", "n", "--force", "--wait"]);
}

#[test]
fn people_log_in_and_may_do_what_their_role_allows() {
    let manager = Manager::start();
    let made = manager.json(&["token", "create", "eve", "--role", "reader"]);
    let secret = text(&made["secret"]);
    // Contexts of her own, on the same host as the administrator's.
    let home = manager.file("eve", None);
    let login = |token: &str, name: &str| {
        let mut command = manager.command(&["login", &manager.url, "--name", name]);
        command.env_remove("GUYWIRE_URL").env("XDG_CONFIG_HOME", &home);
        let file = manager.file("token", Some(token));
        command.stdin(std::fs::File::open(file).expect("the token"));
        Running::spawn(&mut command).wait()
    };
    let output = login(&format!("{secret}\n"), "site");
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("logged in as eve (reader)"), "{output:?}");
    // Without an address the context decides.
    let as_eve = |args: &[&str]| {
        let mut command = manager.command(args);
        command.env_remove("GUYWIRE_URL").env("GUYWIRE_DATA", "/nonexistent").env("XDG_CONFIG_HOME", &home);
        Running::spawn(&mut command).wait()
    };
    assert_eq!(as_eve(&["vnf", "list"]).code, Some(0));
    let refused = as_eve(&["vnf", "create", "x"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let refused = as_eve(&["token", "list"]);
    assert!(
        refused.stderr.contains("eve has the role reader") && refused.stderr.contains("403"),
        "{refused:?}"
    );
    let listed = as_eve(&["context", "list"]);
    assert!(listed.stdout.contains("* ") && listed.stdout.contains("site"), "{listed:?}");
    assert!(!listed.stdout.contains(&secret));
    // Who is let in no longer is told so, and a login that fails keeps nothing.
    manager.ok(&["token", "rm", "eve"]);
    until("the manager has noticed", || (as_eve(&["vnf", "list"]).code == Some(1)).then_some(()));
    let refused = as_eve(&["vnf", "list"]);
    assert!(refused.stderr.contains("401") && refused.stderr.contains("guywire login"), "{refused:?}");
    assert_eq!(login("wrong\n", "other").code, Some(1));
    assert!(!as_eve(&["context", "list"]).stdout.contains("other"));
    assert_eq!(as_eve(&["context", "rm", "site"]).code, Some(0));
    assert!(as_eve(&["context", "list"]).stdout.contains("no contexts"));
}

#[test]
fn levels_packages_networks_vims_and_alarms() {
    let manager = Manager::start();
    let package = manager.upload_hello();
    let shown = manager.json(&["vim", "show", "own"]);
    assert_eq!((&shown["type"], &shown["is_default"]), (&"lab".into(), &true.into()));
    assert_eq!(manager.json(&["vim", "set", "own", "--description", "d"])["description"], "d");
    manager.ok(&["package", "disable", &package]);
    manager.fails(&["vnf", "create", "Hello"], 1, &["DISABLED", "422"]);
    manager.ok(&["package", "enable", &package]);
    let vnf = text(&manager.json(&["vnf", "create", "Hello", "--name", "n"])["id"]);
    let secret = manager.file("secret", Some("hunter2\n")).display().to_string();
    let password = format!("password=@{secret}");
    let words = ["vnf", "instantiate", "n", "--flavour", "simple", "--level", "small", "--vim", "own"];
    let words: Vec<&str> =
        words.into_iter().chain(["--param", "a.b=1", "--param", &password, "--wait"]).collect();
    manager.ok(&words);
    let first = manager.json(&["op", "show", &text(&manager.newest(&vnf)["id"])]);
    assert_eq!(first["operationParams"]["additionalParams"]["a"]["b"], 1, "{first}");
    assert!(!first.to_string().contains("hunter2"), "a password is shown as a reference: {first}");
    assert!(!manager.guywire.transcript().contains("hunter2"), "a password is never printed");
    assert_eq!(components(&manager, "n").len(), 1);
    manager.ok(&["vnf", "scale-to", "n", "--level", "default", "--wait"]);
    assert_eq!(components(&manager, "n").len(), 2);
    manager.ok(&["vnf", "scale-to", "n", "--aspect", "hello_instance=0", "--wait"]);
    assert_eq!(components(&manager, "n").len(), 1);
    manager.fails(&["vnf", "change-flavour", "n", "simple", "--wait"], 1, &["simple", "409"]);
    manager.ok(&["vnf", "change-package", "n", "Hello", "--wait"]);
    manager.ok(&["vnf", "heal", "n", "--all", "--wait"]);
    manager.fails(&["vim", "delete", "own"], 1, &["409", "not deleted"]);

    let scale = ["vnf", "scale", "n", "--aspect", "hello_instance", "--out", "1", "--param", "delay=3"];
    let operation = text(&manager.json(&scale)["operation"]);
    until("it is under way", || {
        (manager.json(&["op", "show", &operation])["operationState"] == "PROCESSING").then_some(())
    });
    manager.ok(&["op", "cancel", &operation, "--force", "--wait"]);
    let alarm = until("an alarm", || manager.json(&["alarm", "list"]).as_array()?.first().cloned());
    let id = text(&alarm["id"]);
    assert!(manager.ok(&["alarm", "show", &id]).stdout.contains("UNACKNOWLEDGED"));
    manager.ok(&["alarm", "ack", &id]);
    assert_eq!(manager.json(&["alarm", "show", &id])["ackState"], "ACKNOWLEDGED");
    manager.ok(&["op", "rollback", &operation, "--wait"]);
    manager.ok(&["vnf", "terminate", "n", "--force", "--wait"]);
    manager.ok(&["vnf", "delete", "n"]);
    let made = manager.json(&["vim", "register", "other", "--type", "lab", "--interface", "lab=other"]);
    assert_eq!(made["is_default"], false);
    manager.ok(&["vim", "delete", "other"]);
}
