//! What a lab leaves on the host, and what is left of it.

use std::{path::Path, process::Command};

use crate::harness::Guywire;

/// The id that a lab's kernel objects have in common, taken from the bridge that has its gateway's address.
pub fn lab_id(guywire: &Guywire) -> String {
    let address = guywire.machines()[0]["ipv4"].as_str().unwrap().to_owned();
    let (network, _) = address.rsplit_once('.').unwrap();
    let addresses = shell("ip -brief -4 address");
    let gateway = format!("{network}.1/");
    let line = addresses.lines().find(|line| line.contains(&gateway)).expect("a bridge has the gateway");
    let bridge = line.split_whitespace().next().unwrap();
    bridge.strip_prefix("gw").and_then(|rest| rest.rsplit_once('s')).expect("gwIDsN").0.to_owned()
}

/// Every trace of a lab on this host: interfaces, firewall tables, control groups, mounts, processes and
/// files outside the data directory.
pub fn traces(id: &str, data: &Path) -> Vec<String> {
    // Other labs come and go while `find` looks.
    let places = [
        ("interface", "ip -o link".to_owned()),
        ("namespace", "ip netns list 2> /dev/null || true".to_owned()),
        ("firewall", "nft list tables".to_owned()),
        ("cgroup", "find /sys/fs/cgroup -type d 2> /dev/null || true".to_owned()),
        ("mount", "cat /proc/self/mountinfo".to_owned()),
        ("file", "find /etc /run /var/lib /var/run /dev/shm -maxdepth 3 2> /dev/null || true".to_owned()),
    ];
    let data = data.display().to_string();
    let mut found = Vec::new();
    for (what, script) in places {
        let lines = shell(&script);
        let ours = lines.lines().filter(|line| line.contains(id) || line.contains(&data));
        found.extend(ours.map(|line| format!("{what} {line}")));
    }
    found.extend(processes(&data));
    found
}

/// Waits for a process that was just killed to be gone, and then expects nothing at all.
pub fn assert_no_trace(id: &str, data: &Path) {
    let mut last = Vec::new();
    for _ in 0..20 {
        last = traces(id, data);
        if last.is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("left behind: {last:#?}");
}

/// Machines that run for a data directory, whatever `lab list` says about them.
pub fn processes(data: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        // A process may end while we look at it.
        let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        let command = read("cmdline").replace('\0', " ");
        // Machines have a mount namespace of their own, with their disk below the data directory.
        if command.contains(data) && !command.contains("lab sweep") || read("mountinfo").contains(data) {
            found.push(format!("process {} {command}", path.display()));
        }
    }
    found
}

/// How many machines of a data directory run: each has a process that is the first of its namespace.
pub fn first_processes(data: &Path) -> usize {
    let data = data.display().to_string();
    let is_first = |process: &Path| {
        let read = |name: &str| std::fs::read_to_string(process.join(name)).unwrap_or_default();
        let status = read("status");
        let numbers = status.lines().find(|line| line.starts_with("NSpid:")).unwrap_or_default();
        let nested: Vec<&str> = numbers.split_whitespace().skip(1).collect();
        nested.len() == 2 && nested[1] == "1" && read("mountinfo").contains(&data)
    };
    std::fs::read_dir("/proc").unwrap().filter(|entry| is_first(&entry.as_ref().unwrap().path())).count()
}

/// What a shell command on this host prints; it must succeed.
pub fn shell(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
