//! Requests are checked, their secrets put away, and operations accepted: one at a time on an instance.

use guywire_secrets::SecretRef;
use jiff::Timestamp;

use super::{Request, outline::outline};
use crate::{
    app::{
        App,
        hiding::{self, Hidden},
        requests::{CreateVnfRequest, VimConnections, VnfInfoModificationRequest},
        vims,
    },
    domain::{
        AppError, Direction, ErrorKind, Instance, InstanceId, InstantiationState, Notice, OnboardingState,
        Operation, OperationId, OperationState, OperationType, OperationalState, PackageRecord, Stage,
    },
    store::StoreErrorKind,
};

/// Names and descriptions beyond this are a mistake.
const LONGEST_NAME: usize = 255;
const LONGEST_DESCRIPTION: usize = 4096;

/// An operation that was accepted.
#[derive(Debug, Clone, Copy)]
pub struct Accepted {
    /// Its id.
    pub operation: OperationId,
}

/// Creates an instance of an onboarded descriptor.
pub async fn create(app: &App, request: CreateVnfRequest) -> Result<Instance, AppError> {
    check_words(request.vnf_instance_name.as_deref(), request.vnf_instance_description.as_deref())?;
    let package = onboarded(app, &request.vnfd_id).await?;
    let vnfd = package.vnfd.as_ref().ok_or_else(|| missing_vnfd(&request.vnfd_id))?;
    let instance = Instance {
        id: InstanceId::new(),
        rev: 1,
        name: request.vnf_instance_name.filter(|name| !name.is_empty()),
        description: request.vnf_instance_description.filter(|text| !text.is_empty()),
        vnfd_id: vnfd.id.clone(),
        package: package.id,
        provider: vnfd.provider.clone(),
        product: vnfd.product_name.clone(),
        software_version: vnfd.software_version.clone(),
        vnfd_version: vnfd.version.clone(),
        state: InstantiationState::NotInstantiated,
        operation: None,
        created: Timestamp::now(),
        metadata: request.metadata.unwrap_or_default(),
        extensions: serde_json::Map::new(),
        configurable: serde_json::Map::new(),
        vims: std::collections::BTreeMap::new(),
        info: None,
    };
    app.store.insert_instance(&instance).await.map_err(|error| match error.kind {
        // The package was deleted between our look at it and now.
        StoreErrorKind::Taken | StoreErrorKind::Stale => missing_vnfd(&request.vnfd_id),
        _ => error.into(),
    })?;
    Ok(instance)
}

/// Deletes an instance that has no machines.
pub async fn delete(
    app: &App,
    id: InstanceId,
    etag: impl Fn(&Instance) -> Result<(), AppError>,
) -> Result<(), AppError> {
    let instance = find(app, id).await?;
    etag(&instance)?;
    free(app, &instance).await?;
    if instance.state == InstantiationState::Instantiated {
        return Err(AppError::conflict("the instance is INSTANTIATED; terminate it before it is deleted"));
    }
    app.store.delete_instance(&instance).await?;
    let prefix = format!("vnf.{id}.");
    forget_secrets(app, prefix).await
}

/// Changes an instance's own attributes.
pub async fn modify(
    app: &App,
    id: InstanceId,
    request: VnfInfoModificationRequest,
    etag: impl Fn(&Instance) -> Result<(), AppError>,
) -> Result<Accepted, AppError> {
    let name = request.vnf_instance_name.as_ref().and_then(Option::as_deref);
    let description = request.vnf_instance_description.as_ref().and_then(Option::as_deref);
    check_words(name, description)?;
    let instance = find(app, id).await?;
    etag(&instance)?;
    if let Some(vnfd_id) = &request.vnfd_id {
        if instance.state == InstantiationState::Instantiated && *vnfd_id != instance.vnfd_id {
            return Err(AppError::conflict(
                "vnfdId: the instance is INSTANTIATED; use change_vnfpkg, which changes its machines too",
            ));
        }
        onboarded(app, vnfd_id).await?;
    }
    if let Some(package) = &request.vnf_pkg_id
        && *package != instance.package.to_string()
    {
        return Err(AppError::invalid(
            "vnfPkgId: name the package by its descriptor, as vnfdId, and only while there are no machines",
        ));
    }
    if !request.vim_connection_info.is_empty() {
        if instance.info.is_none() {
            return Err(AppError::invalid(
                "vimConnectionInfo: the instance is NOT_INSTANTIATED; name the VIM when it is instantiated",
            ));
        }
        vims::resolve(&app.store, &request.vim_connection_info.0).await?;
    }
    let known = instance.info.as_ref().map(|info| &info.vnfcs[..]).unwrap_or_default();
    for modification in &request.vnfc_info_modifications {
        if !known.iter().any(|vnfc| vnfc.id == modification.id) {
            let names = super::outline::listed(known.iter().map(|vnfc| vnfc.id.as_str()));
            return Err(AppError::invalid(format!(
                "vnfcInfoModifications: the instance has no component {:?}; it has {names}",
                modification.id
            )));
        }
    }
    accept(app, &instance, &Request::ModifyInfo(Box::new(request)), false).await
}

