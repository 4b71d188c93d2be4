//! The tasks of machine plans, each a thin way from the engine to an [`Infra`].

use std::{sync::Arc, time::Duration};

use guywire_model::{
    AddressName, Egress, MachineName, MachineSpec, ObservedMachine, Power, PowerState, SiteNetwork, SiteSpec,
    TemplateSpec, VolumeName,
};
use guywire_plan::{Context, Handler, Handlers, Probe, Retry, TaskError};
use serde::{Deserialize, Serialize};

use super::Infras;
use crate::{Infra, InfraError, Progress, ssh::Pool};

/// How long a machine may take from power on until SSH answers.
const READY: Duration = Duration::from_secs(120);

/// What all handlers of machines share.
#[derive(Clone)]
pub struct Machines {
    /// Opens the place that a task names.
    pub infras: Arc<dyn Infras>,
    /// Connections to machines.
    pub pool: Pool,
}

/// Adds the handlers of machine plans.
pub fn handlers(handlers: Handlers, machines: &Machines) -> Handlers {
    handlers
        .with(EnsureTemplate(machines.clone()))
        .with(EnsureNetworks(machines.clone()))
        .with(EnsureVolume(machines.clone()))
        .with(CreateMachine(machines.clone()))
        .with(SwitchPower(machines.clone()))
        .with(AwaitReady(machines.clone()))
        .with(DestroyMachine(machines.clone()))
        .with(RemoveVolume(machines.clone()))
        .with(ReleaseAddress(machines.clone()))
        .with(RemoveNetworks(machines.clone()))
        .with(Close(machines.clone()))
}

/// Makes what machines start from.
pub(super) struct EnsureTemplate(Machines);
/// Makes the sites' networks.
pub(super) struct EnsureNetworks(Machines);
/// Makes a volume.
pub(super) struct EnsureVolume(Machines);
/// Makes a machine, powered off.
pub(super) struct CreateMachine(Machines);
/// Turns a machine's power switch.
pub(super) struct SwitchPower(Machines);
/// Waits until a machine answers SSH and lets us in.
pub(super) struct AwaitReady(Machines);
/// Destroys a machine.
pub(super) struct DestroyMachine(Machines);
/// Removes a volume and what is on it.
pub(super) struct RemoveVolume(Machines);
/// Gives a reserved address back.
pub(super) struct ReleaseAddress(Machines);
/// Removes all networks.
pub(super) struct RemoveNetworks(Machines);
/// Forgets the place.
pub(super) struct Close(Machines);

/// An operation on one thing in a place.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct In<T> {
    pub infra: String,
    pub what: T,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Networks {
    pub sites: Vec<SiteSpec>,
    pub egress: Egress,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Switch {
    pub machine: MachineName,
    pub power: Power,
}

impl Machines {
    fn infra(&self, name: &str) -> Result<Arc<dyn Infra>, TaskError> {
        self.infras.open(name).map_err(|error| failed(&error))
    }

    async fn machine(&self, infra: &str, name: &MachineName) -> Result<Option<ObservedMachine>, TaskError> {
        let observed = self.infra(infra)?.observe().await.map_err(|error| failed(&error))?;
        Ok(observed.machine(name).cloned())
    }
}

/// An infrastructure's error with its causes, as a task's reason.
fn failed(error: &InfraError) -> TaskError {
    TaskError { reason: with_causes(error), retry: error.retry() }
}

/// An error and all that lies beneath it on one line; none repeats its source.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Lines of a long operation, told to the journal.
struct Words<'a>(&'a Context);

impl Progress for Words<'_> {
    fn say(&self, line: &str) {
        self.0.say(line);
    }
}

impl Handler for EnsureTemplate {
    const NAME: &'static str = "machines.template";
    const VERSION: u32 = 1;
    // A base system is downloaded and unpacked: minutes on a slow line.
    const TIMEOUT: Duration = Duration::from_secs(1800);
    type Input = In<TemplateSpec>;
    type Output = ();

    async fn probe(&self, _: &Context, _: &Self::Input) -> Result<Probe<()>, TaskError> {
        // Whether it is there is a look at the disk that `apply` takes anyway.
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let infra = self.0.infra(&input.infra)?;
        let made = infra.ensure_template(context.fence(), &input.what, &Words(context)).await;
        made.map_err(|error| failed(&error))
    }
}

impl Handler for EnsureNetworks {
    const NAME: &'static str = "machines.networks";
    const VERSION: u32 = 1;
    type Input = In<Networks>;
    type Output = Vec<SiteNetwork>;

