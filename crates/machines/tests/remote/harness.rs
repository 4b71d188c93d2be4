//! The machines that these tests run on, and what they all need. This is the only place that knows
//! where they come from.

use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use guywire_machines::{
    Infra,
    remote::{UnitExit, UnitRequest, UnitState, Units},
    ssh::{Auth, Door, ExecRequest, HostKey, KnownHosts, Pool},
};
use guywire_model::{Egress, MachineName, Power};
use guywire_plan::Fence;
use guywire_secrets::Masker;
use tokio_util::sync::CancellationToken;

use crate::lab::{FENCE, World};

/// One machine and its power switch.
pub struct TestMachine {
    pub door: Door,
    lab: Option<Arc<TestLab>>,
}

/// A lab that all tests of this process share, gone with the last of them.
struct TestLab {
    world: World,
    doors: Vec<Door>,
}

static LAB: Mutex<Weak<TestLab>> = Mutex::new(Weak::new());

/// Four machines. The first is for everything, the second may be slowed down, the third's power may be
/// cut, and from the fourth all that is ours may be removed.
pub fn machines_for_test() -> Vec<TestMachine> {
    if let Some(door) = door_of_parent() {
        return vec![TestMachine { door, lab: None }];
    }
    let lab = test_lab();
    lab.doors.iter().map(|door| TestMachine { door: door.clone(), lab: Some(Arc::clone(&lab)) }).collect()
}

fn test_lab() -> Arc<TestLab> {
    let mut shared = LAB.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lab) = shared.upgrade() {
        return lab;
    }
    // On a thread of its own, since tests call this from inside their runtimes.
    let made = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            world.networks(&["site1"], Egress::None).await;
            let mut doors = Vec::new();
            for number in 11..=14 {
                let machine = world.up(&world.spec(&format!("s{number}"), "site1", number)).await;
                doors.push(Door {
                    machine: machine.spec.name.to_string(),
                    host: machine.addresses.v4.to_string(),
                    port: 22,
                    user: "root".into(),
                    auth: Auth::KeyFile(world.data.join("key")),
                    host_key: HostKey::PinOnFirstUse,
                });
            }
            TestLab { world, doors }
        })
    });
    let lab = Arc::new(made.join().unwrap());
    *shared = Arc::downgrade(&lab);
    lab
}

/// What a process that a test starts needs in its environment to find the test's first machine.
pub fn environment_for_child(door: &Door) -> [(&'static str, String); 3] {
    let Auth::KeyFile(key) = &door.auth else { panic!("test machines are entered by key") };
    [
        ("DOOR_NAME", door.machine.clone()),
        ("DOOR_HOST", door.host.clone()),
        ("DOOR_KEY", key.display().to_string()),
    ]
}

fn door_of_parent() -> Option<Door> {
    Some(Door {
        machine: std::env::var("DOOR_NAME").ok()?,
        host: std::env::var("DOOR_HOST").ok()?,
        port: 22,
        user: "root".into(),
        auth: Auth::KeyFile(std::env::var("DOOR_KEY").ok()?.into()),
        host_key: HostKey::PinOnFirstUse,
    })
}

impl TestMachine {
    /// Takes the power away.
    pub async fn cut(&self) {
        self.power(Power::Cut).await;
    }

    /// Gives the power back.
    pub async fn boot(&self) {
        self.power(Power::On).await;
    }

    async fn power(&self, power: Power) {
        let name = MachineName::new(self.door.machine.as_str()).unwrap();
        self.lab.as_ref().unwrap().world.lab.power(FENCE, &name, power).await.unwrap();
    }
}

/// A data directory and connections of one manager.
pub struct Manager {
    pub pool: Pool,
    pub units: Units,
    pub masker: Masker,
    /// Keeps the machines for as long as the test has a manager.
    _lab: Option<Arc<TestLab>>,
    _data: tempfile::TempDir,
}

impl Manager {
    pub fn new() -> Self {
        let lab = door_of_parent().is_none().then(test_lab);
        let data = tempfile::tempdir().unwrap();
        let pool = Pool::new(KnownHosts::new(data.path()));
        let masker = Masker::default();
        Self { units: Units::new(pool.clone(), masker.clone()), pool, masker, _lab: lab, _data: data }
    }

    /// Runs a unit to its end and gives what came out of it too.
    pub async fn run(
        &self,
        door: &Door,
        request: &UnitRequest,
    ) -> Result<(UnitExit, String), guywire_machines::remote::RemoteError> {
        let mut seen = Vec::new();
        let exit = self
            .units
            .run(door, request, &CancellationToken::new(), &mut |chunk| seen.extend_from_slice(chunk))
            .await?;
        Ok((exit, String::from_utf8(seen).unwrap()))
    }

    /// Waits until somebody's unit was started.
    pub async fn wait_started(&self, door: &Door, key: &str) {
        for _ in 0..300 {
            if self.units.status(door, key).await.unwrap().1 != UnitState::None {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{key} was not started");
    }

    /// A command's output.
    pub async fn ask(&self, door: &Door, script: &str) -> String {
        self.pool.exec(door, ExecRequest::script(script)).await.unwrap().stdout_text()
    }

    /// Kills the server's process of our connection, as a cut does.
    pub async fn cut_connection(&self, door: &Door) {
        let script = "p=$$; while [ \"$(cat /proc/$p/comm)\" != sshd ]; do p=$(ps -o ppid= -p $p | tr -d ' '); done; kill -9 $p";
        self.pool.exec(door, ExecRequest::script(script)).await.expect_err("the connection is gone");
    }
}

/// Output that others may look at while it comes.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<Vec<u8>>>);

impl Seen {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    pub fn take(&self, chunk: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(chunk);
    }

    pub async fn wait_for(&self, text: &str) {
        for _ in 0..600 {
            if self.text().contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{text:?} did not come: {:?}", self.text());
    }
}

/// A unit with a key of its own.
pub fn unit(script: impl Into<String>) -> UnitRequest {
    UnitRequest {
        key: unique("unit"),
        fence: Fence(5),
        attempt: 1,
        script: script.into(),
        timeout: Duration::from_mins(1),
        limit: 1 << 20,
    }
}

/// A name that no other test, and no earlier run, has.
pub fn unique(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    format!("{what}-{now}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A script that leaves a line in a file each time it runs, and the command that counts them.
pub fn counted(script: &str) -> (String, String) {
    let file = format!("/root/{}", unique("count"));
    (format!("echo run >> {file}\n{script}"), format!("grep -c run {file}"))
}
