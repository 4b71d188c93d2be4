//! Machines that exist already: the hosts of an inventory.
//!
//! Nothing is made or destroyed here. To create a machine is to claim the host of its name, by a file on
//! the host that says for whom; to destroy it is to release the host again.

mod book;
mod claim;
mod infra;

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use guywire_model::{AddressPair, HostAddress, HostLogin, HostSpec, Inventory, MachineName};
use guywire_secrets::{Store, private};

use self::book::Book;
use crate::{
    InfraError, InfraErrorKind,
    ssh::{Auth, Door, HostKey, Pool, SshError, SshErrorKind},
};

/// How long a host may take to let us in when somebody asks for its power.
const REACH: Duration = Duration::from_secs(20);

/// The hosts of an inventory as a place that gives machines. A machine is put on the host of its name;
/// its number, template and login mean nothing here, since the host is used as it is.
pub struct Hosts {
    inventory: Inventory,
    pool: Pool,
    secrets: Arc<Store>,
    installation: String,
    book: Book,
}

impl Hosts {
    /// The hosts of `inventory`, reached through `pool`. `installation` is the name by which hosts know
    /// whose they are: [`installation_name`], unless several managers share the work and so one name.
    /// `data` holds what is remembered here.
    pub fn new(
        inventory: Inventory,
        pool: Pool,
        secrets: Arc<Store>,
        data: &Path,
        installation: impl Into<String>,
    ) -> Self {
        Self { inventory, pool, secrets, installation: installation.into(), book: Book::new(data) }
    }

    fn way_in(&self, machine: &MachineName) -> Result<Door, InfraError> {
        let host = self.host(machine)?;
        let auth = match &host.login {
            HostLogin::KeyFile(file) => Auth::KeyFile(file.clone()),
            HostLogin::Password(reference) => {
                Auth::Password(self.secrets.get(reference).map_err(|error| {
                    let message =
                        format!("host {machine}: its password cannot be had from the secrets store");
                    InfraError::new(InfraErrorKind::Invalid, message).because(error)
                })?)
            }
        };
        Ok(Door {
            machine: host.name.to_string(),
            host: host.address.to_string(),
            port: host.port,
            user: host.user.clone(),
            auth,
            host_key: host.host_key.clone().map_or(HostKey::PinOnFirstUse, HostKey::Known),
        })
    }

    fn host(&self, machine: &MachineName) -> Result<&HostSpec, InfraError> {
        self.inventory.host(machine).ok_or_else(|| {
            let names: Vec<&str> = self.inventory.hosts.iter().map(|host| host.name.as_str()).collect();
            let message = format!(
                "no host {machine} in the inventory, which has {}; add it there, or name the machine after a host",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            );
            InfraError::new(InfraErrorKind::NotFound, message)
        })
    }
}

/// The name of the installation in a data directory, made once.
pub fn installation_name(data: &Path) -> Result<String, InfraError> {
    let file = data.join("installation");
    let made = || {
        if !file.exists() {
            private::create(&file, format!("{:032x}\n", rand::random::<u128>()).as_bytes())?;
        }
        fs::read_to_string(&file)
    };
    made().map(|text| text.trim_end().to_owned()).map_err(|error: io::Error| {
        let message = format!("{}: cannot read or make it; check the data directory", file.display());
        InfraError::new(InfraErrorKind::Unavailable, message).because(error)
    })
}

/// A host's addresses; a family that it has none of, or that only a name server knows, is unspecified.
fn addresses(host: &HostSpec) -> AddressPair {
    let mut pair = AddressPair { v4: Ipv4Addr::UNSPECIFIED, v6: Ipv6Addr::UNSPECIFIED };
    match host.address {
        HostAddress::Ip(IpAddr::V4(address)) => pair.v4 = address,
        HostAddress::Ip(IpAddr::V6(address)) => pair.v6 = address,
        HostAddress::Name(_) => {}
    }
    pair
}

/// What happened on the way to a host, in the words of an infrastructure.
fn unreached(error: SshError) -> InfraError {
    let kind = match error.kind {
        SshErrorKind::Unreachable | SshErrorKind::Timeout | SshErrorKind::Dropped => {
            InfraErrorKind::Unavailable
        }
        SshErrorKind::Protocol | SshErrorKind::Remote => InfraErrorKind::Unsupported,
        SshErrorKind::AuthFailed
        | SshErrorKind::HostKeyMismatch
        | SshErrorKind::Identity
        | SshErrorKind::Invalid => InfraErrorKind::Invalid,
    };
    let told = InfraError::new(kind, error.to_string());
    match error.source {
        Some(source) => InfraError { source: Some(source), ..told },
        None => told,
    }
}
