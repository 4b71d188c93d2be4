//! Hostile and clumsy scripts in a real sandbox. They run as root or as an ordinary user with user
//! namespaces; python3 is needed.

mod starter;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use guywire_model::MachineName;
use guywire_roles::script::{
    Action, Change, Content, Decision, Invocation, ScriptError, ScriptInput, ScriptLimits, ScriptMachine,
    ScriptVnf, decide,
};
use serde_json::{Map, json};

/// A package with one script.
struct Package {
    dir: tempfile::TempDir,
    file: String,
    limits: ScriptLimits,
}

impl Package {
    fn new(file: &str, script: &str) -> Self {
        // Where other users can go too, which TMPDIR need not be.
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let package = Self { dir, file: format!("Scripts/{file}"), limits: ScriptLimits::default() };
        package.with(&format!("Scripts/{file}"), script)
    }

    /// A Python script that prints what its body leaves in `found` as a warning.
    fn probing(body: &str) -> Self {
        let head =
            "import json, os, sys, socket, subprocess, time\nrequest = json.load(sys.stdin)\nfound = None\n";
        let tail = "\njson.dump({'steps': [], 'warnings': [json.dumps(found)]}, sys.stdout)\n";
        Self::new("probe.py", &format!("{head}{body}{tail}"))
    }

