//! What machines reach, and what they do not.

use std::net::{IpAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use guywire_machines::Infra;
use guywire_model::{Egress, ObservedMachine};

use crate::harness::{FENCE, World, host, site};

/// A network beyond the host: a namespace behind a cable, with no way back but the host's own address.
struct Outside {
    process: Child,
    link: String,
}

const OUTSIDE: &str = "198.18.77.2";

impl Outside {
    fn new() -> Self {
        let process =
            Command::new("unshare").args(["--net", "sleep", "600"]).stdin(Stdio::null()).spawn().unwrap();
        let pid = process.id();
        let link = format!("out{pid}");
        // The namespace is there when its interfaces are: until then the cable would end on this side.
        host(&format!(
            "for i in $(seq 100); do [ $(readlink /proc/{pid}/ns/net) != $(readlink /proc/self/ns/net) ] && break; sleep 0.01; done
            ip link add {link} type veth peer name eth0 netns {pid}
            ip addr add 198.18.77.1/30 dev {link}; ip link set {link} up
            echo 1 >/proc/sys/net/ipv4/conf/{link}/forwarding
            nsenter --net=/proc/{pid}/ns/net sh -ec 'ip addr add {OUTSIDE}/30 dev eth0; ip link set eth0 up'"
        ));
        Self { process, link }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        host(&format!("ip link delete {}", self.link));
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn pings(world: &World, from: &ObservedMachine, to: impl Into<IpAddr>) -> bool {
    world.ssh(from, &format!("ping -c1 -W1 {}", to.into())).good
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_gets_out_unless_it_is_asked_for() {
    let world = World::new().await;
    let sites = world.networks(&["s"], Egress::None).await;
    let at = world.up(&world.spec("m1", "s", 11)).await;
    let outside = Outside::new();
    let door = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = door.local_addr().unwrap().port();
    let gateway = sites[0].gateway();
    let knock =
        |to: IpAddr| world.ssh(&at, &format!("socat - TCP:{to}:{port},connect-timeout=1 </dev/null")).good;

    assert!(pings(&world, &at, gateway.v4) && pings(&world, &at, gateway.v6), "its gateway answers");
    assert!(!knock(gateway.v4.into()), "the host's own services are out of reach");
    assert!(!knock("198.18.77.1".parse().unwrap()), "by any of its addresses");
    let out = OUTSIDE.parse::<IpAddr>().unwrap();
    assert!(!pings(&world, &at, out), "there is no way out");

    world.networks(&["s"], Egress::Nat).await;
    assert!(pings(&world, &at, out), "with NAT there is");
    assert!(!knock(gateway.v4.into()), "but still not to the host");
    let names = world.ssh(&at, "cat /etc/resolv.conf").said;
    assert!(!names.starts_with('#'), "{names}");

    world.networks(&["s"], Egress::None).await;
    assert!(!pings(&world, &at, out), "and it can be taken back");
    drop(outside);
    world.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labs_side_by_side_do_not_meet() {
    let (one, two) = (World::new().await, World::new().await);
    let three = Arc::new(one.beside("other").await);
    let (networks, second) =
        tokio::join!(one.networks(&["s"], Egress::Nat), two.networks(&["s"], Egress::Nat));
    let third = three.ensure_networks(FENCE, &[site("s")], Egress::Nat).await.unwrap();
    assert!(networks[0].v4 != second[0].v4 && second[0].v4 != third[0].v4 && networks[0].v4 != third[0].v4);
    assert!(networks[0].v6 != second[0].v6 && second[0].v6 != third[0].v6);

    let spec = one.spec("m1", "s", 11);
    let (a, b) =
        tokio::join!(async { one.up(&spec).await }, async { two.up(&two.spec("m1", "s", 11)).await });
    let c = three.create(FENCE, &spec).await.unwrap();
    three.power(FENCE, &spec.name, guywire_model::Power::On).await.unwrap();
    crate::harness::banner(c.addresses.v4.into()).await;
    for other in [&b, &c] {
        assert!(!pings(&one, &a, other.addresses.v4), "another lab by IPv4");
        assert!(!pings(&one, &a, other.addresses.v6), "another lab by IPv6");
    }
    assert!(!pings(&two, &b, networks[0].gateway().v4), "another lab's gateway");
    three.destroy(FENCE, &spec.name).await.unwrap();
    three.remove_networks(FENCE).await.unwrap();
    three.close(FENCE).await.unwrap();
    two.remove().await;
    assert!(one.ssh(&a, "true").good, "the first lab does not notice");
    one.remove().await;
}
