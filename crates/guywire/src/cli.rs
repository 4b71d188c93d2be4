//! The command line: what can be asked, and who answers.

pub mod access;
pub mod manager;
pub mod package;
pub mod records;
pub mod target;
pub mod vnf;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand, ValueEnum};
use guywire_model::{LabName, MachineName};
use guywire_plan::PlanId;

use self::{
    access::{ContextCommand, Login, TokenCommand},
    package::PackageCommand,
    records::{AlarmCommand, OpCommand, SubscriptionCommand, VimCommand},
    target::Target,
    vnf::VnfCommand,
};
use crate::{
    alarm, client::Client, hosts, installation::Installation, lab, login, op, package as packages, plans,
    reference, secrets, subscription, vim, vnf as vnfs,
};

/// Highly available Kubernetes for telecom sites: kill anything, at any moment, and nothing is lost and
/// nothing happens twice.
#[derive(Debug, Parser)]
#[command(name = "guywire", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
pub struct Global {
    /// The data directory [default: /var/lib/guywire for root, else the user's data directory]
    #[arg(long, global = true, env = "GUYWIRE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where base systems are cached [default: templates in the data directory]
    #[arg(long, global = true, env = "GUYWIRE_TEMPLATES", value_name = "DIR", hide_env_values = true)]
    pub templates: Option<PathBuf>,
    /// Keep plans in this `PostgreSQL` database, which several processes may share. A password belongs into
    /// the environment variable or a password file, not on the command line
    #[arg(long, global = true, env = "GUYWIRE_DATABASE", value_name = "URL", hide_env_values = true)]
    pub database: Option<String>,
    /// How lists are printed
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub output: Output,
}

/// How lists are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Machines on this host, made out of namespaces
    #[command(subcommand)]
    Lab(LabCommand),
    /// Existing machines from an inventory file, reached by SSH
    #[command(subcommand)]
    Hosts(HostsCommand),
    /// Plans: what is being done, was done, and how it went
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Secrets, which everything else refers to by name
    #[command(subcommand)]
    Secret(SecretCommand),
    /// The VNF manager
    #[command(subcommand)]
    Manager(manager::ManagerCommand),
    /// Packages: what a manager can make instances of
    Package {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: PackageCommand,
    },
    /// VNF instances and their lives
    Vnf {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: VnfCommand,
    },
    /// Operations: what is being done to instances, was done, and how it went
    Op {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: OpCommand,
    },
    /// Places that make machines
    Vim {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: VimCommand,
    },
    /// Who is told of changes, and how that goes
    Subscription {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: SubscriptionCommand,
    },
    /// What a person should know
    Alarm {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: AlarmCommand,
    },
    /// Who is let in to a manager
    Token {
        #[command(flatten)]
        target: Target,
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Remember a manager and a token for it, which is read from standard input
    Login(Login),
    /// Managers that `guywire login` remembers
    #[command(subcommand)]
    Context(ContextCommand),
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print this reference as Markdown
    #[command(hide = true)]
    Reference,
    /// Become a lab machine
    #[command(hide = true)]
    MachineInit {
        /// What to become
        spec: PathBuf,
    },
    /// Become the sandbox of a package's script
    #[command(hide = true)]
    Sandbox {
        /// What to run in it
        spec: std::ffi::OsString,
    },
}

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Bring a lab up, or what is missing of it
    Up {
        #[command(flatten)]
        lab: Name,
        /// How many machines, named m1, m2, …
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=189))]
        machines: u16,
        /// Sites, machines, addresses and templates from a file instead
        #[arg(long, short, value_name = "FILE", conflicts_with_all = ["machines", "name"])]
        file: Option<PathBuf>,
        /// Let machines reach the world outside through this host
        #[arg(long)]
        nat: bool,
    },
    /// Labs and their machines
    List,
    /// Run a command in a machine, or open a shell
    Ssh {
        #[command(flatten)]
        lab: Name,
        /// The machine
        machine: MachineName,
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Cut a machine's power: off the network first, then every process at once
    Cut {
        #[command(flatten)]
        lab: Name,
        /// The machine
        machine: MachineName,
    },
    /// Boot a machine with its disk as it was
    Boot {
        #[command(flatten)]
        lab: Name,
        /// The machine
        machine: MachineName,
    },
    /// Remove a machine and its disk
    Rm {
        #[command(flatten)]
        lab: Name,
        /// The machine
        machine: MachineName,
    },
    /// Take a lab down: machines, volumes, networks
    Down {
        #[command(flatten)]
        lab: Name,
    },
    /// Remove all that labs under the data directory have left in the kernel and on disk, whole or not
    Sweep,
}

