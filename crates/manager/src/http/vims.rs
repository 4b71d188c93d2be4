//! `/v1.0/vims`: the registry of VIMs, in the words of python-tackerclient, which ends its paths in `.json`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{Access, Answer, Call, Reply, Route};
use crate::{
    app::vims::{self, VimChange},
    domain::{AppError, Vim, VimId},
};

/// Attributes that can be asked for with `fields`.
const FIELDS: &[&str] = &[
    "id",
    "name",
    "description",
    "type",
    "is_default",
    "auth_url",
    "auth_cred",
    "vim_project",
    "placement_attr",
    "interface",
    "extra",
    "created_at",
    "updated_at",
    // Asked for by Tacker's clients; there is nothing to say.
    "tenant_id",
    "project_id",
    "status",
];

/// A VIM to be registered, or what is to be changed of one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VimRequest {
    /// The VIM.
    vim: VimBody,
}

/// What is said of a VIM.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::option_option, reason = "null removes, and nothing said keeps")]
struct VimBody {
    /// A unique name.
    #[serde(default)]
    name: Option<String>,
    /// Words for people.
    #[serde(default, deserialize_with = "there")]
    #[schemars(with = "Option<String>")]
    description: Option<Option<String>>,
    /// `lab`, `hosts` or `kubernetes`.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// Whether it is used when a request names none.
    #[serde(default)]
    is_default: Option<bool>,
    /// The address of a cluster's API server.
    #[serde(default)]
    auth_url: Option<String>,
    /// Credentials; kept in the store of secrets and shown as references.
    #[serde(default)]
    auth_cred: Option<Map<String, Value>>,
    /// Kept for Tacker's clients.
    #[serde(default)]
    vim_project: Option<Map<String, Value>>,
    /// Kept for Tacker's clients.
    #[serde(default)]
    placement_attr: Option<Map<String, Value>>,
    /// What the type needs to know: `lab` for a lab, `inventory` for hosts.
    #[serde(default)]
    interface: Option<Map<String, Value>>,
    /// Anything else.
    #[serde(default)]
    extra: Option<Map<String, Value>>,
}

/// One VIM.
#[derive(Serialize, JsonSchema)]
struct VimAnswer {
    /// The VIM.
    vim: VimShown,
}

/// All VIMs.
#[derive(Serialize, JsonSchema)]
struct VimsAnswer {
    /// The VIMs, or what was asked for of them.
    vims: Vec<Map<String, Value>>,
}

/// A VIM as it is shown.
#[derive(Serialize, JsonSchema)]
struct VimShown {
    id: VimId,
    name: String,
    description: String,
    r#type: &'static str,
    is_default: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_url: Option<Value>,
    auth_cred: Map<String, Value>,
    vim_project: Value,
    placement_attr: Value,
    interface: Map<String, Value>,
    extra: Map<String, Value>,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<String>,
}

/// The routes, each with and without `.json`.
pub fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    for path in ["/v1.0/vims", "/v1.0/vims.json"] {
        routes.push(
            Route::get(path, Access::Reader, list)
                .doc("vims", "The places that make machines")
                .query("name", "Those of this name")
                .query("id", "The one with this id")
                .query("type", "Those of this type")
                .query("is_default", "`true`: the default one; `false`: the others")
                .query("fields", "Show these attributes; may be there several times")
                .answers::<VimsAnswer>(200, "The VIMs"),
        );
        routes.push(
            Route::post(path, Access::Admin, register)
                .doc("vims", "Register a place that makes machines")
                .takes::<VimRequest>()
                .answers::<VimAnswer>(201, "The VIM"),
        );
    }
    let path = "/v1.0/vims/{vimId}";
    routes.push(
        Route::get(path, Access::Reader, show).doc("vims", "One VIM").answers::<VimAnswer>(200, "The VIM"),
    );
    routes.push(
        Route::put(path, Access::Admin, change)
            .doc("vims", "Change a VIM")
            .takes::<VimRequest>()
            .answers::<VimAnswer>(200, "The VIM as it is now"),
    );
    routes.push(
        Route::delete(path, Access::Admin, delete)
            .doc("vims", "Forget a VIM that no instance stands in")
            .answers_nothing(204, "It is gone"),
    );
    routes
}

