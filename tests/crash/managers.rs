//! One manager on a `SQLite` file, or two on one `PostgreSQL` database, each killed and started at will.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Stdio},
    sync::mpsc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    database::Database,
    harness::{Guywire, Output, Running},
};

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Managers that share a data directory.
pub struct Managers {
    processes: Vec<Option<Child>>,
    addresses: Vec<String>,
    /// What else they are told at their start.
    words: Vec<String>,
    /// The data directory and commands on it. After the processes, so that it is dropped after them.
    pub guywire: Guywire,
    database: Option<Database>,
}

impl Managers {
    /// One manager.
    pub fn on_sqlite() -> Self {
        Self::on_sqlite_with(&[])
    }

    /// One manager with further words on its command line.
    pub fn on_sqlite_with(words: &[&str]) -> Self {
        Self::start(Guywire::new(), None, 1, words)
    }

    /// Two managers.
    pub fn on_postgres(name: &str) -> Self {
        Self::on_postgres_with(name, &[])
    }

    /// Two managers with further words on their command lines.
    pub fn on_postgres_with(name: &str, words: &[&str]) -> Self {
        let database = Database::new(name);
        Self::start(Guywire::with_database(&database.url()), Some(database), 2, words)
    }

    fn start(guywire: Guywire, database: Option<Database>, count: usize, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let mut managers = Self { processes: Vec::new(), addresses: Vec::new(), words, guywire, database };
        for at in 0..count {
            managers.processes.push(None);
            managers.addresses.push("127.0.0.1:0".to_owned());
            managers.serve(at);
        }
        managers
    }

    /// The database's address, if it is not a file.
    pub fn database(&self) -> Option<String> {
        self.database.as_ref().map(Database::url)
    }

    /// Where they listen.
    pub fn urls(&self) -> Vec<String> {
        self.addresses.iter().map(|address| format!("http://{address}")).collect()
    }

    /// Kills managers without a warning and starts them again on the same ports. Of two, the first, the second or both
    /// die, in turn: whoever was at work, the other one, and all.
    pub fn kill_and_start(&mut self, turn: usize) {
        let count = self.processes.len();
        let dying = if turn % (count + 1) == count { 0..count } else { turn % count..turn % count + 1 };
        for process in &mut self.processes[dying.clone()] {
            if let Some(mut process) = process.take() {
                kill_process(Pid::from_child(&process), Signal::KILL).expect("it can be killed");
                process.wait().expect("it ends");
            }
        }
        for at in dying {
            self.serve(at);
        }
    }

    fn serve(&mut self, at: usize) {
        // A lease that is short against the test: on PostgreSQL a dead manager's plans wait until it runs out.
        let words = ["manager", "serve", "--listen", &self.addresses[at], "--lease", "1"];
        let mut command = self.guywire.command(&words);
        command.args(&self.words);
        let log = std::fs::File::options().create(true).append(true).open(self.log(at)).expect("a log");
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let stdout = process.stdout.take().expect("it is piped");
        self.processes[at] = Some(process);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let line = receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no start: {}", self.said()));
        let address = line.strip_prefix("listening on http://").expect("it says where it listens");
        address.clone_into(&mut self.addresses[at]);
    }

    fn log(&self, at: usize) -> PathBuf {
        self.guywire.data().with_file_name("files").join(format!("manager-{at}.log"))
    }

    /// What they have logged.
    pub fn said(&self) -> String {
        let logs =
            (0..self.addresses.len()).map(|at| std::fs::read_to_string(self.log(at)).unwrap_or_default());
        logs.collect::<Vec<_>>().join("\n----\n")
    }

    /// Runs a command against the first manager that answers.
    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = self.guywire.command(words);
        command.env("GUYWIRE_URL", format!("http://{}", self.addresses[0]));
        command.env("XDG_CONFIG_HOME", self.guywire.data().with_file_name("files"));
        Running::spawn(&mut command).wait()
    }

    /// Runs a command that must succeed, and reads what it prints.
    pub fn json(&self, words: &[&str]) -> serde_json::Value {
        let words: Vec<&str> = words.iter().chain(&["-o", "json"]).copied().collect();
        let output = self.run(&words);
        assert_eq!(output.code, Some(0), "guywire {words:?}: {output:#?}\n{}", self.said());
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {output:?}"))
    }
}

impl Drop for Managers {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            if let Err(error) = process.kill().and_then(|()| process.wait()) {
                eprintln!("a manager stays: {error}");
            }
        }
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}
