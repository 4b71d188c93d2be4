//! From an outline to machines: which are made, made anew, removed or switched. No I/O.

use std::{collections::BTreeSet, net::Ipv4Addr};

use guywire_model::{HostNumber, LabSpec, MachineName, MachineSpec, Observed, SiteName, TemplateName};
use guywire_package::Flavour;
use serde_json::Value;
use uuid::Uuid;

use super::outline::{Outline, listed};
use crate::{
    app::works::Place,
    domain::{ExtLink, Instance, OperationId, PackageId, Target, VimConnection, VimId, Vnfc},
    store::Claimed,
};

/// All that the choice of machines depends on.
pub struct Facts<'a> {
    /// The operation.
    pub operation: OperationId,
    /// The instance as it is.
    pub instance: &'a Instance,
    /// What it should become.
    pub outline: &'a Outline,
    /// The flavour that it should have.
    pub flavour: &'a Flavour,
    /// The VIM: the caller's name of it, and its id.
    pub vim: (String, VimId),
    /// The VIM's connection as it is kept.
    pub connection: VimConnection,
    /// The place.
    pub place: &'a Place,
    /// What is there.
    pub observed: &'a Observed,
    /// What is spoken for.
    pub claimed: &'a [Claimed],
    /// The package afterwards, where it changes.
    pub package: Option<(PackageId, String)>,
}

/// Chooses machines, and says what was accepted and ignored. The reason of a refusal is for the caller.
pub fn target(facts: &Facts<'_>) -> Result<(Target, Vec<String>), String> {
    let Facts { outline, instance, flavour, place, .. } = facts;
    let present: &[Vnfc] = instance.info.as_ref().map_or(&[], |info| &info.vnfcs);
    let mut warnings = Vec::new();
    let mut taken = Taken::of(facts);

    // The newest go first, so that what has run longest stays.
    let mut remove: Vec<Vnfc> = Vec::new();
    let vdus: BTreeSet<&str> = present.iter().map(|vnfc| vnfc.vdu.as_str()).collect();
    for vdu in vdus {
        let wanted = outline.counts.get(vdu).copied().unwrap_or(0) as usize;
        let there: Vec<&Vnfc> = present.iter().filter(|vnfc| vnfc.vdu == vdu).collect();
        remove.extend(there.iter().skip(wanted).map(|vnfc| (*vnfc).clone()));
    }
    let goes = |id: &str| remove.iter().any(|vnfc| vnfc.id == id);

    let mut replace = Vec::new();
    for vnfc in present.iter().filter(|vnfc| !goes(&vnfc.id)) {
        let ordinal = ordinal(&vnfc.id);
        let seat = taken.seat(flavour, &vnfc.vdu, ordinal, &outline.ext_links, place)?;
        let moves = seat.as_ref().is_some_and(|seat| {
            seat.site != vnfc.machine.site || seat.number.is_some_and(|number| number != vnfc.machine.number)
        });
        if !moves && !outline.replace.contains(&vnfc.id) {
            continue;
        }
        let mut next = vnfc.clone();
        next.resource = Uuid::new_v5(&facts.operation.0, vnfc.id.as_bytes());
        next.machine.template = template(flavour, &vnfc.vdu, place, &mut warnings)?;
        if let Some(seat) = seat.filter(|_| moves) {
            next.machine.number = taken.choose(&seat)?;
            next.machine.site = seat.site;
            next.addresses = None;
        }
        replace.push((next, vnfc.resource));
    }

    let mut add: Vec<Vnfc> = Vec::new();
    for vdu in &flavour.vdus {
        let wanted = outline.counts.get(&vdu.id).copied().unwrap_or(0) as usize;
        let there = present.iter().filter(|vnfc| vnfc.vdu == vdu.id).count();
        for _ in there..wanted {
            let used = |n: u32| {
                let id = format!("{}-{n}", vdu.id);
                present.iter().chain(&add).any(|vnfc| vnfc.id == id)
            };
            // One of as many numbers as there are machines, and one more, is free.
            let most = u32::try_from(present.len() + add.len()).unwrap_or(u32::MAX);
            let n = (0..=most).find(|n| !used(*n)).unwrap_or(most);
            let id = format!("{}-{n}", vdu.id);
            let template = template(flavour, &vdu.id, place, &mut warnings)?;
            let machine = if let Some(hosts) = &place.hosts {
                taken.take_host(hosts)?
            } else {
                let seat = taken.seat(flavour, &vdu.id, n, &outline.ext_links, place)?;
                let seat = seat.map_or_else(|| first_seat(place), Ok)?;
                MachineSpec {
                    name: machine_name(instance, &vdu.id, n),
                    number: taken.choose(&seat)?,
                    site: seat.site,
                    template,
                    login: place.login.clone(),
                    volumes: Vec::new(),
                }
            };
            let resource = Uuid::new_v5(&facts.operation.0, id.as_bytes());
            add.push(Vnfc { id, resource, vdu: vdu.id.clone(), machine, addresses: None });
        }
    }

    let power = outline.power.as_ref().map(|(power, names)| {
        let named = present.iter().filter(|vnfc| names.contains(&vnfc.id) && !goes(&vnfc.id));
        (*power, named.cloned().collect())
    });
    let mut vims = instance.vims.clone();
    vims.insert(facts.vim.0.clone(), facts.connection.clone());
    warnings.dedup();
    let target = Target {
        infra: place.infra.clone(),
        vim: facts.vim.1,
        vim_connection: facts.vim.0.clone(),
        flavour: outline.flavour.clone(),
        level: outline.level.clone(),
        scale: outline.scale.clone(),
        add,
        replace,
        remove,
        power,
        vnf_state: outline.vnf_state,
        one_by_one: outline.one_by_one,
        ext_links: outline.ext_links.clone(),
        package: facts.package.clone(),
        inputs: outline.inputs.clone(),
        vims,
    };
    Ok((target, warnings))
}

