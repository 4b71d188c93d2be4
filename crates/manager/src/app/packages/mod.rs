//! Packages: from nothing to an onboarded descriptor, and away again.
//!
//! A package's record says how far it is; whoever works on its content holds a lock on the upload's file
//! ([`files::Claim`]). A state of `UPLOADING` or `PROCESSING` without such a lock means that the worker died, and
//! [`recover`] puts it right: at the start of a manager, and whenever somebody asks for such a package.

mod fetch;
mod files;
mod onboard;
mod receive;
mod recover;
mod release;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub use self::{
    fetch::{UploadFromUriRequest, fetch},
    files::Shelf,
    receive::{Announced, drain, receive},
    recover::{recover, settled},
    release::delete,
};
use super::App;
use crate::{
    domain::{AppError, ErrorKind, Notice, OnboardingState, OperationalState, PackageId, PackageRecord},
    store::StoreErrorKind,
};

/// How often a change is decided anew because somebody else was faster.
const TRIES: usize = 16;

/// Creates a package.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateVnfPkgInfoRequest {
    /// Free attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_defined_data: Option<Map<String, Value>>,
}

/// Changes a package: a merge patch.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct VnfPkgInfoModifications {
    /// Whether it may be instantiated.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OperationalState")]
    pub operational_state: Option<OperationalState>,
    /// Free attributes: `null` takes one away, or all of them.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub user_defined_data: Option<Option<Map<String, Value>>>,
}

/// Creates a package without content.
pub async fn create(app: &App, request: CreateVnfPkgInfoRequest) -> Result<PackageRecord, AppError> {
    let package = PackageRecord {
        id: PackageId::new(),
        rev: 1,
        onboarding: OnboardingState::Created,
        operational: OperationalState::Disabled,
        created: Timestamp::now(),
        user_defined: request.user_defined_data.unwrap_or_default(),
        failure: None,
        content: None,
        vnfd: None,
        vnfd_files: Vec::new(),
        artifacts: Vec::new(),
        signer: None,
        warnings: Vec::new(),
        failure_status: None,
    };
    app.store.insert_package(&package).await?;
    Ok(package)
}

/// A package, or a 404 that names it.
pub async fn find(app: &App, id: PackageId) -> Result<PackageRecord, AppError> {
    app.store.package(id).await?.ok_or_else(|| AppError::not_found(format!("there is no package {id}")))
}

/// A package that has content, or a 409 that says how far it is.
pub async fn find_onboarded(app: &App, id: PackageId) -> Result<PackageRecord, AppError> {
    let package = find(app, id).await?;
    if package.onboarding == OnboardingState::Onboarded {
        return Ok(package);
    }
    Err(AppError::conflict(format!(
        "package {id} is {}; its content can be read once it is ONBOARDED",
        package.onboarding.as_str()
    )))
}

/// Changes a package. `check` sees the package before anything is decided.
pub async fn modify(
    app: &App,
    id: PackageId,
    request: &VnfPkgInfoModifications,
    check: impl Fn(&PackageRecord) -> Result<(), AppError>,
) -> Result<PackageRecord, AppError> {
    if request.operational_state.is_none() && request.user_defined_data.is_none() {
        return Err(AppError::invalid(
            "the body changes nothing; send operationalState, userDefinedData or both",
        ));
    }
    change(app, id, |package| {
        check(package)?;
        merge(package, request)
    })
    .await
}

/// Merges a patch into a package. Says whom to tell.
fn merge(package: &mut PackageRecord, patch: &VnfPkgInfoModifications) -> Result<Told, AppError> {
    let mut told = Told::Nobody;
    if let Some(wanted) = patch.operational_state {
        if package.onboarding != OnboardingState::Onboarded {
            return Err(AppError::conflict(format!(
                "operationalState: package {} is {}; it can be enabled and disabled once it is ONBOARDED",
                package.id,
                package.onboarding.as_str()
            )));
        }
        if package.operational == wanted {
            return Err(AppError::conflict(format!(
                "operationalState: package {} is {} already",
                package.id,
                wanted.as_str()
            )));
        }
        package.operational = wanted;
        told = Told::Changed;
    }
    match &patch.user_defined_data {
        None => {}
        Some(None) => package.user_defined.clear(),
        Some(Some(wanted)) => merge_map(&mut package.user_defined, wanted),
    }
    Ok(told)
}

/// RFC 7396 on objects.
fn merge_map(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(inner) => {
                let entry = target.entry(key).or_insert_with(|| Value::Object(Map::new()));
                if !entry.is_object() {
                    *entry = Value::Object(Map::new());
                }
                if let Value::Object(map) = entry {
                    merge_map(map, inner);
                }
            }
            other => {
                target.insert(key.clone(), other.clone());
            }
        }
    }
}

/// Who hears of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nobody,
    Onboarded,
    Changed,
}

/// Decides on a package as it is and writes that, as often as somebody else was faster.
async fn change(
    app: &App,
    id: PackageId,
    decide: impl Fn(&mut PackageRecord) -> Result<Told, AppError>,
) -> Result<PackageRecord, AppError> {
    for _ in 0..TRIES {
        let mut package = find(app, id).await?;
        let notices = match decide(&mut package)? {
            Told::Nobody => Vec::new(),
            Told::Onboarded => vec![Notice::PackageOnboarded(Box::new(package.clone()))],
            Told::Changed => {
                vec![Notice::PackageChanged { package: Box::new(package.clone()), deleted: false }]
            }
        };
        match app.store.update_package(&package, &notices).await {
            Ok(()) => {
                package.rev += 1;
                return Ok(package);
            }
            Err(error) if error.kind == StoreErrorKind::Stale => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::conflict(format!(
        "package {id} is being changed by others all the time; repeat the request"
    )))
}

/// Runs what blocks where that is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, AppError> {
    let done = tokio::task::spawn_blocking(work).await;
    match done {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(disk(error)),
        Err(error) => Err(AppError::new(ErrorKind::Internal, "the manager is about to stop").because(error)),
    }
}

/// A file that could not be read or written.
fn disk(error: std::io::Error) -> AppError {
    let full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let detail = if full {
        "disk full: the manager's data directory has no room left; make room and repeat the request"
    } else {
        "the manager's data directory cannot be read or written; its log says why"
    };
    AppError::new(ErrorKind::Unavailable, detail).because(error)
}

/// Tells an attribute that is `null` from one that is not there.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// An attribute that a patch may change and not take away.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OperationalState>, D::Error> {
    let found = Option::deserialize(deserializer)?;
    found
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom("it cannot be taken away; write ENABLED or DISABLED"))
}
