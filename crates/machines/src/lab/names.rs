//! Names that machines know each other by, and where they ask for others.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use guywire_model::Egress;

use super::disk;
use super::error::{Result, invalid};
use super::store::{Networks, Record, Store};

/// Where machines see the lab's shared directory. Their `/etc/hosts` and `/etc/resolv.conf` lead here,
/// so that a machine that is added is known to all others at once.
pub(super) const IN_MACHINE: &str = "/run/guywire-lab";

/// Writes the names of all machines; unchanged files stay untouched.
pub(super) fn refresh(store: &Store, networks: &Networks) -> Result<()> {
    let shared = store.shared();
    disk::make_dir(&shared)?;
    let files = [
        ("hosts", hosts(networks, &store.records()?)?),
        ("resolv.conf", name_servers(networks.egress, &host_resolver()?)),
    ];
    for (name, text) in files {
        let path = shared.join(name);
        if disk::read(&path)?.as_ref() != Some(&text) {
            disk::write(&path, text.as_bytes(), 0o644)?;
        }
    }
    Ok(())
}

/// The text of `/etc/hosts`.
fn hosts(networks: &Networks, records: &[Record]) -> Result<String> {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for Record { spec, .. } in records {
        let (_, site) = networks.site(&spec.site)?;
        let pair = site.host(spec.number).map_err(|error| invalid(error.to_string()))?;
        let (name, site) = (&spec.name, &spec.site);
        writeln!(text, "{} {name} {name}.{site}\n{} {name} {name}.{site}", pair.v4, pair.v6)
            .expect("writing to a String cannot fail");
    }
    Ok(text)
}

/// The text of `/etc/resolv.conf`, made from the host's.
fn name_servers(egress: Egress, host: &str) -> String {
    let mut text = match egress {
        Egress::None => return "# This lab has no way out, so there is nobody to ask.\n".into(),
        Egress::Nat => String::new(),
    };
    for line in host.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        // A server on the host's loopback is out of a machine's reach.
        let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        if let Some(address) = address.filter(|address| !address.is_loopback()) {
            writeln!(text, "nameserver {address}").expect("writing to a String cannot fail");
        }
    }
    text
}

/// The host's name servers; behind systemd-resolved, those that it asks itself.
fn host_resolver() -> Result<String> {
    let behind = disk::read(Path::new("/run/systemd/resolve/resolv.conf"))?;
    Ok(match behind {
        Some(text) => text,
        None => disk::read(Path::new("/etc/resolv.conf"))?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use guywire_model::{HostNumber, Login, MachineName, MachineSpec, SiteName, SiteNetwork, TemplateName};

    #[test]
    fn machines_have_both_families_and_both_names() {
        let site = SiteName::new("s1").unwrap();
        let spec = MachineSpec {
            name: MachineName::new("m1").unwrap(),
            site: site.clone(),
            number: HostNumber(11),
            template: TemplateName::new("base").unwrap(),
            login: Login { user: "root".into(), authorized_keys: Vec::new(), password: None },
            volumes: Vec::new(),
        };
        let network =
            SiteNetwork { name: site, v4: "10.9.0.0/24".parse().unwrap(), v6: "fd00::/64".parse().unwrap() };
        let networks = Networks { sites: vec![network], ..Networks::default() };
        let text = hosts(&networks, &[Record { spec, layers: Vec::new() }]).unwrap();
        assert!(text.ends_with("10.9.0.11 m1 m1.s1\nfd00::11 m1 m1.s1\n"), "{text}");
    }

    #[test]
    fn name_servers_are_given_only_with_a_way_out() {
        let host = "search x\nnameserver 127.0.0.53\nnameserver 192.0.2.1\nnameserver ::1\n";
        assert_eq!(name_servers(Egress::Nat, host), "nameserver 192.0.2.1\n");
        assert!(name_servers(Egress::None, host).starts_with('#'));
    }
}
