//! `guywire op`: operations, as they run and as they ended.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::{
    cli::{Output, records::OpCommand, target::Wait},
    client::{
        Client, follow,
        resolve::{self, INSTANCE, OPERATION},
    },
    output::{Table, details, list, span, text},
};

pub async fn run(command: OpCommand, client: &Client, output: Output) -> anyhow::Result<ExitCode> {
    match command {
        OpCommand::List { vnf, listing } => {
            let mut filters: Vec<String> = listing.filter.into_iter().collect();
            if let Some(vnf) = vnf {
                let id = resolve::id(client, INSTANCE, &vnf).await?;
                filters.push(format!("(eq,vnfInstanceId,{id})"));
            }
            let filter = filters.join(";");
            let query: &[(&str, &str)] = if filter.is_empty() { &[] } else { &[("filter", &filter)] };
            let operations = client.list(OPERATION.path, query, listing.limit).await?;
            let mut table = Table::new(["ID", "OPERATION", "STATE", "SINCE", "INSTANCE"]);
            for operation in &operations {
                table.row(
                    ["id", "operation", "operationState", "stateEnteredTime", "vnfInstanceId"]
                        .map(|name| text(&operation[name])),
                );
            }
            list(output, &operations, &table, "no operations; `guywire vnf instantiate` begins one")?;
        }
        OpCommand::Show { operation } => {
            let id = resolve::id(client, OPERATION, &operation).await?;
            let operation = client.get(&path(&id), &[]).await?;
            details(output, &operation, &lines(&operation))?;
            if output == Output::Table {
                let plans = client.get(&format!("/guywire/v1/operations/{id}/plan"), &[]).await?;
                draw(&plans);
            }
        }
        OpCommand::Watch { operation } => {
            let id = resolve::id(client, OPERATION, &operation).await?;
            let operation = follow::operation(client, &id).await?;
            details(output, &operation, &lines(&operation))?;
            let good = matches!(operation["operationState"].as_str(), Some("COMPLETED" | "ROLLED_BACK"));
            return Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        OpCommand::Retry { operation, wait } => {
            return task(client, &operation, "retry", (wait, output), "COMPLETED").await;
        }
        OpCommand::Rollback { operation, wait } => {
            return task(client, &operation, "rollback", (wait, output), "ROLLED_BACK").await;
        }
        OpCommand::Cancel { operation, force, wait } => {
            let mode = if force { "FORCEFUL" } else { "GRACEFUL" };
            let id = resolve::id(client, OPERATION, &operation).await?;
            client.post(&format!("{}/cancel", path(&id)), &json!({"cancelMode": mode})).await?;
            if !wait.wait {
                println!("{id}  asked to stop");
                return Ok(ExitCode::SUCCESS);
            }
            let operation = follow::operation(client, &id).await?;
            let state = text(&operation["operationState"]);
            println!("{id}  {state}");
            // It may have been done, or out of reach, before it heard of the wish.
            let good = matches!(state.as_str(), "FAILED_TEMP" | "ROLLED_BACK");
            return Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        OpCommand::Fail { operation } => {
            let id = resolve::id(client, OPERATION, &operation).await?;
            let operation = client.post(&format!("{}/fail", path(&id)), &json!({})).await?.body;
            details(output, &operation, &lines(&operation))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn path(id: &str) -> String {
    format!("{}/{id}", OPERATION.path)
}

async fn task(
    client: &Client,
    operation: &str,
    task: &str,
    (wait, output): (Wait, Output),
    wanted: &str,
) -> anyhow::Result<ExitCode> {
    let id = resolve::id(client, OPERATION, operation).await?;
    client.post(&format!("{}/{task}", path(&id)), &json!({})).await?;
    if wait.wait {
        return follow::outcome(client, &id, wanted, output).await;
    }
    println!("{id}  accepted; `guywire op watch {id}` follows it");
    Ok(ExitCode::SUCCESS)
}

fn lines(operation: &Value) -> Vec<(&'static str, String)> {
    let get = |name: &str| text(&operation[name]);
    let changes: Vec<String> = operation["resourceChanges"]["affectedVnfcs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| format!("{} {}", text(&one["changeType"]), text(&one["id"])))
        .collect();
    let cancel = match operation["isCancelPending"].as_bool() {
        Some(true) => get("cancelMode"),
        _ => String::new(),
    };
    vec![
        ("id", get("id")),
        ("operation", get("operation")),
        ("state", get("operationState")),
        ("since", get("stateEnteredTime")),
        ("started", get("startTime")),
        ("instance", get("vnfInstanceId")),
        ("grant", get("grantId")),
        ("cancel", cancel),
        ("error", text(&operation["error"]["detail"])),
        ("changes", changes.join("\n")),
        ("warnings", warnings(operation)),
    ]
}

fn warnings(operation: &Value) -> String {
    let texts = operation["warnings"].as_array().into_iter().flatten().map(text);
    texts.collect::<Vec<_>>().join("\n")
}

/// The plans of an operation, each with its phases and tasks.
fn draw(answer: &Value) {
    for plan in answer["plans"].as_array().into_iter().flatten() {
        println!("\nplan {}  {}  {}", text(&plan["id"]), text(&plan["title"]), text(&plan["state"]));
        if let Some(reason) = plan["reason"].as_str() {
            println!("  because {reason}");
        }
        let tasks: Vec<&Value> = plan["tasks"].as_array().into_iter().flatten().collect();
        let width = tasks.iter().map(|task| text(&task["name"]).chars().count()).max().unwrap_or(0);
        for (at, phase) in plan["phases"].as_array().into_iter().flatten().enumerate() {
            println!("  {}", text(phase));
            for task in tasks.iter().filter(|task| task["phase"].as_u64() == Some(at as u64)) {
                let took = task["seconds"].as_f64().map(span).unwrap_or_default();
                let reason = text(&task["reason"]);
                let line = format!(
                    "    {:width$}  {:9}  {took:>7}  {reason}",
                    text(&task["name"]),
                    text(&task["state"])
                );
                println!("{}", line.trim_end());
            }
        }
    }
}
