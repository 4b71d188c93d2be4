//! The example files, for real; and machines that leave each other alone.

use std::time::{Duration, Instant};

use crate::{
    harness::{Guywire, Running},
    host::shell,
};

fn example(name: &str) -> String {
    format!("{}/../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_example_lab_is_as_it_says() {
    let guywire = Guywire::new();
    let set = shell(&format!(
        "echo example-Passw0rd | {} secret set lab/operator --data {}",
        crate::harness::binary().display(),
        guywire.data().display()
    ));
    assert!(set.contains("secret:lab/operator"), "{set}");
    guywire.ok(&["lab", "up", "--file", &example("lab.yaml")]);
    let list = guywire.json(&["lab", "list"]);
    let machine =
        |name: &str| list.as_array().unwrap().iter().find(|m| m["machine"] == name).unwrap().clone();
    assert_eq!(machine("north-1")["ipv4"], "10.77.1.21");
    assert_eq!(machine("north-1")["ipv6"], "fd77:0:0:1::21");
    assert_eq!(machine("south-1")["site"], "south");
    let ssh = |machine: &str, script: &str| {
        guywire.ok(&["lab", "ssh", "--name", "two-sites", machine, script]).stdout
    };
    assert_eq!(ssh("south-1", "echo $SUDO_USER"), "operator\n");
    // Sites reach each other by name.
    assert_eq!(ssh("south-1", "bash -c 'exec 3<> /dev/tcp/north-1.north/22; head -c 7 <&3'"), "SSH-2.0");
    ssh("north-1", "echo kept > /srv/data/file; sync");
    guywire.ok(&["lab", "rm", "--name", "two-sites", "north-1"]);
    guywire.ok(&["lab", "up", "--file", &example("lab.yaml")]);
    assert_eq!(ssh("north-1", "cat /srv/data/file"), "kept\n", "a volume outlives its machine");
    guywire.ok(&["lab", "down", "--name", "two-sites"]);
    assert!(guywire.ok(&["lab", "sweep"]).stdout.contains("nothing was left"));
}

#[test]
fn the_example_inventory_is_read() {
    let guywire = Guywire::new();
    let output = guywire.fails(
        &["hosts", "ssh", "--inventory", &example("hosts.yaml"), "rack9", "true"],
        1,
        &["rack9"],
    );
    assert!(!output.stderr.contains("hosts.yaml:"), "the file itself is good: {output:#?}");
}

#[test]
fn a_busy_machine_does_not_stall_another() {
    let guywire = Guywire::new();
    guywire.lab("up", &["--machines", "2"]);
    let args = guywire.lab_args("ssh", &["m2", "true"]);
    let latency = || {
        let mut times: Vec<Duration> = (0..7)
            .map(|_| {
                let begin = Instant::now();
                guywire.ok(&args);
                begin.elapsed()
            })
            .collect();
        times.sort();
        times[3]
    };
    let idle = latency();
    let spin = "for i in $(seq $(($(nproc) * 4))); do timeout 20 sh -c 'while :; do :; done' & done; echo spinning; wait";
    let mut busy: Running = guywire.start(&guywire.lab_args("ssh", &["m1", spin]));
    std::thread::sleep(Duration::from_millis(1500));
    let loaded = latency();
    assert!(!busy.has_ended(), "m1 was busy all along");
    guywire.lab("cut", &["m1"]);
    busy.signal(rustix::process::Signal::KILL);
    busy.wait();
    eprintln!("`lab ssh m2 true`: {idle:.0?} beside an idle machine, {loaded:.0?} beside a busy one");
    // Generous: other tests share these cores.
    assert!(loaded < idle * 8 + Duration::from_secs(1), "{idle:?} became {loaded:?}");
}
