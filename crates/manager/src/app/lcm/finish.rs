//! How an operation ends, and what the instance is then.

use guywire_model::Observed;
use guywire_package::Vnfd;
use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Request, wishes::stop_plan};
use crate::{
    app::{App, alarms, requests::VnfInfoModificationRequest},
    domain::{
        Affected, AppError, ChangeType, Info, Instance, InstantiationState, Notice, Operation,
        OperationState, OperationType, Problem, Target, VnfState, Vnfc,
    },
    store::{Step, StoreError},
};

/// Records that an operation reached what it aimed at.
pub async fn complete(app: &App, mut operation: Operation, mut instance: Instance) -> Result<(), AppError> {
    if operation.operation == OperationType::ModifyInfo {
        modify(app, &mut operation, &mut instance).await?;
    } else if let Some(target) = &operation.target {
        operation.affected = affected(&operation, target);
        if operation.operation == OperationType::ChangeExtConn {
            operation.changed_ext.clone_from(&target.ext_links);
        }
        if let Some((package, vnfd_id)) = target.package.clone() {
            let record = app.store.package(package).await?;
            if let Some(vnfd) = record.and_then(|record| record.vnfd) {
                follow(&mut instance, &vnfd);
            }
            instance.package = package;
            instance.vnfd_id = vnfd_id;
        }
        instance.vims.clone_from(&target.vims);
        instance.info = after(&operation, target, instance.info.as_ref());
        instance.state = state_of(&instance);
        apply_properties(&operation, &mut instance);
        if instance.info.is_none() {
            instance.vims.clear();
        }
    }
    close(app, operation, Some(instance), OperationState::Completed, None).await.map_err(AppError::from)
}

/// Records that an operation is back where it began.
pub async fn rolled_back(
    app: &App,
    operation: Operation,
    instance: Instance,
    problem: Option<Problem>,
) -> Result<(), StoreError> {
    // The instance is what it was; only machines that were spoken for are let go.
    close(app, operation, Some(instance), OperationState::RolledBack, problem).await
}

/// Records that an operation stopped for a reason that we cannot remove.
pub async fn failed_temp(
    app: &App,
    mut operation: Operation,
    instance: &Instance,
    problem: Problem,
) -> Result<(), StoreError> {
    operation.state = OperationState::FailedTemp;
    operation.entered = Timestamp::now();
    operation.error = Some(problem);
    operation.cancel = None;
    if let Some(target) = &operation.target {
        operation.affected = affected(&operation, target);
    }
    let notice =
        Notice::Operation { operation: Box::new(operation.clone()), instance: Box::new(instance.clone()) };
    app.store.advance(&operation, Step { notices: vec![notice], ..Step::default() }).await?;
    let reason = operation.error.as_ref().map_or("", |problem| &problem.detail);
    tracing::warn!(operation = %operation.id, instance = %instance.id, reason, "FAILED_TEMP: retry, roll back or fail it");
    // Should we die just here, whoever watches over instances raises it.
    if let Err(error) = alarms::raise(app, &alarms::operation_failed(&operation), instance).await {
        tracing::warn!(operation = %operation.id, %error, "its alarm is raised later");
    }
    Ok(())
}

/// Gives a failed operation up: the instance consists of those machines that are really there.
pub async fn give_up(app: &App, operation: Operation, mut instance: Instance) -> Result<Operation, AppError> {
    stop_plan(app, &operation).await;
    if let Some(target) = &operation.target {
        let observed = app
            .works
            .observe(&target.infra)
            .await
            .map_err(|error| AppError::new(crate::domain::ErrorKind::Unavailable, error.reason))?;
        instance.info = as_it_is(target, instance.info.as_ref(), &observed);
        instance.state = state_of(&instance);
        if instance.info.is_some() {
            instance.vims.clone_from(&target.vims);
        }
    }
    // Others may have the machines' locks from now on; if we die here, the next wish to fail does this again.
    for plan in &operation.plans {
        if let Err(error) = app.engine.abandon(*plan, "the operation was given up").await {
            tracing::debug!(operation = %operation.id, plan = plan.0, %error, "the plan holds nothing");
        }
    }
    let problem = operation.error.clone();
    let mut ended = operation.clone();
    close(app, operation, Some(instance), OperationState::Failed, problem.clone()).await?;
    ended.state = OperationState::Failed;
    ended.error = problem;
    Ok(app.store.operation(ended.id).await?.unwrap_or(ended))
}

