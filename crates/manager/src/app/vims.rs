//! The registry of VIMs, and which of them a request means.

use std::collections::BTreeMap;

use guywire_secrets::{Secret, SecretRef};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::App;
use crate::{
    domain::{AppError, ErrorKind, Vim, VimConnection, VimId, VimType},
    store::{Store, StoreErrorKind},
};

/// The name of a connection that the manager chose itself.
pub const CHOSEN: &str = "default";
/// What of credentials may be shown. Anything else is kept secret, whatever it is called.
const PUBLIC: &[&str] = &[
    "username",
    "user",
    "user_domain_name",
    "project_domain_name",
    "project",
    "project_name",
    "region",
    "ssl_ca_cert",
    "client_certificate",
    "cert_verify",
    "type",
    "oidc_token_url",
    "client_id",
];
/// Parts of names that give a secret away where names are free.
const TELLING: &[&str] =
    &["password", "passwd", "secret", "token", "private_key", "client_key", "credential"];

/// A VIM to be registered, or what is to be changed of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VimChange {
    /// Its name.
    pub name: Option<String>,
    /// Words from people; `Some(None)` removes them.
    pub description: Option<Option<String>>,
    /// Its type, as it was written.
    pub kind: Option<String>,
    /// Whether it is the default.
    pub default: Option<bool>,
    /// What the type needs to know.
    pub interface: Option<Map<String, Value>>,
    /// Credentials, in the clear or as references.
    pub access: Option<Map<String, Value>>,
    /// Anything else.
    pub extra: Option<Map<String, Value>>,
}

/// Registers a VIM.
pub async fn register(app: &App, change: VimChange) -> Result<Vim, AppError> {
    let written = change
        .kind
        .clone()
        .ok_or_else(|| AppError::invalid(format!("vim.type is missing; there are {}", kinds())))?;
    let name = change.name.clone().ok_or_else(|| AppError::invalid("vim.name is missing"))?;
    let kind = parse_kind(&written, "vim.type")?;
    let vim = Vim {
        id: VimId::new(),
        name,
        description: None,
        kind,
        default: false,
        created: Timestamp::now(),
        updated: None,
        interface: Map::new(),
        access: Map::new(),
        extra: Map::new(),
    };
    let (vim, secrets) = apply(vim, change)?;
    let names: Vec<SecretRef> = secrets.iter().map(|(name, _)| name.clone()).collect();
    keep(app, secrets).await?;
    if let Err(error) = app.store.insert_vim(&vim).await {
        forget(app, names).await?;
        return Err(named(error, &vim.name));
    }
    Ok(vim)
}

/// Changes a VIM.
pub async fn change(app: &App, id: VimId, change: VimChange) -> Result<Vim, AppError> {
    let present = show(app, id).await?;
    if let Some(written) = &change.kind
        && parse_kind(written, "vim.type")? != present.kind
    {
        return Err(AppError::invalid(format!(
            "vim.type: {} is of type {} and stays so; register another VIM",
            present.name,
            present.kind.as_str()
        )));
    }
    let before = references(&present);
    let (mut vim, secrets) = apply(present, change)?;
    vim.updated = Some(Timestamp::now());
    keep(app, secrets).await?;
    match app.store.update_vim(&vim).await {
        Ok(true) => {}
        Ok(false) => return Err(missing(id)),
        Err(error) => return Err(named(error, &vim.name)),
    }
    let after = references(&vim);
    forget(app, before.into_iter().filter(|name| !after.contains(name) && is_of(name, id)).collect()).await?;
    Ok(vim)
}

/// One VIM.
pub async fn show(app: &App, id: VimId) -> Result<Vim, AppError> {
    app.store.vim(id).await?.ok_or_else(|| missing(id))
}

