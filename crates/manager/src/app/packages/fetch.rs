//! Content that the manager fetches itself.

use std::io;

use futures::StreamExt as _;
use guywire_secrets::Secret;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::{
    App,
    onboard::{self, Failure},
    receive,
};
use crate::domain::{AppError, ErrorKind, PackageId};

/// Where a package's content can be had.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UploadFromUriRequest {
    /// An address, `http` or `https`.
    #[schemars(extend("format" = "uri"))]
    pub address_information: String,
    /// Who we are there.
    #[serde(default)]
    pub user_name: Option<String>,
    /// How we prove it. It is used once and not kept.
    #[serde(default)]
    pub password: Option<String>,
}

/// Begins to fetch a package's content. When it returns, the package is `UPLOADING`.
pub async fn fetch(app: &App, id: PackageId, request: UploadFromUriRequest) -> Result<(), AppError> {
    let url = address(&request.address_information)?;
    if request.password.is_some() && request.user_name.is_none() {
        return Err(AppError::invalid("password: it needs a userName"));
    }
    let login = request.user_name.zip(Some(request.password.map(|text| Secret::new(text.into_bytes()))));
    let claim = receive::begin(app, id, None).await?;
    let app = app.clone();
    tokio::spawn(async move {
        match open(&app, url, login).await {
            Ok(answer) => {
                let mut body = answer
                    .bytes_stream()
                    .map(|chunk| chunk.map_err(|error| io::Error::other(error.without_url())));
                // What went wrong is in the package's record, where the caller looks for it.
                if let Err(error) = receive::store(&app, id, claim, &mut body).await {
                    tracing::info!(package = %id, %error, "a package's content could not be fetched");
                }
            }
            Err(error) => {
                onboard::fail(&app, id, claim, &Failure::upload(error.kind, error.detail)).await;
            }
        }
    });
    Ok(())
}

fn address(text: &str) -> Result<Url, AppError> {
    let url = Url::parse(text).map_err(|error| {
        AppError::invalid(format!("addressInformation: it is no address ({error}); write https://host/path"))
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(AppError::invalid(format!(
            "addressInformation: {}:// is not fetched from; write http:// or https://",
            url.scheme()
        )));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(AppError::invalid(
            "addressInformation: write no user or password into the address; send userName and password",
        ));
    }
    Ok(url)
}

async fn open(
    app: &App,
    url: Url,
    login: Option<(String, Option<Secret>)>,
) -> Result<reqwest::Response, AppError> {
    let unreachable = |detail: String| AppError::new(ErrorKind::Unprocessable, detail);
    let mut request = app.callbacks.client().get(url);
    if let Some((user, password)) = &login {
        request = request.basic_auth(user, password.as_ref().and_then(Secret::expose_str));
    }
    let answer = request.send().await.map_err(|error| {
        let what = if error.is_connect() { "no connection" } else { "no answer" };
        unreachable(format!(
            "addressInformation: {what}; check the address and that the manager can reach it"
        ))
        .because(error.without_url())
    })?;
    let status = answer.status();
    if status.is_redirection() {
        return Err(unreachable(format!(
            "addressInformation: it answered {status}, which leads elsewhere; send the address where the package lies"
        )));
    }
    if status != http::StatusCode::OK {
        return Err(unreachable(format!(
            "addressInformation: it answered {status}; check the address, userName and password"
        )));
    }
    Ok(answer)
}