/// Starts an operation on an instance.
pub async fn start(app: &App, id: InstanceId, request: &Request) -> Result<Accepted, AppError> {
    let instance = find(app, id).await?;
    free(app, &instance).await?;
    let package = app.store.package(instance.package).await?;
    let vnfd = package.as_ref().and_then(|package| package.vnfd.as_ref());
    let vnfd = vnfd.ok_or_else(|| {
        AppError::new(ErrorKind::Internal, "the instance's package is not there; see the manager's log")
    })?;
    let next = match request {
        Request::ChangeVnfpkg(wanted) => Some(onboarded(app, &wanted.vnfd_id).await?),
        _ => None,
    };
    let next = next.as_ref().and_then(|package| package.vnfd.as_ref());
    outline(request, &instance, vnfd, next)?;
    if let Some(connections) = connections(request)
        && (instance.info.is_none() || !connections.is_empty())
    {
        let (_, vim) = vims::resolve(&app.store, &connections.0).await?;
        if instance.info.as_ref().is_some_and(|info| info.vim != vim.id) {
            return Err(AppError::invalid(format!(
                "vimConnectionInfo: the instance stands in another VIM, and cannot be moved to {}",
                vim.name
            )));
        }
        app.works.place(&vim).await.map_err(|error| AppError::new(ErrorKind::Unprocessable, error.reason))?;
    }
    accept(app, &instance, request, false).await
}

/// Accepts an operation that was found good.
pub async fn accept(
    app: &App,
    instance: &Instance,
    request: &Request,
    automatic: bool,
) -> Result<Accepted, AppError> {
    let id = OperationId::new();
    let mut params = request.params();
    let hidden = hide(app, instance, id, &mut params).await?;
    let operation = Operation { automatic, params, ..fresh(id, instance.id, request.operation()) };
    let notice =
        Notice::Operation { operation: Box::new(operation.clone()), instance: Box::new(instance.clone()) };
    let accepted = app.store.accept_operation(&operation, instance, &[notice]).await;
    if let Err(error) = accepted {
        forget(app, hidden).await?;
        return Err(match error.kind {
            StoreErrorKind::Taken | StoreErrorKind::Stale => {
                AppError::conflict("another operation on this instance was faster; wait until it has ended")
            }
            _ => error.into(),
        });
    }
    tracing::info!(operation = %id, instance = %instance.id, what = operation.operation.as_str(), "accepted");
    Ok(Accepted { operation: id })
}

/// An operation that has just been asked for.
pub(super) fn fresh(id: OperationId, instance: InstanceId, operation: OperationType) -> Operation {
    let now = Timestamp::now();
    let modify = operation == OperationType::ModifyInfo;
    Operation {
        id,
        rev: 1,
        instance,
        operation,
        // Nobody is asked about attributes.
        state: if modify { OperationState::Processing } else { OperationState::Starting },
        entered: now,
        started: now,
        automatic: false,
        params: serde_json::Map::new(),
        grant: None,
        cancel: None,
        error: None,
        affected: Vec::new(),
        changed_info: None,
        changed_ext: Vec::new(),
        warnings: Vec::new(),
        stage: if modify { Stage::Finish } else { Stage::Grant },
        direction: Direction::Forward,
        resumes: 0,
        plan: None,
        plans: Vec::new(),
        target: None,
    }
}

/// The instance of that id.
pub async fn find(app: &App, id: InstanceId) -> Result<Instance, AppError> {
    let found = app.store.instance(id).await?;
    found.ok_or_else(|| AppError::not_found(format!("there is no VNF instance {id}")))
}

/// Refuses what an unfinished operation stands in the way of.
async fn free(app: &App, instance: &Instance) -> Result<(), AppError> {
    let Some(id) = instance.operation else { return Ok(()) };
    let Some(operation) = app.store.operation(id).await? else { return Ok(()) };
    if !operation.state.is_unfinished() {
        return Ok(());
    }
    let what = if operation.state == OperationState::FailedTemp {
        "retry it, roll it back or fail it first"
    } else {
        "wait until it has ended, or cancel it"
    };
    Err(AppError::conflict(format!(
        "operation {} ({}) of this instance is {}; {what}",
        operation.id,
        operation.operation.as_str(),
        operation.state.as_str()
    )))
}

