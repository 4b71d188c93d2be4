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

/// How many subscriptions of one interface are looked at.
const MOST: u32 = 10_000;

pub async fn run(command: SubscriptionCommand, client: &Client, output: Output) -> anyhow::Result<ExitCode> {
    match command {
        SubscriptionCommand::Create { callback, about, request } => {
            let mut body = request.map(|file| params::object(&file)).transpose()?.unwrap_or_else(Map::new);
            body.extend(callback.map(|callback| ("callbackUri".to_owned(), Value::String(callback))));
            let made = client.post(&path(about), &Value::Object(body)).await?.body;
            details(output, &made, &lines(&made))?;
        }
        SubscriptionCommand::List => {
            let all = all(client).await?;
            let mut table = Table::new(["ID", "ABOUT", "CALLBACK", "STATE", "WAITING"]);
            for one in &all {
                table.row(["id", "about", "callbackUri", "state", "waiting"].map(|name| text(&one[name])));
            }
            list(output, &all, &table, "no subscriptions; make one with `guywire subscription create URL`")?;
        }
        SubscriptionCommand::Show { subscription } => {
            let (about, id) = find(client, &subscription).await?;
            let mut shown = client.get(&format!("{}/{id}", path(about)), &[]).await?;
            let delivery = client.get(&format!("/guywire/v1/subscriptions/{id}"), &[]).await?;
            merge(&mut shown, delivery);
            details(output, &shown, &lines(&shown))?;
        }
        SubscriptionCommand::Delete { subscriptions } => {
            for subscription in subscriptions {
                let (about, id) = find(client, &subscription).await?;
                let deleted = client.delete(&format!("{}/{id}", path(about))).await;
                deleted.with_context(|| format!("subscription {id} is not deleted"))?;
                println!("{id}  deleted");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

const ALL: [About; 3] = [About::Vnflcm, About::Vnfpkgm, About::Vnffm];

fn path(about: About) -> String {
    match about {
        About::Vnflcm => "/vnflcm/v2/subscriptions".to_owned(),
        About::Vnfpkgm => "/vnfpkgm/v1/subscriptions".to_owned(),
        About::Vnffm => "/vnffm/v1/subscriptions".to_owned(),
    }
}

fn word(about: About) -> &'static str {
    match about {
        About::Vnflcm => "vnflcm",
        About::Vnfpkgm => "vnfpkgm",
        About::Vnffm => "vnffm",
    }
}

/// All subscriptions, each with what it is about and how its delivery goes.
async fn all(client: &Client) -> anyhow::Result<Vec<Value>> {
    let deliveries = client.list("/guywire/v1/subscriptions", &[], MOST).await?;
    let mut all = Vec::new();
    for about in ALL {
        for mut one in client.list(&path(about), &[], MOST).await? {
            one["about"] = word(about).into();
            if let Some(delivery) = deliveries.iter().find(|delivery| delivery["id"] == one["id"]) {
                merge(&mut one, delivery.clone());
            }
            all.push(one);
        }
    }
    Ok(all)
}

async fn find(client: &Client, words: &str) -> anyhow::Result<(About, String)> {
    let all = all(client).await?;
    match choose(SUBSCRIPTION, words, &all) {
        Choice::One(id) => {
            let about = ALL
                .into_iter()
                .find(|about| all.iter().any(|one| one["id"] == id.as_str() && one["about"] == word(*about)));
            Ok((about.unwrap_or_default(), id))
        }
        Choice::Several(message) => bail!(message),
        Choice::None => bail!(unknown(SUBSCRIPTION, words, &all)),
    }
}

/// Adds what only we tell to what SOL003 tells.
fn merge(subscription: &mut Value, delivery: Value) {
    let (Value::Object(subscription), Value::Object(delivery)) = (subscription, delivery) else { return };
    for (name, value) in delivery {
        subscription.entry(name).or_insert(value);
    }
}

fn lines(one: &Value) -> Vec<(&'static str, String)> {
    let get = |name: &str| text(&one[name]);
    vec![
        ("id", get("id")),
        ("about", get("about")),
        ("callback", get("callbackUri")),
        ("filter", get("filter")),
        ("verbosity", get("verbosity")),
        ("state", get("state")),
        ("waiting", get("waiting")),
        ("delivered", get("delivered")),
        ("last delivery", get("lastDelivery")),
        ("attempts", get("attempts")),
        ("next attempt", get("nextAttempt")),
        ("last error", get("lastError")),
    ]
}
