//! Which interfaces there are, in which versions: open, so that a client can find out before it has credentials.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Access, Answer, ApiVersions, Call, FM_V1, LCM_V1, LCM_V2, PKGM_V1, Reply, Route, console};

/// All interfaces.
const ALL: [ApiVersions; 4] = [LCM_V1, LCM_V2, PKGM_V1, FM_V1];

/// `ApiVersionInformation` of SOL013 9.1.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ApiVersionInformation {
    /// The path before the version.
    uri_prefix: String,
    /// The versions.
    api_versions: Vec<ApiVersion>,
}

/// One version.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ApiVersion {
    /// Three numbers.
    version: &'static str,
    /// Whether it will go away.
    is_deprecated: bool,
}

/// The routes.
pub fn routes() -> Vec<Route> {
    let mut routes = vec![
        Route::get("/", Access::Open, root)
            .doc("versions", "The interfaces that there are; for a browser, the console")
            .answers::<Value>(200, "The interfaces")
            .answers_media(200, "text/html", "The console"),
    ];
    for path in [
        "/vnflcm/api_versions",
        "/vnflcm/v1/api_versions",
        "/vnflcm/v2/api_versions",
        "/vnfpkgm/api_versions",
        "/vnfpkgm/v1/api_versions",
        "/vnffm/api_versions",
        "/vnffm/v1/api_versions",
    ] {
        let route = Route::get(path, Access::Open, show)
            .doc("versions", "The versions of the interface")
            .answers::<ApiVersionInformation>(200, "The versions");
        routes.push(route);
    }
    routes
}

async fn show(call: Call) -> Answer {
    let name = call.path.trim_start_matches('/').split('/').next().unwrap_or_default();
    // Below `/vnflcm/v1` only that version is told of.
    let inside = call.path.trim_end_matches("/api_versions");
    let shown = ALL.iter().filter(|api| api.name == name && api.prefix.starts_with(inside));
    Ok(Reply::ok(&ApiVersionInformation {
        uri_prefix: format!("/{name}"),
        api_versions: shown.map(|api| ApiVersion { version: api.version, is_deprecated: false }).collect(),
    }))
}

async fn root(call: Call) -> Answer {
    let wants_page = call.headers.get_all(http::header::ACCEPT).iter().any(|value| {
        value.to_str().is_ok_and(|text| text.split(',').any(|range| range.trim().starts_with("text/html")))
    });
    if wants_page {
        return console::index(call).await;
    }
    let of = |api: &ApiVersions| {
        json!({
            "id": format!("{}-{}", api.name, api.prefix.rsplit('/').next().unwrap_or_default()),
            "status": "CURRENT",
            "version": api.version,
            "links": [{"rel": "self", "href": call.url(api.prefix)}],
        })
    };
    let mut versions: Vec<Value> = ALL.iter().map(of).collect();
    versions.push(json!({
        "id": "v1.0",
        "status": "CURRENT",
        "links": [{"rel": "self", "href": call.url("/v1.0")}],
    }));
    Ok(Reply::ok(&json!({
        "versions": versions,
        "guywire": {"version": env!("CARGO_PKG_VERSION"), "openapi": call.url("/openapi.json")},
    })))
}