/// Forgets a VIM that nothing stands in, with its secrets.
pub async fn delete(app: &App, id: VimId) -> Result<(), AppError> {
    let vim = show(app, id).await?;
    if !app.store.delete_vim(id).await? {
        if app.store.vim(id).await?.is_none() {
            return Err(missing(id));
        }
        let inside: Vec<String> = app.store.instances_in(id).await?.iter().map(ToString::to_string).collect();
        let who = if inside.is_empty() {
            "an unfinished operation uses it; wait for its end".to_owned()
        } else {
            format!("instances stand in it ({}); terminate them first", inside.join(", "))
        };
        return Err(AppError::conflict(format!("VIM {} cannot be deleted: {who}", vim.name)));
    }
    let own = references(&vim).into_iter().filter(|name| is_of(name, id)).collect();
    forget(app, own).await
}

/// Makes sure that there is a VIM: a manager without any registers its own lab as the default.
pub async fn ensure_default(store: &Store) -> Result<(), AppError> {
    if !store.vims().await?.is_empty() {
        return Ok(());
    }
    let Value::Object(interface) = json!({"lab": "vnf"}) else { unreachable!("an object was written") };
    let vim = Vim {
        id: VimId::new(),
        name: "lab".to_owned(),
        description: Some("Machines made of this host's namespaces".to_owned()),
        kind: VimType::Lab,
        default: true,
        created: Timestamp::now(),
        updated: None,
        interface,
        access: Map::new(),
        extra: Map::new(),
    };
    match store.insert_vim(&vim).await {
        // Another manager of the same database was faster.
        Err(error) if error.kind == StoreErrorKind::Taken => Ok(()),
        done => done.map_err(AppError::from),
    }
}

/// The VIM that a request means, with the request's own name for it; the default if it names none.
pub async fn resolve(
    store: &Store,
    connections: &BTreeMap<String, VimConnection>,
) -> Result<(String, Vim), AppError> {
    choose(&store.vims().await?, connections)
}

/// The same, decided on what is registered. Every connection must lead somewhere; the first one is taken.
pub fn choose(
    vims: &[Vim],
    connections: &BTreeMap<String, VimConnection>,
) -> Result<(String, Vim), AppError> {
    let mut chosen = None;
    for (name, connection) in connections {
        let vim = lookup(vims, name, connection)?;
        chosen.get_or_insert((name.clone(), vim.clone()));
    }
    if let Some(chosen) = chosen {
        return Ok(chosen);
    }
    let vim = default_of(vims).ok_or_else(|| {
        unprocessable(format!(
            "vimConnectionInfo names no VIM and none is the default; {}; name one, or make one the default",
            there_is(vims)
        ))
    })?;
    Ok((CHOSEN.to_owned(), vim.clone()))
}

fn lookup<'a>(vims: &'a [Vim], name: &str, connection: &VimConnection) -> Result<&'a Vim, AppError> {
    let place = format!("vimConnectionInfo.{name}");
    let kind = connection
        .vim_type
        .as_deref()
        .map(|written| {
            VimType::parse(written).ok_or_else(|| {
                unprocessable(format!(
                    "{place}.vimType: there is no VIM of type {written:?}; {}",
                    there_is(vims)
                ))
            })
        })
        .transpose()?;
    if let Some(id) = &connection.vim_id {
        let vim = vims.iter().find(|vim| vim.id.to_string() == *id || vim.name == *id).ok_or_else(|| {
            unprocessable(format!("{place}.vimId: there is no VIM {id:?}; {}", there_is(vims)))
        })?;
        if let Some(kind) = kind.filter(|kind| *kind != vim.kind) {
            return Err(unprocessable(format!(
                "{place}.vimType: VIM {} is of type {} and not {}",
                vim.name,
                vim.kind.as_str(),
                kind.as_str()
            )));
        }
        return Ok(vim);
    }
    if !connection.interface_info.is_empty() || !connection.access_info.is_empty() {
        return Err(unprocessable(format!(
            "{place}: interfaceInfo and accessInfo are taken from registered VIMs only; register it at /v1.0/vims and \
             name its vimId; {}",
            there_is(vims)
        )));
    }
    let fits = |vim: &&Vim| kind.is_none_or(|kind| vim.kind == kind);
    default_of(vims).filter(fits).or_else(|| vims.iter().find(|vim| kind.is_some() && fits(vim))).ok_or_else(
        || {
            let what = kind.map_or("no VIM is the default".to_owned(), |kind| {
                format!("there is no VIM of type {}", kind.as_str())
            });
            unprocessable(format!("{place}: {what}; {}", there_is(vims)))
        },
    )
}

