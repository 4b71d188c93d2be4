//! `guywire secret`: names are shown, values never.

use std::{io::Read, process::ExitCode};

use anyhow::{Context, bail};
use guywire_secrets::{Secret, SecretRef};
use serde::Serialize;

use crate::{
    cli::{Output, SecretCommand},
    installation::Installation,
    output::{Table, list},
};

/// The longest value: a certificate chain fits many times over.
const MAX: u64 = 1 << 20;

#[derive(Serialize)]
struct Entry {
    name: String,
    reference: String,
}

pub fn run(command: SecretCommand, installation: &Installation, output: Output) -> anyhow::Result<ExitCode> {
    let store = installation.secrets()?;
    let reference = |name: &str| -> anyhow::Result<SecretRef> { Ok(format!("secret:{name}").parse()?) };
    match command {
        SecretCommand::Set { name } => {
            let reference = reference(&name)?;
            let mut value = Vec::new();
            std::io::stdin()
                .lock()
                .take(MAX + 1)
                .read_to_end(&mut value)
                .context("standard input cannot be read")?;
            if value.len() as u64 > MAX {
                bail!("secret {name}: the value is larger than {MAX} bytes");
            }
            // `echo secret | guywire secret set` is what people type; the newline is not part of it.
            if value.last() == Some(&b'\n') {
                value.pop();
            }
            if value.is_empty() {
                bail!(
                    "secret {name}: no value; give it on standard input, as in `guywire secret set {name} < FILE`"
                );
            }
            store.set(&reference, Secret::new(value))?;
            println!("kept; refer to it as {reference}");
        }
        SecretCommand::List => {
            let names = store.list()?;
            let mut table = Table::new(["NAME", "REFERENCE"]);
            let entry = |name: String| Entry { reference: format!("secret:{name}"), name };
            let entries: Vec<Entry> = names.into_iter().map(entry).collect();
            for entry in &entries {
                table.row([entry.name.clone(), entry.reference.clone()]);
            }
            list(output, &entries, &table, "no secrets; keep one with `guywire secret set NAME`")?;
        }
        SecretCommand::Rm { name } => {
            if !store.remove(&reference(&name)?)? {
                bail!("there is no secret {name}; `guywire secret list` shows those that are");
            }
            println!("forgotten");
        }
    }
    Ok(ExitCode::SUCCESS)
}
