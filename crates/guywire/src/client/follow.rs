//! An operation while it runs, as its manager tells of it; a manager that is started again is waited for.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::bail;
use guywire_plan::{Event, EventKind, PlanId};
use reqwest::{Method, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Client, Refused,
    resolve::OPERATION,
    sse::{Message, Parser},
};
use crate::{cli::Output, progress::Progress};

/// How long a manager may be away; operations go on when it is back.
const ABSENCE: Duration = Duration::from_secs(300);
/// A stream that says nothing for so long is dead: managers give a sign of life every few seconds.
const SILENCE: Duration = Duration::from_secs(45);

/// A plan as its manager tells of it.
#[derive(Debug, Deserialize)]
struct PlanDoc {
    id: PlanId,
    title: String,
    tasks: Vec<TaskDoc>,
    #[serde(default)]
    scopes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct TaskDoc {
    name: String,
}

/// How a stream ended.
enum End {
    /// The operation has come to rest.
    Rest,
    /// The connection was lost.
    Lost(anyhow::Error),
}

/// What is shown so far.
#[derive(Default)]
struct Shown {
    /// Where to go on when the connection is lost.
    last: Option<String>,
    progress: Option<(PlanId, Progress)>,
    state: String,
}

/// Follows an operation until it comes to rest, and gives its record as it is then.
pub async fn operation(client: &Client, id: &str) -> anyhow::Result<Value> {
    let interrupted = async {
        tokio::signal::ctrl_c().await?;
        bail!(
            "no longer following operation {id}, which goes on; `guywire op watch {id}` follows it again, `guywire op cancel {id}` stops it"
        );
    };
    tokio::select! {
        followed = until_rest(client, id) => followed?,
        interrupted = interrupted => return interrupted,
    }
    client.get(&format!("{}/{id}", OPERATION.path), &[]).await
}

/// Follows and turns the outcome into an exit code, with the reason if it did not do what was asked.
pub async fn outcome(client: &Client, id: &str, wanted: &str, output: Output) -> anyhow::Result<ExitCode> {
    let operation = operation(client, id).await?;
    let state = operation["operationState"].as_str().unwrap_or_default();
    if state == wanted {
        match output {
            Output::Json => println!("{}", serde_json::to_string_pretty(&operation)?),
            Output::Table => println!("{id}  {state}"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let reason = operation["error"]["detail"].as_str().unwrap_or("no reason is recorded");
    let next = if state == "FAILED_TEMP" {
        format!(
            "; go on with `guywire op retry {id}`, go back with `guywire op rollback {id}`, or give up with `guywire op fail {id}`"
        )
    } else {
        String::new()
    };
    bail!("operation {id} is {state}: {reason}{next}")
}

async fn until_rest(client: &Client, id: &str) -> anyhow::Result<()> {
    let mut shown = Shown::default();
    let mut lost: Option<Instant> = None;
    loop {
        let before = shown.last.clone();
        match stream(client, id, &mut shown).await? {
            End::Rest => {
                shown.clear();
                return Ok(());
            }
            End::Lost(error) => {
                if shown.last != before {
                    lost = None;
                }
                let since = *lost.get_or_insert_with(|| {
                    eprintln!("the manager is away; operation {id} goes on when it is back");
                    Instant::now()
                });
                if since.elapsed() > ABSENCE {
                    return Err(error.context(format!("gave up following operation {id}")));
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// One connection. Errors that another try cannot mend are returned as such.
async fn stream(client: &Client, id: &str, shown: &mut Shown) -> anyhow::Result<End> {
    let path = format!("/guywire/v1/operations/{id}/events");
    let mut request = client.request(Method::GET, &path, &[])?.header(header::ACCEPT, "text/event-stream");
    if let Some(last) = &shown.last {
        request = request.header("Last-Event-ID", last);
    }
    let mut response = match client.send(request).await {
        Ok(response) => response,
        Err(error) => {
            let lasting = error.downcast_ref::<Refused>().is_some_and(|refused| {
                refused.status.is_client_error() && refused.status != StatusCode::TOO_MANY_REQUESTS
            });
            return if lasting { Err(error) } else { Ok(End::Lost(error)) };
        }
    };
    let mut parser = Parser::default();
    loop {
        let chunk = match tokio::time::timeout(SILENCE, response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Ok(End::Lost(anyhow::anyhow!("the manager closed the connection"))),
            Ok(Err(error)) => return Ok(End::Lost(error.into())),
            Err(_) => return Ok(End::Lost(anyhow::anyhow!("the manager fell silent"))),
        };
        for message in parser.feed(&chunk)? {
            if shown.take(&message) {
                return Ok(End::Rest);
            }
        }
    }
}

impl Shown {
    /// Takes a message in; true once the operation is at rest. What a newer manager may say besides is passed over.
    fn take(&mut self, message: &Message) -> bool {
        if let Some(id) = &message.id {
            self.last = Some(id.clone());
        }
        match message.event.as_str() {
            "operation" => self.operation(&message.data),
            "plan" => self.plan(&message.data),
            "event" => self.event(&message.data),
            "end" => return true,
            _ => {}
        }
        false
    }

    fn operation(&mut self, data: &str) {
        let value: Value = serde_json::from_str(data).unwrap_or_default();
        let state = value["operationState"].as_str().unwrap_or_default();
        if !state.is_empty() && state != self.state {
            self.clear();
            let operation = value["operation"].as_str().unwrap_or("operation");
            eprintln!("{operation} {state}");
            state.clone_into(&mut self.state);
        }
    }

    fn plan(&mut self, data: &str) {
        let Ok(plan) = serde_json::from_str::<PlanDoc>(data) else { return };
        if self.progress.as_ref().is_some_and(|(id, _)| *id == plan.id) {
            return;
        }
        self.clear();
        eprintln!("{}", plan.title);
        let tasks = plan.tasks.into_iter().map(|task| task.name).collect();
        self.progress = Some((plan.id, Progress::named(tasks, plan.scopes)));
    }

    fn event(&mut self, data: &str) {
        let Ok(event) = serde_json::from_str::<Event>(data) else { return };
        let Some((plan, progress)) = &mut self.progress else { return };
        if event.plan != *plan {
            return;
        }
        progress.see(&event);
        if let EventKind::PlanEnded { .. } = event.kind {
            progress.clear();
        }
    }

    fn clear(&self) {
        if let Some((_, progress)) = &self.progress {
            progress.clear();
        }
    }
}
