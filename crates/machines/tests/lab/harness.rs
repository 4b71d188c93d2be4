//! A lab in a directory of its own, a way into its machines, and a look at what it left behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use guywire_machines::{Infra, Lab, LabConfig, Progress, sweep};
use guywire_model::{
    Egress, HostNumber, LabName, LabSpec, Login, MachineName, MachineSpec, ObservedMachine, Power, SiteName,
    SiteNetwork, SiteSpec, TemplateName, TemplateSpec,
};
use guywire_plan::Fence;
use guywire_secrets::{Secret, StoreError};
use russh::keys::{Algorithm, PrivateKey, ssh_key::LineEnding};
use tokio::io::AsyncReadExt;

pub const FENCE: Fence = Fence(7);
pub const PASSWORD: &str = "correct horse battery";

/// A lab, its directory and a key to its machines.
pub struct World {
    pub data: PathBuf,
    pub lab: Arc<Lab>,
    pub login: Login,
    dir: tempfile::TempDir,
    id: OnceLock<String>,
}

pub struct Said;

impl Progress for Said {
    fn say(&self, line: &str) {
        println!("{line}");
    }
}

/// A command that ran: whether it succeeded, and what it printed.
#[derive(Debug)]
pub struct Ran {
    pub good: bool,
    pub said: String,
}

impl World {
    /// An empty lab with the default template.
    pub async fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "the lab's tests make machines: run them as root");
        let dir = tempfile::tempdir().unwrap();
        let data = fs::canonicalize(dir.path()).unwrap();
        let key = PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).unwrap();
        let mut file =
            fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(data.join("key")).unwrap();
        file.write_all(key.to_openssh(LineEnding::LF).unwrap().as_bytes()).unwrap();
        let public = key.public_key().to_openssh().unwrap();
        let login = Login { user: "root".into(), authorized_keys: vec![public], password: None };
        let lab = Arc::new(open(&data, "lab"));
        lab.ensure_template(FENCE, &base(), &Said).await.unwrap();
        Self { data, lab, login, dir, id: OnceLock::new() }
    }

    /// Another lab beside this one, in the same data directory.
    pub async fn beside(&self, name: &str) -> Lab {
        let lab = open(&self.data, name);
        lab.ensure_template(FENCE, &base(), &Said).await.unwrap();
        lab
    }

    /// Makes networks for these sites.
    pub async fn networks(&self, names: &[&str], egress: Egress) -> Vec<SiteNetwork> {
        let sites: Vec<SiteSpec> = names.iter().map(|name| site(name)).collect();
        self.networks_as(&sites, egress).await
    }

    /// Makes networks as they are specified.
    pub async fn networks_as(&self, sites: &[SiteSpec], egress: Egress) -> Vec<SiteNetwork> {
        let made = self.lab.ensure_networks(FENCE, sites, egress).await.unwrap();
        let marked = |link: &String| alias(link).contains(&self.data.display().to_string());
        let bridge = links().into_iter().find(marked).expect("a bridge that is marked as ours");
        self.id.get_or_init(|| bridge[2..10].to_owned());
        made
    }

    /// What a machine of this lab would be made from.
    pub fn spec(&self, name: &str, site: &str, number: u16) -> MachineSpec {
        MachineSpec {
            name: machine(name),
            site: SiteName::new(site).unwrap(),
            number: HostNumber(number),
            template: TemplateName::new(LabSpec::DEFAULT_TEMPLATE).unwrap(),
            login: self.login.clone(),
            volumes: Vec::new(),
        }
    }

    /// Makes a machine, starts it and waits for SSH.
    pub async fn up(&self, spec: &MachineSpec) -> ObservedMachine {
        let made = self.lab.create(FENCE, spec).await.unwrap();
        self.lab.power(FENCE, &spec.name, Power::On).await.unwrap();
        banner(made.addresses.v4.into()).await;
        made
    }

    /// Runs a command in a machine over SSH, with its host key pinned.
    pub fn ssh(&self, at: &ObservedMachine, command: &str) -> Ran {
        self.ssh_with(at, command, &[])
    }

    /// The same with a password instead of the key.
    pub fn ssh_by_password(&self, at: &ObservedMachine, password: &str, command: &str) -> Ran {
        let ask = self.data.join("ask");
        fs::write(&ask, format!("#!/bin/sh\necho '{password}'\n")).unwrap();
        fs::set_permissions(&ask, fs::Permissions::from_mode(0o700)).unwrap();
        let ask = ask.to_str().unwrap();
        self.ssh_with(at, command, &[("SSH_ASKPASS", ask), ("SSH_ASKPASS_REQUIRE", "force")])
    }

    fn ssh_with(&self, at: &ObservedMachine, command: &str, environment: &[(&str, &str)]) -> Ran {
        let name = &at.spec.name;
        let known = self.data.join(format!("known.{name}"));
        let key = self.lab.host_key(name).expect("a machine's host key");
        fs::write(&known, format!("{name} {key}\n")).unwrap();
        let mut ssh = Command::new("ssh");
        ssh.args(["-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10"])
            .args(["-o", &format!("HostKeyAlias={name}"), "-o", "NumberOfPasswordPrompts=1"])
            .args(["-o", &format!("UserKnownHostsFile={}", known.display()), "-F", "none"]);
        if environment.is_empty() {
            ssh.args(["-o", "BatchMode=yes", "-i"]).arg(self.data.join("key"));
        } else {
            ssh.args(["-o", "PubkeyAuthentication=no"]);
        }
        ssh.envs(environment.iter().copied());
        ran(ssh.arg(format!("{}@{}", at.spec.login.user, at.addresses.v4)).arg(command))
    }

    /// Everything on this host that belongs to this data directory's first lab.
    pub fn traces(&self) -> BTreeSet<String> {
        let data = self.data.display().to_string();
        let id = self.id.get().expect("networks were made").clone();
        let mut found = BTreeSet::new();
        found
            .extend(links().into_iter().filter(|link| link.contains(&id)).map(|link| format!("link {link}")));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        found.extend(mounts.lines().filter(|line| line.contains(&data)).map(|line| format!("mount {line}")));
        for line in mounts.lines().filter(|line| line.contains(" - cgroup")) {
            let point = line.split(' ').nth(4).unwrap();
            let dir = Path::new(point).join("guywire").join(&id);
            found.extend(dir.exists().then(|| format!("cgroup {}", dir.display())));
        }
        for entry in fs::read_dir("/proc").unwrap() {
            let path = entry.unwrap().path();
            let mentions = |file: &str| {
                let text = fs::read_to_string(path.join(file)).unwrap_or_default();
                text.contains(&id) || (file == "mountinfo" && text.contains(&data))
            };
            // A dead process that the host's init has not yet looked at is no longer ours.
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            let alive = !status.is_empty() && !status.contains("State:\tZ");
            if alive && (mentions("cgroup") || mentions("mountinfo")) {
                found.insert(format!("process {}", path.display()));
            }
        }
        let tables = ran(Command::new("nft").args(["list", "tables"])).said;
        found.extend(tables.lines().filter(|line| line.contains(&id)).map(str::to_owned));
        found
    }

    /// Removes the lab the way a user does, and looks whether anything is left.
    pub async fn remove(self) {
        for machine in self.lab.observe().await.unwrap().machines {
            self.lab.destroy(FENCE, &machine.spec.name).await.unwrap();
        }
        for volume in self.lab.observe().await.unwrap().volumes {
            self.lab.remove_volume(FENCE, &volume).await.unwrap();
        }
        self.lab.remove_networks(FENCE).await.unwrap();
        self.lab.close(FENCE).await.unwrap();
        let left = self.traces();
        assert!(left.is_empty(), "a removed lab leaves nothing: {left:#?}");
        assert_eq!(Lab::list(&self.data).unwrap(), []);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that failed must not spoil the next one.
        match sweep(&self.data) {
            Ok(_) => {}
            Err(error) => eprintln!("sweeping {}: {error}", self.dir.path().display()),
        }
    }
}

