//! Requests that cannot be met: each is refused with a reason, and nothing half made stays behind.

use std::fs;

use guywire_machines::{Infra, InfraErrorKind};
use guywire_model::{
    AddressName, Egress, HostNumber, MachineSpec, Power, SiteName, TemplateName, VolumeMount, VolumeName,
};
use guywire_plan::Fence;

use crate::harness::{FENCE, World, machine, site};

type Change = Box<dyn Fn(&mut MachineSpec)>;

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_cannot_be_is_refused() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    world.lab.create(FENCE, &world.spec("m1", "s", 11)).await.unwrap();
    let volume =
        |name: &str, path: &str| VolumeMount { volume: VolumeName::new(name).unwrap(), path: path.into() };
    world.lab.ensure_volume(FENCE, &VolumeName::new("v").unwrap()).await.unwrap();
    let vip = AddressName::new("vip").unwrap();
    world.lab.reserve_address(FENCE, &SiteName::new("s").unwrap(), &vip).await.unwrap();
    let cases: Vec<(&str, InfraErrorKind, Change)> = vec![
        (
            "not in this lab; its sites are s",
            InfraErrorKind::NotFound,
            Box::new(|m| m.site = SiteName::new("t").unwrap()),
        ),
        ("has no host 300", InfraErrorKind::Invalid, Box::new(|m| m.number = HostNumber(300))),
        ("gateway", InfraErrorKind::Invalid, Box::new(|m| m.number = HostNumber(1))),
        ("belongs to machine m1", InfraErrorKind::Conflict, Box::new(|m| m.number = HostNumber(11))),
        ("reserved as vip", InfraErrorKind::Conflict, Box::new(|m| m.number = HostNumber(200))),
        (
            "template t is not made",
            InfraErrorKind::NotFound,
            Box::new(|m| m.template = TemplateName::new("t").unwrap()),
        ),
        (
            "volume w is not there",
            InfraErrorKind::NotFound,
            Box::new(move |m| m.volumes = vec![volume("w", "/srv")]),
        ),
        (
            "cannot be a volume",
            InfraErrorKind::Invalid,
            Box::new(move |m| m.volumes = vec![volume("v", "/etc/x")]),
        ),
        ("nobody could log in", InfraErrorKind::Invalid, Box::new(|m| m.login.authorized_keys.clear())),
        (
            "its password secret:none is out of reach",
            InfraErrorKind::NotFound,
            Box::new(|m| m.login.password = Some("secret:none".parse().unwrap())),
        ),
    ];
    for (wanted, kind, change) in cases {
        let mut spec = world.spec("m2", "s", 12);
        change(&mut spec);
        let error = world.lab.create(FENCE, &spec).await.expect_err(wanted);
        assert!(error.message.contains(wanted), "{error} should contain {wanted}");
        assert_eq!(error.kind, kind, "{error}");
    }
    let mut changed = world.spec("m1", "s", 11);
    changed.number = HostNumber(20);
    assert_eq!(world.lab.create(FENCE, &changed).await.unwrap_err().kind, InfraErrorKind::Conflict);
    let there: Vec<_> = fs::read_dir(world.data.join("labs/lab/machines")).unwrap().collect();
    assert_eq!(there.len(), 1, "only m1: {there:?}");
    let missing = world.lab.power(FENCE, &machine("m2"), Power::On).await.unwrap_err();
    assert_eq!(missing.kind, InfraErrorKind::NotFound);
    let busy = world.lab.remove_networks(FENCE).await.unwrap_err();
    assert!(busy.message.contains("machine m1"), "{busy}");
    assert_eq!(world.lab.close(FENCE).await.unwrap_err().kind, InfraErrorKind::Conflict);
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_caller_changes_nothing() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    let spec = world.spec("m1", "s", 11);
    world.lab.create(Fence(9), &spec).await.unwrap();
    let late = Fence(8);
    let refusals = [
        world.lab.create(late, &spec).await.map(drop),
        world.lab.power(late, &spec.name, Power::On).await,
        world.lab.destroy(late, &spec.name).await,
        world.lab.ensure_networks(Fence(6), &[site("s")], Egress::Nat).await.map(drop),
        world.lab.remove_networks(Fence(6)).await,
    ];
    for refusal in refusals {
        assert_eq!(refusal.unwrap_err().kind, InfraErrorKind::Fenced);
    }
    world.lab.destroy(Fence(10), &spec.name).await.unwrap();
    let again = world.lab.create(Fence(9), &spec).await.unwrap_err();
    assert_eq!(again.kind, InfraErrorKind::Fenced, "a destroyed machine remembers");
    assert!(world.lab.observe().await.unwrap().machines.is_empty());
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_cannot_start_says_why_and_leaves_nothing() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    let spec = world.spec("m1", "s", 11);
    world.lab.create(FENCE, &spec).await.unwrap();
    let dir = world.data.join("labs/lab/machines/m1");
    fs::rename(dir.join("work"), dir.join("elsewhere")).unwrap();
    let before = world.traces();
    let error = world.lab.power(FENCE, &spec.name, Power::On).await.unwrap_err();
    assert!(error.message.contains("overlay"), "{error}");
    let added: Vec<_> = world.traces().difference(&before).cloned().collect();
    // What is above the machine stays for the next one.
    let frame = |trace: &&String| !trace.starts_with("cgroup");
    assert_eq!(added.iter().filter(frame).count(), 0, "{added:#?}");
    fs::rename(dir.join("elsewhere"), dir.join("work")).unwrap();
    world.up(&spec).await;
    world.remove().await;
}
