//! Machines, what they start from and what stays when they go.

use std::path::PathBuf;

use guywire_secrets::SecretRef;
use serde::{Deserialize, Serialize};

use crate::{
    AddressName, AddressPair, HostNumber, MachineName, SiteName, SiteNetwork, TemplateName, VolumeName,
};

/// What is wanted of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Its name, which is its host name too.
    pub name: MachineName,
    /// The site that it stands in.
    pub site: SiteName,
    /// Its place in the site's subnets.
    pub number: HostNumber,
    /// What it starts from.
    pub template: TemplateName,
    /// Who may log in, put in at first boot.
    pub login: Login,
    /// Volumes and where they appear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
}

/// The user that is put into a machine at first boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The user's name; any user but root may use sudo without a password.
    pub user: String,
    /// Public keys in OpenSSH's format that are let in.
    #[serde(default)]
    pub authorized_keys: Vec<String>,
    /// Where the password is kept, if one may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretRef>,
}

/// A volume inside a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    /// The volume.
    pub volume: VolumeName,
    /// The absolute path where it appears.
    pub path: PathBuf,
}

/// What machines start from: a base system plus content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateSpec {
    /// Its name.
    pub name: TemplateName,
    /// Debian packages beyond those that every machine needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// Files and directories laid over the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<TemplateContent>,
}

/// One piece of a template's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateContent {
    /// The file or directory to copy, on the machine that runs guywire.
    pub source: PathBuf,
    /// The absolute path inside the machine.
    pub path: PathBuf,
}

/// What a machine's power switch is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// Start it; nothing if it runs.
    On,
    /// Ask the system to stop and wait until it did; cut if it does not in time.
    Off,
    /// Take the power away: off the network first, then every process at once.
    Cut,
}

/// Whether a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PowerState {
    /// It runs.
    Running,
    /// It does not; its disk is there.
    Off,
}

/// A machine as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedMachine {
    /// What it was made from.
    pub spec: MachineSpec,
    /// Whether it runs.
    pub power: PowerState,
    /// Its addresses.
    pub addresses: AddressPair,
}

/// All that an infrastructure has of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Networks by site.
    pub sites: Vec<SiteNetwork>,
    /// Machines by name.
    pub machines: Vec<ObservedMachine>,
    /// Volumes.
    pub volumes: Vec<VolumeName>,
    /// Reserved addresses.
    pub reserved: Vec<(AddressName, AddressPair)>,
}

impl Observed {
    /// The machine of that name.
    pub fn machine(&self, name: &MachineName) -> Option<&ObservedMachine> {
        self.machines.iter().find(|machine| machine.spec.name == *name)
    }
}
