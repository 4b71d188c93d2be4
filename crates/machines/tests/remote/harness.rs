//! The machines that these tests run on, and what they all need. This is the only place that knows
//! where they come from.

use std::{
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use guywire_machines::{
    remote::{UnitExit, UnitRequest, UnitState, Units},
    ssh::{Auth, Door, ExecRequest, HostKey, KnownHosts, Pool},
};
use guywire_plan::Fence;
use guywire_secrets::Masker;
use tokio_util::sync::CancellationToken;

/// One machine and its power switch.
pub struct TestMachine {
    pub door: Door,
}

/// At least four machines. The first is for everything, the second may be slowed down, the third's
/// power may be cut, and from the fourth all that is ours may be removed.
pub fn machines_for_test() -> Vec<TestMachine> {
    let wanted = "set GUYWIRE_TEST_DOORS to four of NAME=ADDRESS with commas between, GUYWIRE_TEST_KEY to root's private key there, and GUYWIRE_TEST_POWER to a command that takes `cut NAME` and `boot NAME ADDRESS`";
    let doors = std::env::var("GUYWIRE_TEST_DOORS").expect(wanted);
    let key = std::env::var("GUYWIRE_TEST_KEY").expect(wanted);
    let machines: Vec<TestMachine> = doors
        .split(',')
        .map(|door| {
            let (name, address) = door.split_once('=').expect(wanted);
            TestMachine {
                door: Door {
                    machine: name.into(),
                    host: address.into(),
                    port: 22,
                    user: "root".into(),
                    auth: Auth::KeyFile(key.clone().into()),
                    host_key: HostKey::PinOnFirstUse,
                },
            }
        })
        .collect();
    assert!(machines.len() >= 4, "{wanted}");
    machines
}

impl TestMachine {
    /// Takes the power away.
    pub fn cut(&self) {
        power(&["cut", &self.door.machine]);
    }

    /// Gives the power back.
    pub fn boot(&self) {
        power(&["boot", &self.door.machine, &self.door.host]);
    }
}

fn power(words: &[&str]) {
    let command = std::env::var("GUYWIRE_TEST_POWER").expect("GUYWIRE_TEST_POWER is a command");
    assert!(Command::new(command).args(words).status().unwrap().success(), "{words:?}");
}

/// A data directory and connections of one manager.
pub struct Manager {
    pub pool: Pool,
    pub units: Units,
    pub masker: Masker,
    _data: tempfile::TempDir,
}

impl Manager {
    pub fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let pool = Pool::new(KnownHosts::new(data.path()));
        let masker = Masker::default();
        Self { units: Units::new(pool.clone(), masker.clone()), pool, masker, _data: data }
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
