//! `openstack …` with python-tackerclient, as operators of Tacker use it: every verb that it has.

use std::process::Command;

use serde_json::Value;

use crate::{
    callback::Callback,
    harness::{Output, Running, until},
    manager::Manager,
};

/// The client, in one of its two versions.
struct OpenStack<'a> {
    manager: &'a Manager,
    version: &'static str,
}

impl OpenStack<'_> {
    fn run(&self, words: &str) -> Output {
        let program = std::env::var_os("GUYWIRE_TEST_OPENSTACK").expect(
            "GUYWIRE_TEST_OPENSTACK is not set; run the tests with `cargo xtask test`, or set it to an `openstack` that has python-tackerclient",
        );
        let mut command = Command::new(program);
        command.args(["--os-auth-type", "admin_token", "--os-endpoint", &self.manager.url]);
        command.args(["--os-token", &self.manager.token, "--os-tacker-api-version", self.version]);
        command.args(words.split_whitespace()).current_dir(self.manager.file("", None));
        Running::spawn(&mut command).wait()
    }

    /// Runs a command that must succeed; what it prints.
    fn ok(&self, words: &str) -> String {
        let output = self.run(words);
        assert_eq!(output.code, Some(0), "openstack {words}: {output:#?}\n{}", self.manager.said());
        output.stdout
    }

    /// Runs a command that must succeed and say this.
    fn says(&self, words: &str, said: &str) {
        let stdout = self.ok(words);
        assert!(stdout.contains(said), "openstack {words} should say {said:?}: {stdout}");
    }

    /// Runs a command that must fail with these words.
    /// Runs a command that says this, however it ends.
    fn says_and_fails(&self, words: &str, said: &str) {
        let output = self.run(words);
        assert!(output.stdout.contains(said), "openstack {words}: {output:#?}");
    }

    fn fails(&self, words: &str, said: &[&str]) {
        let output = self.run(words);
        assert_ne!(output.code, Some(0), "openstack {words}: {output:#?}");
        for word in said {
            assert!(output.stderr.contains(word), "openstack {words} should say {word:?}: {}", output.stderr);
        }
    }

    /// What a command prints as JSON.
    fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{words} -f json"))).expect("JSON")
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

