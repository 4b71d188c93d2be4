//! The seam between plans and places that make machines.

use async_trait::async_trait;
use guywire_model::{
    AddressName, AddressPair, Egress, MachineName, MachineSpec, Observed, ObservedMachine, Power, SiteName,
    SiteNetwork, SiteSpec, TemplateSpec, VolumeName,
};
use guywire_plan::Fence;

use crate::ssh::Door;

/// A place that makes machines: a lab on this host, hosts of an inventory, later `OpenStack` or libvirt.
///
/// Every operation is *keyed* (by the machine's, volume's or address's name, unique within one
/// `Infra`) and *idempotent*: called again after a crash it finds what it made and goes on from there.
/// Every change carries the caller's [`Fence`]; an implementation keeps the highest it has seen per key
/// and answers a lower one with [`InfraErrorKind::Fenced`], so that a caller that slept past its lease
/// changes nothing.
///
/// What later implementations need, and where it fits:
/// - `OpenStack`: names are not unique there, so the key goes into a server's metadata and `observe` looks
///   for it; `ensure_template` uploads a Glance image named by the content's hash; `create` passes the
///   login by cloud-init user data and makes the port first, with the address fixed; `Cut` is a hard
///   stop (`os-stop` waits for the guest) and `destroy` polls until the server is really gone; reserved
///   addresses are ports with `allowed_address_pairs` on the machines' ports. Fences live in the
///   server's metadata, changed with a compare-and-set on its `ETag`.
/// - libvirt: the key is the domain's name with a prefix, a template is a qcow2 file that overlays back
///   onto, login by a cloud-init ISO, `Cut` is `destroy`, volumes are files in a pool. Fences live in the
///   domain's metadata element.
/// - Both take minutes where the lab takes a second: nothing here holds a lock while it waits, and
///   `progress` says what is being waited for.
#[async_trait]
pub trait Infra: Send + Sync {
    /// The type's name: `lab`, `hosts`.
    fn kind(&self) -> &'static str;

    /// Makes the sites' networks, choosing free subnets where none are asked for, and answers what is
    /// there. Asking again with the same sites changes nothing; egress is brought to what is asked.
    async fn ensure_networks(
        &self,
        fence: Fence,
        sites: &[SiteSpec],
        egress: Egress,
    ) -> Result<Vec<SiteNetwork>, InfraError>;

    /// Removes the networks; refused while machines are on them.
    async fn remove_networks(&self, fence: Fence) -> Result<(), InfraError>;

    /// Makes what machines start from, once for each content.
    async fn ensure_template(
        &self,
        fence: Fence,
        template: &TemplateSpec,
        progress: &dyn Progress,
    ) -> Result<(), InfraError>;

    /// Makes the machine's disk, identity and login, powered off. A machine of that name with another
    /// specification is a conflict, never changed silently.
    async fn create(&self, fence: Fence, machine: &MachineSpec) -> Result<ObservedMachine, InfraError>;

    /// Cuts the power and forgets the disk; volumes stay. A machine that is not there is success.
    async fn destroy(&self, fence: Fence, machine: &MachineName) -> Result<(), InfraError>;

    /// Turns the machine's power switch and returns when it has had its effect (not when SSH answers).
    async fn power(&self, fence: Fence, machine: &MachineName, power: Power) -> Result<(), InfraError>;

    /// All that is there, looked at afresh.
    async fn observe(&self) -> Result<Observed, InfraError>;

    /// Makes a volume that outlives machines.
    async fn ensure_volume(&self, fence: Fence, volume: &VolumeName) -> Result<(), InfraError>;

    /// Removes a volume and what is on it; refused while a machine has it.
    async fn remove_volume(&self, fence: Fence, volume: &VolumeName) -> Result<(), InfraError>;

    /// Reserves an address (a VIP) in a site, the same one each time it is asked for by this name.
    async fn reserve_address(
        &self,
        fence: Fence,
        site: &SiteName,
        name: &AddressName,
    ) -> Result<AddressPair, InfraError>;

    /// Gives a reserved address back.
    async fn release_address(&self, fence: Fence, name: &AddressName) -> Result<(), InfraError>;

    /// How a machine is entered: its address, who logs in, and how each proves itself to the other.
    async fn door(&self, machine: &MachineName) -> Result<Door, InfraError>;

    /// Forgets the place itself, once nothing of ours is left in it.
    async fn close(&self, fence: Fence) -> Result<(), InfraError>;
}

/// Hears what a long operation is doing.
pub trait Progress: Send + Sync {
    /// One line for a person, without a newline.
    fn say(&self, line: &str);
}

/// Why an operation on an infrastructure did not happen.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct InfraError {
    /// What kind of failure it is.
    pub kind: InfraErrorKind,
    /// What was wrong, where, and what to do.
    pub message: String,
    /// The cause beneath.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of failure, and so whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InfraErrorKind {
    /// The request cannot be met as it stands.
    Invalid,
    /// Something of that name is there and is different.
    Conflict,
    /// There is nothing of that name.
    NotFound,
    /// A later caller has been here: this one must stop.
    Fenced,
    /// The disk, the memory or the addresses have run out.
    Exhausted,
    /// The host lacks a tool, a kernel feature or a permission.
    Unsupported,
    /// It may work when tried again.
    Unavailable,
}

impl InfraError {
    /// An error of `kind` with a message for a person.
    pub fn new(kind: InfraErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same with the cause beneath it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Whether trying again can help.
    pub fn retry(&self) -> bool {
        self.kind == InfraErrorKind::Unavailable
    }
}