/// Where a machine is to stand.
struct Seat {
    site: SiteName,
    number: Option<HostNumber>,
}

/// Numbers and hosts that are taken.
struct Taken {
    numbers: BTreeSet<(String, HostNumber)>,
    names: BTreeSet<String>,
    networks: Vec<guywire_model::SiteNetwork>,
}

impl Taken {
    fn of(facts: &Facts<'_>) -> Self {
        let claimed = facts.claimed.iter().map(|claimed| (claimed.site.clone(), HostNumber(claimed.number)));
        let observed = facts
            .observed
            .machines
            .iter()
            .map(|machine| (machine.spec.site.to_string(), machine.spec.number));
        let names = facts.claimed.iter().map(|claimed| claimed.name.clone());
        let there = facts.observed.machines.iter().map(|machine| machine.spec.name.to_string());
        Self {
            numbers: claimed.chain(observed).collect(),
            names: names.chain(there).collect(),
            networks: facts.observed.sites.clone(),
        }
    }

    /// The network, and the address if a fixed one is asked for, of the `ordinal`th machine of a VDU. `None` if the request
    /// says nothing of its connection points.
    fn seat(
        &self,
        flavour: &Flavour,
        vdu: &str,
        ordinal: u32,
        links: &[ExtLink],
        place: &Place,
    ) -> Result<Option<Seat>, String> {
        let mut found: Option<Seat> = None;
        for cp in flavour.cps_of(vdu) {
            let outside: Vec<&str> = flavour
                .ext_cps
                .iter()
                .filter(|ext| ext.cp.as_deref() == Some(&cp.id))
                .map(|ext| ext.id.as_str())
                .collect();
            for link in links {
                for data in &link.ext_cps {
                    let cpd = data.get("cpdId").and_then(Value::as_str).unwrap_or_default();
                    if cpd != cp.id && !outside.contains(&cpd) {
                        continue;
                    }
                    let site = place.sites.iter().find(|site| site.name.as_str() == link.resource_id);
                    let site = site.ok_or_else(|| {
                        format!(
                            "extVirtualLinks: {}: the VIM has no network {:?}; it has {}",
                            link.id,
                            link.resource_id,
                            listed(place.sites.iter().map(|site| site.name.as_str()))
                        )
                    })?;
                    let fixed = fixed_address(data, ordinal);
                    let number = match fixed {
                        None => None,
                        Some(address) => {
                            let made = self.networks.iter().find(|network| network.name == site.name);
                            let network = site.v4.or(made.map(|made| made.v4)).ok_or_else(|| {
                                format!(
                                    "extVirtualLinks: {}: a fixed address needs a network whose subnet is known, and {} \
                                     has none yet; give the VIM's network a subnet, or leave the address out",
                                    link.id, site.name
                                )
                            })?;
                            Some(
                                HostNumber::of(network, address)
                                    .map_err(|error| format!("extVirtualLinks: {}: {error}", link.id))?,
                            )
                        }
                    };
                    match &found {
                        Some(seat) if seat.site != site.name => {
                            return Err(format!(
                                "extVirtualLinks: VDU {vdu} would be on networks {} and {}, and machines here have one \
                                 interface; put its connection points on one network",
                                seat.site, site.name
                            ));
                        }
                        Some(_) => {}
                        None => found = Some(Seat { site: site.name.clone(), number }),
                    }
                }
            }
        }
        Ok(found)
    }

