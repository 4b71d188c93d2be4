//! VNF instances and the tasks on them.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{
    Version, api_of,
    render::{self, INSTANCE},
};
use crate::{
    app::{
        lcm::{self, Request},
        requests::{
            ChangeCurrentVnfPkgRequest, ChangeVnfFlavourRequest, CreateVnfRequest, HealVnfRequest,
            InstantiateVnfRequest, VnfInfoModificationRequest,
        },
    },
    domain::{AppError, Instance, InstanceId},
    http::{Access, Answer, Call, Reply, Route, page::page},
    sol013::Condition,
    store::{InstanceColumn, InstanceQuery},
};

/// Attributes whose values stand in an instance's head as they are shown, and in no column.
const IN_HEAD: [&str; 7] = [
    "vnfInstanceDescription",
    "vnfSoftwareVersion",
    "vnfdVersion",
    "vnfPkgId",
    "vnfConfigurableProperties",
    "metadata",
    "extensions",
];

/// The routes of one version.
pub(super) fn routes(version: &Version) -> Vec<Route> {
    let mut routes = vec![
        Route::get(version.instances, Access::Reader, list)
            .doc(version.tag, "VNF instances")
            .listing()
            .answers::<Vec<render::VnfInstance>>(200, "A page of instances"),
        Route::post(version.instances, Access::Operator, create)
            .doc(version.tag, "Create a VNF instance")
            .takes::<CreateVnfRequest>()
            .answers::<render::VnfInstance>(201, "The instance"),
        Route::get(version.instance, Access::Reader, show)
            .doc(version.tag, "A VNF instance")
            .answers::<render::VnfInstance>(200, "The instance"),
        Route::patch(version.instance, Access::Operator, modify)
            .doc(version.tag, "Change an instance's own attributes")
            .takes::<VnfInfoModificationRequest>()
            .answers_nothing(202, "An operation was started"),
        Route::delete(version.instance, Access::Operator, delete)
            .doc(version.tag, "Delete an instance that has no machines")
            .answers_nothing(204, "It is gone"),
    ];
    for (task, path) in version.tasks {
        let route = match *task {
            "instantiate" => {
                task_route::<InstantiateVnfRequest>(path, "Make machines for an instance", |request| {
                    Request::Instantiate(Box::new(request))
                })
            }
            "scale" => task_route(path, "Scale an aspect by steps", Request::Scale),
            "scale_to_level" => task_route(path, "Scale all aspects to a level", Request::ScaleToLevel),
            "change_flavour" => {
                task_route::<ChangeVnfFlavourRequest>(path, "Change the flavour", |request| {
                    Request::ChangeFlavour(Box::new(request))
                })
            }
            "operate" => task_route(path, "Start or stop machines", Request::Operate),
            "heal" => Route::post(path, Access::Operator, heal)
                .doc("", "Make machines anew")
                .may_take::<HealVnfRequest>()
                .answers_nothing(202, "An operation was started"),
            "change_ext_conn" => task_route(path, "Change external networks", Request::ChangeExtConn),
            "change_vnfpkg" => {
                task_route::<ChangeCurrentVnfPkgRequest>(path, "Change the package", |request| {
                    Request::ChangeVnfpkg(Box::new(request))
                })
            }
            _ => task_route(path, "Remove an instance's machines", Request::Terminate),
        };
        let summary = route.doc.summary;
        routes.push(route.doc(version.tag, summary));
    }
    routes.into_iter().map(|route| route.api(version.api)).collect()
}

/// A task that starts an operation.
fn task_route<T: DeserializeOwned + JsonSchema + Send + 'static>(
    path: &'static str,
    summary: &'static str,
    wrap: fn(T) -> Request,
) -> Route {
    Route::post(path, Access::Operator, move |mut call: Call| async move {
        let id: InstanceId = call.id("vnfInstanceId")?;
        let request: T = call.json().await?;
        started(&call, id, &wrap(request)).await
    })
    .doc("", summary)
    .takes::<T>()
    .answers_nothing(202, "An operation was started")
}

async fn heal(mut call: Call) -> Answer {
    let id: InstanceId = call.id("vnfInstanceId")?;
    let request: HealVnfRequest = call.json_or_empty().await?;
    started(&call, id, &Request::Heal(request)).await
}

async fn started(call: &Call, id: InstanceId, request: &Request) -> Answer {
    let accepted = lcm::start(&call.app, id, request).await?;
    Ok(Reply::accepted(&operation_url(call, accepted)))
}

async fn list(call: Call) -> Answer {
    let listing = call.listing(&INSTANCE)?;
    let api = api_of(&call);
    let equal: Vec<(InstanceColumn, Vec<String>)> = listing
        .equal_conditions()
        .into_iter()
        .filter_map(|(attribute, values)| Some((InstanceColumn::of_attribute(attribute)?, values.to_vec())))
        .collect();
    let in_head = |condition: &&Condition| IN_HEAD.contains(&condition.attribute());
    let contain: Vec<Vec<String>> =
        listing.filter.conditions.iter().filter(in_head).filter_map(Condition::needles).collect();
    let bodies = listing.wants_body();
    let (call_ref, equal_ref, contain_ref) = (&call, &equal, &contain);
    page(&call, &listing, async |after: Option<String>, limit: u32| {
        let query = InstanceQuery {
            after: after.and_then(|id| id.parse().ok()),
            limit,
            bodies,
            equal: equal_ref.clone(),
            contain: contain_ref.clone(),
        };
        let instances = call_ref.app.store.instances(&query).await?;
        let shown = instances
            .iter()
            .map(|instance| (instance.id.to_string(), render::instance(call_ref, instance, api)));
        Ok::<_, AppError>(shown.collect())
    })
    .await
}

async fn create(mut call: Call) -> Answer {
    let request: CreateVnfRequest = call.json().await?;
    let instance = lcm::create(&call.app, request).await?;
    let shown = render::instance(&call, &instance, api_of(&call));
    let location = render::instance_url(&call, api_of(&call), instance.id);
    Ok(Reply::created(&location, &shown).with_etag(instance.rev))
}

async fn show(call: Call) -> Answer {
    let id: InstanceId = call.id("vnfInstanceId")?;
    let instance = lcm::find(&call.app, id).await?;
    Ok(Reply::ok(&render::instance(&call, &instance, api_of(&call))).with_etag(tag(&instance)))
}

async fn modify(mut call: Call) -> Answer {
    let id: InstanceId = call.id("vnfInstanceId")?;
    let request: VnfInfoModificationRequest = call.json().await?;
    let accepted = lcm::modify(&call.app, id, request, |instance| call.if_match(tag(instance))).await?;
    Ok(Reply::accepted(&operation_url(&call, accepted)))
}

async fn delete(call: Call) -> Answer {
    let id: InstanceId = call.id("vnfInstanceId")?;
    lcm::delete(&call.app, id, |instance| call.if_match(tag(instance))).await?;
    Ok(Reply::no_content())
}

/// An instance looks different when it changes and when an operation on it begins or ends.
fn tag(instance: &Instance) -> String {
    match instance.operation {
        None => instance.rev.to_string(),
        Some(operation) => format!("{}-{operation}", instance.rev),
    }
}

fn operation_url(call: &Call, accepted: lcm::Accepted) -> String {
    render::operation_url(call, api_of(call), accepted.operation)
}