/// The package of a descriptor that may be instantiated.
async fn onboarded(app: &App, vnfd_id: &str) -> Result<PackageRecord, AppError> {
    let package = app.store.package_of(vnfd_id).await?.ok_or_else(|| missing_vnfd(vnfd_id))?;
    let usable =
        package.onboarding == OnboardingState::Onboarded && package.operational == OperationalState::Enabled;
    if !usable {
        return Err(AppError::new(
            ErrorKind::Unprocessable,
            format!("vnfdId: package {} of descriptor {vnfd_id} is DISABLED; enable it first", package.id),
        ));
    }
    Ok(package)
}

fn missing_vnfd(vnfd_id: &str) -> AppError {
    AppError::new(
        ErrorKind::Unprocessable,
        format!(
            "vnfdId: no onboarded package holds descriptor {vnfd_id:?}; upload one, or list those that are there"
        ),
    )
}

fn connections(request: &Request) -> Option<&VimConnections> {
    match request {
        Request::Instantiate(wanted) => Some(&wanted.vim_connection_info),
        Request::ChangeFlavour(wanted) => Some(&wanted.vim_connection_info),
        Request::ChangeExtConn(wanted) => Some(&wanted.vim_connection_info),
        Request::ChangeVnfpkg(wanted) => Some(&wanted.vim_connection_info),
        _ => None,
    }
}

fn check_words(name: Option<&str>, description: Option<&str>) -> Result<(), AppError> {
    if name.is_some_and(|name| name.chars().count() > LONGEST_NAME) {
        return Err(AppError::invalid(format!("vnfInstanceName: at most {LONGEST_NAME} characters")));
    }
    if description.is_some_and(|text| text.chars().count() > LONGEST_DESCRIPTION) {
        return Err(AppError::invalid(format!(
            "vnfInstanceDescription: at most {LONGEST_DESCRIPTION} characters"
        )));
    }
    Ok(())
}

/// Puts a request's secrets away and references in their place.
async fn hide(
    app: &App,
    instance: &Instance,
    operation: OperationId,
    params: &mut serde_json::Map<String, serde_json::Value>,
) -> Result<Vec<SecretRef>, AppError> {
    let own = format!("vnf.{}.", instance.id);
    let prefix = format!("{own}{}", operation.0.simple());
    // People's own secrets and the instance's may be referred to; those of others, and ours, may not.
    let names = {
        let secrets = app.secrets.clone();
        blocking(move || secrets.list()).await?
    };
    let kept_by_us = ["vnf.", "vim.", "subscription.", "manager."];
    let may_refer = |reference: &SecretRef| {
        let name = reference.name();
        let ours = kept_by_us.iter().any(|prefix| name.starts_with(prefix));
        names.iter().any(|known| known == name) && (!ours || name.starts_with(&own))
    };
    let hidden: Vec<Hidden> = hiding::hide(params, &prefix, &may_refer).map_err(AppError::invalid)?;
    if hidden.is_empty() {
        return Ok(Vec::new());
    }
    let references = hidden.iter().map(|(reference, _)| reference.clone()).collect();
    let secrets = app.secrets.clone();
    blocking(move || hidden.into_iter().try_for_each(|(reference, secret)| secrets.set(&reference, secret)))
        .await?;
    Ok(references)
}

async fn forget(app: &App, references: Vec<SecretRef>) -> Result<(), AppError> {
    if references.is_empty() {
        return Ok(());
    }
    let secrets = app.secrets.clone();
    blocking(move || references.iter().try_for_each(|reference| secrets.remove(reference).map(drop))).await
}

/// Forgets all secrets whose names begin so.
async fn forget_secrets(app: &App, prefix: String) -> Result<(), AppError> {
    let secrets = app.secrets.clone();
    blocking(move || {
        for name in secrets.list()?.into_iter().filter(|name| name.starts_with(&prefix)) {
            if let Ok(reference) = format!("secret:{name}").parse() {
                secrets.remove(&reference)?;
            }
        }
        Ok(())
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, guywire_secrets::StoreError> + Send + 'static,
) -> Result<T, AppError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| {
        AppError::new(ErrorKind::Internal, "a worker ended early; see the manager's log").because(error)
    })?;
    done.map_err(|error| {
        AppError::new(ErrorKind::Unavailable, "the store of secrets cannot be used; see the manager's log")
            .because(error)
    })
}
