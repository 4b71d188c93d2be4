//! Callers that are killed at any point: the next one finishes what they began, or sweeps it away.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use guywire_machines::{Infra, Lab, sweep};
use guywire_model::{Egress, MachineSpec, Power, PowerState};

use crate::harness::{FENCE, Said, World, banner, base, machine, open, ran, site};

const DATA: &str = "GUYWIRE_TEST_DATA";
const SPEC: &str = "GUYWIRE_TEST_SPEC";
const WORK: &str = "GUYWIRE_TEST_WORK";

/// Not a test by itself: what the tests below run in a process of its own, to be killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the other tests in this file"]
async fn victim() {
    let (Ok(data), Ok(spec)) = (std::env::var(DATA), std::env::var(SPEC)) else { return };
    let lab = open(Path::new(&data), "lab");
    let spec: MachineSpec = serde_json::from_str(&spec).unwrap();
    fs::write(Path::new(&data).join("begun"), "").unwrap();
    match std::env::var(WORK).as_deref() {
        Ok("up") => {
            lab.create(FENCE, &spec).await.unwrap();
            lab.power(FENCE, &spec.name, Power::On).await.unwrap();
        }
        Ok("down") => lab.destroy(FENCE, &spec.name).await.unwrap(),
        Ok("networks") => {
            lab.ensure_networks(FENCE, &[site("s"), site("t")], Egress::Nat).await.unwrap();
        }
        other => panic!("no such work: {other:?}"),
    }
}

/// The command that runs the victim by means of `program`.
fn victim_in(mut program: Command, world: &World, spec: &MachineSpec, work: &str) -> Command {
    program
        .args(["--exact", "crash::victim", "--ignored"])
        .envs([(DATA, world.data.to_str().unwrap()), (WORK, work)])
        .env(SPEC, serde_json::to_string(spec).unwrap());
    program
}

/// Runs the victim and kills it `after` it has begun; says whether it was still at work.
fn kill_at(world: &World, spec: &MachineSpec, work: &str, after: Duration) -> bool {
    let begun = world.data.join("begun");
    if begun.exists() {
        fs::remove_file(&begun).unwrap();
    }
    let program = Command::new(std::env::current_exe().unwrap());
    let mut victim =
        victim_in(program, world, spec, work).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !begun.exists() {
        assert!(Instant::now() < end, "the victim does not begin");
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(after);
    let at_work = victim.try_wait().unwrap().is_none();
    victim.kill().unwrap();
    victim.wait().unwrap();
    at_work
}

async fn finish(lab: &Lab, spec: &MachineSpec) {
    let at = lab.create(FENCE, spec).await.unwrap();
    lab.power(FENCE, &spec.name, Power::On).await.unwrap();
    banner(at.addresses.v4.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_killed_is_finished_by_the_next() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    let spec = world.spec("m1", "s", 11);
    let mut hits = 0;
    // Making and starting a machine takes some fifty milliseconds; the points lie all over them.
    for point in 0..24 {
        let after = Duration::from_micros(point * 2500 + u64::from(rand::random::<u8>()) * 10);
        hits += u32::from(kill_at(&world, &spec, "up", after));
        finish(&world.lab, &spec).await;
        if point % 3 == 0 {
            hits += u32::from(kill_at(&world, &spec, "down", after / 2));
        }
        world.lab.destroy(FENCE, &spec.name).await.unwrap();
        let names = fs::read_dir(world.data.join("labs/lab/machines")).unwrap().count();
        assert_eq!(names, 0, "nothing half made or half removed is left");
    }
    assert!(hits >= 8, "only {hits} kills came before the end");
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn networks_that_were_killed_are_finished_by_the_next() {
    let world = World::new().await;
    let spec = world.spec("m1", "s", 11);
    for point in 0..6 {
        kill_at(&world, &spec, "networks", Duration::from_millis(point * 6));
        let made = world.networks(&["s", "t"], Egress::None).await;
        assert_eq!(made.len(), 2);
        if point == 5 {
            finish(&world.lab, &spec).await;
            world.lab.destroy(FENCE, &spec.name).await.unwrap();
        }
        world.lab.remove_networks(FENCE).await.unwrap();
    }
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_nothing_but_cgroup2_will_do() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    let spec = world.spec("m1", "s", 11);
    for work in ["up", "down", "up"] {
        let mut shell = Command::new("unshare");
        let hide = "umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec \"$@\"";
        shell.args(["--mount", "--propagation", "private", "sh", "-ec", hide, "sh"]);
        shell.arg(std::env::current_exe().unwrap());
        let ran = ran(&mut victim_in(shell, &world, &spec, work));
        assert!(ran.good, "{work}: {}", ran.said);
    }
    let at = world.lab.create(FENCE, &spec).await.unwrap();
    assert_eq!(at.power, PowerState::Running);
    banner(at.addresses.v4.into()).await;
    let seen = world.ssh(&at, "systemctl is-system-running --wait; stat -f -c %T /sys/fs/cgroup");
    assert_eq!(seen.said, "running\ncgroup2fs");
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_needs_no_files() {
    let world = World::new().await;
    world.networks(&["s"], Egress::Nat).await;
    for (name, number) in [("m1", 11), ("m2", 12)] {
        world.up(&world.spec(name, "s", number)).await;
    }
    let dir = world.data.join("labs/lab");
    fs::write(dir.join("network.json"), "{").unwrap();
    fs::write(dir.join("machines/m1/spec.json"), "nonsense").unwrap();
    assert!(world.lab.observe().await.unwrap_err().message.contains("network.json"), "damage is named");
    fs::remove_dir_all(dir.join("machines/m2")).unwrap();
    let swept = sweep(&world.data).unwrap();
    assert_eq!(swept.machines, ["m1", "m2"]);
    assert_eq!((swept.tables.len(), swept.links.len()), (1, 3));
    let left = world.traces();
    assert!(left.is_empty(), "{left:#?}");
    assert!(sweep(&world.data).unwrap().is_empty());

    // The same lab comes back as if nothing had been.
    world.lab.ensure_template(FENCE, &base(), &Said).await.unwrap();
    world.networks(&["s"], Egress::None).await;
    finish(&world.lab, &world.spec("m1", "s", 11)).await;
    world.lab.destroy(FENCE, &machine("m1")).await.unwrap();
    world.remove().await;
}
