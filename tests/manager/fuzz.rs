//! Requests that schemathesis makes from our own `OpenAPI` document and mutates, against a manager with something in it:
//! no failure of ours, no panic, and neither memory nor disk that grows without end.

use std::{collections::BTreeMap, process::Command, time::Instant};

use serde_json::{Value, json};

use crate::{
    callback::Callback,
    harness::{Guywire, until},
    http::Http,
    manager::Manager,
    mutants::contents,
};

/// What the answers are compared with.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_schema_conformance,unsupported_method";
/// Streams of events do not end, so a client that waits for the end of an answer cannot test them.
const STREAMS: &str = "/events$";
/// What all that the requests made may add to the data directory, labs aside.
const DISK: u64 = 64 << 20;
/// What a manager that has answered them may hold beyond what it held when it was warm, in kB.
const MEMORY: u64 = 48 << 10;

/// A manager to fuzz, and the figures of its run.
struct Target {
    manager: Manager,
    http: Http,
    document: String,
    _callback: Callback,
}

#[test]
fn a_few_mutated_requests_find_no_fault() {
    let target = Target::new();
    target.run(CHECKS, "fuzzing", 3, 1);
    target.judge(250);
}

#[test]
#[ignore = "takes many minutes; run by `cargo xtask test --long` and `--only fuzz`"]
fn fuzz_ten_thousand_mutated_requests_find_no_fault() {
    let target = Target::new();
    target.run(CHECKS, "fuzzing", 4, 1);
    let (memory, disk) = (target.memory(), target.disk());
    target.run(CHECKS, "coverage", 1, 3);
    let mut seed = 4;
    while target.requests().values().sum::<u64>() < 10_000 {
        target.run(CHECKS, "fuzzing", 30, seed);
        seed += 1;
    }
    target.judge(10_000);
    let (after, grown) = (target.memory(), target.disk().saturating_sub(disk));
    println!("memory: {memory} kB when warm, {after} kB after all; disk: {grown} bytes more");
    assert!(after < memory + MEMORY, "memory grows: {memory} kB, then {after} kB");
    assert!(grown < DISK, "the disk fills: {grown} bytes more");
}

impl Target {
    /// A manager with packages, instances, operations, subscriptions and alarms in several states.
    fn new() -> Self {
        // Schemathesis makes up credentials too, most of which would be refused, each more slowly than the one before:
        // that every route asks for them is another test's.
        let manager = Manager::start_with(Guywire::new(), &["--no-callback-test", "--no-auth"]);
        let http = Http::new(&manager.url, &manager.token);
        let callback = Callback::start();
        let text = |value: &Value| value.as_str().expect("an id").to_owned();
        manager.upload_hello();
        http.post("/vnfpkgm/v1/vnf_packages", &json!({"userDefinedData": {"empty": true}}));
        let broken = manager.file("broken.csar", Some("this is no archive")).display().to_string();
        manager.fails(&["package", "upload", &broken, "--wait"], 1, &[]);
        for path in ["/vnflcm/v1/subscriptions", "/vnflcm/v2/subscriptions", "/vnffm/v1/subscriptions"] {
            http.post(path, &json!({"callbackUri": callback.url}));
        }
        let standing = text(&manager.json(&["vnf", "create", "Hello", "--name", "standing"])["id"]);
        manager.ok(&["vnf", "instantiate", &standing, "--level", "small", "--wait"]);
        // One that stopped in the middle: its operation waits for a decision, and there is an alarm.
        let stopped = text(&manager.json(&["vnf", "create", "Hello", "--name", "stopped"])["id"]);
        let operation = text(&manager.json(&["vnf", "instantiate", &stopped])["operation"]);
        // The operation moves on meanwhile, and who meets that moment is asked to repeat the request.
        until("it is cancelled", || {
            (manager.run(&["op", "cancel", &operation, "--force"]).code == Some(0)).then_some(())
        });
        manager.until_state(&operation, "FAILED_TEMP");
        for name in ["unborn", "spare"] {
            manager.ok(&["vnf", "create", "Hello", "--name", name]);
        }
        until("there is an alarm", || (manager.json(&["alarm", "list"]) != json!([])).then_some(()));
        let document = document(&http, &callback);
        let document = manager.file("openapi.json", Some(&document)).display().to_string();
        Self { manager, http, document, _callback: callback }
    }