#[test]
fn vims_and_packages() {
    let manager = Manager::start();
    let openstack = OpenStack { manager: &manager, version: "1" };
    let vim = "auth_url: https://127.0.0.1:6443\nproject_name: default\nbearer_token: hunter2\nssl_ca_cert: None\ntype: kubernetes\n";
    manager.file("vim.yaml", Some(vim));
    let made = openstack.json("vim register --config-file vim.yaml --description d cluster");
    assert_eq!(made["type"], "kubernetes");
    assert!(!made.to_string().contains("hunter2"), "{made}");
    let names: Vec<String> =
        openstack.json("vim list").as_array().expect("a list").iter().map(|one| text(&one["Name"])).collect();
    assert!(names.contains(&"cluster".to_owned()) && names.contains(&"own".to_owned()), "{names:?}");
    assert_eq!(openstack.json("vim show cluster")["description"], "d");
    assert_eq!(openstack.json(&format!("vim show {}", text(&made["id"])))["name"], "cluster");
    assert_eq!(openstack.json("vim set --description e --name renamed cluster")["description"], "e");
    assert_eq!(openstack.json("vim set --config-file vim.yaml renamed")["name"], "renamed");
    assert_eq!(openstack.json("vim set --is-default True renamed")["is_default"], true);
    assert_eq!(openstack.json("vim set --is-default True own")["is_default"], true);
    openstack.says("vim delete renamed", "deleted successfully");
    openstack.fails("vim show renamed", &["Unable to find vim with name 'renamed'"]);

    manager.hello();
    let package = text(&openstack.json("vnf package create --user-data a=b")["ID"]);
    openstack.says(&format!("vnf package upload --path hello.csar {package}"), "has been accepted");
    until("it is onboarded", || {
        let shown = openstack.json(&format!("vnf package show {package}"));
        (shown["Onboarding State"] == "ONBOARDED").then_some(())
    });
    let shown = openstack.json(&format!("vnf package show {package}"));
    assert_eq!(
        (&shown["VNF Product Name"], &shown["User Defined Data"]["a"]),
        (&"Hello".into(), &"b".into())
    );
    for options in ["", "--all_fields", "--exclude_default", "--fields checksum", "--exclude_fields checksum"]
    {
        let listed = openstack.json(&format!("vnf package list {options}"));
        assert_eq!(listed[0]["Id"], package.as_str(), "{options}");
    }
    let filtered = openstack.json("vnf package list --filter (eq,onboardingState,CREATED)");
    assert_eq!(filtered, Value::Array(vec![]));
    openstack.ok(&format!("vnf package download --file again.csar {package}"));
    let same = |name: &str| std::fs::read(manager.file(name, None)).expect("it is there");
    assert_eq!(same("again.csar"), same("hello.csar"));
    openstack.ok(&format!("vnf package download --vnfd --type application/zip --file vnfd.zip {package}"));
    assert!(same("vnfd.zip").starts_with(b"PK"));
    openstack.ok(&format!("vnf package download --vnfd --type both --file vnfd.both {package}"));
    openstack.ok(&format!("vnf package artifact download --file hello.py {package} Scripts/hello.py"));
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hello/Scripts/hello.py");
    assert_eq!(same("hello.py"), std::fs::read(tree).expect("the script"));
    openstack.fails(&format!("vnf package delete {package}"), &["Unable to delete"]);
    let changed = openstack.json(&format!("vnf package update --operational-state DISABLED {package}"));
    assert_eq!(changed["Operational State"], "DISABLED");
    openstack.says(&format!("vnf package delete {package}"), "deleted successfully");
    openstack.fails(&format!("vnf package show {package}"), &[&package]);
    // From an address; nobody is there, and the reason is kept.
    let package = text(&openstack.json("vnf package create")["ID"]);
    openstack
        .says(&format!("vnf package upload --url http://127.0.0.1:1/x.csar {package}"), "has been accepted");
    until("the reason is there", || {
        let shown = manager.json(&["package", "show", &package]);
        shown["onboardingFailureDetails"]["detail"].is_string().then_some(())
    });
    openstack.says(&format!("vnf package delete {package}"), "deleted successfully");
}

