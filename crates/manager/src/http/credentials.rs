//! `/guywire/v1/credentials`: who may ask. For administrators.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Access, Answer, Call, Reply, Route};
use crate::app::access::{Credential, CredentialKind, Role};

/// A credential to be made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewCredential {
    /// A unique name; for a certificate, its common name or one of its alternative names.
    name: String,
    /// How it is proved.
    #[serde(default = "token")]
    kind: CredentialKind,
    /// What it may do.
    role: Role,
    /// When it ends; never, if nothing is said.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    expires: Option<Timestamp>,
}

/// A credential that was just made.
#[derive(Serialize, JsonSchema)]
struct MadeCredential<'a> {
    /// What is kept of it.
    #[serde(flatten)]
    credential: &'a Credential,
    /// Its secret, shown this once; a certificate has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/guywire/v1/credentials", Access::Admin, list)
            .doc("access", "Who may ask")
            .answers::<Vec<Credential>>(200, "All credentials, without their secrets"),
        Route::post("/guywire/v1/credentials", Access::Admin, create)
            .doc("access", "Let somebody ask: a token, an OAuth2 client or a certificate")
            .takes::<NewCredential>()
            .answers::<MadeCredential>(201, "The credential with its secret, which is shown this once"),
        Route::delete("/guywire/v1/credentials/{credential}", Access::Admin, delete)
            .doc("access", "Let somebody ask no more, by id or name")
            .answers_nothing(204, "It is gone"),
    ]
}

async fn list(call: Call) -> Answer {
    Ok(Reply::ok(&call.app.store.credentials().await?))
}

async fn create(mut call: Call) -> Answer {
    let new: NewCredential = call.json().await?;
    let (made, secret) = call.shared.gate.create(&new.name, new.kind, new.role, new.expires).await?;
    let location = call.url(&format!("/guywire/v1/credentials/{}", made.id));
    let body = MadeCredential { credential: &made, secret: secret.as_ref().map(|secret| secret.as_str()) };
    tracing::info!(
        by = call.caller.name,
        name = made.name,
        role = made.role.as_str(),
        "a credential was made"
    );
    Ok(Reply::created(&location, &body).with_header(http::header::CACHE_CONTROL, "no-store"))
}

async fn delete(call: Call) -> Answer {
    let name = call.param("credential");
    call.shared.gate.delete(name).await?;
    tracing::info!(by = call.caller.name, name, "a credential was deleted");
    Ok(Reply::no_content())
}

fn token() -> CredentialKind {
    CredentialKind::Token
}
