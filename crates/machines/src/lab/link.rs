//! Bridges, cables and the kernel's switches for them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use guywire_model::{AddressPair, SiteNetwork};

use super::error::{Result, conflict, unsupported, while_doing};
use super::tool;

/// Where the kernel shows what interfaces are.
const SHOWN: &str = "/sys/class/net";

/// Where the kernel lists those of the network namespace that this process is in, whatever `/sys` shows.
const LISTED: &str = "/proc/sys/net/ipv4/conf";

/// The names of all interfaces of this host.
pub(super) fn all() -> Result<Vec<String>> {
    super::disk::entries(Path::new(LISTED))
}

/// Whether an interface is there.
pub(super) fn exists(name: &str) -> bool {
    Path::new(LISTED).join(name).exists()
}

/// Makes a site's bridge, or brings it to what it should be. `owner` tells it from the like-named
/// bridge of another data directory.
pub(super) fn ensure_bridge(bridge: &str, hardware: &str, owner: &str, site: &SiteNetwork) -> Result<()> {
    let mut batch = String::new();
    if exists(bridge) {
        let alias = super::disk::read(&shown(bridge).join("ifalias"))?.unwrap_or_default();
        // Without an alias it is ours too: we were interrupted between making and marking it.
        if !alias.trim().is_empty() && alias.trim() != owner {
            return Err(conflict(format!(
                "bridge {bridge} belongs to {}; use another name for this lab",
                alias.trim()
            )));
        }
    } else {
        // No learning delay and no snooping: VRRP and neighbour discovery must get through at once.
        line(
            &mut batch,
            &format!(
                "link add name {bridge} address {hardware} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
            ),
        );
    }
    let gateway = site.gateway();
    line(&mut batch, &format!("link set dev {bridge} alias \"{owner}\" up"));
    line(&mut batch, &format!("address replace {}/{} dev {bridge}", gateway.v4, site.v4.prefix_len()));
    line(&mut batch, &format!("address replace {}/{} dev {bridge} nodad", gateway.v6, site.v6.prefix_len()));
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return Err(unsupported("this host's kernel runs without IPv6; start it without ipv6.disable=1"));
    }
    ip(&batch)?;
    switch("ipv4", bridge, "forwarding", "1")?;
    switch("ipv6", bridge, "accept_ra", "0")?;
    forward_v6(bridge)
}

/// Lets packets that come in by `link` be forwarded: `true`, or what the host does by itself: `false`.
pub(super) fn forward(link: &str, on: bool) -> Result<()> {
    if on {
        switch("ipv4", link, "forwarding", "1")?;
        return forward_v6(link);
    }
    let usual = super::disk::read(Path::new("/proc/sys/net/ipv4/ip_forward"))?.unwrap_or_default();
    switch("ipv4", link, "forwarding", usual.trim())?;
    if has_switch("ipv6", link, "force_forwarding") {
        switch("ipv6", link, "force_forwarding", "0")?;
    }
    Ok(())
}

/// Plugs a machine's cable in: one end on the bridge, the other as `eth0` in the network of process `pid`.
pub(super) fn plug(cable: &str, owner: &str, bridge: &str, hardware: &str, pid: u32) -> Result<()> {
    ip(&format!(
        "link add name {cable} type veth peer name eth0 address {hardware} netns {pid}
link set dev {cable} alias \"{owner}\" addrgenmode none master {bridge} up
"
    ))
}

/// Puts a cable whose bridge was made anew back on it.
pub(super) fn attach(cable: &str, bridge: &str) -> Result<()> {
    ip(&format!("link set dev {cable} master {bridge} up\n"))
}

/// Whether a cable is on a bridge.
pub(super) fn attached(cable: &str) -> bool {
    shown(cable).join("master").exists()
}

/// Takes a cable's signal away; one that is not there is success.
pub(super) fn down(name: &str) -> Result<()> {
    unless_gone(name, ip(&format!("link set dev {name} down\n")))
}

/// Removes a bridge or a cable; one that is not there is success.
pub(super) fn remove(name: &str) -> Result<()> {
    if !exists(name) {
        return Ok(());
    }
    unless_gone(name, ip(&format!("link delete dev {name}\n")))
}

/// The commands that set a machine's own end up, for `ip -batch` inside its network.
pub(super) fn machine_side(site: &SiteNetwork, pair: AddressPair) -> String {
    let gateway = site.gateway();
    format!(
        "link set dev lo up
address add {}/{} dev eth0
address add {}/{} dev eth0 nodad
link set dev eth0 up
route add default via {}
route add default via {} dev eth0
",
        pair.v4,
        site.v4.prefix_len(),
        pair.v6,
        site.v6.prefix_len(),
        gateway.v4,
        gateway.v6
    )
}

// A machine's network namespace takes its end of the cable along when it goes, and so may be first.
fn unless_gone(name: &str, result: Result<()>) -> Result<()> {
    if exists(name) { result } else { Ok(()) }
}

fn forward_v6(link: &str) -> Result<()> {
    if has_switch("ipv6", link, "force_forwarding") {
        return switch("ipv6", link, "force_forwarding", "1");
    }
    // Before Linux 6.17 there is one switch for all interfaces, and it ends the host's listening to
    // router advertisements unless each interface insists on it.
    let all = Path::new("/proc/sys/net/ipv6/conf");
    if super::disk::read(&all.join("all/forwarding"))?.is_some_and(|value| value.trim() == "1") {
        return Ok(());
    }
    for name in all_links_listening(all)? {
        switch("ipv6", &name, "accept_ra", "2")?;
    }
    switch("ipv6", "all", "forwarding", "1")
}

fn all_links_listening(conf: &Path) -> Result<Vec<String>> {
    let mut names = super::disk::entries(conf)?;
    names.retain(|name| {
        fs::read_to_string(conf.join(name).join("accept_ra")).is_ok_and(|value| value.trim() == "1")
    });
    Ok(names)
}

fn has_switch(family: &str, link: &str, name: &str) -> bool {
    switch_file(family, link, name).exists()
}

fn switch(family: &str, link: &str, name: &str, value: &str) -> Result<()> {
    let path = switch_file(family, link, name);
    fs::write(&path, value).map_err(while_doing(format_args!("writing {value} to {}", path.display())))
}

fn switch_file(family: &str, link: &str, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/sys/net/{family}/conf/{link}/{name}"))
}

fn shown(name: &str) -> PathBuf {
    Path::new(SHOWN).join(name)
}

fn ip(batch: &str) -> Result<()> {
    tool::run("iproute2", Command::new("ip").args(["-batch", "-"]), batch).map(drop)
}

fn line(batch: &mut String, text: &str) {
    writeln!(batch, "{text}").expect("writing to a String cannot fail");
}