async fn list(call: Call) -> Answer {
    let pairs = super::query::parse(&call.query)?;
    let mut fields: Vec<&str> = Vec::new();
    for (_, text) in pairs.iter().filter(|(name, _)| name == "fields") {
        for field in text.split(',') {
            if !FIELDS.contains(&field) {
                return Err(AppError::invalid(format!(
                    "fields: a VIM has no attribute {field:?}; it has {}",
                    FIELDS.join(", ")
                )));
            }
            fields.push(field);
        }
    }
    let wanted = |vim: &Vim| {
        pairs.iter().all(|(name, text)| match name.as_str() {
            "name" => vim.name == *text,
            "id" => vim.id.to_string() == *text,
            "type" => vim.kind.as_str() == text,
            "is_default" => vim.default == text.eq_ignore_ascii_case("true"),
            _ => true,
        })
    };
    let vims = call.app.store.vims().await?;
    let shown = vims.into_iter().filter(wanted).map(|vim| {
        let Ok(Value::Object(mut map)) = serde_json::to_value(VimShown::from(vim)) else {
            unreachable!("a struct is an object")
        };
        if !fields.is_empty() {
            map.retain(|name, _| fields.contains(&name.as_str()));
        }
        map
    });
    Ok(Reply::ok(&VimsAnswer { vims: shown.collect() }))
}

async fn register(mut call: Call) -> Answer {
    let request: VimRequest = call.json().await?;
    let vim = vims::register(&call.app, request.vim.into_change(None)).await?;
    tracing::info!(by = call.caller.name, vim = %vim.id, name = vim.name, "a VIM was registered");
    let location = call.url(&format!("/v1.0/vims/{}", vim.id));
    Ok(Reply::created(&location, &VimAnswer { vim: vim.into() }))
}

async fn show(call: Call) -> Answer {
    let vim = vims::show(&call.app, id(&call)?).await?;
    Ok(Reply::ok(&VimAnswer { vim: vim.into() }).with_content_etag())
}

async fn change(mut call: Call) -> Answer {
    let id = id(&call)?;
    let present = vims::show(&call.app, id).await?;
    check_match(&call, &present)?;
    let request: VimRequest = call.json().await?;
    let vim = vims::change(&call.app, id, request.vim.into_change(Some(&present))).await?;
    tracing::info!(by = call.caller.name, vim = %vim.id, name = vim.name, "a VIM was changed");
    Ok(Reply::ok(&VimAnswer { vim: vim.into() }).with_content_etag())
}

async fn delete(call: Call) -> Answer {
    let id = id(&call)?;
    check_match(&call, &vims::show(&call.app, id).await?)?;
    vims::delete(&call.app, id).await?;
    tracing::info!(by = call.caller.name, vim = %id, "a VIM was deleted");
    Ok(Reply::no_content())
}

fn check_match(call: &Call, vim: &Vim) -> Result<(), AppError> {
    let shown = serde_json::to_vec(&VimAnswer { vim: vim.clone().into() }).expect("plain data");
    call.if_match(super::content_tag(&shown))
}

/// The id in the path, with or without `.json`.
fn id(call: &Call) -> Result<VimId, AppError> {
    let text = call.param("vimId");
    let text = text.strip_suffix(".json").unwrap_or(text);
    text.parse()
        .map_err(|_| AppError::not_found(format!("there is no VIM with the id {text:?}: an id is a UUID")))
}

impl VimBody {
    /// The change in our own words. Attributes of Tacker's that are kept beside others keep the rest as it is.
    fn into_change(self, present: Option<&Vim>) -> VimChange {
        let mut interface = self.interface;
        if let Some(endpoint) = self.auth_url {
            let mut whole =
                interface.or_else(|| present.map(|vim| vim.interface.clone())).unwrap_or_default();
            whole.insert("endpoint".to_owned(), Value::String(endpoint));
            interface = Some(whole);
        }
        let mut extra = self.extra;
        for (name, part) in [("vim_project", self.vim_project), ("placement_attr", self.placement_attr)] {
            let Some(part) = part else { continue };
            let mut whole = extra.or_else(|| present.map(|vim| vim.extra.clone())).unwrap_or_default();
            whole.insert(name.to_owned(), Value::Object(part));
            extra = Some(whole);
        }
        VimChange {
            name: self.name,
            description: self.description,
            kind: self.kind,
            default: self.is_default,
            interface,
            access: self.auth_cred,
            extra,
        }
    }
}

impl From<Vim> for VimShown {
    fn from(vim: Vim) -> Self {
        let mut extra = vim.extra;
        let mut take = |name: &str| {
            let part = extra.remove(name).filter(Value::is_object);
            part.unwrap_or_else(|| Value::Object(Map::new()))
        };
        let (vim_project, placement_attr) = (take("vim_project"), take("placement_attr"));
        Self {
            id: vim.id,
            name: vim.name,
            description: vim.description.unwrap_or_default(),
            r#type: vim.kind.as_str(),
            is_default: vim.default,
            auth_url: vim.interface.get("endpoint").cloned(),
            auth_cred: vim.access,
            vim_project,
            placement_attr,
            interface: vim.interface,
            extra,
            created_at: vim.created.to_string(),
            updated_at: vim.updated.map(|time| time.to_string()),
        }
    }
}

/// Tells `null` from nothing said.
#[expect(clippy::option_option, reason = "null removes, and nothing said keeps")]
fn there<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}
