//! `guywire vnf`: instances and their lives.

mod request;
mod show;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::{
    cli::{
        Output,
        target::{Listing, Wait},
        vnf::VnfCommand,
    },
    client::{
        Answer, Client, follow, params,
        resolve::{self, INSTANCE, PACKAGE, VIM},
    },
    output::{Table, details, list, text},
};

pub async fn run(command: VnfCommand, client: &Client, output: Output) -> anyhow::Result<ExitCode> {
    match command {
        VnfCommand::Create { vnfd, name, description } => {
            let body = request::create(&vnfd_id(client, &vnfd).await?, name, description);
            let instance = client.post(INSTANCE.path, &body).await?.body;
            details(output, &instance, &show::lines(&instance))?;
            Ok(ExitCode::SUCCESS)
        }
        VnfCommand::List(listing) => listed(client, &listing, output).await,
        VnfCommand::Show { vnf } => {
            let id = resolve::id(client, INSTANCE, &vnf).await?;
            let instance = client.get(&format!("{}/{id}", INSTANCE.path), &[]).await?;
            details(output, &instance, &show::lines(&instance))?;
            if output == Output::Table {
                show::components(&instance);
            }
            Ok(ExitCode::SUCCESS)
        }
        VnfCommand::Modify { vnf, name, description, metadata, request, wait } => {
            let mut body = request.map(|file| params::object(&file)).transpose()?.unwrap_or_default();
            request::modify(&mut body, name, description, &metadata)?;
            let id = resolve::id(client, INSTANCE, &vnf).await?;
            let answer = client.patch(&format!("{}/{id}", INSTANCE.path), &Value::Object(body)).await?;
            accepted(client, &answer, wait, output).await
        }
        VnfCommand::Delete { vnfs } => {
            for vnf in vnfs {
                let id = resolve::id(client, INSTANCE, &vnf).await?;
                let path = format!("{}/{id}", INSTANCE.path);
                client.delete(&path).await.with_context(|| format!("VNF instance {id} is not deleted"))?;
                println!("{id}  deleted");
            }
            Ok(ExitCode::SUCCESS)
        }
        other => operate(other, client, output).await,
    }
}

/// The operations: each is a request to one place, and an operation that can be followed.
async fn operate(command: VnfCommand, client: &Client, output: Output) -> anyhow::Result<ExitCode> {
    // What is wrong with a request is told before anybody is asked.
    let (vnf, task, mut body, wait) = request::operation(&command)?;
    match &command {
        VnfCommand::Instantiate { flavour, vim, .. } => {
            let id = resolve::id(client, INSTANCE, &vnf).await?;
            if let Some(vim) = vim {
                let vim = resolve::id(client, VIM, vim).await?;
                body.insert(
                    "vimConnectionInfo".to_owned(),
                    json!({"vim": {"vimId": vim, "vimType": vim_type(client, &vim).await?}}),
                );
            }
            if flavour.is_none() && !body.contains_key("flavourId") {
                body.insert("flavourId".to_owned(), Value::String(only_flavour(client, &id).await?));
            }
        }
        VnfCommand::ChangePackage { vnfd, .. } => {
            body.insert("vnfdId".to_owned(), Value::String(vnfd_id(client, vnfd).await?));
        }
        _ => {}
    }
    let id = resolve::id(client, INSTANCE, &vnf).await?;
    let answer = client.post(&format!("{}/{id}/{task}", INSTANCE.path), &Value::Object(body)).await?;
    accepted(client, &answer, wait, output).await
}

/// Says which operation was accepted, and stays with it if that is asked for.
async fn accepted(client: &Client, answer: &Answer, wait: Wait, output: Output) -> anyhow::Result<ExitCode> {
    let location = answer.location.as_deref().context("the manager does not say where the operation is")?;
    let id = location.rsplit('/').next().unwrap_or_default();
    if wait.wait {
        return follow::outcome(client, id, "COMPLETED", output).await;
    }
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&json!({"operation": id}))?),
        Output::Table => println!("{id}  accepted; `guywire op watch {id}` follows it"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn listed(client: &Client, listing: &Listing, output: Output) -> anyhow::Result<ExitCode> {
    let filter = listing.filter.as_deref().map(|filter| ("filter", filter));
    let instances = client.list(INSTANCE.path, filter.as_slice(), listing.limit).await?;
    let mut table = Table::new(["ID", "NAME", "STATE", "PRODUCT", "VERSION", "PROVIDER"]);
    for instance in &instances {
        table.row(
            [
                "id",
                "vnfInstanceName",
                "instantiationState",
                "vnfProductName",
                "vnfSoftwareVersion",
                "vnfProvider",
            ]
            .map(|name| text(&instance[name])),
        );
    }
    list(output, &instances, &table, "no instances; create one with `guywire vnf create VNFD`")?;
    Ok(ExitCode::SUCCESS)
}

/// The VNFD of the package that `words` names.
async fn vnfd_id(client: &Client, words: &str) -> anyhow::Result<String> {
    let id = resolve::id(client, PACKAGE, words).await?;
    let package = client.get(&format!("{}/{id}", PACKAGE.path), &[]).await?;
    match package["vnfdId"].as_str() {
        Some(vnfd) => Ok(vnfd.to_owned()),
        None => bail!(
            "package {id} is {}, so it has no VNFD yet; `guywire package show {id}` says why",
            text(&package["onboardingState"])
        ),
    }
}

async fn vim_type(client: &Client, id: &str) -> anyhow::Result<String> {
    let vim = client.get(&format!("{}/{id}", VIM.path), &[]).await?;
    Ok(text(&vim["vim"]["type"]))
}

/// The flavour, if the instance's package has one only.
async fn only_flavour(client: &Client, instance: &str) -> anyhow::Result<String> {
    let path = format!("/guywire/v1/instances/{instance}/flavours");
    let answer = client
        .get(&path, &[])
        .await
        .context("--flavour is not given, and the manager does not say which there are")?;
    let flavours: Vec<&str> = answer.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match flavours.as_slice() {
        [one] => Ok((*one).to_owned()),
        several => bail!("--flavour is not given, and the package has several: {}", several.join(", ")),
    }
}