/// Opens a lab in a data directory with the test's starter and secrets.
pub fn open(data: &Path, name: &str) -> Lab {
    let mut config = LabConfig::new(data, LabName::new(name).unwrap()).unwrap();
    config.templates = templates();
    config.starter = starter();
    config.secrets = Arc::new(|reference| {
        let known = (reference.name() == "lab/ops").then(|| Secret::new(PASSWORD));
        known.ok_or_else(|| StoreError::NotFound(reference.name().to_owned()))
    });
    Lab::open(config).unwrap()
}

/// Runs a command and keeps what it printed.
pub fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let said = [output.stdout, output.stderr].concat();
    Ran { good: output.status.success(), said: String::from_utf8_lossy(&said).trim().to_owned() }
}

/// Runs a shell command on the host that must succeed.
pub fn host(script: &str) -> String {
    let ran = ran(Command::new("sh").args(["-ec", script]));
    assert!(ran.good, "{script}: {}", ran.said);
    ran.said
}

/// Waits until a machine's SSH server introduces itself.
pub async fn banner(address: IpAddr) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let hello = async {
            let mut stream = tokio::net::TcpStream::connect((address, 22)).await?;
            let mut hello = [0; 7];
            stream.read_exact(&mut hello).await.map(|_| hello)
        };
        match tokio::time::timeout(Duration::from_secs(1), hello).await {
            Ok(Ok(hello)) => return assert_eq!(&hello, b"SSH-2.0"),
            other => assert!(Instant::now() < end, "no SSH at {address}: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn base() -> TemplateSpec {
    let name = TemplateName::new(LabSpec::DEFAULT_TEMPLATE).unwrap();
    TemplateSpec { name, packages: Vec::new(), content: Vec::new() }
}

pub fn machine(name: &str) -> MachineName {
    MachineName::new(name).unwrap()
}

pub fn site(name: &str) -> SiteSpec {
    SiteSpec { name: SiteName::new(name).unwrap(), v4: None, v6: None }
}

fn links() -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    fs::read_dir("/sys/class/net").unwrap().map(name).filter(|name| name.starts_with("gw")).collect()
}

fn alias(link: &str) -> String {
    fs::read_to_string(format!("/sys/class/net/{link}/ifalias")).unwrap_or_default()
}

/// Templates take a minute to make, so they outlive a run.
fn templates() -> PathBuf {
    if let Some(dir) = std::env::var_os("GUYWIRE_TEMPLATES") {
        return dir.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or("/root".into())).join(".cache");
    cache.unwrap_or_else(home).join("guywire/templates")
}

/// The example program that becomes a machine. `cargo test` builds it, `cargo test --test lab` does not.
fn starter() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "guywire-machines", "--example", "machine-init"]);
        // With what cargo tells tests about themselves, build scripts would believe that they changed.
        let told =
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_", "LD_LIBRARY_"];
        for (name, _) in std::env::vars().filter(|(name, _)| told.iter().any(|told| name.starts_with(told))) {
            cargo.env_remove(name);
        }
        let built = ran(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        assert!(built.good, "building the starter: {}", built.said);
        let test = std::env::current_exe().unwrap();
        test.parent().unwrap().parent().unwrap().join("examples/machine-init")
    };
    BUILT.get_or_init(build).clone()
}
