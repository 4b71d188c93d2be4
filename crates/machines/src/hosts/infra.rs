//! Hosts as an [`Infra`].

use async_trait::async_trait;
use futures::future::join_all;
use guywire_model::{
    AddressName, AddressPair, Egress, MachineName, MachineSpec, Observed, ObservedMachine, Power, PowerState,
    SiteName, SiteNetwork, SiteSpec, TemplateSpec, VolumeName,
};
use guywire_plan::Fence;

use super::{
    Hosts, REACH, addresses,
    book::fenced,
    claim::{self, Claim, FILE},
    unreached,
};
use crate::{Infra, InfraError, InfraErrorKind, Progress, ssh::Door};

/// How often a claim that changes under us is looked at again.
const ROUNDS: usize = 5;

#[async_trait]
impl Infra for Hosts {
    fn kind(&self) -> &'static str {
        "hosts"
    }

    async fn ensure_networks(
        &self,
        fence: Fence,
        sites: &[SiteSpec],
        egress: Egress,
    ) -> Result<Vec<SiteNetwork>, InfraError> {
        self.book.admit("networks", fence)?;
        if egress == Egress::Nat {
            let message = "hosts reach the world as their own network lets them; leave out nat";
            return Err(InfraError::new(InfraErrorKind::Unsupported, message));
        }
        sites.iter().map(|site| self.site(site)).collect()
    }

    async fn remove_networks(&self, fence: Fence) -> Result<(), InfraError> {
        self.book.admit("networks", fence)?;
        let claimed: Vec<String> =
            self.observe().await?.machines.iter().map(|machine| machine.spec.name.to_string()).collect();
        if claimed.is_empty() {
            return Ok(());
        }
        let message = format!("hosts {} are claimed; release them first", claimed.join(", "));
        Err(InfraError::new(InfraErrorKind::Conflict, message))
    }

    async fn ensure_template(
        &self,
        fence: Fence,
        template: &TemplateSpec,
        _progress: &dyn Progress,
    ) -> Result<(), InfraError> {
        self.book.admit(&format!("template {}", template.name), fence)?;
        if template.packages.is_empty() && template.content.is_empty() {
            return Ok(());
        }
        let message = format!(
            "template {}: hosts are used as they are; install its packages and content there, and leave them out here",
            template.name
        );
        Err(InfraError::new(InfraErrorKind::Unsupported, message))
    }

    async fn create(&self, fence: Fence, machine: &MachineSpec) -> Result<ObservedMachine, InfraError> {
        let (host, door) = (self.host(&machine.name)?, self.way_in(&machine.name)?);
        if !machine.volumes.is_empty() {
            return Err(no_volumes());
        }
        self.book.admit(&format!("machine {}", machine.name), fence)?;
        for _ in 0..ROUNDS {
            let found = claim::read(&self.pool, &door).await.map_err(unreached)?;
            if let Some(claim) = &found.claim {
                self.check_ours(claim, &machine.name)?;
                check_fence(claim, fence)?;
                if claim.machine != *machine {
                    let message = format!(
                        "host {} is claimed with another specification; release it before it is claimed anew",
                        machine.name
                    );
                    return Err(InfraError::new(InfraErrorKind::Conflict, message));
                }
            }
            let claim = Claim { installation: self.installation.clone(), fence, machine: machine.clone() };
            let as_wanted = found.claim.as_ref() == Some(&claim);
            if as_wanted || claim::swap(&self.pool, &door, &found, Some(&claim)).await.map_err(unreached)? {
                let (spec, addresses) = (machine.clone(), addresses(host));
                return Ok(ObservedMachine { spec, power: PowerState::Running, addresses });
            }
        }
        Err(restless(&machine.name))
    }

    async fn destroy(&self, fence: Fence, machine: &MachineName) -> Result<(), InfraError> {
        self.book.admit(&format!("machine {machine}"), fence)?;
        if self.inventory.host(machine).is_none() {
            return Ok(());
        }
        let door = self.way_in(machine)?;
        for _ in 0..ROUNDS {
            let found = claim::read(&self.pool, &door).await.map_err(unreached)?;
            let Some(claim) = found.claim.as_ref().filter(|claim| claim.installation == self.installation)
            else {
                return Ok(());
            };
            check_fence(claim, fence)?;
            // Whoever comes after a crash of ours finds the claim and goes on: it is the last to go.
            claim::clean(&self.pool, &door).await.map_err(unreached)?;
            if claim::swap(&self.pool, &door, &found, None).await.map_err(unreached)? {
                return Ok(());
            }
        }
        Err(restless(machine))
    }

    async fn power(&self, fence: Fence, machine: &MachineName, power: Power) -> Result<(), InfraError> {
        let door = self.way_in(machine)?;
        self.book.admit(&format!("machine {machine}"), fence)?;
        if power == Power::On {
            return self.pool.wait_ready(&door, REACH).await.map_err(unreached);
        }
        let message =
            format!("host {machine} is not ours to switch off; do it with what its owner has, or use a lab");
        Err(InfraError::new(InfraErrorKind::Unsupported, message))
    }

    async fn observe(&self) -> Result<Observed, InfraError> {
        let looks = self.inventory.hosts.iter().map(|host| async move {
            let found = claim::read(&self.pool, &self.way_in(&host.name)?).await.map_err(unreached)?;
            let ours = found.claim.filter(|claim| claim.installation == self.installation);
            Ok(ours.map(|claim| ObservedMachine {
                spec: claim.machine,
                power: PowerState::Running,
                addresses: addresses(host),
            }))
        });
        let mut machines = Vec::new();
        let mut failed: Vec<InfraError> = Vec::new();
        for look in join_all(looks).await {
            match look {
                Ok(machine) => machines.extend(machine),
                Err(error) => failed.push(error),
            }
        }
        if let Some(first) = failed.first() {
            // All of them at once, so that a person need not find them one by one.
            let kind = first.kind;
            let all: Vec<String> = failed.iter().map(ToString::to_string).collect();
            return Err(InfraError { kind, message: all.join("; "), source: failed.remove(0).source });
        }
        Ok(Observed {
            sites: self.inventory.sites.clone(),
            machines,
            volumes: Vec::new(),
            reserved: self.book.reserved()?,
        })
    }

    async fn ensure_volume(&self, _fence: Fence, _volume: &VolumeName) -> Result<(), InfraError> {
        Err(no_volumes())
    }

    async fn remove_volume(&self, _fence: Fence, _volume: &VolumeName) -> Result<(), InfraError> {
        // There never was one, so it is gone.
        Ok(())
    }

    async fn reserve_address(
        &self,
        fence: Fence,
        site: &SiteName,
        name: &AddressName,
    ) -> Result<AddressPair, InfraError> {
        self.book.reserve(&self.inventory, fence, site, name)
    }

    async fn release_address(&self, fence: Fence, name: &AddressName) -> Result<(), InfraError> {
        self.book.release(fence, name)
    }

    async fn door(&self, machine: &MachineName) -> Result<Door, InfraError> {
        self.way_in(machine)
    }

    async fn close(&self, _fence: Fence) -> Result<(), InfraError> {
        // The inventory is its owner's file; there is nothing of ours to forget.
        Ok(())
    }
}

