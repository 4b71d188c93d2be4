//! Hosts that exist already: lab machines stand in for them, since they are as real.

use std::fmt::Write;

use serde_json::Value;

use crate::{harness::Guywire, host::first_processes};

/// A lab whose machines are the hosts, and an inventory of them for another installation.
struct Site {
    provider: Guywire,
    inventory: String,
}

impl Site {
    fn new(machines: &str) -> Self {
        let provider = Guywire::new();
        provider.lab("up", &["--machines", machines]);
        let mut text = format!(
            "defaults: {{user: root, key_file: {}}}\nhosts:\n",
            provider.data().join("id_ed25519").display()
        );
        for machine in provider.machines() {
            let (name, address) = (machine["machine"].as_str().unwrap(), machine["ipv4"].as_str().unwrap());
            let key = provider.ssh(name, "cat /etc/ssh/ssh_host_ed25519_key.pub");
            writeln!(text, "- {{name: h-{name}, address: {address}, host_key: {key}}}").unwrap();
        }
        let inventory = provider.file("hosts.yaml", &text);
        Self { provider, inventory }
    }

    fn args<'a>(&'a self, verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        ["hosts", verb, "--inventory", &self.inventory].iter().chain(more).copied().collect()
    }

    fn ours(&self, machine: &str) -> String {
        self.provider
            .ssh(machine, "find /var/lib/guywire /usr/local/lib/guywire -type f 2> /dev/null || true")
    }
}

#[test]
fn hosts_are_claimed_by_one_and_released_clean() {
    let site = Site::new("2");
    let (one, two) = (Guywire::new(), Guywire::new());
    let list = one.ok(&site.args("list", &[])).stdout;
    assert!(list.starts_with("HOST ") && list.matches("reachable").count() == 2, "{list}");
    let json = one.json(&site.args("list", &[]));
    assert_eq!((json[0]["host"].as_str(), json[0]["reachable"].as_bool()), (Some("h-m1"), Some(true)));

    one.ok(&site.args("claim", &["h-m1"]));
    assert!(site.ours("m1").contains("claim.json"), "{}", site.ours("m1"));
    assert_eq!(site.ours("m2"), "", "the other one was not asked for");
    one.ok(&site.args("claim", &[]));
    let again = one.ok(&site.args("claim", &[]));
    assert!(again.stderr.contains("nothing to do"), "{again:#?}");

    let refused = two.fails(&site.args("claim", &["h-m1"]), 1, &["h-m1", "/var/lib/guywire/claim.json"]);
    assert!(refused.stderr.contains("claimed") || refused.stderr.contains("belongs"), "{refused:#?}");
    let not_ours = two.ok(&site.args("release", &[]));
    assert!(
        not_ours.stderr.contains("nothing to do"),
        "what is not theirs they do not release: {not_ours:#?}"
    );
    assert!(site.ours("m1").contains("claim.json"));

    let ran = one.run(&site.args("ssh", &["h-m2", "hostname; exit 3"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "m2\n"));

    one.ok(&site.args("release", &[]));
    for machine in ["m1", "m2"] {
        assert_eq!(site.ours(machine), "", "our files go");
    }
    assert!(one.ok(&site.args("release", &[])).stderr.contains("nothing to do"));
    two.ok(&site.args("claim", &["h-m1"]));
    let running = |machine: &Value| machine["state"] == "running";
    assert!(site.provider.machines().iter().all(running), "the hosts stay");
    assert_eq!(first_processes(&site.provider.data()), 2);
    assert_eq!(
        site.provider.ssh("m1", "test $(cut -d. -f1 /proc/uptime) -ge 0 && systemctl is-system-running"),
        "running"
    );
}

#[test]
fn a_host_that_is_not_who_it_was_is_refused() {
    let site = Site::new("1");
    let guywire = Guywire::new();
    let text = std::fs::read_to_string(&site.inventory).unwrap();
    // Another key of the same kind.
    let other = guywire.file("other", "");
    std::fs::remove_file(&other).unwrap();
    crate::host::shell(&format!("ssh-keygen -q -t ed25519 -N '' -f {other}"));
    let other = std::fs::read_to_string(format!("{other}.pub")).unwrap();
    let (head, _) = text.split_once("host_key: ").unwrap();
    let wrong = guywire.file("wrong.yaml", &format!("{head}host_key: {}}}\n", other.trim()));
    for verb in ["list", "claim", "ssh"] {
        let more: &[&str] = if verb == "ssh" { &["h-m1", "true"] } else { &[] };
        let args: Vec<&str> = ["hosts", verb, "--inventory", &wrong].iter().chain(more).copied().collect();
        let output = guywire.run(&args);
        assert_eq!(output.code, Some(1), "{verb}: {output:#?}");
        let said = output.stdout.clone() + &output.stderr;
        assert!(said.contains("h-m1") && said.contains("key"), "{verb}: {output:#?}");
    }
    assert_eq!(site.ours("m1"), "", "nothing was done to it");
}
