//! The lab's networks: a bridge per site, subnets that nobody else has, and a wall around them.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

use guywire_model::{AddressName, AddressPair, Egress, HostNumber, LabName, SiteName, SiteNetwork, SiteSpec};
use guywire_plan::Fence;
use ipnet::IpNet;

use super::error::{Result, conflict, invalid, unavailable, while_doing};
use super::store::{Key, Networks, Reserved, Store};
use super::subnet::{self, Used};
use super::{Inner, firewall, link, names, store};
use crate::{InfraError, InfraErrorKind};

/// How long choosing subnets waits for another guywire on this host that is choosing too.
const PATIENCE: Duration = Duration::from_secs(30);

impl Inner {
    pub(super) fn ensure_networks(
        &self,
        fence: Fence,
        sites: &[SiteSpec],
        egress: Egress,
    ) -> Result<Vec<SiteNetwork>> {
        let _lock = self.store.change(Key::Network, fence)?;
        let mut networks = self.store.networks()?;
        for (index, site) in sites.iter().enumerate() {
            if sites[..index].iter().any(|other| other.name == site.name) {
                return Err(invalid(format!(
                    "site {} is there twice; give each a name of its own",
                    site.name
                )));
            }
        }

        let turn = HostTurn::take()?;
        let used = self.used_by_others(&networks)?;
        for site in sites {
            if let Some(known) = networks.sites.iter().find(|known| known.name == site.name) {
                same(known, site)?;
            } else {
                let mut used = used.clone();
                used.extend(networks.sites.iter().flat_map(subnets_of_site));
                let local = subnet::local_prefix(self.id.global_id(), networks.sites.len() + 1);
                networks.sites.push(subnet::choose(site, local, &used)?);
            }
        }
        let before = std::mem::replace(&mut networks.egress, egress);
        for (index, site) in networks.sites.iter().enumerate() {
            // After a restart of the host another lab may have taken what was ours.
            if !link::exists(&self.id.bridge(index + 1)) {
                subnet::check(site, &used)?;
            }
        }
        // First what we mean to make, so that a successor finds the same subnets.
        self.store.keep_networks(&networks)?;
        firewall::apply(&self.id, &networks.sites, egress)?;
        for (index, site) in networks.sites.iter().enumerate() {
            let bridge = self.id.bridge(index + 1);
            link::ensure_bridge(&bridge, &self.id.hardware_address(&bridge), &self.owner(), site)?;
        }
        if egress == Egress::Nat {
            for uplink in subnet::uplinks()? {
                link::forward(&uplink, true)?;
            }
        } else if before == Egress::Nat {
            stop_forwarding()?;
        }
        drop(turn);
        for record in self.store.records()? {
            let cable = self.id.cable(&record.spec.name);
            if link::exists(&cable) && !link::attached(&cable) {
                let (index, _) = networks.site(&record.spec.site)?;
                link::attach(&cable, &self.id.bridge(index))?;
            }
        }
        names::refresh(&self.store, &networks)?;
        Ok(networks.sites)
    }

    pub(super) fn remove_networks(&self, fence: Fence) -> Result<()> {
        let _lock = self.store.change(Key::Network, fence)?;
        if let Some(record) = self.store.records()?.first() {
            return Err(conflict(format!(
                "machine {} is still on the networks of lab {}; destroy the machines first",
                record.spec.name, self.store.name
            )));
        }
        let networks = self.store.networks()?;
        let _turn = HostTurn::take()?;
        for index in 1..=networks.sites.len() {
            link::remove(&self.id.bridge(index))?;
        }
        firewall::remove(&self.id)?;
        if networks.egress == Egress::Nat {
            stop_forwarding()?;
        }
        self.layout.remove_lab(&self.id)?;
        self.store.forget_networks()
    }

    pub(super) fn reserve_address(
        &self,
        fence: Fence,
        site: &SiteName,
        name: &AddressName,
    ) -> Result<AddressPair> {
        let _key = self.store.change(Key::Address(name), fence)?;
        let _lock = self.store.lock(Key::Network)?;
        let mut networks = self.store.networks()?;
        let (_, network) = networks.site(site)?;
        let network = network.clone();
        if let Some(known) = networks.reserved.get(name) {
            if known.site != *site {
                return Err(conflict(format!(
                    "address {name} is reserved in site {}; release it there first",
                    known.site
                )));
            }
            return address(&network, known.number);
        }
        let machines = self.store.records()?;
        let free = |number: &HostNumber| {
            !networks.reserved.values().any(|other| other.site == *site && other.number == *number)
                && !machines.iter().any(|other| other.spec.site == *site && other.spec.number == *number)
        };
        let last = u16::try_from(network.v4.hosts().count()).unwrap_or(u16::MAX);
        // A small subnet has no numbers that high: there we count from its end downwards.
        let number = if last >= HostNumber::FIRST_RESERVED.0 {
            (HostNumber::FIRST_RESERVED.0..=last).map(HostNumber).find(free)
        } else {
            (2..=last).rev().map(HostNumber).find(free)
        };
        let number = number.ok_or_else(|| {
            let message = format!("address {name}: {} has no free address left; release one", network.v4);
            InfraError::new(InfraErrorKind::Exhausted, message)
        })?;
        networks.reserved.insert(name.clone(), Reserved { site: site.clone(), number });
        self.store.keep_networks(&networks)?;
        address(&network, number)
    }