/// Enters a final state: operation, instance, machines and notifications in one transaction.
async fn close(
    app: &App,
    mut operation: Operation,
    instance: Option<Instance>,
    state: OperationState,
    problem: Option<Problem>,
) -> Result<(), StoreError> {
    operation.state = state;
    operation.entered = Timestamp::now();
    operation.error = problem;
    operation.cancel = None;
    let mut step = Step::default();
    let kept: Vec<Vnfc>;
    if let Some(instance) = &instance {
        kept = instance.info.as_ref().map(|info| info.vnfcs.clone()).unwrap_or_default();
        step.keep = Some(&kept);
        step.instance = Some(instance);
        step.notices.push(Notice::Operation {
            operation: Box::new(operation.clone()),
            instance: Box::new(instance.clone()),
        });
    }
    app.store.advance(&operation, step).await?;
    let reason = operation.error.as_ref().map(|problem| problem.detail.as_str());
    let state = state.as_str();
    tracing::info!(operation = %operation.id, instance = %operation.instance, state, reason, "ended");
    Ok(())
}

/// What an instance consists of when the target is reached.
fn after(operation: &Operation, target: &Target, before: Option<&Info>) -> Option<Info> {
    if operation.operation == OperationType::Terminate {
        return None;
    }
    let present = before.map(|info| &info.vnfcs[..]).unwrap_or_default();
    let stays = |vnfc: &&Vnfc| !target.remove.iter().any(|gone| gone.id == vnfc.id);
    let renewed = |vnfc: &Vnfc| {
        let found = target.replace.iter().find(|(next, _)| next.id == vnfc.id);
        found.map_or_else(|| vnfc.clone(), |(next, _)| next.clone())
    };
    let vnfcs = present.iter().filter(stays).map(renewed).chain(target.add.iter().cloned()).collect();
    Some(info_of(target, vnfcs, target.vnf_state))
}

/// What an instance consists of when an operation is given up: machines that are there, old and new.
fn as_it_is(target: &Target, before: Option<&Info>, observed: &Observed) -> Option<Info> {
    let there = |vnfc: &Vnfc| observed.machine(&vnfc.machine.name).is_some();
    let present = before.map(|info| &info.vnfcs[..]).unwrap_or_default();
    let mut vnfcs: Vec<Vnfc> = present.iter().filter(|vnfc| there(vnfc)).cloned().collect();
    vnfcs.extend(target.add.iter().filter(|vnfc| there(vnfc)).cloned());
    for vnfc in &mut vnfcs {
        vnfc.addresses = observed.machine(&vnfc.machine.name).map(|machine| machine.addresses);
    }
    match before {
        Some(before) => Some(Info { vnfcs, ..before.clone() }),
        None if vnfcs.is_empty() => None,
        None => Some(info_of(target, vnfcs, VnfState::Started)),
    }
}

fn info_of(target: &Target, vnfcs: Vec<Vnfc>, vnf_state: VnfState) -> Info {
    Info {
        flavour: target.flavour.clone(),
        level: target.level.clone(),
        vnf_state,
        scale: target.scale.clone(),
        vnfcs,
        ext_links: target.ext_links.clone(),
        infra: target.infra.clone(),
        vim: target.vim,
        vim_connection: target.vim_connection.clone(),
        inputs: target.inputs.clone(),
    }
}

