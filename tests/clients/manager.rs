//! One manager with a data directory of its own, and those who talk to it.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Guywire, Output, Running, binary, until};

/// Long enough for a busy machine; a manager is ready in a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running manager. Told to stop when dropped, before its labs are removed.
pub struct Manager {
    process: Option<Child>,
    /// What else it is told at its start.
    words: Vec<String>,
    /// Where it listens.
    pub url: String,
    /// The administrator's token.
    pub token: String,
    /// Its data directory, and commands on it. After the process, so that it is dropped after it.
    pub guywire: Guywire,
}

impl Manager {
    /// Starts one on a port of its own, with a lab of its own as the default VIM.
    pub fn start() -> Self {
        Self::start_with(Guywire::new(), &[])
    }

    /// The same in a place that was prepared, with further words on the command line.
    pub fn start_with(guywire: Guywire, words: &[&str]) -> Self {
        let manager = Self::start_as_is(guywire, words);
        let lab = format!("lab={}", manager.guywire.name());
        manager.ok(&["vim", "register", "own", "--type", "lab", "--interface", &lab, "--default"]);
        manager
    }

    /// Starts one on what is there already.
    pub fn start_as_is(guywire: Guywire, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let mut manager = Self { process: None, words, url: String::new(), token: String::new(), guywire };
        manager.serve("127.0.0.1:0");
        let token = std::fs::read_to_string(manager.guywire.data().join("admin-token")).expect("a token");
        token.trim().clone_into(&mut manager.token);
        manager
    }

    /// Starts the process; where it listens is the first line that it prints.
    fn serve(&mut self, address: &str) {
        let mut command = self.guywire.command(&["manager", "serve", "--listen", address]);
        command.args(&self.words);
        let log = self.log();
        let log = std::fs::File::options().create(true).append(true).open(log).expect("a log");
        command.env_remove("GUYWIRE_URL").stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().expect("it starts");
        let stdout = process.stdout.take().expect("it is piped");
        self.process = Some(process);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let line =
            receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it does not listen: {}", self.said()));
        let url = line.strip_prefix("listening on ").expect("it says where it listens");
        url.clone_into(&mut self.url);
    }

    /// Kills it and starts it again on the same port.
    pub fn restart(&mut self) {
        self.signal(Signal::KILL);
        let address = self.url.strip_prefix("http://").expect("an address").to_owned();
        self.serve(&address);
    }

    /// Kills it without a warning; [`Manager::restart`] starts it again.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    /// Its process id while it runs.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(mut process) = self.process.take() {
            kill_process(Pid::from_child(&process), signal).expect("it can be told");
            process.wait().expect("it ends");
        }
    }

    fn log(&self) -> PathBuf {
        self.file("manager.log", None)
    }

    /// What it has logged.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The path of a file beside the data directory; with a text, it is written.
    pub fn file(&self, name: &str, text: Option<&str>) -> PathBuf {
        let path = self.guywire.data().with_file_name("files").join(name);
        if let Some(text) = text {
            std::fs::write(&path, text).expect("it is written");
        }
        path
    }

    /// A command of ours that talks to it, as the user who started it.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.guywire.command(args);
        command.env("GUYWIRE_URL", &self.url).env("XDG_CONFIG_HOME", self.file("config", None));
        command.env_remove("GUYWIRE_TOKEN").env_remove("GUYWIRE_CONTEXT");
        command
    }

    /// Runs a command of ours to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        let output = Running::spawn(&mut self.command(args)).wait();
        self.guywire.note(&output);
        output
    }

    /// Runs a command of ours that must succeed.
    pub fn ok(&self, args: &[&str]) -> Output {
        let output = self.run(args);
        assert_eq!(output.code, Some(0), "guywire {args:?}: {output:#?}\n{}", self.said());
        output
    }

    /// Runs a command of ours that must fail with these words.
    pub fn fails(&self, args: &[&str], code: i32, words: &[&str]) -> Output {
        let output = self.run(args);
        assert_eq!(output.code, Some(code), "guywire {args:?}: {output:#?}");
        for word in words {
            assert!(output.stderr.contains(word), "guywire {args:?} should say {word:?}: {}", output.stderr);
        }
        output
    }

    /// What a command of ours prints with `-o json`.
    pub fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().chain(&["-o", "json"]).copied().collect();
        let output = self.ok(&args);
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"))
    }

    /// Packs the hello package, with another VNFD id if several are needed.
    pub fn hello(&self) -> PathBuf {
        let csar = self.file("hello.csar", None);
        if !csar.exists() {
            let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/hello");
            let tree = tree.display().to_string();
            self.ok(&["package", "pack", &tree, &csar.display().to_string()]);
        }
        csar
    }

    /// Uploads the hello package and waits until it is onboarded; its id.
    pub fn upload_hello(&self) -> String {
        let csar = self.hello().display().to_string();
        let package = self.json(&["package", "upload", &csar, "--wait"]);
        package["id"].as_str().expect("an id").to_owned()
    }

    /// Waits until an operation is in a state; its record.
    pub fn until_state(&self, operation: &str, state: &str) -> Value {
        until(&format!("operation {operation} is {state}"), || {
            let record = self.json(&["op", "show", operation]);
            (record["operationState"] == state).then_some(record)
        })
    }

    /// The newest operation of an instance.
    pub fn newest(&self, instance: &str) -> Value {
        let all = self.json(&["op", "list", "--vnf", instance]);
        all.as_array().and_then(|all| all.last()).cloned().expect("an operation")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if std::thread::panicking() {
            eprintln!("the manager's log:\n{}", self.said());
        }
        // The default lab of every manager; the harness removes the others.
        let swept = Command::new(binary()).args(["lab", "sweep", "--data"]).arg(self.guywire.data()).output();
        if let Err(error) = swept {
            eprintln!("a lab may be left: {error}");
        }
    }
}
