//! `guywire subscription`: who is told of changes, and how that goes.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

use crate::{
    cli::{
        Output,
        records::{About, SubscriptionCommand},
    },
    client::{
        Client, params,
        resolve::{Choice, SUBSCRIPTION, choose, unknown},
    },
    output::{Table, details, list, text},
};

/// How many subscriptions are looked at.
const MOST: u32 = 10_000;

pub async fn run(command: SubscriptionCommand, client: &Client, output: Output) -> anyhow::Result<ExitCode> {
    match command {
        SubscriptionCommand::Create { callback, about, request } => {
            let mut body = request.map(|file| params::object(&file)).transpose()?.unwrap_or_else(Map::new);
            body.extend(callback.map(|callback| ("callbackUri".to_owned(), Value::String(callback))));
            let made = client.post(path(about), &Value::Object(body)).await?.body;
            details(output, &made, &lines(&made))?;
        }
        SubscriptionCommand::List => {
            let all = client.list(SUBSCRIPTION.path, &[], MOST).await?;
            let mut table = Table::new(["ID", "INTERFACE", "CALLBACK", "WAITING", "FAILURES", "LAST ERROR"]);
            for one in &all {
                let delivery = &one["delivery"];
                table.row([
                    text(&one["id"]),
                    text(&one["api"]),
                    text(&one["callbackUri"]),
                    text(&delivery["waiting"]),
                    text(&delivery["failures"]),
                    text(&delivery["lastError"]),
                ]);
            }
            list(output, &all, &table, "no subscriptions; make one with `guywire subscription create URL`")?;
        }
        SubscriptionCommand::Show { subscription } => {
            let shown = find(client, &subscription).await?;
            details(output, &shown, &lines(&shown))?;
        }
        SubscriptionCommand::Delete { subscriptions } => {
            for subscription in subscriptions {
                let found = find(client, &subscription).await?;
                let id = text(&found["id"]);
                let deleted = client.delete(&format!("{}/{id}", path_of(&found["api"])?)).await;
                deleted.with_context(|| format!("subscription {id} is not deleted"))?;
                println!("{id}  deleted");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn path(about: About) -> &'static str {
    match about {
        About::Vnflcm => "/vnflcm/v2/subscriptions",
        About::Vnfpkgm => "/vnfpkgm/v1/subscriptions",
        About::Vnffm => "/vnffm/v1/subscriptions",
    }
}

/// Where the subscriptions of an interface are, by the root that the manager names.
fn path_of(api: &Value) -> anyhow::Result<&'static str> {
    let known = ["/vnflcm/v1/subscriptions", path(About::Vnflcm), path(About::Vnfpkgm), path(About::Vnffm)];
    let found = known.into_iter().find(|path| path.strip_suffix("/subscriptions") == api.as_str());
    found.with_context(|| format!("the manager has an interface that this program does not know: {api}"))
}

/// The one subscription that is meant, whatever interface it belongs to.
async fn find(client: &Client, words: &str) -> anyhow::Result<Value> {
    let mut all = client.list(SUBSCRIPTION.path, &[], MOST).await?;
    match choose(SUBSCRIPTION, words, &all) {
        Choice::One(id) => {
            let at = all.iter().position(|one| one["id"] == id.as_str()).context("it was there")?;
            Ok(all.swap_remove(at))
        }
        Choice::Several(message) => bail!(message),
        Choice::None => bail!(unknown(SUBSCRIPTION, words, &all)),
    }
}

fn lines(one: &Value) -> Vec<(&'static str, String)> {
    let get = |name: &str| text(&one[name]);
    let delivery = |name: &str| text(&one["delivery"][name]);
    vec![
        ("id", get("id")),
        ("interface", get("api")),
        ("callback", get("callbackUri")),
        ("filter", get("filter")),
        ("verbosity", get("verbosity")),
        ("authentication", get("authentication")),
        ("created", get("created")),
        ("waiting", delivery("waiting")),
        ("delivered", delivery("delivered")),
        ("dropped", delivery("dropped")),
        ("failures", delivery("failures")),
        ("next try", delivery("nextTry")),
        ("last error", delivery("lastError")),
        ("at", delivery("lastErrorTime")),
        ("last success", delivery("lastSuccessTime")),
    ]
}
