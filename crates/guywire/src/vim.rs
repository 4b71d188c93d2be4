//! `guywire vim`: places that make machines.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};

use crate::{
    cli::{Output, records::VimCommand},
    client::{
        Client, params,
        resolve::{self, VIM},
    },
    output::{Table, details, list, text},
};

pub async fn run(command: VimCommand, client: &Client, output: Output) -> anyhow::Result<ExitCode> {
    match command {
        VimCommand::Register { name, kind, interface, access, description, default } => {
            let mut vim = Map::new();
            vim.insert("name".to_owned(), name.into());
            vim.insert("type".to_owned(), kind.into());
            vim.extend(description.map(|text| ("description".to_owned(), Value::String(text))));
            vim.insert("is_default".to_owned(), default.into());
            connection(&mut vim, &interface, &access)?;
            let answer = client.post(VIM.path, &json!({"vim": vim})).await?.body;
            details(output, &answer["vim"], &lines(&answer["vim"]))?;
        }
        VimCommand::List => {
            let vims = resolve::vims(client).await?;
            let mut table = Table::new(["ID", "NAME", "TYPE", "DEFAULT", "STATUS"]);
            for vim in &vims {
                let default = if vim["is_default"] == true { "yes" } else { "" };
                table.row([
                    text(&vim["id"]),
                    text(&vim["name"]),
                    text(&vim["type"]),
                    default.to_owned(),
                    text(&vim["status"]),
                ]);
            }
            list(output, &vims, &table, "no VIMs; register one with `guywire vim register`")?;
        }
        VimCommand::Show { vim } => {
            let id = resolve::id(client, VIM, &vim).await?;
            let answer = client.get(&path(&id), &[]).await?;
            details(output, &answer["vim"], &lines(&answer["vim"]))?;
        }
        VimCommand::Set { vim, name, description, default, interface, access } => {
            let mut changes = Map::new();
            changes.extend(name.map(|text| ("name".to_owned(), Value::String(text))));
            changes.extend(description.map(|text| ("description".to_owned(), Value::String(text))));
            if default {
                changes.insert("is_default".to_owned(), true.into());
            }
            connection(&mut changes, &interface, &access)?;
            if changes.is_empty() {
                bail!(
                    "nothing is to be changed; name it with --name, --description, --default, --interface or --access"
                );
            }
            let id = resolve::id(client, VIM, &vim).await?;
            let answer = client.put(&path(&id), &json!({"vim": changes})).await?.body;
            details(output, &answer["vim"], &lines(&answer["vim"]))?;
        }
        VimCommand::Delete { vims } => {
            for vim in vims {
                let id = resolve::id(client, VIM, &vim).await?;
                client.delete(&path(&id)).await.with_context(|| format!("VIM {id} is not deleted"))?;
                println!("{id}  deleted");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn path(id: &str) -> String {
    format!("{}/{id}", VIM.path)
}

/// What the kind needs to know, and credentials. A secret is never an option's value: other users see command lines.
fn connection(vim: &mut Map<String, Value>, interface: &[String], access: &[String]) -> anyhow::Result<()> {
    if !interface.is_empty() {
        let mut object = Map::new();
        params::add(&mut object, "--interface", interface)?;
        // The registry has a place of its own for the address of a cluster.
        vim.extend(object.remove("endpoint").map(|endpoint| ("auth_url".to_owned(), endpoint)));
        vim.insert("interface".to_owned(), Value::Object(object));
    }
    for pair in access {
        let (key, value) = params::split("--access", pair)?;
        if !value.starts_with('@') && !value.starts_with("secret:") && key != "username" {
            bail!(
                "--access {key}: every process of this host can read a command line; write --access {key}=@FILE or {key}=secret:NAME"
            );
        }
    }
    if !access.is_empty() {
        vim.insert("auth_cred".to_owned(), Value::Object(params::texts("--access", access)?));
    }
    Ok(())
}

fn lines(vim: &Value) -> Vec<(&'static str, String)> {
    let get = |name: &str| text(&vim[name]);
    vec![
        ("id", get("id")),
        ("name", get("name")),
        ("description", get("description")),
        ("type", get("type")),
        ("default", get("is_default")),
        ("status", get("status")),
        ("endpoint", get("auth_url")),
        ("interface", get("interface")),
        ("credentials", get("auth_cred")),
        ("created", get("created_at")),
        ("updated", get("updated_at")),
    ]
}
