//! Asks an NFVO for leave (SOL003 grant v1): the request, and the task that sends it.
//!
//! SOL003 gives no way to look a grant up by its operation, so after a crash of ours the request is sent again. It
//! carries the same `vnfLcmOpOccId` and the same ids of resources, by which an NFVO knows that it is the same one.

mod request;
#[cfg(test)]
mod tests;

use std::time::Duration;

use guywire_plan::{Context, Handler, Plan, PlanBuilder, PlanError, Probe, Retry, TaskError};
use http::{StatusCode, header};
pub use request::grant_request;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::{
    Nfvo,
    callback::{CallbackError, Callbacks, Credentials, Incoming, Outgoing},
};
use crate::domain::OperationId;

/// The version of the grant interface that goes with SOL003 3.3.1.
const VERSION: &str = "1.4.0";
/// How large a grant may be.
const LIMIT: usize = 1024 * 1024;
/// How long an NFVO that has accepted a request may think about it.
const PATIENCE: Duration = Duration::from_mins(10);
/// How often it is asked, if it does not say how often it wants to be.
const POLL: Duration = Duration::from_secs(2);
const LONGEST_POLL: Duration = Duration::from_mins(1);

/// Asks the NFVO for a grant.
pub struct Grant {
    /// How it is called.
    pub callbacks: Callbacks,
    /// Whom to ask; none where operations are granted locally, and no plan has this task.
    pub nfvo: Option<Nfvo>,
}

/// What is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantInput {
    /// For which operation.
    pub operation: OperationId,
    /// The `GrantRequest`.
    pub request: Value,
}

/// A plan that asks for a grant and does nothing else. Its one task is named `grant`; its output is the `Grant`.
pub fn plan(subject: &str, title: &str, operation: OperationId, request: Value) -> Result<Plan, PlanError> {
    let mut plan = PlanBuilder::new("lcm.grant", title).subject(subject);
    let phase = plan.phase("grant");
    plan.task::<Grant>(phase, "grant", &GrantInput { operation, request }).add();
    plan.build()
}

impl Handler for Grant {
    const NAME: &'static str = "lcm.grant";
    const VERSION: u32 = 1;
    const TIMEOUT: Duration = Duration::from_mins(12);
    /// About ten minutes of pauses in all.
    const RETRY: Retry = Retry { tries: 16, first_ms: 1_000, most_ms: 60_000 };

    type Input = GrantInput;
    type Output = Value;

    async fn probe(&self, _: &Context, _: &GrantInput) -> Result<Probe<Value>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, context: &Context, input: &GrantInput) -> Result<Value, TaskError> {
        context.check()?;
        tokio::select! {
            () = context.stop().cancelled() => Err(TaskError::retry("stopped while the NFVO was asked")),
            granted = self.ask(&input.request) => granted,
        }
    }
}

impl Grant {
    async fn ask(&self, request: &Value) -> Result<Value, TaskError> {
        let nfvo = self.nfvo.as_ref().ok_or_else(|| {
            TaskError::fatal("no NFVO is configured any more; name it again, or cancel the operation")
        })?;
        let auth = nfvo.auth.as_ref().map(|auth| self.callbacks.credentials(auth)).transpose();
        let credentials = auth.map_err(|error| failed(&error))?;
        let url = format!("{}/grant/v1/grants", nfvo.url.trim_end_matches('/'));
        let outgoing =
            Outgoing { version: Some(VERSION), limit: LIMIT, ..Outgoing::post(&url, request.to_string()) };
        let answer =
            self.callbacks.send(&outgoing, credentials.as_ref()).await.map_err(|error| failed(&error))?;
        match answer.status {
            StatusCode::CREATED | StatusCode::OK => grant(&answer),
            StatusCode::ACCEPTED => self.wait(&url, &answer, credentials.as_ref()).await,
            _ => Err(refused(&answer)),
        }
    }

