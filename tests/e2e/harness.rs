//! One user with a data directory of their own, and what they can do.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, Once,
        atomic::{AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

const PREFIX: &str = "guywire-e2e";
/// Far beyond what any command takes: a command that hangs fails its test instead of the whole run.
const PATIENCE: Duration = Duration::from_secs(120);

/// An installation: a data directory, a lab's name, and the binary. Gone with all its labs when dropped.
pub struct Guywire {
    dir: PathBuf,
    lab: String,
    environment: Vec<(String, String)>,
    transcript: Mutex<String>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Output {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A command that runs.
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    said: String,
}

impl Guywire {
    pub fn new() -> Self {
        static CLEAN: Once = Once::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        assert!(rustix::process::geteuid().is_root(), "these tests make lab machines, which needs root");
        CLEAN.call_once(sweep_earlier_runs);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let dir = std::env::temp_dir().join(format!("{PREFIX}-{pid}-{count}"));
        std::fs::create_dir_all(dir.join("files")).unwrap();
        let environment = vec![("GUYWIRE_TEMPLATES".to_owned(), templates().display().to_string())];
        Self { dir, lab: format!("e{pid}-{count}"), environment, transcript: Mutex::default() }
    }

    /// The same, with plans in a `PostgreSQL` database.
    pub fn with_database(url: &str) -> Self {
        let mut guywire = Self::new();
        guywire.environment.push(("GUYWIRE_DATABASE".to_owned(), url.to_owned()));
        guywire
    }

    /// The database that it keeps its plans in, unless that is a file in the data directory.
    pub fn database(&self) -> Option<&str> {
        let entry = self.environment.iter().find(|(name, _)| name == "GUYWIRE_DATABASE");
        entry.map(|(_, url)| url.as_str())
    }

    /// The data directory; the first command makes it.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.lab
    }

    /// Puts a file beside the data directory and gives its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.join("files").join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Everything that commands have printed so far.
    pub fn transcript(&self) -> String {
        self.transcript.lock().unwrap().clone()
    }

    /// A command on this data directory, not yet started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).envs(self.environment.iter().cloned()).env("GUYWIRE_DATA", self.data());
        command.env_remove("RUST_BACKTRACE").stdin(Stdio::null());
        command
    }

    /// Starts a command and goes on.
    pub fn start(&self, args: &[&str]) -> Running {
        Running::spawn(&mut self.command(args))
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        let output = self.start(args).wait();
        self.note(&output);
        output
    }

    /// Keeps what a command printed for [`Guywire::transcript`].
    pub fn note(&self, output: &Output) {
        assert!(!output.stderr.contains("panicked") && !output.stderr.contains("backtrace"), "{output:?}");
        let mut transcript = self.transcript.lock().unwrap();
        transcript.push_str(&output.stdout);
        transcript.push_str(&output.stderr);
    }

    /// Runs a command that must succeed.
    pub fn ok(&self, args: &[&str]) -> Output {
        let output = self.run(args);
        assert_eq!(output.code, Some(0), "guywire {args:?}: {output:#?}");
        output
    }

    /// Runs a command that must fail with this code, and with these words on standard error.
    pub fn fails(&self, args: &[&str], code: i32, words: &[&str]) -> Output {
        let output = self.run(args);
        assert_eq!(output.code, Some(code), "guywire {args:?}: {output:#?}");
        for word in words {
            assert!(output.stderr.contains(word), "guywire {args:?} should say {word:?}: {}", output.stderr);
        }
        output
    }

    /// `guywire lab VERB` on this test's lab, which must succeed.
    pub fn lab(&self, verb: &str, args: &[&str]) -> Output {
        self.ok(&self.lab_args(verb, args))
    }

    /// The words of `guywire lab VERB` on this test's lab.
    pub fn lab_args<'a>(&'a self, verb: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        ["lab", verb, "--name", self.name()].iter().chain(args).copied().collect()
    }

    /// What a shell command in a machine prints; it must succeed.
    pub fn ssh(&self, machine: &str, script: &str) -> String {
        self.lab("ssh", &[machine, script]).stdout.trim_end().to_owned()
    }

    /// What a command prints with `-o json`.
    pub fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().chain(&["-o", "json"]).copied().collect();
        serde_json::from_str(&self.ok(&args).stdout).expect("JSON")
    }

    /// The machines of this test's lab as `lab list` has them.
    pub fn machines(&self) -> Vec<Value> {
        let all = self.json(&["lab", "list"]);
        let ours = |machine: &&Value| machine["lab"] == self.name();
        all.as_array().unwrap().iter().filter(ours).cloned().collect()
    }

    /// Names of machines with their states.
    pub fn states(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.machines().iter().map(|machine| (text(&machine["machine"]), text(&machine["state"]))).collect()
    }

    /// Plans as `plan list` has them, the newest first.
    pub fn plans(&self) -> Vec<Value> {
        self.json(&["plan", "list", "--limit", "500"]).as_array().unwrap().clone()
    }
}

impl Drop for Guywire {
    fn drop(&mut self) {
        sweep(&self.dir);
    }
}

impl Running {
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self { child, stdout, stderr, said: format!("{command:?}") }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal, if it still runs.
    pub fn signal(&mut self, signal: Signal) {
        if !self.has_ended() {
            kill_process(self.pid(), signal).unwrap();
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; a command that does not end fails the test.
    pub fn wait(mut self) -> Output {
        let end = Instant::now() + PATIENCE;
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            if Instant::now() > end {
                self.child.kill().unwrap();
                panic!("{} does not end: {}", self.said, self.stderr.take().unwrap().join().unwrap());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let text = |reader: Option<JoinHandle<String>>| reader.unwrap().join().unwrap();
        Output { code, stdout: text(self.stdout), stderr: text(self.stderr) }
    }
}

/// Waits until something is so, but not for ever.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// The binary that `cargo build -p guywire` makes.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().unwrap().parent().unwrap().join("guywire");
    assert!(binary.exists(), "{} is not built; run `cargo build -p guywire` first", binary.display());
    binary
}

/// Base systems take a minute to make, so they outlive a run.
fn templates() -> PathBuf {
    if let Some(dir) = std::env::var_os("GUYWIRE_TEMPLATES") {
        return dir.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or("/root".into())).join(".cache");
    cache.unwrap_or_else(home).join("guywire/templates")
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Removes the labs of a test and its directory.
fn sweep(dir: &Path) {
    let swept =
        Command::new(binary()).args(["lab", "sweep", "--data"]).arg(dir.join("data")).output().unwrap();
    if !swept.status.success() {
        eprintln!("{} is left: {}", dir.display(), String::from_utf8_lossy(&swept.stderr));
    } else if let Err(error) = std::fs::remove_dir_all(dir) {
        eprintln!("{} is left: {error}", dir.display());
    }
}

/// A run that was killed could not clean up: its directories name a process that is gone.
fn sweep_earlier_runs() {
    for entry in std::fs::read_dir(std::env::temp_dir()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(&format!("{PREFIX}-")) else { continue };
        let pid = rest.split('-').next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        if pid.is_some_and(|pid| test_kill_process(pid).is_err()) {
            sweep(&path);
        }
    }
}