impl Hosts {
    fn site(&self, wanted: &SiteSpec) -> Result<SiteNetwork, InfraError> {
        let invalid = |message| Err(InfraError::new(InfraErrorKind::Invalid, message));
        let Some(site) = self.inventory.sites.iter().find(|site| site.name == wanted.name) else {
            let name = &wanted.name;
            return invalid(format!(
                "no site {name} in the inventory; add it under `sites:` with its subnets"
            ));
        };
        if wanted.v4.is_some_and(|v4| v4 != site.v4) || wanted.v6.is_some_and(|v6| v6 != site.v6) {
            return invalid(format!(
                "site {} has {} and {} in the inventory, and networks of hosts are not made here; ask for these, or for none",
                site.name, site.v4, site.v6
            ));
        }
        Ok(site.clone())
    }

    fn check_ours(&self, claim: &Claim, machine: &MachineName) -> Result<(), InfraError> {
        if claim.installation == self.installation {
            return Ok(());
        }
        let message = format!(
            "host {machine} belongs to installation {} as machine {}; release it there, or remove {FILE} on the host if that installation is no more",
            claim.installation, claim.machine.name
        );
        Err(InfraError::new(InfraErrorKind::Conflict, message))
    }
}

fn check_fence(claim: &Claim, fence: Fence) -> Result<(), InfraError> {
    if fence < claim.fence {
        return Err(fenced(&format!("machine {}", claim.machine.name), claim.fence, fence));
    }
    Ok(())
}

fn no_volumes() -> InfraError {
    let message = "hosts have no volumes that outlive them; use a directory of the host, or an infrastructure with volumes";
    InfraError::new(InfraErrorKind::Unsupported, message)
}

fn restless(machine: &MachineName) -> InfraError {
    let message = format!("host {machine}: its claim changes all the time; look who else works on it");
    InfraError::new(InfraErrorKind::Unavailable, message)
}
