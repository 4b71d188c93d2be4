//! The nouns of Guywire as plain types: names, networks, machines and labs, desired and observed.
//!
//! Nothing here does I/O. Files are parsed from text that somebody else read, and every error says
//! where in that text it stands.

mod inventory;
mod lab;
mod lab_file;
mod machine;
mod name;
mod network;

pub use inventory::{
    HostAddress, HostLogin, HostSpec, InvalidHostAddress, Inventory, ReservedAddress, parse_inventory,
};
pub use lab::{Egress, LabSpec};
pub use lab_file::{FileError, parse_lab_file};
pub use machine::{
    Login, MachineSpec, Observed, ObservedMachine, Power, PowerState, TemplateContent, TemplateSpec,
    VolumeMount,
};
pub use name::{
    AddressName, InvalidName, LabName, MachineName, Name, NameKind, SiteName, TemplateName, VolumeName,
};
pub use network::{AddressPair, HostNumber, NetworkError, SiteNetwork, SiteSpec};