    fn with(self, file: &str, content: &str) -> Self {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        for path in [path.as_path(), path.parent().unwrap()] {
            let mode = if path.is_dir() { 0o755 } else { 0o644 };
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        self
    }

    fn within(mut self, limits: ScriptLimits) -> Self {
        self.limits = limits;
        self
    }

    fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn invocation(&self) -> Invocation {
        Invocation {
            package: self.path(),
            file: self.file.clone(),
            input: input(),
            limits: self.limits.clone(),
        }
    }

    async fn decide(&self) -> Result<Decision, ScriptError> {
        decide(&self.invocation(), &starter::starter()).await
    }

    async fn fails(&self) -> String {
        self.decide().await.expect_err("this script must not succeed").to_string()
    }

    /// What a probing script found.
    async fn found(&self) -> serde_json::Value {
        let decision = self.decide().await.unwrap();
        serde_json::from_str(&decision.warnings[0]).unwrap()
    }
}

fn input() -> ScriptInput {
    let machine = |name: &str, change| ScriptMachine {
        name: MachineName::new(name).unwrap(),
        vdu: "hello".into(),
        vnfc: format!("hello-{name}"),
        change,
        addresses: Some(guywire_model::AddressPair {
            v4: "10.0.0.11".parse().unwrap(),
            v6: "fd00::11".parse().unwrap(),
        }),
    };
    let mut request = Map::new();
    request.insert("additionalParams".into(), json!({"password": "secret:ops/pw"}));
    ScriptInput {
        operation: "INSTANTIATE".into(),
        point: "instantiate_end".into(),
        vnf: ScriptVnf {
            id: "1".into(),
            name: "one".into(),
            vnfd_id: "d".into(),
            flavour_id: "simple".into(),
        },
        request,
        machines: vec![machine("m1", Change::Added), machine("m2", Change::Kept)],
        outputs: Map::new(),
    }
}

fn short() -> ScriptLimits {
    ScriptLimits { time: Duration::from_secs(2), memory: 128 << 20, processes: 16, answer: 64 << 10 }
}

#[tokio::test]
async fn a_script_reads_its_request_and_package_and_answers_with_steps() {
    let script = r#"
import json, sys
r = json.load(sys.stdin)
assert r["protocol"] == 1 and r["package"] == "/package" and r["vnf"]["vnfdId"] == "d", r
note = open(r["package"] + "/Files/note").read()
steps = [{"name": "note " + m["name"], "machine": m["name"], "put": {"path": "/etc/note", "file": "Files/note"}}
         for m in r["machines"] if m["change"] == "added"]
steps.append({"name": "say", "machine": "m1", "run": {"script": "echo " + note}})
json.dump({"steps": steps, "warnings": ["mind the gap"]}, sys.stdout)
"#;
    let decision = Package::new("hello.py", script).with("Files/note", "hi").decide().await.unwrap();
    assert_eq!(decision.warnings, ["mind the gap"]);
    assert_eq!(decision.steps.len(), 2);
    assert_eq!(decision.steps[1].after, ["note m1"]);
    let Action::Put(put) = &decision.steps[0].action else { panic!("{decision:?}") };
    let sha256 = "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4".to_owned();
    assert_eq!(put.content, Content::File { file: "Files/note".into(), sha256, size: 2 });
}

#[tokio::test]
async fn shell_scripts_and_executables_run_and_others_are_refused() {
    assert_eq!(Package::new("a.sh", "echo '{\"steps\": []}'").decide().await.unwrap(), Decision::default());
    let program = Package::new("a", "#!/bin/sh\necho '{\"steps\": []}'\n");
    let error = program.fails().await;
    assert!(error.contains("name it .py for python3 or .sh for /bin/sh"), "{error}");
    let path = program.path().join("Scripts/a");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(program.decide().await.unwrap(), Decision::default());
    if rustix::process::geteuid().is_root() {
        let closed = program.path().join("Scripts");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let error = program.fails().await;
        assert!(error.contains("Scripts has mode 0700, and in the sandbox another user reads it"), "{error}");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut missing = program.invocation();
    missing.file = "Scripts/b.py".into();
    let error = decide(&missing, &starter::starter()).await.unwrap_err().to_string();
    assert_eq!(error, "script Scripts/b.py: file \"Scripts/b.py\" is not in the package");
}

#[tokio::test]
async fn there_is_no_network() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let package = Package::probing(&format!(
        "
try:
    socket.create_connection(('127.0.0.1', {port}), 2); found = 'connected'
except OSError as error:
    found = error.errno
"
    ));
    // ENETUNREACH: not even the loopback device is up.
    assert_eq!(package.found().await, json!(101));
}

#[tokio::test]
async fn nothing_of_the_host_can_be_read_or_written() {
    let data = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(data.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let secret = data.path().join("journal.db");
    fs::write(&secret, "x").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o666)).unwrap();
    let package = Package::probing(&format!(
        "
found = {{}}
for path in ['/etc/shadow', '/etc/passwd', '/root', '/home', '/var', '/sys', '/proc/1/root/etc/shadow', {secret:?}]:
    found[path] = os.path.exists(path)
for path in ['/package/new', '/package/Scripts/probe.py', '/usr/new', '/new', '/proc/sys/kernel/hostname', '/etc/new']:
    try:
        open(path, 'a').close(); found[path] = True
    except OSError:
        pass
",
        secret = secret.to_str().unwrap()
    ));
    let found = package.found().await;
    let allowed: Vec<_> = found.as_object().unwrap().iter().filter(|(_, can)| **can == json!(true)).collect();
    assert!(allowed.is_empty(), "{allowed:?}");
    assert_eq!(fs::read_dir(package.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_script_has_no_rights_no_descriptors_and_no_environment() {
    let package = Package::probing(
        "
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
found = {name: status[name].split() for name in ['CapEff', 'CapPrm', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Groups']}
found['pid'] = os.getpid()
found['root'] = os.geteuid() == 0
found['fds'] = sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:3] + [len(os.listdir('/proc/self/fd')) <= 4]
# Python may set the locale for itself.
found['env'] = sorted(set(os.environ) - {'LC_CTYPE'})
found['processes'] = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())
",
    );
    let found = package.found().await;
    for set in ["CapEff", "CapPrm", "CapBnd", "CapAmb"] {
        assert_eq!(found[set], json!(["0000000000000000"]), "{set}");
    }
    assert_eq!(found["NoNewPrivs"], json!(["1"]));
    assert_eq!(found["root"], json!(false));
    assert_eq!((&found["pid"], &found["processes"]), (&json!(1), &json!([1])));
    assert_eq!(found["fds"], json!([0, 1, 2, true]));
    assert_eq!(found["env"], json!(["HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE"]));
    if rustix::process::geteuid().is_root() {
        assert_eq!(found["Groups"], json!([]));
    }
}

#[tokio::test]
async fn whatever_takes_too_much_ends_within_its_limit() {
    let late = "did not end within 2 s and was killed";
    let memory = "128 MiB of memory and was killed";
    for (name, script, wanted) in [
        ("hang.py", "import time\ntime.sleep(1000)", late),
        ("loop.py", "while True: pass", late),
        ("stubborn.sh", "trap '' TERM INT HUP; (sleep 1000 & sleep 1000); sleep 1000", late),
        ("bomb.py", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", late),
        ("hog.py", "x = []\nwhile True: x.append(bytearray(1 << 20))", "MemoryError"),
        (
            "hogs.py",
            "import os, time\nfor _ in range(8):\n  if os.fork() == 0:\n    x = bytearray(60 << 20); time.sleep(1000)\ntime.sleep(1000)",
            memory,
        ),
        ("chatter.py", "import sys\nwhile True: sys.stderr.write('x' * 100000)", late),
        ("prattle.py", "import sys\nwhile True: sys.stdout.write('x' * 100000)", "more than the 65536 bytes"),
        (
            "disk.py",
            "f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()",
            "exit code 1",
        ),
    ] {
        let began = Instant::now();
        // Where it is not the time that ends it, a busy host must not make it so.
        let time = if wanted == late { short().time } else { Duration::from_secs(30) };
        let error = Package::new(name, script).within(ScriptLimits { time, ..short() }).fails().await;
        assert!(error.contains(wanted), "{name}: {error}");
        assert!(error.len() < 3_000, "{name}: an error is no log: {} bytes", error.len());
        let most = time + Duration::from_secs(10);
        assert!(began.elapsed() < most, "{name} took {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn nothing_outlives_whoever_asked() {
    let mark = format!("{}.25", 100_000 + std::process::id());
    let package = Package::new("a.sh", &format!("setsid sleep {mark} & sleep {mark}"));
    let sleepers = || {
        let has = |path: &Path| {
            fs::read(path.join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&format!("sleep\0{mark}")))
        };
        fs::read_dir("/proc").unwrap().filter(|entry| has(&entry.as_ref().unwrap().path())).count()
    };
    let invocation = package.invocation();
    let starter = starter::starter();
    let asked = tokio::spawn(async move { decide(&invocation, &starter).await });
    let end = Instant::now() + Duration::from_secs(25);
    while sleepers() < 2 {
        assert!(Instant::now() < end, "the script was not started");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    asked.abort();
    while sleepers() > 0 {
        assert!(Instant::now() < end, "the script still runs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_error_says_what_the_script_said() {
    let script = "import sys\nprint('no greeting in additionalParams', file=sys.stderr)\nsys.exit(3)";
    let error = Package::new("a.py", script).fails().await;
    assert_eq!(
        error,
        "script Scripts/a.py ended with exit code 3; correct the request or the package. It said: no greeting in additionalParams"
    );
    // A script cannot speak for the sandbox.
    let forged = "echo 'guywire-sandbox: {\"ended\":0}' >&2; echo '{\"steps\": []}'; kill -SEGV $$; exit 4";
    let error = Package::new("a.sh", forged).fails().await;
    assert!(error.contains("exit code 4"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_with_its_place() {
    let step = |more: &str| format!(r#"{{"steps": [{{"name": "a", "machine": "m1", {more}}}]}}"#);
    for (answer, wanted) in [
        (String::new(), "its standard output is empty"),
        ("hello\n{}".into(), "expected value at line 1 column 1, at \"hello\""),
        ("{\"steps\": []} trailing".into(), "trailing characters at line 1 column 15"),
        ("{\"steps\": [], \"extra\": 1}".into(), "unknown field `extra`"),
        (step(r#""run": {"script": "x", "timeot": 3}"#), "steps[0] (\"a\"): unknown field `timeot`"),
        (step(r#""run": {"script": "x"}, "wait": {"script": "x"}"#), "exactly one of put, run and wait"),
        (step(r#""run": {"script": "x", "timeout": 0}"#), "run: timeout: 0 is not between 1 and 86400"),
        (
            step(r#""run": {"script": "echo ${secret:other}"}"#),
            "${secret:other} is not a secret of the request",
        ),
        (step(r#""put": {"path": "/a/../b", "content": ""}"#), "put: path \"/a/../b\": an absolute path"),
        (
            step(r#""put": {"path": "/a", "content": "", "mode": "rw"}"#),
            "put: mode \"rw\": write the bits in octal",
        ),
        (step(r#""put": {"path": "/a", "content": "", "owner": "root"}"#), "put: owner \"root\""),
        (step(r#""put": {"path": "/a", "file": "../x"}"#), "put: file \"../x\": name a file of the package"),
        (step(r#""put": {"path": "/a", "file": "Files/none"}"#), "file \"Files/none\" is not in the package"),
        (step(r#""after": ["b"], "run": {"script": "x"}"#), "after: there is no step \"b\""),
        (step(r#""run": {"script": "x"}"#).replace("m1", "m9"), "there is no machine m9; there are m1, m2"),
    ] {
        let script = format!("cat <<'GUYWIRE_END'\n{answer}\nGUYWIRE_END\n");
        let error = Package::new("a.sh", &script).fails().await;
        assert!(error.starts_with("script Scripts/a.sh: ") && error.contains(wanted), "{answer}: {error}");
    }
}

#[tokio::test]
async fn an_ordinary_user_has_a_sandbox_too() {
    if !rustix::process::geteuid().is_root() {
        return; // Then all other tests are about this.
    }
    // A starter that is somebody else before it becomes the sandbox.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (program, copy) = (dir.path().join("other"), dir.path().join("starter"));
    fs::copy(starter::starter(), &copy).unwrap();
    let text = format!(
        "#!/bin/sh\nexec /usr/bin/setpriv --reuid 4242 --regid 4242 --clear-groups {} \"$@\"\n",
        copy.display()
    );
    fs::write(&program, text).unwrap();
    for file in [&program, &copy] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let package = Package::probing(
        "
found = {'uid': os.getuid(), 'shadow': os.path.exists('/etc/shadow'), 'proc': sorted(os.listdir('/proc'))[0]}
for path in ['/package/new', '/new', '/usr/new', '/proc/sys/kernel/hostname']:
    try:
        open(path, 'a').close(); found[path] = True
    except OSError:
        pass
try:
    socket.create_connection(('127.0.0.1', 1), 2)
except OSError as error:
    found['net'] = error.errno
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
found['caps'] = status['CapPrm'].strip()
",
    );
    let decision = decide(&package.invocation(), &program).await.unwrap();
    let found: serde_json::Value = serde_json::from_str(&decision.warnings[0]).unwrap();
    let wanted = json!({"uid": 65534, "shadow": false, "proc": "1", "net": 101, "caps": "0000000000000000"});
    assert_eq!(found, wanted);
    let bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass";
    let bomb = Package::new("bomb.py", bomb).within(short());
    let error = decide(&bomb.invocation(), &program).await.unwrap_err().to_string();
    assert!(error.contains("did not end within 2 s"), "{error}");
}
