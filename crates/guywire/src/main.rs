//! The one binary: it parses, builds a typed configuration, runs, and turns the result into an exit code.

mod alarm;
mod cli;
mod client;
mod hosts;
mod installation;
mod lab;
mod login;
mod manager;
mod op;
mod output;
mod package;
mod plans;
mod progress;
mod reference;
mod secrets;
mod show;
mod subscription;
mod vim;
mod vnf;
mod works;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = match cli::Cli::try_parse() {
        Ok(arguments) => arguments,
        // Help and version are answers, everything else is usage: clap's own exit code 2.
        Err(error) => error.exit(),
    };
    // A machine's first process, a sandbox's: they change namespaces, so no thread may have been started.
    let error = match &arguments.command {
        cli::Command::MachineInit { spec } => guywire_machines::machine_init(spec).err().map(Into::into),
        cli::Command::Sandbox { spec } => guywire_roles::sandbox::sandbox(spec).err().map(Into::into),
        _ => None,
    };
    if let Some(error) = error {
        return output::failure(&error);
    }
    match run(arguments) {
        Ok(code) => code,
        Err(error) => output::failure(&error),
    }
}

fn run(arguments: cli::Cli) -> anyhow::Result<ExitCode> {
    log(&arguments.command);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(cli::dispatch(arguments));
    // What still runs has nothing left to say: a thread that blocks must not delay the exit.
    runtime.shutdown_background();
    code
}

/// Commands say what they do on their own; a daemon has nothing but its log.
fn log(command: &cli::Command) {
    let (level, format) = match command {
        cli::Command::Manager(cli::manager::ManagerCommand::Serve(options)) => ("info", options.log),
        _ => ("warn", cli::manager::LogFormat::Text),
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("GUYWIRE_LOG").unwrap_or_else(|_| level.into());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr);
    match format {
        cli::manager::LogFormat::Text => log.init(),
        cli::manager::LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
