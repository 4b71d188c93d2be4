//! Machines made out of Linux namespaces on this host.
//!
//! A machine is an overlay over a template, namespaces, cgroups of its own, a cable to its site's
//! bridge, and systemd. What a lab has is seen on the disk (its directory) and in the kernel (cgroups,
//! interfaces, firewall), never in a process of ours: nothing runs beside the machines themselves.
//!
//! | file | what it does |
//! |---|---|
//! | `store`, `disk`, `tree` | state that survives a crash at any point, locks, fences |
//! | `ident` | what kernel objects are called |
//! | `network`, `subnet`, `link`, `firewall`, `names` | bridges, addresses, isolation, host names |
//! | `template`, `base`, `apt` | what machines start from |
//! | `machine`, `identity`, `accounts` | a machine's disk |
//! | `boot`, `init`, `process`, `cgroup` | a machine's power |
//! | `sweep` | cleaning up after interrupted runs |

mod accounts;
mod apt;
mod base;
mod boot;
mod cgroup;
mod disk;
mod error;
mod firewall;
mod ident;
mod identity;
mod init;
mod link;
mod machine;
mod mountinfo;
mod names;
mod network;
pub mod process;
mod store;
mod subnet;
mod sweep;
mod template;
mod tool;
mod tree;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use guywire_model::{
    AddressName, AddressPair, Egress, LabName, MachineName, MachineSpec, Observed, ObservedMachine, Power,
    SiteName, SiteNetwork, SiteSpec, TemplateSpec, VolumeName,
};
use guywire_plan::Fence;
use guywire_secrets::{Secret, SecretRef, StoreError};

use self::cgroup::Layout;
use self::error::{Result, conflict, invalid, not_found, unavailable, unsupported, while_doing};
use self::ident::{DataId, LabId};
use self::store::{Key, Store};
use crate::ssh::{Auth, Door, HostKey, Identity};
use crate::{Infra, InfraError, InfraErrorKind, Progress};

pub use self::init::{InitError, machine_init};
pub use self::sweep::{Swept, sweep};

/// Looks a secret up when a machine with a password is made or entered.
pub type SecretSource = Arc<dyn Fn(&SecretRef) -> std::result::Result<Secret, StoreError> + Send + Sync>;

/// Where a lab is and what it needs.
#[derive(Clone)]
pub struct LabConfig {
    /// Guywire's data directory; the lab is below it in `labs/NAME`.
    pub data: PathBuf,
    /// Where templates are cached; several labs and data directories may share it.
    pub templates: PathBuf,
    /// The lab's name.
    pub name: LabName,
    /// The program that becomes a machine, run as `STARTER machine-init FILE`; it calls [`machine_init`].
    pub starter: PathBuf,
    /// Where passwords come from.
    pub secrets: SecretSource,
}

/// A lab on this host.
#[derive(Clone)]
pub struct Lab {
    inner: Arc<Inner>,
}

/// The lab's blocking half; each operation of [`Lab`] runs one of its methods on a thread for it.
struct Inner {
    data: PathBuf,
    store: Store,
    id: LabId,
    layout: Layout,
    starter: PathBuf,
    secrets: SecretSource,
}

impl LabConfig {
    /// A lab under `data` with this program as the starter, templates beside it, and no secrets.
    pub fn new(data: impl Into<PathBuf>, name: LabName) -> Result<Self> {
        let data = data.into();
        let starter = std::env::current_exe().map_err(while_doing("finding this program's own file"))?;
        let secrets = |reference: &SecretRef| Err(StoreError::NotFound(reference.name().to_owned()));
        Ok(Self { templates: data.join("templates"), data, name, starter, secrets: Arc::new(secrets) })
    }
}

impl fmt::Debug for LabConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LabConfig")
            .field("data", &self.data)
            .field("templates", &self.templates)
            .field("name", &self.name)
            .field("starter", &self.starter)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab").field("dir", &self.inner.store.dir).finish_non_exhaustive()
    }
}

