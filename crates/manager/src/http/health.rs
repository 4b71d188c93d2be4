//! Whether the manager lives, and whether it can work.

use std::{path::Path, time::Duration};

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Access, Answer, Call, Reply, Route};
use crate::app::App;

/// With less free space than that nothing new is accepted: `SQLite` and uploads need some to end well.
const SPACE: u64 = 64 * 1024 * 1024;
/// Longer than a healthy database ever takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the manager can work.
#[derive(Debug, Serialize, JsonSchema)]
struct Readiness {
    /// Whether all is well.
    ready: bool,
    /// What was looked at.
    checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize, JsonSchema)]
struct Check {
    /// What.
    name: &'static str,
    /// Whether it is well.
    ok: bool,
    /// What is wrong, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/healthz", Access::Open, alive)
            .doc("operations", "Whether the manager lives")
            .answers_media(200, "text/plain", "It does"),
        Route::get("/readyz", Access::Open, ready)
            .doc("operations", "Whether the manager can work: database, disk, journal")
            .answers::<Readiness>(200, "It can")
            .answers::<Readiness>(503, "It cannot, and why"),
    ]
}

async fn alive(_call: Call) -> Answer {
    Ok(Reply::bytes("text/plain", "ok\n"))
}

async fn ready(call: Call) -> Answer {
    let checks = vec![database(&call.app).await, journal(&call.app).await, disk(&call.app.config.data).await];
    let ready = checks.iter().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(Reply::json(status, &Readiness { ready, checks }))
}

async fn database(app: &App) -> Check {
    let looked = tokio::time::timeout(PATIENCE, app.store.is_writable()).await;
    let wrong = match looked {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            tracing::warn!(%error, source = ?error.source, "the database cannot be written");
            Some("it cannot be written; see the manager's log".to_owned())
        }
        Err(_) => Some(format!("it did not answer for {} seconds", PATIENCE.as_secs())),
    };
    Check::new("database", wrong)
}

async fn journal(app: &App) -> Check {
    let looked = tokio::time::timeout(PATIENCE, app.engine.journal().list(1)).await;
    let wrong = match looked {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the journal of plans cannot be read");
            Some("it cannot be read; see the manager's log".to_owned())
        }
        Err(_) => Some(format!("it did not answer for {} seconds", PATIENCE.as_secs())),
    };
    Check::new("journal", wrong)
}

async fn disk(data: &Path) -> Check {
    let data = data.to_owned();
    let looked = tokio::task::spawn_blocking(move || rustix::fs::statvfs(&data)).await;
    let wrong = match looked {
        Ok(Ok(found)) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            (free < SPACE).then(|| {
                format!(
                    "{} MB are free in the data directory, {} are needed; make room",
                    free >> 20,
                    SPACE >> 20
                )
            })
        }
        Ok(Err(error)) => Some(format!("the data directory cannot be looked at: {error}")),
        Err(error) => Some(error.to_string()),
    };
    Check::new("disk", wrong)
}

impl Check {
    fn new(name: &'static str, detail: Option<String>) -> Self {
        Self { name, ok: detail.is_none(), detail }
    }
}
