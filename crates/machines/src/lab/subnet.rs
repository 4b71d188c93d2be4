//! Which subnets are free on this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use guywire_model::{SiteNetwork, SiteSpec};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;

use super::error::{Result, conflict, invalid, unavailable};
use super::tool;
use crate::{InfraError, InfraErrorKind};

/// Where subnets are taken from when nobody asks for one.
pub(super) const POOL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 250, 0, 0), 16);

/// A subnet that somebody has, and who.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Used {
    /// The subnet.
    pub(super) net: IpNet,
    /// An interface, or a lab.
    pub(super) by: String,
}

/// The subnets for a new site: those asked for, or free ones. `local` is the IPv6 prefix that is the
/// site's own by construction.
pub(super) fn choose(site: &SiteSpec, local: Ipv6Net, used: &[Used]) -> Result<SiteNetwork> {
    let name = &site.name;
    let v4 = match site.v4 {
        Some(net) if !(16..=28).contains(&net.prefix_len()) => {
            return Err(invalid(format!("site {name}: {net} must be a /16 to a /28")));
        }
        Some(net) => net.trunc(),
        None => POOL
            .subnets(24)
            .expect("a /16 has /24s")
            .find(|net| taken((*net).into(), used).is_none())
            .ok_or_else(|| {
                let message = format!("site {name}: no free /24 is left in {POOL}; give it a subnet with v4");
                InfraError::new(InfraErrorKind::Exhausted, message)
            })?,
    };
    let v6 = match site.v6 {
        Some(net) if net.prefix_len() > 112 => {
            return Err(invalid(format!("site {name}: {net} must be a /112 or larger")));
        }
        Some(net) => net.trunc(),
        None => local,
    };
    let network = SiteNetwork { name: name.clone(), v4, v6 };
    check(&network, used)?;
    Ok(network)
}

/// Refuses a network that somebody else has.
pub(super) fn check(network: &SiteNetwork, used: &[Used]) -> Result<()> {
    for net in [IpNet::from(network.v4), IpNet::from(network.v6)] {
        if let Some(other) = taken(net, used) {
            return Err(conflict(format!(
                "site {}: {net} overlaps {} of {}; choose another subnet or free that one",
                network.name, other.net, other.by
            )));
        }
    }
    Ok(())
}

/// The unique local prefix of site number `index` in a lab with this global id.
pub(super) fn local_prefix(global_id: u64, index: usize) -> Ipv6Net {
    let bits = 0xfd << 120 | u128::from(global_id) << 80 | (index as u128 & 0xffff) << 64;
    Ipv6Net::new_assert(Ipv6Addr::from(bits), 64)
}

fn taken(net: IpNet, used: &[Used]) -> Option<&Used> {
    used.iter().find(|other| net.contains(&other.net) || other.net.contains(&net))
}

#[derive(Deserialize)]
struct Link {
    ifname: String,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    local: Option<IpAddr>,
    prefixlen: u8,
}

#[derive(Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    dev: Option<String>,
}

/// The subnets of this host's addresses and routes, but for those of the interfaces in `own`.
pub(super) fn of_host(own: &[String]) -> Result<Vec<Used>> {
    let mut used = Vec::new();
    for link in ask::<Link>(&["-j", "address"])? {
        for address in link.addr_info {
            let Some(local) = address.local else { continue };
            let net = IpNet::new(local, address.prefixlen)
                .map_err(|error| unavailable("reading the host's addresses").because(error))?;
            used.push(Used { net: net.trunc(), by: format!("interface {}", link.ifname) });
        }
    }
    for family in ["-4", "-6"] {
        for route in ask::<Route>(&["-j", family, "route", "show", "table", "all"])? {
            let net =
                route.dst.parse::<IpNet>().ok().or_else(|| route.dst.parse::<IpAddr>().ok().map(IpNet::from));
            // A default route leads everywhere and takes nothing.
            let Some(net) = net.filter(|net| net.prefix_len() > 0) else { continue };
            let dev = route.dev.unwrap_or_else(|| "none".into());
            used.push(Used { net: net.trunc(), by: format!("interface {dev}") });
        }
    }
    used.retain(|used| !own.iter().any(|own| used.by == format!("interface {own}")));
    Ok(used)
}

/// The interfaces that lead out of this host.
pub(super) fn uplinks() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for family in ["-4", "-6"] {
        for route in ask::<Route>(&["-j", family, "route", "show", "default"])? {
            names.extend(route.dev);
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn ask<T: serde::de::DeserializeOwned>(arguments: &[&str]) -> Result<Vec<T>> {
    let text = tool::run("iproute2", Command::new("ip").args(arguments), "")?;
    // Without any object, `ip` prints nothing at all.
    let text = if text.trim().is_empty() { "[]" } else { &text };
    serde_json::from_str(text).map_err(|error| {
        unavailable(format!("reading what `ip {}` printed", arguments.join(" "))).because(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use guywire_model::SiteName;

    fn site(v4: Option<&str>) -> SiteSpec {
        SiteSpec { name: SiteName::new("s").unwrap(), v4: v4.map(|net| net.parse().unwrap()), v6: None }
    }

    fn used(net: &str) -> Used {
        Used { net: net.parse().unwrap(), by: "interface eth9".into() }
    }

    #[test]
    fn the_first_free_subnet_is_chosen() {
        let local = local_prefix(0x01_0203_0405, 2);
        assert_eq!(local.to_string(), "fd01:203:405:2::/64");
        let choose = |used: &[Used]| choose(&site(None), local, used).unwrap().v4.to_string();
        assert_eq!(choose(&[]), "10.250.0.0/24");
        assert_eq!(choose(&[used("10.250.0.7/32"), used("10.250.1.0/24")]), "10.250.2.0/24");
        assert_eq!(choose(&[used("10.250.0.0/17")]), "10.250.128.0/24");
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_the_reason() {
        let local = local_prefix(1, 1);
        let refuse = |v4: Option<&str>, have: &str| choose(&site(v4), local, &[used(have)]).unwrap_err();
        assert!(refuse(Some("10.1.0.0/24"), "10.0.0.0/8").message.contains("interface eth9"));
        assert_eq!(refuse(Some("10.1.0.0/30"), "1.1.1.1/32").kind, InfraErrorKind::Invalid);
        assert_eq!(refuse(None, "10.0.0.0/8").kind, InfraErrorKind::Exhausted);
    }
}
