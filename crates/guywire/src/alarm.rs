//! `guywire alarm`: what a person should know.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::{
    cli::{Output, records::AlarmCommand},
    client::{
        Client,
        resolve::{self, ALARM},
    },
    output::{Table, details, list, text},
};

pub async fn run(command: AlarmCommand, client: &Client, output: Output) -> anyhow::Result<ExitCode> {
    match command {
        AlarmCommand::List(listing) => {
            let filter = listing.filter.as_deref().map(|filter| ("filter", filter));
            let alarms = client.list(ALARM.path, filter.as_slice(), listing.limit).await?;
            let mut table = Table::new(["ID", "SEVERITY", "RAISED", "CLEARED", "SEEN", "CAUSE"]);
            for alarm in &alarms {
                let seen = if alarm["ackState"] == "ACKNOWLEDGED" { "yes" } else { "" };
                table.row([
                    text(&alarm["id"]),
                    text(&alarm["perceivedSeverity"]),
                    text(&alarm["alarmRaisedTime"]),
                    text(&alarm["alarmClearedTime"]),
                    seen.to_owned(),
                    text(&alarm["probableCause"]),
                ]);
            }
            list(output, &alarms, &table, "no alarms")?;
        }
        AlarmCommand::Show { alarm } => {
            let id = resolve::id(client, ALARM, &alarm).await?;
            let alarm = client.get(&format!("{}/{id}", ALARM.path), &[]).await?;
            details(output, &alarm, &lines(&alarm))?;
        }
        AlarmCommand::Ack { alarms, undo } => {
            let state = if undo { "UNACKNOWLEDGED" } else { "ACKNOWLEDGED" };
            for alarm in alarms {
                let id = resolve::id(client, ALARM, &alarm).await?;
                client.patch(&format!("{}/{id}", ALARM.path), &json!({"ackState": state})).await?;
                println!("{id}  {state}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(alarm: &Value) -> Vec<(&'static str, String)> {
    let get = |name: &str| text(&alarm[name]);
    let details = match &alarm["faultDetails"] {
        Value::Array(details) => details.iter().map(text).collect::<Vec<_>>().join("\n"),
        other => text(other),
    };
    vec![
        ("id", get("id")),
        ("severity", get("perceivedSeverity")),
        ("cause", get("probableCause")),
        ("details", details),
        ("instance", get("managedObjectId")),
        ("type", get("eventType")),
        ("raised", get("alarmRaisedTime")),
        ("changed", get("alarmChangedTime")),
        ("cleared", get("alarmClearedTime")),
        ("seen", get("ackState")),
    ]
}
