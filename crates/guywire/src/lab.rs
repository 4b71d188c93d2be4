//! `guywire lab`: machines on this host, each change of them a plan.

use std::{
    io::{IsTerminal, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::ExitCode,
};

use anyhow::bail;
use guywire_machines::{
    Infra, Lab, provision,
    ssh::{Auth, Door, ExecRequest, HostKey, Stream},
};
use guywire_model::{Egress, LabName, LabSpec, MachineName, Power, PowerState, parse_lab_file};
use guywire_plan::{Engine, Plan, PlanState};
use serde::Serialize;

use crate::{
    cli::{LabCommand, Output},
    installation::Installation,
    output::{self, Table, list},
    plans,
};

/// The largest lab file: thousands of machines would fit.
const MAX_FILE: u64 = 1 << 20;

pub async fn run(
    command: LabCommand,
    installation: &Installation,
    output: Output,
) -> anyhow::Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!("labs are made of namespaces, cgroups and bridges, which needs root; run guywire with sudo");
    }
    match command {
        LabCommand::Up { lab, machines, file, nat } => {
            let login = installation.default_login()?;
            let egress = if nat { Egress::Nat } else { Egress::None };
            let mut spec = match file {
                Some(file) => read_lab_file(&file, &login)?,
                None => LabSpec::of_machines(lab.name, usize::from(machines), egress, &login),
            };
            if nat {
                spec.egress = Egress::Nat;
            }
            up(installation, &spec).await
        }
        LabCommand::List => show_labs(installation, output).await,
        LabCommand::Ssh { lab, machine, command } => ssh(installation, &lab.name, &machine, &command).await,
        LabCommand::Cut { lab, machine } => power(installation, &lab.name, &machine, Power::Cut).await,
        LabCommand::Boot { lab, machine } => power(installation, &lab.name, &machine, Power::On).await,
        LabCommand::Rm { lab, machine } => {
            change(installation, &lab.name, async |infra, lab| {
                Ok(Some(provision::plan_remove(infra, &machine, &lab.observe().await?)?))
            })
            .await
        }
        LabCommand::Down { lab } => {
            // First, since the last thing that a plan to take the lab down does is to forget it.
            finish_earlier(&installation.engine().await?, &subject(&lab.name)).await?;
            if !Lab::list(installation.data())?.contains(&lab.name) {
                eprintln!("there is no lab {}", lab.name);
                return Ok(ExitCode::SUCCESS);
            }
            change(installation, &lab.name, async |infra, lab| {
                Ok(Some(provision::plan_down(infra, &lab.observe().await?)?))
            })
            .await
        }
        LabCommand::Sweep => {
            let swept = guywire_machines::sweep(installation.data())?;
            if swept.is_empty() {
                println!("nothing was left");
            }
            for (what, names) in [
                ("machine", swept.machines),
                ("interface", swept.links),
                ("firewall table", swept.tables),
                ("lab", swept.labs),
            ] {
                for name in names {
                    println!("removed {what} {name}");
                }
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn read_lab_file(file: &Path, login: &guywire_model::Login) -> anyhow::Result<LabSpec> {
    let text = output::read_bounded(file, MAX_FILE)?;
    Ok(parse_lab_file(&file.display().to_string(), &text, login)?)
}

async fn up(installation: &Installation, spec: &LabSpec) -> anyhow::Result<ExitCode> {
    let code = change(installation, &spec.name, async |infra, lab| {
        Ok(provision::plan_up(infra, spec, &lab.observe().await?)?)
    })
    .await?;
    if code == ExitCode::SUCCESS {
        show_labs(installation, Output::Table).await?;
    }
    Ok(code)
}

async fn power(
    installation: &Installation,
    lab: &LabName,
    machine: &MachineName,
    power: Power,
) -> anyhow::Result<ExitCode> {
    let engine = installation.engine().await?;
    let plan =
        provision::plan_power(&subject(lab), machine, power, &installation.lab(lab)?.observe().await?)?;
    let id = engine.submit(&plan).await?;
    Ok(plans::code(plans::execute(&engine, id).await?))
}

fn subject(lab: &LabName) -> String {
    format!("lab/{lab}")
}

/// Finishes what an earlier command has left unfinished, then plans from what is there and executes.
async fn change(
    installation: &Installation,
    name: &LabName,
    plan: impl AsyncFn(&str, &Lab) -> anyhow::Result<Option<Plan>>,
) -> anyhow::Result<ExitCode> {
    let engine = installation.engine().await?;
    let infra = subject(name);
    finish_earlier(&engine, &infra).await?;
    let lab = installation.lab(name)?;
    let Some(plan) = plan(&infra, &lab).await? else {
        eprintln!("{infra} is as it should be");
        return Ok(ExitCode::SUCCESS);
    };
    let id = engine.submit(&plan).await?;
    Ok(plans::code(plans::execute(&engine, id).await?))
}

/// A plan that was interrupted goes on to its end first; so does one that stopped with locks in its hand.
pub async fn finish_earlier(engine: &Engine, subject: &str) -> anyhow::Result<()> {
    let journal = engine.journal();
    let Some(latest) = journal.latest(subject).await? else { return Ok(()) };
    let holds = async || -> anyhow::Result<bool> {
        Ok(journal.locks().await?.iter().any(|lock| lock.plan == latest.id))
    };
    if latest.state.is_resumable() && holds().await? {
        eprintln!("plan {} ({}) stopped half way; going on with it first", latest.id, latest.title);
        engine.resume(latest.id).await?;
    } else if latest.state.is_active() {
        eprintln!("plan {} ({}) is unfinished; going on with it first", latest.id, latest.title);
    } else {
        return Ok(());
    }
    let state = plans::execute(engine, latest.id).await?;
    if state == PlanState::Failed {
        bail!("plan {} failed again; `guywire plan show {}` tells where", latest.id, latest.id);
    }
    Ok(())
}

#[derive(Serialize)]
struct Listed {
    lab: LabName,
    site: String,
    machine: MachineName,
    state: PowerState,
    ipv4: String,
    ipv6: String,
    template: String,
}

async fn show_labs(installation: &Installation, output: Output) -> anyhow::Result<ExitCode> {
    let mut machines = Vec::new();
    for name in Lab::list(installation.data())? {
        let observed = installation.lab(&name)?.observe().await?;
        machines.extend(observed.machines.into_iter().map(|machine| Listed {
            lab: name.clone(),
            site: machine.spec.site.to_string(),
            machine: machine.spec.name,
            state: machine.power,
            ipv4: machine.addresses.v4.to_string(),
            ipv6: machine.addresses.v6.to_string(),
            template: machine.spec.template.to_string(),
        }));
    }
    let mut table = Table::new(["LAB", "SITE", "MACHINE", "STATE", "IPV4", "IPV6", "TEMPLATE"]);
    for row in &machines {
        let state = if row.state == PowerState::Running { "running" } else { "off" };
        table.row([
            row.lab.to_string(),
            row.site.clone(),
            row.machine.to_string(),
            state.to_owned(),
            row.ipv4.clone(),
            row.ipv6.clone(),
            row.template.clone(),
        ]);
    }
    list(output, &machines, &table, "no machines; `guywire lab up --machines 5` makes some")?;
    Ok(ExitCode::SUCCESS)
}

async fn ssh(
    installation: &Installation,
    lab: &LabName,
    machine: &MachineName,
    command: &[String],
) -> anyhow::Result<ExitCode> {
    let door = installation.lab(lab)?.door(machine).await?;
    if command.is_empty() {
        return shell(installation, &door);
    }
    run_remote(installation, &door, command).await
}

/// Runs a command through the connection pool and passes its output and exit code on.
pub async fn run_remote(
    installation: &Installation,
    door: &Door,
    command: &[String],
) -> anyhow::Result<ExitCode> {
    // One word is a line for the shell there, as with ssh; several are an argument each.
    let request = match command {
        [line] => ExecRequest::script(line),
        words => ExecRequest::argv(words),
    };
    let request = request.timeout(std::time::Duration::from_secs(24 * 3600));
    let mut pass_on = |stream: Stream, bytes: &[u8]| {
        let written = match stream {
            Stream::Out => std::io::stdout().write_all(bytes),
            Stream::Err => std::io::stderr().write_all(bytes),
        };
        // A reader that has gone away (`| head`) is no reason to stop the command half way.
        drop(written);
    };
    let code = installation.pool().exec_streaming(door, request, &mut pass_on).await?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// An interactive shell is the ssh client's trade: it has the terminal.
fn shell(installation: &Installation, door: &Door) -> anyhow::Result<ExitCode> {
    let (Auth::KeyFile(key), HostKey::Known(host_key)) = (&door.auth, &door.host_key) else {
        bail!(
            "machine {} is entered with a password; give a command, or use ssh {}@{}",
            door.machine,
            door.user,
            door.host
        );
    };
    if !std::io::stdin().is_terminal() {
        bail!("there is no terminal for a shell; give a command: guywire lab ssh {} COMMAND", door.machine);
    }
    let known = installation.data().join("shell_known_hosts");
    std::fs::write(&known, format!("guywire-shell {host_key}\n"))?;
    let error = std::process::Command::new("ssh")
        .arg("-i")
        .arg(key)
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", known.display()))
        .args([
            "-o",
            "HostKeyAlias=guywire-shell",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "IdentitiesOnly=yes",
        ])
        .arg(format!("{}@{}", door.user, door.host))
        .exec();
    Err(anyhow::Error::new(error).context("the ssh client could not be started; install openssh-client"))
}