    fn choose(&mut self, seat: &Seat) -> Result<HostNumber, String> {
        let site = seat.site.to_string();
        let number = if let Some(number) = seat.number {
            if self.numbers.contains(&(site.clone(), number)) {
                return Err(format!(
                    "extVirtualLinks: the fixed address number {} of network {site} is taken; choose another",
                    number.0
                ));
            }
            number
        } else {
            let here = self.numbers.iter().filter(|(other, _)| *other == site).map(|(_, number)| *number);
            LabSpec::free_number(&here.collect()).ok_or_else(|| {
                format!("network {site} has no free address left; remove machines or use another network")
            })?
        };
        self.numbers.insert((site, number));
        Ok(number)
    }

    fn take_host(&mut self, hosts: &[MachineSpec]) -> Result<MachineSpec, String> {
        let free = hosts.iter().find(|host| !self.names.contains(host.name.as_str()));
        let host = free.ok_or_else(|| {
            format!(
                "all {} hosts of the inventory are in use; add hosts to it or terminate something else",
                hosts.len()
            )
        })?;
        self.names.insert(host.name.to_string());
        Ok(host.clone())
    }
}

/// The `ordinal`th fixed IPv4 address of a connection point: in a list of configurations (2.6.1) or a map (3.3.1).
fn fixed_address(data: &Value, ordinal: u32) -> Option<Ipv4Addr> {
    let configs: Vec<&Value> = match data.get("cpConfig")? {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => return None,
    };
    let mut addresses = configs
        .into_iter()
        .filter_map(|config| config.get("cpProtocolData")?.as_array())
        .flatten()
        .filter_map(|data| data.get("ipOverEthernet")?.get("ipAddresses")?.as_array())
        .flatten()
        .filter_map(|addresses| addresses.get("fixedAddresses")?.as_array())
        .flatten()
        .filter_map(|address| address.as_str()?.parse().ok());
    addresses.nth(ordinal as usize)
}

/// Where a machine stands of which nobody says anything.
fn first_seat(place: &Place) -> Result<Seat, String> {
    let site = place.sites.first().ok_or_else(|| "the VIM has no network; give it one".to_owned())?;
    Ok(Seat { site: site.name.clone(), number: None })
}

/// What a VDU's machines start from: the template that its image is called, or the default one.
fn template(
    flavour: &Flavour,
    vdu: &str,
    place: &Place,
    warnings: &mut Vec<String>,
) -> Result<TemplateName, String> {
    let image = flavour.vdu(vdu).and_then(|vdu| vdu.image.as_ref());
    let default = place.templates.first().ok_or_else(|| "the VIM has no template; give it one".to_owned())?;
    let Some(image) = image else { return Ok(default.name.clone()) };
    let found = place
        .templates
        .iter()
        .find(|template| template.name.as_str() == image.name || template.name.as_str() == image.id);
    if found.is_none() {
        let warning = format!(
            "VDU {vdu}: the VIM has no template called {:?}, so its machines start from {}",
            image.name, default.name
        );
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    Ok(found.unwrap_or(default).name.clone())
}

/// A machine's name: its VDU, eight digits of the instance, its ordinal. Instances are told apart by the end of their
/// ids, which is random; the beginning is the time.
fn machine_name(instance: &Instance, vdu: &str, n: u32) -> MachineName {
    let good = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let vdu: String = vdu.chars().map(good).take(20).collect();
    let vdu = vdu.trim_matches('-');
    let vdu = if vdu.is_empty() { "vdu" } else { vdu };
    let id = instance.id.0.simple().to_string();
    MachineName::new(format!("{vdu}-{}-{n}", &id[24..])).expect("letters, digits and hyphens, short enough")
}

/// The number at the end of a component's name.
fn ordinal(vnfc: &str) -> u32 {
    vnfc.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