impl Lab {
    /// Opens a lab, there or not: it comes to be with its first network, volume or template.
    pub fn open(config: LabConfig) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(unsupported("a lab is made of namespaces, which only root can make: run it as root"));
        }
        let data = canonical(&config.data)?;
        let templates = canonical(&config.templates)?;
        let ids = DataId::of(&data);
        let id = ids.lab(&config.name);
        let clash = |other: &LabName| *other != config.name && ids.lab(other) == id;
        if let Some(other) = store::labs(&data)?.into_iter().find(clash) {
            return Err(conflict(format!(
                "lab {}: its interfaces would be called like those of lab {other}; choose another name",
                config.name
            )));
        }
        let dir = data.join("labs").join(config.name.as_str());
        let store = Store { name: config.name, dir, templates };
        let layout = Layout::of_host()?;
        let inner = Inner { data, store, id, layout, starter: config.starter, secrets: config.secrets };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The labs that exist under a data directory.
    pub fn list(data: &Path) -> Result<Vec<LabName>> {
        store::labs(data)
    }

    /// The lab's name.
    pub fn name(&self) -> &LabName {
        &self.inner.store.name
    }

    /// A machine's public host key in OpenSSH's format, so that nobody has to trust a first answer.
    pub fn host_key(&self, machine: &MachineName) -> Option<String> {
        let path = self.inner.store.machine(machine).join("up").join(identity::HOST_KEY);
        Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
    }

    /// Where a start that failed leaves words beyond its error; a machine that runs has a journal.
    pub fn console(&self, machine: &MachineName) -> PathBuf {
        self.inner.store.machine(machine).join("console.log")
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        let ended = tokio::task::spawn_blocking(move || work(&inner)).await;
        ended.unwrap_or_else(|error| Err(unavailable("the lab's own work ended early").because(error)))
    }
}

impl Inner {
    /// A machine's password.
    fn password(&self, machine: &MachineName, reference: &SecretRef) -> Result<Secret> {
        (self.secrets)(reference).map_err(|error| {
            let message = format!("machine {machine}: its password {reference} is out of reach");
            let is_missing = matches!(error, StoreError::NotFound(_));
            let refused = if is_missing { not_found(message) } else { invalid(message) };
            refused.because(error)
        })
    }

    /// The installation's own key where the machine lets it in, else the password that it was given.
    fn door(&self, machine: &MachineName) -> Result<Door> {
        let observed = self.observe()?;
        let found = observed.machine(machine).ok_or_else(|| self.no_machine(machine, &observed))?;
        let login = &found.spec.login;
        let identity =
            Identity::ensure(&self.data).map_err(|error| invalid(error.to_string()).because(error))?;
        let auth = if login.authorized_keys.iter().any(|key| same_key(key, identity.public())) {
            identity.auth()
        } else {
            let reference = login.password.as_ref().ok_or_else(|| {
                invalid(format!("machine {machine} knows neither this installation's key nor a password"))
            })?;
            Auth::Password(self.password(machine, reference)?)
        };
        let path = self.store.machine(machine).join("up").join(identity::HOST_KEY);
        let host_key = std::fs::read_to_string(path).map_err(while_doing("reading a machine's host key"))?;
        Ok(Door {
            machine: machine.to_string(),
            host: found.addresses.v4.to_string(),
            port: 22,
            user: login.user.clone(),
            auth,
            host_key: HostKey::Known(host_key.trim().to_owned()),
        })
    }

    fn no_machine(&self, machine: &MachineName, observed: &Observed) -> InfraError {
        let lab = &self.store.name;
        let known: Vec<&str> = observed.machines.iter().map(|machine| machine.spec.name.as_str()).collect();
        let known =
            if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
        InfraError::new(InfraErrorKind::NotFound, format!("lab {lab} has no machine {machine}; {known}"))
    }

    fn remove(&self, fence: Fence) -> Result<()> {
        if !self.store.dir.exists() {
            return Ok(());
        }
        let name = &self.store.name;
        let _key = self.store.change(Key::Lab, fence)?;
        let lock = self.store.lock(Key::Network)?;
        if let Some(record) = self.store.records()?.first() {
            return Err(conflict(format!(
                "lab {name} still has machine {}; destroy it first",
                record.spec.name
            )));
        }
        if let Some(volume) = self.store.volume_names()?.first() {
            return Err(conflict(format!("lab {name} still has volume {volume}; remove it first")));
        }
        if !self.store.networks()?.sites.is_empty() {
            return Err(conflict(format!("lab {name} still has networks; remove them first")));
        }
        if let Some(left) = sweep::leftovers(&self.id, name)? {
            return Err(conflict(format!("{left}; destroy it first")));
        }
        let gone = disk::beside(&self.store.dir, ".gone");
        disk::remove_tree(&gone)?;
        disk::publish(&self.store.dir, &gone)?;
        drop(lock);
        disk::remove_tree(&gone)
    }
}