fn default_of(vims: &[Vim]) -> Option<&Vim> {
    vims.iter().find(|vim| vim.default)
}

/// What can be named, for messages.
fn there_is(vims: &[Vim]) -> String {
    if vims.is_empty() {
        return "none is registered".to_owned();
    }
    let listed: Vec<String> = vims
        .iter()
        .take(20)
        .map(|vim| format!("{} (name {}, type {})", vim.id, vim.name, vim.kind.as_str()))
        .collect();
    let more = if vims.len() > 20 { " and more" } else { "" };
    format!("there is {}{more}", listed.join(", "))
}

type Kept = Vec<(SecretRef, Secret)>;

/// The VIM after a change, and the secrets that the change brought in the clear. Pure.
fn apply(mut vim: Vim, change: VimChange) -> Result<(Vim, Kept), AppError> {
    if let Some(name) = change.name {
        if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) || name.trim() != name {
            return Err(AppError::invalid(
                "vim.name: it has 1 to 255 characters, no control characters and no space around it",
            ));
        }
        vim.name = name;
    }
    if let Some(description) = change.description {
        vim.description = description;
    }
    if let Some(default) = change.default {
        vim.default = default;
    }
    let mut kept = Vec::new();
    if let Some(interface) = change.interface {
        vim.interface = hide(interface, vim.id, "interface", is_telling, &mut kept)?;
    }
    if let Some(access) = change.access {
        let hidden = |name: &str| !PUBLIC.contains(&name);
        vim.access = hide(access, vim.id, "auth_cred", hidden, &mut kept)?;
    }
    if let Some(extra) = change.extra {
        vim.extra = hide(extra, vim.id, "extra", is_telling, &mut kept)?;
    }
    check(&vim)?;
    Ok((vim, kept))
}

/// What each type needs.
fn check(vim: &Vim) -> Result<(), AppError> {
    let text = |name: &str| vim.interface.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    match vim.kind {
        VimType::Lab => {
            let good = |name: &str| {
                name.len() <= 32
                    && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
            };
            if !text("lab").is_some_and(good) {
                return Err(AppError::invalid(
                    "vim.interface.lab: a VIM of type lab names its lab, in lower-case letters, digits and hyphens: \
                     {\"lab\": \"vnf\"}",
                ));
            }
        }
        VimType::Hosts => {
            let there = vim.interface.get("inventory");
            if !there
                .is_some_and(|value| value.is_object() || value.as_str().is_some_and(|text| !text.is_empty()))
            {
                return Err(AppError::invalid(
                    "vim.interface.inventory: a VIM of type hosts has the inventory of its machines, or the name of \
                     its file",
                ));
            }
        }
        VimType::Kubernetes => {
            let endpoint = text("endpoint").and_then(|text| url::Url::parse(text).ok());
            let good = endpoint.is_some_and(|url| {
                matches!(url.scheme(), "http" | "https") && url.has_host() && url.password().is_none()
            });
            if !good {
                return Err(AppError::invalid(
                    "vim.auth_url: a VIM of type kubernetes has the address of its API server, without a password \
                     in it: https://192.0.2.1:6443",
                ));
            }
        }
    }
    Ok(())
}

/// Replaces secrets by references, however deep they stand.
fn hide(
    map: Map<String, Value>,
    id: VimId,
    place: &str,
    hidden: impl Fn(&str) -> bool + Copy,
    kept: &mut Kept,
) -> Result<Map<String, Value>, AppError> {
    map.into_iter()
        .map(|(name, value)| {
            let inner = format!("{place}.{name}");
            let value = hide_value(value, &name, id, &inner, hidden, kept)?;
            Ok((name, value))
        })
        .collect()
}