    /// Asks for the outcome of a request that the NFVO thinks about.
    async fn wait(
        &self,
        asked: &str,
        accepted: &Incoming,
        credentials: Option<&Credentials>,
    ) -> Result<Value, TaskError> {
        let place = location(asked, accepted)?;
        let until = Instant::now() + PATIENCE;
        let mut pause = retry_after(accepted).unwrap_or(POLL);
        loop {
            if Instant::now() + pause > until {
                return Err(TaskError::fatal(format!(
                    "the NFVO has accepted the grant request and not answered it within {} minutes; look at the NFVO",
                    PATIENCE.as_secs() / 60
                )));
            }
            tokio::time::sleep(pause).await;
            let outgoing = Outgoing { version: Some(VERSION), limit: LIMIT, ..Outgoing::get(place.as_str()) };
            let answer = match self.callbacks.send(&outgoing, credentials).await {
                Ok(answer) => answer,
                // The request is accepted: asking for its outcome goes on, and does not begin anew.
                Err(error) if error.retry => {
                    tracing::debug!(%error, "the NFVO cannot be reached; asking again");
                    pause = (pause * 2).min(LONGEST_POLL);
                    continue;
                }
                Err(error) => return Err(failed(&error)),
            };
            match answer.status {
                StatusCode::OK | StatusCode::CREATED => return grant(&answer),
                StatusCode::ACCEPTED => pause = retry_after(&answer).unwrap_or(POLL),
                status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                    pause = retry_after(&answer).unwrap_or((pause * 2).min(LONGEST_POLL));
                }
                _ => return Err(refused(&answer)),
            }
        }
    }
}

/// A grant that looks like one.
fn grant(answer: &Incoming) -> Result<Value, TaskError> {
    if answer.cut {
        return Err(TaskError::fatal(format!(
            "the NFVO's grant is longer than the {LIMIT} bytes that are taken"
        )));
    }
    let grant: Value = serde_json::from_slice(&answer.body)
        .map_err(|error| TaskError::fatal(format!("the NFVO's grant is no JSON: {error}")))?;
    if grant["id"].as_str().is_none_or(str::is_empty) {
        return Err(TaskError::fatal("the NFVO's grant has no id; it must be a Grant of SOL003"));
    }
    Ok(grant)
}

/// What an answer other than a grant means: whoever is at fault, a server or a request, decides about another try.
fn refused(answer: &Incoming) -> TaskError {
    let complaint = answer.complaint();
    match answer.status {
        StatusCode::FORBIDDEN => TaskError::fatal(format!("the NFVO refused the grant: {complaint}")),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            TaskError::retry(format!("the NFVO is busy: {complaint}"))
        }
        status if status.is_server_error() => TaskError::retry(format!("the NFVO failed: {complaint}")),
        _ => TaskError::fatal(format!("the NFVO did not take the grant request: {complaint}")),
    }
}

fn failed(error: &CallbackError) -> TaskError {
    let reason = format!("the NFVO cannot be asked for a grant: {}", error.reason);
    TaskError { reason, retry: error.retry }
}

/// Where the grant will be. It must be on the server that was asked: our credentials go to no other.
fn location(asked: &str, answer: &Incoming) -> Result<Url, TaskError> {
    let wrong = |what: &str| TaskError::fatal(format!("the NFVO accepted the grant request, but {what}"));
    let asked = Url::parse(asked).map_err(|error| wrong(&format!("its address is no URL: {error}")))?;
    let text = answer.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let text = text.ok_or_else(|| wrong("its answer has no Location to look at"))?;
    let place = asked.join(text).map_err(|error| wrong(&format!("its Location is no URL: {error}")))?;
    if place.origin() == asked.origin() {
        Ok(place)
    } else {
        Err(wrong("its Location is on another server, which is not asked"))
    }
}

/// `Retry-After` in seconds or as a date, within bounds.
fn retry_after(answer: &Incoming) -> Option<Duration> {
    let text = answer.headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = if let Ok(seconds) = text.parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        let seconds = at.duration_since(jiff::Timestamp::now()).as_secs();
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    };
    Some(pause.clamp(Duration::from_millis(100), LONGEST_POLL))
}
