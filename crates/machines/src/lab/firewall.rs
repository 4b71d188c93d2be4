//! What may pass between a lab, its host and the world: one nftables table, replaced as a whole.

use std::fmt::Write;
use std::process::Command;

use guywire_model::{Egress, SiteNetwork};

use super::error::Result;
use super::ident::LabId;
use super::subnet::POOL;
use super::tool;
use crate::InfraErrorKind;

/// Replaces the lab's table.
pub(super) fn apply(lab: &LabId, sites: &[SiteNetwork], egress: Egress) -> Result<()> {
    nft(&["-f", "-"], &rules(lab, sites, egress)).map(drop)
}

/// Removes the lab's table; one that is not there is success.
pub(super) fn remove(lab: &LabId) -> Result<()> {
    let table = lab.table();
    // Adding what is there changes nothing, so that deleting never meets a table that is not there.
    nft(&["-f", "-"], &format!("add table inet {table}\ndelete table inet {table}\n")).map(drop)
}

/// The labs' tables on this host: their names, and whether they let machines out.
pub(super) fn tables() -> Result<Vec<(String, bool)>> {
    let text = match nft(&["list", "chains", "inet"], "") {
        // Where nobody can make a table there is none.
        Err(error) if error.kind == InfraErrorKind::Unsupported => return Ok(Vec::new()),
        other => other?,
    };
    let mut tables: Vec<(String, bool)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix("table inet ") {
            tables.push((name.trim_end_matches([' ', '{']).to_owned(), false));
        } else if let (true, Some(table)) = (line.trim().starts_with("chain out"), tables.last_mut()) {
            table.1 = true;
        }
    }
    tables.retain(|(name, _)| name.starts_with("gw_"));
    Ok(tables)
}

fn nft(arguments: &[&str], input: &str) -> Result<String> {
    tool::run("nftables", Command::new("nft").args(arguments), input)
}

/// The table as text.
///
/// Accepting here ends this table only: what another table of the host refuses stays refused. The
/// bridges' own traffic is accepted first because a host with bridge netfilter shows it here too.
fn rules(lab: &LabId, sites: &[SiteNetwork], egress: Egress) -> String {
    let table = lab.table();
    let list = |items: Vec<String>| items.join(", ");
    let bridges = list((1..=sites.len()).map(|index| format!("\"{}\"", lab.bridge(index))).collect());
    let v4 = list(sites.iter().map(|site| site.v4.to_string()).collect());
    let v6 = list(sites.iter().map(|site| site.v6.to_string()).collect());
    let gateways4 = list(sites.iter().map(|site| site.gateway().v4.to_string()).collect());
    let gateways6 = list(sites.iter().map(|site| site.gateway().v6.to_string()).collect());
    let (out, back, masquerade) = match egress {
        Egress::None => (String::new(), "", String::new()),
        Egress::Nat => (
            // Other labs on this host are not the world: neither by their bridges nor by their addresses.
            format!(
                "    iifname @bridges oifname \"gw*\" drop\n    iifname @bridges ip daddr {POOL} drop\n    iifname @bridges accept\n"
            ),
            "    oifname @bridges ct state established,related accept\n",
            format!(
                "  chain out {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname @bridges return
    ip saddr {{ {v4} }} masquerade
    ip6 saddr {{ {v6} }} masquerade
  }}
"
            ),
        ),
    };
    let mut text = String::new();
    write!(
        text,
        "add table inet {table}
delete table inet {table}
table inet {table} {{
  set bridges {{ type ifname; elements = {{ {bridges} }} }}
  chain forward {{
    type filter hook forward priority filter - 5; policy accept;
    iifname @bridges oifname @bridges accept
{out}{back}    iifname @bridges reject with icmpx admin-prohibited
    oifname @bridges drop
  }}
  chain input {{
    type filter hook input priority filter - 5; policy accept;
    iifname != @bridges accept
    ct state established,related accept
    ip daddr {{ {gateways4} }} meta l4proto icmp accept
    ip6 daddr {{ {gateways6}, fe80::/10, ff00::/8 }} meta l4proto ipv6-icmp accept
    meta l4proto tcp reject with tcp reset
    reject with icmpx port-unreachable
  }}
{masquerade}}}
"
    )
    .expect("writing to a String cannot fail");
    text
}

#[cfg(test)]
mod tests {
    use super::super::ident::DataId;
    use super::*;
    use guywire_model::{LabName, SiteName};
    use std::path::Path;

    #[test]
    fn only_nat_lets_anything_out() {
        let lab = DataId::of(Path::new("/d")).lab(&LabName::new("l").unwrap());
        let sites = [SiteNetwork {
            name: SiteName::new("s").unwrap(),
            v4: "10.250.3.0/24".parse().unwrap(),
            v6: "fd00:3::/64".parse().unwrap(),
        }];
        let closed = rules(&lab, &sites, Egress::None);
        assert!(closed.contains(&format!("elements = {{ \"{}\" }}", lab.bridge(1))), "{closed}");
        assert!(closed.contains("ip daddr { 10.250.3.1 } meta l4proto icmp accept"), "{closed}");
        assert!(!closed.contains("masquerade") && !closed.contains("iifname @bridges accept"), "{closed}");
        let open = rules(&lab, &sites, Egress::Nat);
        assert!(open.contains("ip saddr { 10.250.3.0/24 } masquerade"), "{open}");
        let refused = open.find("oifname \"gw*\" drop").unwrap();
        assert!(refused < open.find("iifname @bridges accept").unwrap(), "{open}");
    }
}
