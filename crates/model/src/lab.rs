//! A lab: sites and machines on this host.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{HostNumber, LabName, Login, MachineName, MachineSpec, SiteName, SiteSpec, TemplateSpec};

/// What is wanted of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabSpec {
    /// Its name.
    pub name: LabName,
    /// Whether its machines reach the world outside.
    #[serde(default)]
    pub egress: Egress,
    /// Its sites, each a network of its own.
    pub sites: Vec<SiteSpec>,
    /// The templates that its machines start from.
    pub templates: Vec<TemplateSpec>,
    /// Its machines.
    pub machines: Vec<MachineSpec>,
}

/// Whether machines reach anything beyond their lab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Egress {
    /// Nothing beyond the lab.
    #[default]
    None,
    /// Through the host, which translates addresses.
    Nat,
}

impl LabSpec {
    /// The site that a lab has when nobody names one.
    pub const DEFAULT_SITE: &'static str = "site1";
    /// The template that a machine starts from when nobody names one.
    pub const DEFAULT_TEMPLATE: &'static str = "base";
    /// The most machines of one lab: what fits between the first machine's number and the reserved ones.
    pub const MAX_MACHINES: usize = (HostNumber::FIRST_RESERVED.0 - HostNumber::FIRST_MACHINE.0) as usize;

    /// A lab of `count` like machines, `m1` to `mN`, in one site.
    pub fn of_machines(name: LabName, count: usize, egress: Egress, login: &Login) -> Self {
        let site = SiteName::new(Self::DEFAULT_SITE).expect("a valid constant");
        let template = crate::TemplateName::new(Self::DEFAULT_TEMPLATE).expect("a valid constant");
        let machine = |index: usize| MachineSpec {
            name: MachineName::new(format!("m{}", index + 1)).expect("a letter and digits"),
            site: site.clone(),
            number: HostNumber(
                HostNumber::FIRST_MACHINE.0 + u16::try_from(index).expect("bounded by MAX_MACHINES"),
            ),
            template: template.clone(),
            login: login.clone(),
            volumes: Vec::new(),
        };
        Self {
            name,
            egress,
            sites: vec![SiteSpec { name: site.clone(), v4: None, v6: None }],
            templates: vec![TemplateSpec {
                name: template.clone(),
                packages: Vec::new(),
                content: Vec::new(),
            }],
            machines: (0..count.min(Self::MAX_MACHINES)).map(machine).collect(),
        }
    }

    /// The lowest number from the first machine's on that no machine of `site` has.
    pub fn free_number(taken: &BTreeSet<HostNumber>) -> Option<HostNumber> {
        (HostNumber::FIRST_MACHINE.0..HostNumber::FIRST_RESERVED.0)
            .map(HostNumber)
            .find(|n| !taken.contains(n))
    }
}