    pub(super) fn release_address(&self, fence: Fence, name: &AddressName) -> Result<()> {
        let _key = self.store.change(Key::Address(name), fence)?;
        let _lock = self.store.lock(Key::Network)?;
        let mut networks = self.store.networks()?;
        if networks.reserved.remove(name).is_some() {
            self.store.keep_networks(&networks)?;
        }
        Ok(())
    }

    /// What marks this lab's interfaces as its own.
    pub(super) fn owner(&self) -> String {
        // The kernel keeps 255 bytes; the end of a path says more than its beginning.
        let text = self.store.dir.display().to_string();
        let start = text.char_indices().map(|(at, _)| at).find(|at| text.len() - at <= 200).unwrap_or(0);
        format!("guywire {}", &text[start..])
    }

    /// The subnets on this host, and of other labs in this data directory that may be down just now.
    fn used_by_others(&self, networks: &Networks) -> Result<Vec<Used>> {
        let own: Vec<String> = (1..=networks.sites.len()).map(|index| self.id.bridge(index)).collect();
        let mut used = subnet::of_host(&own)?;
        for name in store::labs(&self.data)?.into_iter().filter(|name| *name != self.store.name) {
            used.extend(subnets_of_lab(&self.data, &name)?);
        }
        Ok(used)
    }
}

/// Stops what only machines with a way out need, unless a lab still has one.
pub(super) fn stop_forwarding() -> Result<()> {
    if !firewall::tables()?.iter().any(|(_, out)| *out) {
        for uplink in subnet::uplinks()? {
            link::forward(&uplink, false)?;
        }
    }
    Ok(())
}

fn subnets_of_lab(data: &Path, name: &LabName) -> Result<Vec<Used>> {
    let dir = data.join("labs").join(name.as_str());
    let other = Store { name: name.clone(), dir, templates: data.to_owned() };
    let mut used: Vec<Used> = other.networks()?.sites.iter().flat_map(subnets_of_site).collect();
    for entry in &mut used {
        entry.by = format!("lab {name}, {}", entry.by);
    }
    Ok(used)
}

fn subnets_of_site(site: &SiteNetwork) -> [Used; 2] {
    [IpNet::from(site.v4), IpNet::from(site.v6)].map(|net| Used { net, by: format!("site {}", site.name) })
}

/// A host's addresses, or why it has none.
pub(super) fn address(network: &SiteNetwork, number: HostNumber) -> Result<AddressPair> {
    network.host(number).map_err(|error| invalid(format!("site {}: {error}", network.name)).because(error))
}

/// Whether a site is what is asked for.
fn same(known: &SiteNetwork, asked: &SiteSpec) -> Result<()> {
    let v4 = asked.v4.is_none_or(|net| net.trunc() == known.v4);
    let v6 = asked.v6.is_none_or(|net| net.trunc() == known.v6);
    if v4 && v6 {
        return Ok(());
    }
    Err(conflict(format!(
        "site {} has {} and {}, which cannot be changed; remove the lab to choose others",
        known.name, known.v4, known.v6
    )))
}

/// One guywire at a time on this host: an abstract socket is the network namespace's, where the
/// subnets are too, and it goes with its process.
struct HostTurn {
    _socket: UnixDatagram,
}

impl HostTurn {
    fn take() -> Result<Self> {
        let doing = "taking turns with other labs on this host";
        let name = SocketAddr::from_abstract_name("guywire/networks").map_err(while_doing(doing))?;
        let end = Instant::now() + PATIENCE;
        loop {
            match UnixDatagram::bind_addr(&name) {
                Ok(socket) => return Ok(Self { _socket: socket }),
                Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
                    return Err(while_doing(doing)(error));
                }
                Err(_) if Instant::now() > end => {
                    return Err(unavailable(format!(
                        "another guywire on this host has been changing networks for {} s; wait for it or end it",
                        PATIENCE.as_secs()
                    )));
                }
                // An abstract socket cannot be waited for.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}