/// The whole life of a VNF with one version of the client.
fn life(version: &'static str) {
    let manager = Manager::start();
    let callback = Callback::start();
    manager.upload_hello();
    let openstack = OpenStack { manager: &manager, version };
    let vnfd = text(&manager.json(&["package", "show", "Hello"])["vnfdId"]);
    manager.file("subscription.json", Some(&format!("{{\"callbackUri\": \"{}\"}}", callback.url)));
    manager.file("instantiate.json", Some("{\"flavourId\": \"simple\"}"));
    manager.file("update.json", Some("{\"vnfInstanceDescription\": \"changed\"}"));
    manager.file("all.json", Some("{\"additionalParams\": {\"all\": true}}"));

    for words in ["vnflcm versions", "vnflcm versions --major-version 1", "vnflcm versions --major-version 2"]
    {
        assert_eq!(text(&openstack.json(words)["uriPrefix"]).trim_matches('/'), "vnflcm", "{words}");
    }
    let subscription = text(&openstack.json("vnflcm subsc create subscription.json")["ID"]);
    assert_eq!(openstack.json("vnflcm subsc list")[0]["Callback URI"], callback.url.as_str());
    assert_eq!(openstack.json(&format!("vnflcm subsc show {subscription}"))["ID"], subscription.as_str());

    let vnf = text(&openstack.json(&format!("vnflcm create --name n --description d {vnfd}"))["ID"]);
    assert_eq!(openstack.json("vnflcm list")[0]["ID"], vnf.as_str());
    openstack.says(&format!("vnflcm instantiate {vnf} instantiate.json"), "has been accepted");
    // A second one meets the first, or what it has made.
    openstack.fails(&format!("vnflcm instantiate {vnf} instantiate.json"), &["instan"]);
    completed(&manager, &vnf, "INSTANTIATE");
    let shown = openstack.json(&format!("vnflcm show {vnf}"));
    assert_eq!(shown["Instantiation State"], "INSTANTIATED");
    let components = manager.json(&["vnf", "show", &vnf])["instantiatedVnfInfo"]["vnfcResourceInfo"].clone();
    let component = text(&components[0]["id"]);

    let scale = |kind: &str| {
        format!("vnflcm scale --type {kind} --aspect-id hello_instance --number-of-steps 1 {vnf}")
    };
    openstack.says(&scale("SCALE_OUT"), "has been accepted");
    completed(&manager, &vnf, "SCALE");
    openstack.says(&scale("SCALE_IN"), "has been accepted");
    completed(&manager, &vnf, "SCALE");
    openstack
        .says(&format!("vnflcm heal --cause c --vnfc-instance {component} -- {vnf}"), "has been accepted");
    completed(&manager, &vnf, "HEAL");
    openstack.says(&format!("vnflcm heal --additional-param-file all.json {vnf}"), "has been accepted");
    completed(&manager, &vnf, "HEAL");
    openstack.says(&format!("vnflcm update --I update.json {vnf}"), "Update vnf:");
    completed(&manager, &vnf, "MODIFY_INFO");
    assert_eq!(openstack.json(&format!("vnflcm show {vnf}"))["VNF Instance Description"], "changed");

    let operations = openstack.json("vnflcm op list --filter (eq,operation,HEAL) --exclude-fields error");
    assert_eq!(operations.as_array().map(Vec::len), Some(2), "{operations}");
    openstack.ok("vnflcm op list --fields error/detail");
    let operation = text(&operations[0]["ID"]);
    assert_eq!(openstack.json(&format!("vnflcm op show {operation}"))["Operation State"], "COMPLETED");
    for task in ["retry", "rollback", "fail"] {
        openstack.fails(&format!("vnflcm op {task} {operation}"), &["COMPLETED"]);
    }
    recovery(&openstack, &vnf);

    openstack.says(&format!("vnflcm terminate --D {vnf}"), "is deleted successfully");
    openstack.fails(&format!("vnflcm show {vnf}"), &[&vnf]);
    let vnf = text(&openstack.json(&format!("vnflcm create {vnfd}"))["ID"]);
    openstack.says(&format!("vnflcm delete {vnf}"), "is deleted successfully");
    openstack.fails(&format!("vnflcm delete {vnf}"), &[&vnf]);
    openstack.fails("vnflcm create nope", &["nope"]);
    openstack.says(&format!("vnflcm subsc delete {subscription}"), "is deleted successfully");
    assert!(!callback.heard().is_empty(), "the subscriber was told");
}

/// What is done with an operation that has failed for now.
fn recovery(openstack: &OpenStack<'_>, vnf: &str) {
    let manager = openstack.manager;
    let scale = |way: &str| ["vnf", "scale", vnf, "--aspect", "hello_instance", way, "1"].map(str::to_owned);
    let started = || {
        // Long enough for a client that takes seconds to start.
        let words = scale("--out");
        let slowly = words.iter().map(String::as_str).chain(["--param", "delay=10"]);
        let operation = text(&manager.json(&slowly.collect::<Vec<_>>())["operation"]);
        until("it is under way", || {
            (manager.json(&["op", "show", &operation])["operationState"] == "PROCESSING").then_some(())
        });
        operation
    };
    let failed = || {
        let operation = started();
        manager.ok(&["op", "cancel", &operation, "--force"]);
        manager.until_state(&operation, "FAILED_TEMP");
        operation
    };
    let operation = started();
    if openstack.version == "1" {
        // The client fails after it has said that the request was accepted: a mistake of its own.
        openstack.says_and_fails(
            &format!("vnflcm op cancel --cancel-mode FORCEFUL {operation}"),
            "has been accepted",
        );
    } else {
        manager.ok(&["op", "cancel", &operation, "--force"]);
    }
    manager.until_state(&operation, "FAILED_TEMP");
    openstack.says(&format!("vnflcm op rollback {operation}"), "has been accepted");
    manager.until_state(&operation, "ROLLED_BACK");
    let operation = failed();
    openstack.says(&format!("vnflcm op retry {operation}"), "has been accepted");
    manager.until_state(&operation, "COMPLETED");
    let operation = failed();
    assert_eq!(openstack.json(&format!("vnflcm op fail {operation}"))["Operation State"], "FAILED");
}