    async fn probe(&self, _: &Context, _: &Self::Input) -> Result<Probe<Self::Output>, TaskError> {
        // The networks' firewall and egress are compared by `apply`, which changes only what differs.
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<Self::Output, TaskError> {
        let Networks { sites, egress } = &input.what;
        let made = self.0.infra(&input.infra)?.ensure_networks(context.fence(), sites, *egress).await;
        made.map_err(|error| failed(&error))
    }

    async fn undo(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let infra = self.0.infra(&input.infra)?;
        let observed = infra.observe().await.map_err(|error| failed(&error))?;
        // A plan that only added machines to a place leaves its networks to the others.
        if !observed.machines.is_empty() || !observed.reserved.is_empty() {
            return Ok(());
        }
        infra.remove_networks(context.fence()).await.map_err(|error| failed(&error))?;
        if observed.volumes.is_empty() {
            infra.close(context.fence()).await.map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

impl Handler for EnsureVolume {
    const NAME: &'static str = "machines.volume";
    const VERSION: u32 = 1;
    type Input = In<VolumeName>;
    type Output = ();

    async fn probe(&self, _: &Context, input: &Self::Input) -> Result<Probe<()>, TaskError> {
        let observed = self.0.infra(&input.infra)?.observe().await.map_err(|error| failed(&error))?;
        Ok(if observed.volumes.contains(&input.what) { Probe::Satisfied(()) } else { Probe::Needed })
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let made = self.0.infra(&input.infra)?.ensure_volume(context.fence(), &input.what).await;
        made.map_err(|error| failed(&error))
    }
}

impl Handler for CreateMachine {
    const NAME: &'static str = "machines.create";
    const VERSION: u32 = 1;
    type Input = In<MachineSpec>;
    type Output = ();

    async fn probe(&self, _: &Context, _: &Self::Input) -> Result<Probe<()>, TaskError> {
        // `create` is keyed: it finds what it made, and finishes what is half made.
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let made = self.0.infra(&input.infra)?.create(context.fence(), &input.what).await;
        made.map(drop).map_err(|error| failed(&error))
    }

    async fn undo(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let gone = self.0.infra(&input.infra)?.destroy(context.fence(), &input.what.name).await;
        gone.map_err(|error| failed(&error))
    }
}

impl Handler for SwitchPower {
    const NAME: &'static str = "machines.power";
    const VERSION: u32 = 1;
    type Input = In<Switch>;
    type Output = ();

    async fn probe(&self, _: &Context, input: &Self::Input) -> Result<Probe<()>, TaskError> {
        let Switch { machine, power } = &input.what;
        let wanted = if *power == Power::On { PowerState::Running } else { PowerState::Off };
        let there = self.0.machine(&input.infra, machine).await?;
        Ok(match there {
            Some(there) if there.power == wanted => Probe::Satisfied(()),
            _ => Probe::Needed,
        })
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let Switch { machine, power } = &input.what;
        let turned = self.0.infra(&input.infra)?.power(context.fence(), machine, *power).await;
        turned.map_err(|error| failed(&error))
    }
}

impl Handler for AwaitReady {
    const NAME: &'static str = "machines.ready";
    const VERSION: u32 = 1;
    const TIMEOUT: Duration = Duration::from_secs(READY.as_secs() + 10);
    const RETRY: Retry = Retry { tries: 2, first_ms: 500, most_ms: 500 };
    type Input = In<MachineName>;
    type Output = ();

    async fn probe(&self, _: &Context, _: &Self::Input) -> Result<Probe<()>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let door = self.0.infra(&input.infra)?.door(&input.what).await.map_err(|error| failed(&error))?;
        // A connection to the machine as it was before looks open until the network finds out.
        self.0.pool.forget(&door);
        tokio::select! {
            ready = self.0.pool.wait_ready(&door, READY) => {
                ready.map_err(|error| TaskError { reason: with_causes(&error), retry: error.retry() })
            }
            () = context.stop().cancelled() => Err(TaskError::retry("stopped while waiting")),
        }
    }
}

impl Handler for DestroyMachine {
    const NAME: &'static str = "machines.destroy";
    const VERSION: u32 = 1;
    const GUARDED: bool = true;
    const IRREVERSIBLE: bool = true;
    type Input = In<MachineName>;
    type Output = ();

    async fn probe(&self, _: &Context, input: &Self::Input) -> Result<Probe<()>, TaskError> {
        // What is half made has no record; destroying it again is what removes the rest.
        self.0.machine(&input.infra, &input.what).await?;
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let gone = self.0.infra(&input.infra)?.destroy(context.fence(), &input.what).await;
        gone.map_err(|error| failed(&error))
    }

    async fn verify(&self, _: &Context, input: &Self::Input, (): &()) -> Result<(), TaskError> {
        match self.0.machine(&input.infra, &input.what).await? {
            None => Ok(()),
            Some(_) => Err(TaskError::retry(format!("machine {} is still there", input.what))),
        }
    }
}

impl Handler for RemoveVolume {
    const NAME: &'static str = "machines.remove-volume";
    const VERSION: u32 = 1;
    const IRREVERSIBLE: bool = true;
    type Input = In<VolumeName>;
    type Output = ();

    async fn probe(&self, _: &Context, input: &Self::Input) -> Result<Probe<()>, TaskError> {
        let observed = self.0.infra(&input.infra)?.observe().await.map_err(|error| failed(&error))?;
        Ok(if observed.volumes.contains(&input.what) { Probe::Needed } else { Probe::Satisfied(()) })
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let gone = self.0.infra(&input.infra)?.remove_volume(context.fence(), &input.what).await;
        gone.map_err(|error| failed(&error))
    }
}

impl Handler for ReleaseAddress {
    const NAME: &'static str = "machines.release-address";
    const VERSION: u32 = 1;
    type Input = In<AddressName>;
    type Output = ();

    async fn probe(&self, _: &Context, _: &Self::Input) -> Result<Probe<()>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let gone = self.0.infra(&input.infra)?.release_address(context.fence(), &input.what).await;
        gone.map_err(|error| failed(&error))
    }
}

impl Handler for RemoveNetworks {
    const NAME: &'static str = "machines.remove-networks";
    const VERSION: u32 = 1;
    type Input = In<()>;
    type Output = ();

    async fn probe(&self, _: &Context, _: &Self::Input) -> Result<Probe<()>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        let gone = self.0.infra(&input.infra)?.remove_networks(context.fence()).await;
        gone.map_err(|error| failed(&error))
    }
}

impl Handler for Close {
    const NAME: &'static str = "machines.close";
    const VERSION: u32 = 1;
    type Input = In<()>;
    type Output = ();

    async fn probe(&self, _: &Context, _: &Self::Input) -> Result<Probe<()>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &Self::Input) -> Result<(), TaskError> {
        self.0.infra(&input.infra)?.close(context.fence()).await.map_err(|error| failed(&error))
    }
}
