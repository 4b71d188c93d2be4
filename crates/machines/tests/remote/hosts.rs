//! Hosts of an inventory as an infrastructure.

use std::{path::Path, sync::Arc};

use guywire_machines::{
    Infra, InfraErrorKind,
    hosts::{Hosts, installation_name},
    ssh::{Auth, Door, ExecRequest, KnownHosts, Pool},
};
use guywire_model::{
    Egress, HostNumber, Login, MachineName, MachineSpec, Power, PowerState, SiteName, SiteSpec, TemplateName,
    parse_inventory,
};
use guywire_plan::Fence;
use guywire_secrets::Store;

use crate::harness::{Manager, machines_for_test, unit};

fn hosts(data: &Path, doors: &[&Door]) -> Hosts {
    let entries = doors.iter().map(|door| {
        let Auth::KeyFile(key) = &door.auth else { panic!("a key file") };
        let (name, address, key) = (&door.machine, &door.host, key.display());
        format!("- {{name: {name}, address: {address}, user: root, key_file: {key}}}\n")
    });
    let head = "sites: [{name: north, v4: 10.0.0.0/8, v6: 'fd00::/64'}]\nhosts:\n".to_owned();
    let text: String = [head].into_iter().chain(entries).chain(["reserved: []\n".to_owned()]).collect();
    let inventory = parse_inventory("hosts.yaml", &text).unwrap();
    let pool = Pool::new(KnownHosts::new(data));
    let secrets = Arc::new(Store::open_with(data, None).unwrap());
    Hosts::new(inventory, pool, secrets, data, installation_name(data).unwrap())
}

fn spec(name: &str) -> MachineSpec {
    MachineSpec {
        name: MachineName::new(name).unwrap(),
        site: SiteName::new("north").unwrap(),
        number: HostNumber(11),
        template: TemplateName::new("base").unwrap(),
        login: Login { user: "root".into(), authorized_keys: Vec::new(), password: None },
        volumes: Vec::new(),
    }
}

#[tokio::test]
async fn a_host_is_claimed_by_one_and_released_clean() {
    let machine_for_test = machines_for_test().remove(3);
    let door = machine_for_test.door.clone();
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mine, other) = (hosts(ours.path(), &[&door]), hosts(theirs.path(), &[&door]));
    let machine = spec(&door.machine);
    // What an earlier run that was ended in the middle left.
    Pool::new(KnownHosts::new(ours.path()))
        .exec(&door, ExecRequest::script("rm -rf /var/lib/guywire /usr/local/lib/guywire"))
        .await
        .unwrap();

    let claimed = mine.create(Fence(5), &machine).await.unwrap();
    assert_eq!((claimed.power, claimed.addresses.v4.to_string()), (PowerState::Running, door.host.clone()));
    assert_eq!(mine.create(Fence(6), &machine).await.unwrap(), claimed, "claiming again changes nothing");
    assert_eq!(mine.observe().await.unwrap().machines, [claimed]);
    assert_eq!(mine.create(Fence(5), &machine).await.unwrap_err().kind, InfraErrorKind::Fenced);
    let different = MachineSpec { number: HostNumber(12), ..machine.clone() };
    assert_eq!(mine.create(Fence(6), &different).await.unwrap_err().kind, InfraErrorKind::Conflict);

    let error = other.create(Fence(9), &machine).await.unwrap_err();
    assert_eq!(error.kind, InfraErrorKind::Conflict);
    assert!(error.to_string().contains("/var/lib/guywire/claim.json"), "{error}");
    assert_eq!(other.observe().await.unwrap().machines, []);
    other.destroy(Fence(9), &machine.name).await.unwrap();
    assert_eq!(mine.observe().await.unwrap().machines.len(), 1, "what is not theirs they do not release");

    mine.power(Fence(6), &machine.name, Power::On).await.unwrap();
    for power in [Power::Off, Power::Cut] {
        let error = mine.power(Fence(6), &machine.name, power).await.unwrap_err();
        assert_eq!(error.kind, InfraErrorKind::Unsupported, "{error}");
    }
    assert_eq!(mine.remove_networks(Fence(6)).await.unwrap_err().kind, InfraErrorKind::Conflict);

    let manager = Manager::new();
    manager.run(&door, &unit("echo something")).await.unwrap();
    mine.destroy(Fence(7), &machine.name).await.unwrap();
    mine.destroy(Fence(7), &machine.name).await.unwrap();
    let left = manager
        .ask(&door, "ls -A /var/lib/guywire; ls -d /usr/local/lib/guywire 2>/dev/null; hostname")
        .await;
    assert_eq!(left, format!("{}\n", door.machine), "nothing stays, and the host is still there");
    assert_eq!(
        mine.create(Fence(6), &machine).await.unwrap_err().kind,
        InfraErrorKind::Fenced,
        "also after that"
    );
    mine.remove_networks(Fence(7)).await.unwrap();
    other.create(Fence(9), &machine).await.unwrap();
    other.destroy(Fence(9), &machine.name).await.unwrap();
}

#[tokio::test]
async fn hosts_that_do_not_answer_are_named() {
    let machines = machines_for_test();
    let data = tempfile::tempdir().unwrap();
    // Nothing answers SSH at this address of loopback.
    let dead = Door { machine: "dead".into(), host: "127.0.0.9".into(), ..machines[0].door.clone() };
    let hosts = hosts(data.path(), &[&machines[0].door, &dead]);
    let error = hosts.observe().await.unwrap_err();
    assert_eq!(error.kind, InfraErrorKind::Unavailable);
    assert!(error.retry() && error.to_string().contains("dead (127.0.0.9:22)"), "{error}");
    let error = hosts.create(Fence(1), &spec("nobody")).await.unwrap_err();
    assert_eq!(error.kind, InfraErrorKind::NotFound);
    assert!(error.to_string().contains(&format!("which has {}, dead", machines[0].door.machine)), "{error}");
}

#[tokio::test]
async fn networks_must_be_those_of_the_inventory() {
    let data = tempfile::tempdir().unwrap();
    let hosts = hosts(data.path(), &[]);
    let site = |name: &str, v4: Option<&str>| SiteSpec {
        name: SiteName::new(name).unwrap(),
        v4: v4.map(|v4| v4.parse().unwrap()),
        v6: None,
    };
    assert_eq!(hosts.ensure_networks(Fence(1), &[], Egress::None).await.unwrap(), []);
    for good in [site("north", None), site("north", Some("10.0.0.0/8"))] {
        assert_eq!(hosts.ensure_networks(Fence(1), &[good], Egress::None).await.unwrap().len(), 1);
    }
    for bad in [site("south", None), site("north", Some("10.1.0.0/16"))] {
        let error = hosts.ensure_networks(Fence(1), &[bad], Egress::None).await.unwrap_err();
        assert_eq!(error.kind, InfraErrorKind::Invalid, "{error}");
    }
    let error = hosts.ensure_networks(Fence(1), &[], Egress::Nat).await.unwrap_err();
    assert_eq!(error.kind, InfraErrorKind::Unsupported);
}