fn state_of(instance: &Instance) -> InstantiationState {
    match instance.info {
        Some(_) => InstantiationState::Instantiated,
        None => InstantiationState::NotInstantiated,
    }
}

/// What an operation changes, machine by machine.
pub fn affected(operation: &Operation, target: &Target) -> Vec<Affected> {
    let change = |vnfc: &Vnfc, change| Affected {
        id: Uuid::new_v5(&operation.id.0, format!("affected {} {change:?}", vnfc.resource).as_bytes()),
        change,
        vnfc: vnfc.clone(),
    };
    let mut all: Vec<Affected> = target.add.iter().map(|vnfc| change(vnfc, ChangeType::Added)).collect();
    for (next, before) in &target.replace {
        let old = Vnfc { resource: *before, ..next.clone() };
        all.push(change(&old, ChangeType::Removed));
        all.push(change(next, ChangeType::Added));
    }
    all.extend(target.remove.iter().map(|vnfc| change(vnfc, ChangeType::Removed)));
    if let Some((_, switched)) = &target.power {
        all.extend(switched.iter().map(|vnfc| change(vnfc, ChangeType::Modified)));
    }
    all
}

/// Attributes that a request sets along with what it does to machines.
fn apply_properties(operation: &Operation, instance: &mut Instance) {
    let object = |name: &str| operation.params.get(name).and_then(Value::as_object).cloned();
    if let Some(extensions) = object("extensions") {
        merge(&mut instance.extensions, &extensions);
    }
    if let Some(properties) = object("vnfConfigurableProperties") {
        merge(&mut instance.configurable, &properties);
    }
}

/// Changes an instance's own attributes, and notes what was changed.
async fn modify(app: &App, operation: &mut Operation, instance: &mut Instance) -> Result<(), AppError> {
    let Ok(Request::ModifyInfo(request)) = Request::parse(operation.operation, &operation.params) else {
        return Err(AppError::new(crate::domain::ErrorKind::Internal, "the stored request cannot be read"));
    };
    let VnfInfoModificationRequest {
        vnf_instance_name,
        vnf_instance_description,
        vnfd_id,
        vnf_configurable_properties,
        metadata,
        extensions,
        vim_connection_info,
        ..
    } = *request;
    if let Some(name) = vnf_instance_name {
        instance.name = name;
    }
    if let Some(description) = vnf_instance_description {
        instance.description = description;
    }
    if let Some(vnfd_id) = vnfd_id
        && let Some(package) = app.store.package_of(&vnfd_id).await?
        && let Some(vnfd) = &package.vnfd
    {
        follow(instance, vnfd);
        instance.vnfd_id = vnfd_id;
        instance.package = package.id;
    }
    merge(&mut instance.configurable, &vnf_configurable_properties.unwrap_or_default());
    merge(&mut instance.metadata, &metadata.unwrap_or_default());
    merge(&mut instance.extensions, &extensions.unwrap_or_default());
    instance.vims.extend(vim_connection_info.0);
    operation.changed_info = Some(Value::Object(operation.params.clone()));
    Ok(())
}

/// What an instance takes over from its descriptor.
fn follow(instance: &mut Instance, vnfd: &Vnfd) {
    instance.provider.clone_from(&vnfd.provider);
    instance.product.clone_from(&vnfd.product_name);
    instance.software_version.clone_from(&vnfd.software_version);
    instance.vnfd_version.clone_from(&vnfd.version);
}

/// RFC 7396: what is there is replaced, `null` removes.
fn merge(present: &mut Map<String, Value>, wanted: &Map<String, Value>) {
    for (key, value) in wanted {
        match value {
            Value::Null => {
                present.remove(key);
            }
            Value::Object(inner) => {
                let slot = present.entry(key).or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(slot) = slot {
                    merge(slot, inner);
                }
            }
            other => {
                present.insert(key.clone(), other.clone());
            }
        }
    }
}