#[derive(Debug, Subcommand)]
pub enum HostsCommand {
    /// Hosts of an inventory, and whether each can be reached
    List {
        #[command(flatten)]
        inventory: Inventory,
    },
    /// Claim hosts for this installation
    Claim {
        #[command(flatten)]
        inventory: Inventory,
        /// The hosts; all of the inventory if none is named
        hosts: Vec<MachineName>,
    },
    /// Release hosts: our files on them go, the hosts stay
    Release {
        #[command(flatten)]
        inventory: Inventory,
        /// The hosts; all of the inventory if none is named
        hosts: Vec<MachineName>,
    },
    /// Run a command on a host
    Ssh {
        #[command(flatten)]
        inventory: Inventory,
        /// The host
        host: MachineName,
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Plans, the newest first
    List {
        /// How many
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// One plan with its phases and tasks
    Show {
        /// The plan's number
        plan: PlanId,
    },
    /// Follow a plan until it ends
    Watch {
        /// The plan's number
        plan: PlanId,
    },
    /// Go on with a plan that was interrupted, failed or cancelled
    Resume {
        /// The plan's number
        plan: PlanId,
    },
    /// Stop a plan: running tasks end, none starts
    Cancel {
        /// The plan's number
        plan: PlanId,
        /// Stop running tasks too
        #[arg(long)]
        force: bool,
        /// Take back what was done
        #[arg(long)]
        undo: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Keep a secret; its value is read from standard input
    Set {
        /// Its name; elsewhere it is referred to as secret:NAME
        name: String,
    },
    /// Names of secrets, never their values
    List,
    /// Forget a secret
    Rm {
        /// Its name
        name: String,
    },
}

/// Which lab.
#[derive(Debug, Args)]
pub struct Name {
    /// The lab's name
    #[arg(long, default_value = "lab")]
    pub name: LabName,
}

/// Which inventory.
#[derive(Debug, Args)]
pub struct Inventory {
    /// The inventory file
    #[arg(long, short, value_name = "FILE")]
    pub inventory: PathBuf,
}

/// Runs the command.
pub async fn dispatch(arguments: Cli) -> anyhow::Result<ExitCode> {
    let Cli { global, command } = arguments;
    match command {
        Command::Completion { shell } => {
            reference::completion(shell);
            Ok(ExitCode::SUCCESS)
        }
        Command::Reference => {
            reference::print();
            Ok(ExitCode::SUCCESS)
        }
        Command::Lab(command) => lab::run(command, &Installation::new(&global)?, global.output).await,
        Command::Hosts(command) => hosts::run(command, &Installation::new(&global)?, global.output).await,
        Command::Plan(command) => plans::run(command, &Installation::new(&global)?, global.output).await,
        Command::Secret(command) => secrets::run(command, &Installation::new(&global)?, global.output),
        Command::Manager(command) => crate::manager::run(command, &Installation::new(&global)?).await,
        Command::Package { target, command } => packages::run(command, &target, &global).await,
        Command::Vnf { target, command } => {
            vnfs::run(command, &Client::find(&target, &global)?, global.output).await
        }
        Command::Op { target, command } => {
            op::run(command, &Client::find(&target, &global)?, global.output).await
        }
        Command::Vim { target, command } => {
            vim::run(command, &Client::find(&target, &global)?, global.output).await
        }
        Command::Subscription { target, command } => {
            subscription::run(command, &Client::find(&target, &global)?, global.output).await
        }
        Command::Alarm { target, command } => {
            alarm::run(command, &Client::find(&target, &global)?, global.output).await
        }
        Command::Token { target, command } => {
            login::tokens(command, &Client::find(&target, &global)?, global.output).await
        }
        Command::Login(login) => login::login(&login).await,
        Command::Context(command) => login::contexts(command, global.output),
        Command::MachineInit { .. } | Command::Sandbox { .. } => {
            unreachable!("handled before any thread was started")
        }
    }
}
