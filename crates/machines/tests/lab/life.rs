//! A machine's life: made, started, cut, started again, destroyed.

use std::fs;
use std::time::{Duration, Instant};

use guywire_machines::{Infra, InfraErrorKind};
use guywire_model::{
    AddressName, Egress, Login, ObservedMachine, Power, PowerState, SiteName, SiteSpec, TemplateContent,
    TemplateName, TemplateSpec, VolumeMount, VolumeName,
};

use crate::harness::{FENCE, PASSWORD, Said, World, banner, host, machine, site};

#[tokio::test(flavor = "multi_thread")]
async fn machines_boot_and_know_each_other() {
    let world = World::new().await;
    world.networks(&["east", "west"], Egress::None).await;
    let (m1, m2) = tokio::join!(async { world.up(&world.spec("m1", "east", 11)).await }, async {
        world.up(&world.spec("m2", "west", 11)).await
    },);
    for name in ["m1", "m2", "m2.west"] {
        for family in ["-4", "-6"] {
            let ping = world.ssh(&m1, &format!("ping {family} -c1 -W2 {name}"));
            assert!(ping.good, "m1 reaches {name} {family}: {}", ping.said);
        }
    }
    // A machine that comes later is known at once, without anything done to the others.
    let m3 = world.up(&world.spec("m3", "east", 12)).await;
    let found = world.ssh(&m2, "getent ahosts m3.east");
    assert!(found.said.contains(&m3.addresses.v4.to_string()), "{}", found.said);
    assert!(found.said.contains(&m3.addresses.v6.to_string()), "{}", found.said);

    let state =
        world.ssh(&m1, "systemctl is-system-running --wait; hostname; tr '\\0' '\\n' </proc/1/environ");
    assert_eq!(state.said, "running\nm1\ncontainer=guywire");
    let ids = [&m1, &m2].map(|at| world.ssh(at, "cat /etc/machine-id").said);
    assert!(ids[0] != ids[1] && ids[0].len() == 32, "{ids:?}");
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_can_be_called_again() {
    let world = World::new().await;
    let first = world.networks(&["s"], Egress::None).await;
    assert_eq!(world.networks(&["s"], Egress::None).await, first);
    let spec = world.spec("m1", "s", 11);
    for _ in 0..2 {
        assert_eq!(world.lab.create(FENCE, &spec).await.unwrap().power, PowerState::Off);
    }
    let on = || world.lab.power(FENCE, &spec.name, Power::On);
    for result in futures::future::join_all([on(), on(), on()]).await {
        result.unwrap();
    }
    let at = world.lab.create(FENCE, &spec).await.unwrap();
    assert_eq!(at.power, PowerState::Running, "creating again leaves it running");
    banner(at.addresses.v6.into()).await;
    let started = world.ssh(&at, "cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1").said;
    world.lab.power(FENCE, &spec.name, Power::On).await.unwrap();
    assert_eq!(world.ssh(&at, "cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1").said, started);
    for power in [Power::Off, Power::Off, Power::Cut, Power::Cut] {
        world.lab.power(FENCE, &spec.name, power).await.unwrap();
        assert_eq!(world.lab.observe().await.unwrap().machines[0].power, PowerState::Off);
    }
    for _ in 0..2 {
        world.lab.destroy(FENCE, &spec.name).await.unwrap();
        world.lab.remove_networks(FENCE).await.unwrap();
    }
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_keeps_the_disk_and_the_identity() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    let spec = world.spec("m1", "s", 11);
    let at = world.up(&spec).await;
    let key = world.lab.host_key(&spec.name);
    let before = world.ssh(&at, "cat /etc/machine-id; echo kept | tee /root/file /var/lib/etcd/file").said;
    world.lab.power(FENCE, &spec.name, Power::Cut).await.unwrap();
    let left = world.traces();
    let only_frame = |trace: &String| !trace.starts_with("process") && !trace.starts_with("mount");
    assert!(left.iter().all(only_frame), "a cut leaves no process: {left:#?}");

    world.lab.power(FENCE, &spec.name, Power::On).await.unwrap();
    banner(at.addresses.v4.into()).await;
    let after = world.ssh(&at, "cat /etc/machine-id; cat /root/file; cat /var/lib/etcd/file >/dev/null").said;
    assert_eq!(after, before);
    assert_eq!(world.lab.host_key(&spec.name), key);

    // Asked to stop, systemd stops its services before the power goes.
    let unit = "printf '[Service]\\nExecStart=sleep 1000\\nExecStop=touch /root/stopped\\n' \
        >/etc/systemd/system/x.service; systemctl daemon-reload; systemctl start x";
    assert!(world.ssh(&at, unit).good);
    let start = Instant::now();
    world.lab.power(FENCE, &spec.name, Power::Off).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "stopping took {:?}", start.elapsed());
    let stopped = world.data.join("labs/lab/machines/m1/up/root/stopped");
    assert!(stopped.exists(), "services were stopped");
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_logs_in_with_a_key_or_a_password() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    let mut spec = world.spec("m1", "s", 11);
    spec.login = Login {
        user: "ops".into(),
        authorized_keys: world.login.authorized_keys.clone(),
        password: Some("secret:lab/ops".parse().unwrap()),
    };
    let mut root = world.spec("m2", "s", 12);
    root.login.password = Some("secret:lab/ops".parse().unwrap());
    let (at, root) = tokio::join!(async { world.up(&spec).await }, async { world.up(&root).await });
    let keys = world.ssh(&at, "id -un; sudo -n id -un; stat -c '%U %a' .ssh/authorized_keys /etc/shadow");
    assert_eq!(keys.said, "ops\nroot\nops 600\nroot 640");
    assert_eq!(world.ssh_by_password(&at, PASSWORD, "id -un").said, "ops");
    assert!(!world.ssh_by_password(&at, "wrong", "id -un").good);
    assert_eq!(world.ssh_by_password(&root, PASSWORD, "id -un").said, "root");
    let found = crate::harness::ran(
        std::process::Command::new("grep").args(["-rl", PASSWORD]).arg(world.data.join("labs")),
    );
    assert_eq!(found.said, "", "the password itself is on no disk");

    let plain = world.up(&world.spec("m3", "s", 13)).await;
    assert!(!world.ssh_by_password(&plain, PASSWORD, "true").good, "no password, no such login");
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_and_reserved_addresses_outlive_machines() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    let volume = VolumeName::new("etcd").unwrap();
    let mut spec = world.spec("m1", "s", 11);
    spec.volumes = vec![VolumeMount { volume: volume.clone(), path: "/srv/data".into() }];
    world.lab.ensure_volume(FENCE, &volume).await.unwrap();
    let at = world.up(&spec).await;
    assert!(world.ssh(&at, "echo kept >/srv/data/file; echo lost >/root/file").good);
    let refused = world.lab.remove_volume(FENCE, &volume).await.unwrap_err();
    assert_eq!(refused.kind, InfraErrorKind::Conflict);

    let (vip, site) = (AddressName::new("vip").unwrap(), SiteName::new("s").unwrap());
    let pair = world.lab.reserve_address(FENCE, &site, &vip).await.unwrap();
    world.lab.destroy(FENCE, &spec.name).await.unwrap();
    world.lab.ensure_volume(FENCE, &volume).await.unwrap();
    assert_eq!(world.lab.reserve_address(FENCE, &site, &vip).await.unwrap(), pair);
    assert_eq!(world.lab.observe().await.unwrap().reserved, [(vip.clone(), pair)]);

    let again = world.up(&spec).await;
    assert_eq!(world.ssh(&again, "cat /srv/data/file; ls /root/file").said.lines().next(), Some("kept"));
    assert!(!world.ssh(&again, "ls /root/file").good, "the disk went with the machine");
    for _ in 0..2 {
        world.lab.release_address(FENCE, &vip).await.unwrap();
    }
    assert!(world.lab.observe().await.unwrap().reserved.is_empty());
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_laid_over_the_base() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    let source = world.data.join("bundle");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/file"), "from the bundle").unwrap();
    let name = TemplateName::new("bundle").unwrap();
    let piece = |path: &str| TemplateContent { source: source.clone(), path: path.into() };
    let content = vec![piece("/opt/bundle"), piece("/lib/bundle"), piece("/var/lib/etcd")];
    let template = TemplateSpec { name: name.clone(), packages: Vec::new(), content };
    for _ in 0..2 {
        world.lab.ensure_template(FENCE, &template, &Said).await.unwrap();
    }
    let mut spec = world.spec("m1", "s", 11);
    spec.template = name;
    let at = world.up(&spec).await;
    let seen = world
        .ssh(&at, "cat /opt/bundle/sub/file /usr/lib/bundle/sub/file /var/lib/etcd/sub/file; test -L /lib");
    assert!(seen.good, "{}", seen.said);
    assert_eq!(seen.said, "from the bundle".repeat(3));
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_was_lost_comes_back_with_its_machines() {
    let world = World::new().await;
    // A subnet that no other test is given while its bridge is away.
    let sites = [site("s"), SiteSpec { v4: Some("10.251.77.0/24".parse().unwrap()), ..site("t") }];
    let first = world.networks_as(&sites, Egress::None).await;
    let at = world.up(&world.spec("m1", "t", 11)).await;
    host(&format!(
        "ip -o -4 addr show to {} | awk '{{print $2}}' | xargs ip link delete",
        first[1].gateway().v4
    ));
    let error = world.lab.create(FENCE, &world.spec("m2", "t", 12)).await.map(drop);
    assert!(error.is_ok(), "a disk needs no bridge");
    let error = world.lab.power(FENCE, &machine("m2"), Power::On).await.unwrap_err();
    assert!(error.retry() && error.message.contains("ensure the networks"), "{error}");
    assert_eq!(world.networks_as(&sites, Egress::None).await, first);
    banner(at.addresses.v6.into()).await;
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_machine_does_not_starve_another() {
    let world = World::new().await;
    world.networks(&["s"], Egress::None).await;
    let (busy, other) = tokio::join!(async { world.up(&world.spec("busy", "s", 11)).await }, async {
        world.up(&world.spec("other", "s", 12)).await
    },);
    // Eight times as many as there are cores: without weights, the other machine would get a crumb.
    let loops = std::thread::available_parallelism().unwrap().get() * 8;
    let burn = |at: &ObservedMachine, loops: usize| {
        let one = "timeout 3 sh -c 'while :; do :; done' &";
        let ran = world
            .ssh(at, &format!("TIMEFORMAT=%U; time {{ for i in $(seq {loops}); do {one} done; wait; }}"));
        ran.said.lines().last().unwrap().parse::<f64>().unwrap_or_else(|_| panic!("{}", ran.said))
    };
    // Shares of one while, so that it does not matter what else this host is doing.
    let (greedy, modest) = std::thread::scope(|scope| {
        let greedy = scope.spawn(|| burn(&busy, loops));
        let modest = scope.spawn(|| burn(&other, 1));
        (greedy.join().unwrap(), modest.join().unwrap())
    });
    assert!(
        modest * 4.0 > greedy,
        "one task got {modest} s beside {loops} of another machine that got {greedy} s"
    );
    world.remove().await;
}