    /// One run of schemathesis, which must find nothing.
    fn run(&self, checks: &str, phases: &str, examples: u32, seed: u32) {
        let program = std::env::var_os("GUYWIRE_TEST_SCHEMATHESIS").expect(
            "GUYWIRE_TEST_SCHEMATHESIS is not set; run the tests with `cargo xtask test`, or set it to the program",
        );
        let began = Instant::now();
        let mut command = Command::new(program);
        command.args(["run", &self.document, "--url", &self.manager.url, "--checks", checks]);
        command.args(["--header", &format!("X-Auth-Token: {}", self.manager.token)]);
        command.args([
            "--phases",
            phases,
            "--max-examples",
            &examples.to_string(),
            "--seed",
            &seed.to_string(),
        ]);
        command.args(["--workers", "2", "--request-timeout", "30", "--continue-on-failure", "--no-shrink"]);
        command.args(["--suppress-health-check", "all", "--warnings", "off", "--no-color"]);
        command.args(["--exclude-path-regex", STREAMS]);
        let output = command.current_dir(self.manager.file("", None)).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "schemathesis found:\n{said}\n{errors}\n{}", self.end_of_log());
        println!("{phases}, {examples} examples each, seed {seed}: {:.1} s", began.elapsed().as_secs_f64());
    }

    /// Looks at what the manager itself says of the run.
    fn judge(&self, wanted: u64) {
        let requests = self.requests();
        let sum: u64 = requests.values().sum();
        println!("{sum} requests by status: {requests:?}; {} kB resident", self.memory());
        assert!(sum >= wanted, "only {sum} requests");
        assert!(requests.keys().all(|status| *status < 500), "{requests:?}\n{}", self.end_of_log());
        let (good, bad) = requests.iter().fold((0, 0), |(good, bad), (status, count)| {
            if *status < 400 { (good + count, bad) } else { (good, bad + count) }
        });
        assert!(good > sum / 20 && bad > sum / 20, "the requests are too much alike: {requests:?}");
        let said = self.manager.said();
        assert!(!said.contains("panicked") && !said.contains("our own fault"), "{}", self.end_of_log());
        let health = self.http.send("GET", "/readyz", "", None);
        assert_eq!(health.status, 200, "{health:?}");
    }

    /// How many requests were answered with which status, by the manager's own count.
    fn requests(&self) -> BTreeMap<u16, u64> {
        let metrics = self.http.send("GET", "/metrics", "", None);
        let mut all = BTreeMap::new();
        for line in metrics.body.lines().filter(|line| line.contains("http_requests_total{")) {
            let status = line.split("status=\"").nth(1).and_then(|rest| rest.split('"').next());
            let (status, count) = (status.expect("a status"), line.rsplit(' ').next().expect("a count"));
            *all.entry(status.parse().expect("a status")).or_default() +=
                count.parse::<u64>().expect("a count");
        }
        all
    }

    /// Its resident memory in kB.
    fn memory(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.manager.pid())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
        line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
    }

    /// What its data directory holds, without the disks of machines.
    fn disk(&self) -> u64 {
        let data = self.manager.guywire.data();
        let labs = data.join("labs").display().to_string();
        contents(&data).iter().filter(|(path, _)| !path.starts_with(&labs)).map(|(_, size)| size).sum()
    }

    fn end_of_log(&self) -> String {
        let said = self.manager.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

/// The interface's document, with values that lead to what is there. Those that name another server name this test's.
fn document(http: &Http, callback: &Callback) -> String {
    let mut document = http.get("/openapi.json");
    let ids = |path: &str| -> Vec<Value> {
        let all = http.get(path);
        let all = all["vims"].as_array().or(all.as_array()).expect("a list");
        all.iter().map(|one| one["id"].clone()).collect()
    };
    let mut subscriptions = ids("/vnflcm/v1/subscriptions");
    subscriptions.extend(ids("/vnffm/v1/subscriptions"));
    let known: BTreeMap<&str, Vec<Value>> = BTreeMap::from([
        ("vnfInstanceId", ids("/vnflcm/v2/vnf_instances")),
        ("vnfLcmOpOccId", ids("/vnflcm/v2/vnf_lcm_op_occs")),
        ("vnfPkgId", ids("/vnfpkgm/v1/vnf_packages")),
        ("alarmId", ids("/vnffm/v1/alarms")),
        ("vimId", ids("/v1.0/vims")),
        ("subscriptionId", subscriptions),
    ]);
    let vnfd = http.get("/vnflcm/v2/vnf_instances")[0]["vnfdId"].clone();
    let words: BTreeMap<&str, Vec<Value>> = BTreeMap::from([
        ("vnfdId", vec![vnfd]),
        ("flavourId", vec![json!("simple")]),
        ("newFlavourId", vec![json!("simple")]),
        ("instantiationLevelId", vec![json!("small"), json!("default")]),
        ("aspectId", vec![json!("hello_instance")]),
    ]);
    let dead = "http://127.0.0.1:1/nobody";
    let elsewhere: BTreeMap<&str, Vec<Value>> = BTreeMap::from([
        ("callbackUri", vec![json!(callback.url), json!(dead)]),
        ("tokenEndpoint", vec![json!(dead)]),
        ("addressInformation", vec![json!(dead), json!("file:///etc/passwd"), json!("ftp://127.0.0.1/x")]),
    ]);
    for path in document["paths"].as_object_mut().expect("paths").values_mut() {
        for operation in path.as_object_mut().expect("methods").values_mut() {
            let Some(parameters) = operation["parameters"].as_array_mut() else { continue };
            for parameter in parameters {
                if let Some(values) = parameter["name"].as_str().and_then(|name| known.get(name)) {
                    let plain = parameter["schema"].take();
                    parameter["schema"] = json!({"anyOf": [{"enum": values}, {"enum": values}, plain]});
                }
            }
        }
    }
    let schemas = document["components"]["schemas"].as_object_mut().expect("schemas");
    for schema in schemas.values_mut() {
        let Some(Value::Object(properties)) = schema.get_mut("properties") else { continue };
        for (name, schema) in properties {
            if let Some(values) = words.get(name.as_str()) {
                let plain = schema.take();
                *schema = json!({"anyOf": [{"enum": values}, plain]});
            } else if let Some(values) = elsewhere.get(name.as_str()) {
                *schema = json!({"enum": values});
            }
        }
    }
    document.to_string()
}
