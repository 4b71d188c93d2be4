//! `guywire hosts`: machines that exist already, claimed and released by plans.

use std::{path::Path, process::ExitCode, sync::Arc};

use anyhow::{Context, bail};
use futures::future::join_all;
use guywire_machines::{
    Infra, InfraError, InfraErrorKind,
    hosts::{Hosts, installation_name},
    provision,
    ssh::ExecRequest,
};
use guywire_model::{
    HostNumber, HostSpec, Inventory, Login, MachineName, MachineSpec, SiteName, TemplateName, parse_inventory,
};
use guywire_secrets::Store;
use serde::Serialize;

use crate::{
    cli::{HostsCommand, Output},
    installation::Installation,
    lab,
    output::{self, Table, list},
    plans,
};

/// The largest inventory: tens of thousands of hosts would fit.
const MAX_FILE: u64 = 4 << 20;

/// The hosts of an inventory file as a place for plans.
pub fn open(installation: &Installation, file: &Path) -> Result<Arc<dyn Infra>, InfraError> {
    let unusable = |error: anyhow::Error| InfraError::new(InfraErrorKind::Invalid, format!("{error:#}"));
    let inventory = read(file).map_err(unusable)?;
    let secrets = Store::open(installation.data()).map_err(|error| unusable(error.into()))?;
    let name = installation_name(installation.data())?;
    Ok(Arc::new(Hosts::new(inventory, installation.pool(), Arc::new(secrets), installation.data(), name)))
}

pub fn read(file: &Path) -> anyhow::Result<Inventory> {
    let text = output::read_bounded(file, MAX_FILE)?;
    Ok(parse_inventory(&file.display().to_string(), &text)?)
}

pub async fn run(
    command: HostsCommand,
    installation: &Installation,
    output: Output,
) -> anyhow::Result<ExitCode> {
    match command {
        HostsCommand::List { inventory } => show(installation, &inventory.inventory, output).await,
        HostsCommand::Claim { inventory, hosts } => {
            change(installation, &inventory.inventory, &hosts, true).await
        }
        HostsCommand::Release { inventory, hosts } => {
            change(installation, &inventory.inventory, &hosts, false).await
        }
        HostsCommand::Ssh { inventory, host, command } => {
            let door = open(installation, &inventory.inventory)?.door(&host).await?;
            lab::run_remote(installation, &door, &command).await
        }
    }
}

async fn change(
    installation: &Installation,
    file: &Path,
    names: &[MachineName],
    claim: bool,
) -> anyhow::Result<ExitCode> {
    // Plans outlive this process and its working directory.
    let file = file.canonicalize().with_context(|| format!("{}: cannot be found", file.display()))?;
    let inventory = read(&file)?;
    let hosts: Vec<&HostSpec> = match names {
        [] => inventory.hosts.iter().collect(),
        names => {
            let find = |name: &MachineName| {
                let known =
                    || inventory.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ");
                inventory
                    .host(name)
                    .with_context(|| format!("{}: no host {name}; it has {}", file.display(), known()))
            };
            names.iter().map(find).collect::<anyhow::Result<_>>()?
        }
    };
    let infra = format!("hosts/{}", file.display());
    let engine = installation.engine().await?;
    lab::finish_earlier(&engine, &infra).await?;
    let observed = open(installation, &file)?.observe().await?;
    let plan = if claim {
        let machines: Vec<MachineSpec> = hosts.into_iter().map(machine).collect();
        provision::plan_claim(&infra, &machines, &observed)?
    } else {
        let names: Vec<MachineName> = hosts.into_iter().map(|host| host.name.clone()).collect();
        provision::plan_release(&infra, &names, &observed)?
    };
    let Some(plan) = plan else {
        eprintln!("nothing to do: {}", if claim { "they are ours already" } else { "none of them is ours" });
        return Ok(ExitCode::SUCCESS);
    };
    let id = engine.submit(&plan).await?;
    Ok(plans::code(plans::execute(&engine, id).await?))
}

/// A host as a machine: what the lab would choose has no meaning for it.
pub fn machine(host: &HostSpec) -> MachineSpec {
    MachineSpec {
        name: host.name.clone(),
        site: SiteName::new("hosts").expect("a valid constant"),
        number: HostNumber(0),
        template: TemplateName::new("host").expect("a valid constant"),
        login: Login { user: host.user.clone(), authorized_keys: Vec::new(), password: None },
        volumes: Vec::new(),
    }
}

#[derive(Serialize)]
struct Listed {
    host: MachineName,
    address: String,
    user: String,
    reachable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

async fn show(installation: &Installation, file: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let inventory = read(file)?;
    if inventory.hosts.is_empty() {
        bail!("{}: it lists no hosts", file.display());
    }
    let infra = open(installation, file)?;
    let pool = installation.pool();
    let looks = inventory.hosts.iter().map(|host| async {
        let answer = match infra.door(&host.name).await {
            Ok(door) => {
                pool.exec(&door, ExecRequest::argv(["true"])).await.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let problem = answer.err();
        let (address, user) = (format!("{}:{}", host.address, host.port), host.user.clone());
        Listed { host: host.name.clone(), address, user, reachable: problem.is_none(), problem }
    });
    let hosts = join_all(looks).await;
    let mut table = Table::new(["HOST", "ADDRESS", "USER", "STATE"]);
    for host in &hosts {
        let state = host.problem.clone().unwrap_or_else(|| "reachable".to_owned());
        table.row([host.host.to_string(), host.address.clone(), host.user.clone(), state]);
    }
    list(output, &hosts, &table, "no hosts")?;
    Ok(if hosts.iter().all(|host| host.reachable) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
