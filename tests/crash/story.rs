//! One hello VNF from its package to its end, and what must be true of it after every operation.

use std::{collections::BTreeSet, path::Path, time::Duration};

use serde_json::Value;

use crate::{callback::Callback, harness::until, managers::Managers};

/// The VNF, and who hears of it.
pub struct Story {
    instance: String,
    callback: Callback,
    /// Operations so far, in order.
    operations: Vec<String>,
    /// Machine ids by name, as they were last seen.
    identities: Vec<(String, String)>,
}

impl Story {
    /// Uploads the package, subscribes, and creates the instance.
    pub fn begin(managers: &Managers) -> Self {
        let lab = format!("lab={}", managers.guywire.name());
        managers.json(&["vim", "register", "own", "--type", "lab", "--interface", &lab, "--default"]);
        let csar = managers.guywire.data().with_file_name("files").join("hello.csar").display().to_string();
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/hello").display().to_string();
        assert_eq!(managers.run(&["package", "pack", &tree, &csar]).code, Some(0));
        let package = managers.json(&["package", "upload", &csar, "--wait"]);
        let callback = Callback::start();
        managers.json(&["subscription", "create", &callback.url]);
        let vnfd = package["vnfdId"].as_str().expect("a descriptor");
        let instance = managers.json(&["vnf", "create", vnfd, "--name", "story"]);
        let instance = instance["id"].as_str().expect("an id").to_owned();
        Self { instance, callback, operations: Vec::new(), identities: Vec::new() }
    }

    /// Starts an operation; its id.
    pub fn start(&mut self, managers: &Managers, verb: &str, words: &[&str]) -> String {
        let command: Vec<&str> = ["vnf", verb, &self.instance].iter().chain(words).copied().collect();
        let started = managers.json(&command);
        let id = started["operation"].as_str().unwrap_or_else(|| panic!("no id in {started}")).to_owned();
        self.operations.push(id.clone());
        id
    }

    /// Where an operation stands.
    pub fn state(managers: &Managers, operation: &str) -> String {
        let shown = managers.json(&["op", "show", operation]);
        shown["operationState"].as_str().expect("a state").to_owned()
    }

    /// Waits for an operation's end.
    pub fn wait(managers: &Managers, operation: &str) {
        until("the operation completes", || (Self::state(managers, operation) == "COMPLETED").then_some(()));
    }

    /// Looks at the operation, the machines and what was told.
    pub fn check(&mut self, managers: &Managers, operation: &str, count: usize) {
        let shown = managers.json(&["op", "show", operation]);
        assert_eq!(shown["operationState"], "COMPLETED", "{shown:#}\n{}", managers.said());
        let machines = managers.guywire.machines();
        assert_eq!(machines.len(), count, "{machines:#?}");
        let distinct = |key: &str| machines.iter().map(|m| m[key].to_string()).collect::<BTreeSet<_>>().len();
        assert_eq!((distinct("machine"), distinct("ipv4")), (count, count), "{machines:#?}");
        let vnf = managers.json(&["vnf", "show", &self.instance]);
        let components =
            vnf["instantiatedVnfInfo"]["vnfcResourceInfo"].as_array().expect("components").clone();
        let known: BTreeSet<&str> =
            components.iter().map(|vnfc| vnfc["metadata"]["machine"].as_str().expect("a machine")).collect();
        let there: BTreeSet<&str> =
            machines.iter().map(|machine| machine["machine"].as_str().expect("a name")).collect();
        assert_eq!(known, there, "the instance consists of the machines that are there");
        for name in &there {
            let said = managers.guywire.ssh(name, "bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080 && cat <&3'");
            assert!(said.contains(name), "{name} does not say hello: {said}");
        }
        self.check_identities(managers, &shown, &there);
        self.check_told();
    }

    /// A machine that the operation did not touch is the one that it was, and one that it made anew is another.
    fn check_identities(&mut self, managers: &Managers, operation: &Value, there: &BTreeSet<&str>) {
        let now: Vec<(String, String)> = there
            .iter()
            .map(|name| ((*name).to_owned(), managers.guywire.ssh(name, "cat /etc/machine-id")))
            .collect();
        let changes = operation["resourceChanges"]["affectedVnfcs"].as_array().cloned().unwrap_or_default();
        for (name, identity) in &now {
            let Some((_, before)) = self.identities.iter().find(|(known, _)| known == name) else { continue };
            let touched = changes.iter().any(|change| change["metadata"]["machine"] == name.as_str());
            assert_eq!(identity != before, touched, "{name}: {before} became {identity}: {changes:#?}");
        }
        self.identities = now;
    }

    /// Every state of every operation was told, in order; what was told twice has the same id.
    fn check_told(&self) {
        let complete = || {
            let heard = self.callback.heard();
            let mut ids = BTreeSet::new();
            let states: Vec<(String, String)> = heard
                .iter()
                .filter(|told| told["notificationType"] == "VnfLcmOperationOccurrenceNotification")
                .filter(|told| ids.insert(told["id"].to_string()))
                .map(|told| (text(&told["vnfLcmOpOccId"]), text(&told["operationState"])))
                .collect();
            let expected: Vec<(String, String)> = self
                .operations
                .iter()
                .flat_map(|id| {
                    ["STARTING", "PROCESSING", "COMPLETED"].map(|state| (id.clone(), state.to_owned()))
                })
                .collect();
            (states == expected, states, expected)
        };
        for _ in 0..200 {
            if complete().0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let (_, states, expected) = complete();
        panic!("told {states:#?}\nexpected {expected:#?}");
    }

    /// Terminates without being disturbed, and sees that nothing is left.
    pub fn end(&self, managers: &Managers) {
        let ended = managers.run(&["vnf", "terminate", &self.instance, "--wait"]);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(managers.guywire.machines().len(), 0);
        assert_eq!(managers.run(&["vnf", "delete", &self.instance]).code, Some(0));
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