fn hide_value(
    value: Value,
    name: &str,
    id: VimId,
    place: &str,
    hidden: impl Fn(&str) -> bool + Copy,
    kept: &mut Kept,
) -> Result<Value, AppError> {
    Ok(match value {
        Value::Object(map) => Value::Object(hide(map, id, place, hidden, kept)?),
        Value::Array(all) => {
            let numbered = all.into_iter().enumerate();
            let parts =
                numbered.map(|(at, one)| hide_value(one, name, id, &format!("{place}.{at}"), hidden, kept));
            Value::Array(parts.collect::<Result<_, _>>()?)
        }
        Value::String(text) if hidden(name) => Value::String(hide_one(text, id, place, kept)?),
        Value::Number(_) | Value::Bool(_) if hidden(name) => {
            return Err(AppError::invalid(format!(
                "vim.{place}: it is kept secret, so it has to be a string"
            )));
        }
        plain => plain,
    })
}

fn hide_one(text: String, id: VimId, place: &str, kept: &mut Kept) -> Result<String, AppError> {
    // A reference stays one: whoever registers it knows the name of the secret and not what it is.
    if text.starts_with("secret:") {
        let reference: Result<SecretRef, _> = text.parse();
        return reference.map(|_| text).map_err(|error| AppError::invalid(format!("vim.{place}: {error}")));
    }
    let name: String = place
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .take(120)
        .collect();
    let reference: SecretRef = format!("secret:vim.{id}.{name}")
        .parse()
        .map_err(|error| AppError::invalid(format!("vim.{place}: {error}")))?;
    let shown = reference.to_string();
    kept.push((reference, Secret::new(text)));
    Ok(shown)
}

fn is_telling(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    TELLING.iter().any(|part| name.contains(part))
}

/// All references in a VIM.
fn references(vim: &Vim) -> Vec<SecretRef> {
    fn walk(value: &Value, found: &mut Vec<SecretRef>) {
        match value {
            Value::String(text) => found.extend(text.parse::<SecretRef>()),
            Value::Array(all) => all.iter().for_each(|one| walk(one, found)),
            Value::Object(map) => map.values().for_each(|one| walk(one, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut found = Vec::new();
    for map in [&vim.interface, &vim.access, &vim.extra] {
        map.values().for_each(|value| walk(value, &mut found));
    }
    found
}

/// Whether a secret was made for this VIM, and goes with it.
fn is_of(reference: &SecretRef, id: VimId) -> bool {
    reference.name().starts_with(&format!("vim.{id}."))
}

async fn keep(app: &App, secrets: Kept) -> Result<(), AppError> {
    let store = app.secrets.clone();
    on_disk(move || secrets.into_iter().try_for_each(|(name, secret)| store.set(&name, secret))).await
}

async fn forget(app: &App, names: Vec<SecretRef>) -> Result<(), AppError> {
    let store = app.secrets.clone();
    on_disk(move || names.iter().try_for_each(|name| store.remove(name).map(drop))).await
}

/// The store of secrets waits for the disk, which a request's thread must not.
async fn on_disk(
    work: impl FnOnce() -> Result<(), guywire_secrets::StoreError> + Send + 'static,
) -> Result<(), AppError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        AppError::new(ErrorKind::Unavailable, "the store of secrets does not answer; see the manager's log")
            .because(error)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| failed(error.into())),
        Err(error) => Err(failed(error.into())),
    }
}

fn parse_kind(text: &str, place: &str) -> Result<VimType, AppError> {
    VimType::parse(text).ok_or_else(|| {
        AppError::invalid(format!(
            "{place}: {text:?} is no type of VIM that is served here; there are {}",
            kinds()
        ))
    })
}

fn kinds() -> String {
    VimType::ALL.map(VimType::as_str).join(", ")
}

fn named(error: crate::store::StoreError, name: &str) -> AppError {
    if error.kind == StoreErrorKind::Taken {
        return AppError::conflict(format!(
            "vim.name: there is a VIM named {name:?} already; choose another name"
        ));
    }
    error.into()
}

fn missing(id: VimId) -> AppError {
    AppError::not_found(format!("there is no VIM {id}"))
}

fn unprocessable(detail: String) -> AppError {
    AppError::new(ErrorKind::Unprocessable, detail)
}

#[cfg(test)]
mod tests;