fn completed(manager: &Manager, vnf: &str, kind: &str) {
    let operation = manager.newest(vnf);
    assert_eq!(operation["operation"], kind);
    manager.ok(&["op", "watch", &text(&operation["id"])]);
    assert_eq!(manager.newest(vnf)["operationState"], "COMPLETED", "{kind}");
}

#[test]
fn a_vnf_lives_with_version_1() {
    life("1");
}

#[test]
fn a_vnf_lives_with_version_2() {
    life("2");
}

#[test]
fn other_networks_another_package_and_alarms() {
    let manager = Manager::start();
    manager.upload_hello();
    let vnf = text(&manager.json(&["vnf", "create", "Hello"])["id"]);
    let vnfd = text(&manager.json(&["vnf", "show", &vnf])["vnfdId"]);
    let first = OpenStack { manager: &manager, version: "1" };
    let second = OpenStack { manager: &manager, version: "2" };
    manager.file("package.json", Some(&format!("{{\"vnfdId\": \"{vnfd}\"}}")));
    manager.file("networks.json", Some("{\"extVirtualLinks\": []}"));
    // Nothing stands behind the instance yet, so neither can be changed; the reason is the manager's.
    first.fails(&format!("vnflcm change-ext-conn {vnf} networks.json"), &["instantiate"]);
    second.fails(&format!("vnflcm change-ext-conn {vnf} networks.json"), &["instantiate"]);
    second.fails(&format!("vnflcm change-vnfpkg {vnf} package.json"), &["instantiate"]);

    let callback = Callback::start();
    manager.file("subscription.json", Some(&format!("{{\"callbackUri\": \"{}\"}}", callback.url)));
    let subscription = text(&second.json("vnffm sub create subscription.json")["ID"]);
    assert_eq!(second.json("vnffm sub list")[0]["ID"], subscription.as_str());
    assert_eq!(second.json(&format!("vnffm sub show {subscription}"))["Callback Uri"], callback.url.as_str());
    let operation = text(&manager.json(&["vnf", "instantiate", &vnf])["operation"]);
    until("it is under way", || {
        (manager.json(&["op", "show", &operation])["operationState"] == "PROCESSING").then_some(())
    });
    manager.ok(&["op", "cancel", &operation, "--force", "--wait"]);
    // An operation that has failed raises an alarm.
    let alarm = until("an alarm", || second.json("vnffm alarm list").as_array()?.first().cloned());
    let id = text(&alarm["ID"]);
    assert_eq!(second.json(&format!("vnffm alarm show {id}"))["Managed Object Id"], vnf.as_str());
    let changed = second.json(&format!("vnffm alarm update --ack-state ACKNOWLEDGED {id}"));
    assert_eq!(changed["Ack State"], "ACKNOWLEDGED");
    assert_eq!(manager.json(&["alarm", "show", &id])["ackState"], "ACKNOWLEDGED");
    until("the subscriber hears of it", || (!callback.heard().is_empty()).then_some(()));
    second.says(&format!("vnffm sub delete {subscription}"), "deleted");
    manager.ok(&["op", "rollback", &operation, "--wait"]);
    manager.ok(&["vnf", "delete", &vnf]);
}
