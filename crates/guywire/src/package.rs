//! `guywire package`: what a manager can make instances of, and packages in files.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use guywire_package::{Policy, Signature};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::{
    cli::{Global, Output, package::PackageCommand, target::Target},
    client::{
        Client, Refused, params,
        resolve::{self, PACKAGE},
        transfer,
    },
    output::{Table, details, list, read_bounded, text},
};

/// How often onboarding is looked at.
const PAUSE: Duration = Duration::from_millis(200);

pub async fn run(command: PackageCommand, target: &Target, global: &Global) -> anyhow::Result<ExitCode> {
    match command {
        PackageCommand::Check { file, trust } => check(&file, trust.as_deref(), global.output).await,
        PackageCommand::Pack { dir, out } => pack(dir, out).await,
        command => ask(command, &Client::find(target, global)?, global.output).await,
    }
}

async fn ask(command: PackageCommand, client: &Client, output: Output) -> anyhow::Result<ExitCode> {
    let path = |id: &str| format!("{}/{id}", PACKAGE.path);
    match command {
        PackageCommand::Create { user_data } => {
            let package = create(client, &user_data).await?;
            details(output, &package, &lines(&package))?;
        }
        PackageCommand::Upload { file, into, user_data, wait } => {
            return upload(client, &file, into.as_deref(), &user_data, wait, output).await;
        }
        PackageCommand::List(listing) => {
            let filter = listing.filter.as_deref().map(|filter| ("filter", filter));
            let packages = client.list(PACKAGE.path, filter.as_slice(), listing.limit).await?;
            let mut table = Table::new(["ID", "PRODUCT", "VERSION", "VNFD", "ONBOARDING", "STATE", "USAGE"]);
            for package in &packages {
                table.row(
                    [
                        "id",
                        "vnfProductName",
                        "vnfSoftwareVersion",
                        "vnfdId",
                        "onboardingState",
                        "operationalState",
                        "usageState",
                    ]
                    .map(|name| text(&package[name])),
                );
            }
            list(output, &packages, &table, "no packages; upload one with `guywire package upload FILE`")?;
        }
        PackageCommand::Show { package } => {
            let id = resolve::id(client, PACKAGE, &package).await?;
            let package = client.get(&path(&id), &[]).await?;
            details(output, &package, &lines(&package))?;
        }
        PackageCommand::Enable { package } => switch(client, &package, "ENABLED").await?,
        PackageCommand::Disable { package } => switch(client, &package, "DISABLED").await?,
        PackageCommand::Delete { packages, disable } => {
            for package in packages {
                let id = resolve::id(client, PACKAGE, &package).await?;
                if disable {
                    disable_first(client, &path(&id)).await?;
                }
                client.delete(&path(&id)).await.with_context(|| format!("package {id} is not deleted"))?;
                println!("{id}  deleted");
            }
        }
        PackageCommand::Vnfd { package, zip } => {
            let id = resolve::id(client, PACKAGE, &package).await?;
            let accept = if zip.is_some() { "application/zip" } else { "text/plain" };
            let path = format!("{}/vnfd", path(&id));
            let saved = transfer::download(client, &path, accept, zip.as_deref()).await;
            let several = |error: &anyhow::Error| {
                error.downcast_ref::<Refused>().is_some_and(|no| no.status == StatusCode::NOT_ACCEPTABLE)
            };
            match saved {
                Err(error) if several(&error) => {
                    bail!("the VNFD of package {id} is several files; save them all with --zip FILE")
                }
                saved => saved?,
            };
        }
        PackageCommand::Artifact { package, path: artifact, file } => {
            let id = resolve::id(client, PACKAGE, &package).await?;
            let path = format!("{}/artifacts/{}", path(&id), artifact.trim_start_matches('/'));
            transfer::download(client, &path, "*/*", file.as_deref()).await?;
        }
        PackageCommand::Download { package, file } => {
            let id = resolve::id(client, PACKAGE, &package).await?;
            let path = format!("{}/package_content", path(&id));
            let length = transfer::download(client, &path, "application/zip", Some(&file)).await?;
            println!("{}: {length} bytes", file.display());
        }
        PackageCommand::Check { .. } | PackageCommand::Pack { .. } => unreachable!("these need no manager"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(client: &Client, user_data: &[String]) -> anyhow::Result<Value> {
    let mut body = json!({});
    if !user_data.is_empty() {
        body["userDefinedData"] = Value::Object(params::texts("--user-data", user_data)?);
    }
    Ok(client.post(PACKAGE.path, &body).await?.body)
}

async fn upload(
    client: &Client,
    file: &Path,
    into: Option<&str>,
    user_data: &[String],
    wait: bool,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let name = file.display();
    // What cannot be read leaves no empty package behind.
    std::fs::File::open(file).with_context(|| format!("{name}: cannot be opened"))?;
    let id = match into {
        Some(package) => resolve::id(client, PACKAGE, package).await?,
        None => text(&create(client, user_data).await?["id"]),
    };
    let path = format!("{}/{id}", PACKAGE.path);
    if let Err(error) = transfer::upload(client, &format!("{path}/package_content"), file).await {
        if into.is_none()
            && let Err(removal) = client.delete(&path).await
        {
            eprintln!("package {id} was made for it and cannot be deleted: {removal}");
        }
        return Err(error.context(format!("{name}: is not uploaded")));
    }
    if !wait {
        let package = client.get(&path, &[]).await?;
        details(output, &package, &lines(&package))?;
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let package = client.get(&path, &[]).await?;
        let state = package["onboardingState"].as_str().unwrap_or_default();
        if let Some(reason) = package["onboardingFailureDetails"]["detail"].as_str() {
            bail!(
                "{name}: is refused: {reason}; `guywire package show {id}` says it again, `guywire package delete {id}` removes it"
            );
        }
        if !matches!(state, "UPLOADING" | "PROCESSING") {
            details(output, &package, &lines(&package))?;
            return Ok(if state == "ONBOARDED" { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn switch(client: &Client, package: &str, state: &str) -> anyhow::Result<()> {
    let id = resolve::id(client, PACKAGE, package).await?;
    client.patch(&format!("{}/{id}", PACKAGE.path), &json!({"operationalState": state})).await?;
    println!("{id}  {state}");
    Ok(())
}

async fn disable_first(client: &Client, path: &str) -> anyhow::Result<()> {
    let package = client.get(path, &[]).await?;
    if package["operationalState"] == "ENABLED" {
        client.patch(path, &json!({"operationalState": "DISABLED"})).await?;
    }
    Ok(())
}

fn lines(package: &Value) -> Vec<(&'static str, String)> {
    let get = |name: &str| text(&package[name]);
    let failure = &package["onboardingFailureDetails"];
    let count = |name: &str| match package[name].as_array().map(Vec::len) {
        None | Some(0) => String::new(),
        Some(number) => number.to_string(),
    };
    vec![
        ("id", get("id")),
        ("product", format!("{} {}", get("vnfProductName"), get("vnfSoftwareVersion")).trim().to_owned()),
        ("provider", get("vnfProvider")),
        ("vnfd", get("vnfdId")),
        ("vnfd version", get("vnfdVersion")),
        ("onboarding", get("onboardingState")),
        ("refused", text(&failure["detail"])),
        ("state", get("operationalState")),
        ("usage", get("usageState")),
        ("checksum", text(&package["checksum"]["hash"])),
        ("images", count("softwareImages")),
        ("artifacts", count("additionalArtifacts")),
        (
            "user data",
            if package["userDefinedData"] == json!({}) { String::new() } else { get("userDefinedData") },
        ),
    ]
}

async fn check(file: &Path, trust: Option<&Path>, output: Output) -> anyhow::Result<ExitCode> {
    let mut policy = Policy::default();
    if let Some(trust) = trust {
        policy.trust.push(read_bounded(trust, 1 << 20)?.into_bytes());
        policy.signature = Signature::Required;
    }
    let csar = file.to_owned();
    let read = tokio::task::spawn_blocking(move || guywire_package::read(&csar, &policy)).await?;
    let name = file.display();
    match (read, output) {
        (Ok(package), Output::Table) => print!("{package}"),
        (Ok(package), Output::Json) => println!("{}", serde_json::to_string_pretty(&package)?),
        (Err(rejection), Output::Table) => bail!("{name}: {rejection}"),
        (Err(rejection), Output::Json) => {
            println!("{}", serde_json::to_string_pretty(&rejection)?);
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn pack(dir: PathBuf, out: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let out = if let Some(out) = out {
        out
    } else {
        let full = dir.canonicalize().with_context(|| format!("{}: cannot be entered", dir.display()))?;
        let name = full.file_name().context("a directory without a name: say what to call the package")?;
        PathBuf::from(name).with_extension("csar")
    };
    let shown = out.display().to_string();
    tokio::task::spawn_blocking(move || guywire_package::pack(&dir, &out)).await??;
    println!("{shown}");
    Ok(ExitCode::SUCCESS)
}