#[async_trait]
impl Infra for Lab {
    fn kind(&self) -> &'static str {
        "lab"
    }

    async fn ensure_networks(
        &self,
        fence: Fence,
        sites: &[SiteSpec],
        egress: Egress,
    ) -> Result<Vec<SiteNetwork>> {
        let sites = sites.to_vec();
        self.blocking(move |lab| lab.ensure_networks(fence, &sites, egress)).await
    }

    async fn remove_networks(&self, fence: Fence) -> Result<()> {
        self.blocking(move |lab| lab.remove_networks(fence)).await
    }

    async fn ensure_template(
        &self,
        fence: Fence,
        template: &TemplateSpec,
        progress: &dyn Progress,
    ) -> Result<()> {
        let template = template.clone();
        let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let work = self.blocking(move |lab| {
            // Nobody may be listening any more; that is no reason to stop.
            let say = |line| drop(said.send(line));
            lab.ensure_template(fence, &template, &say)
        });
        let listen = async {
            while let Some(line) = heard.recv().await {
                progress.say(&line);
            }
        };
        futures::future::join(work, listen).await.0
    }

    async fn create(&self, fence: Fence, machine: &MachineSpec) -> Result<ObservedMachine> {
        let machine = machine.clone();
        self.blocking(move |lab| lab.create(fence, &machine)).await
    }

    async fn destroy(&self, fence: Fence, machine: &MachineName) -> Result<()> {
        let machine = machine.clone();
        self.blocking(move |lab| lab.destroy(fence, &machine)).await
    }

    async fn power(&self, fence: Fence, machine: &MachineName, power: Power) -> Result<()> {
        let machine = machine.clone();
        self.blocking(move |lab| lab.power(fence, &machine, power)).await
    }

    async fn observe(&self) -> Result<Observed> {
        self.blocking(Inner::observe).await
    }

    async fn ensure_volume(&self, fence: Fence, volume: &VolumeName) -> Result<()> {
        let volume = volume.clone();
        self.blocking(move |lab| lab.ensure_volume(fence, &volume)).await
    }

    async fn remove_volume(&self, fence: Fence, volume: &VolumeName) -> Result<()> {
        let volume = volume.clone();
        self.blocking(move |lab| lab.remove_volume(fence, &volume)).await
    }

    async fn reserve_address(
        &self,
        fence: Fence,
        site: &SiteName,
        name: &AddressName,
    ) -> Result<AddressPair> {
        let (site, name) = (site.clone(), name.clone());
        self.blocking(move |lab| lab.reserve_address(fence, &site, &name)).await
    }

    async fn release_address(&self, fence: Fence, name: &AddressName) -> Result<()> {
        let name = name.clone();
        self.blocking(move |lab| lab.release_address(fence, &name)).await
    }

    async fn door(&self, machine: &MachineName) -> Result<Door> {
        let machine = machine.clone();
        self.blocking(move |lab| lab.door(&machine)).await
    }

    async fn close(&self, fence: Fence) -> Result<()> {
        self.blocking(move |lab| lab.remove(fence)).await
    }
}

/// Whether two public keys in OpenSSH's format are one, whatever their comments say.
fn same_key(one: &str, other: &str) -> bool {
    one.split_whitespace().take(2).eq(other.split_whitespace().take(2))
}

/// A directory's one true path; it is made if it is not there.
fn canonical(path: &Path) -> Result<PathBuf> {
    disk::make_dir(path)?;
    let path =
        std::fs::canonicalize(path).map_err(while_doing(format_args!("finding {}", path.display())))?;
    // These mean something else in the options of an overlay mount.
    match path.to_str() {
        Some(text) if !text.contains([',', ':', '\\', '"', '\n']) => Ok(path),
        _ => Err(invalid(format!(
            "{}: machines cannot be kept below a path with a comma, colon, quote or backslash; choose another directory",
            path.display()
        ))),
    }
}
