//! Operation occurrences and the wishes about them.

use serde::Deserialize;

use super::{
    Version, api_of,
    render::{self, OPERATION},
};
use crate::{
    app::{lcm, requests::CancelRequest},
    domain::{AppError, Operation, OperationId},
    http::{Access, Answer, Call, Reply, Route, page::page},
    store::OperationQuery,
};

/// A body that has nothing to say.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// The routes of one version.
pub(super) fn routes(version: &Version) -> Vec<Route> {
    let mut routes = vec![
        Route::get(version.operations, Access::Reader, list)
            .doc(version.tag, "Operation occurrences")
            .listing()
            // Tacker's client writes it with a hyphen.
            .query("exclude-fields", "The same as exclude_fields")
            .answers::<Vec<render::VnfLcmOpOcc>>(200, "A page of operations"),
        Route::get(version.operation, Access::Reader, show)
            .doc(version.tag, "An operation occurrence")
            .answers::<render::VnfLcmOpOcc>(200, "The operation"),
    ];
    for (wish, path) in version.wishes {
        routes.push(match *wish {
            "retry" => Route::post(path, Access::Operator, retry)
                .doc(version.tag, "Let a failed operation go on")
                .may_take::<Nothing>()
                .answers_nothing(202, "It goes on"),
            "rollback" => Route::post(path, Access::Operator, rollback)
                .doc(version.tag, "Let a failed operation go back to the state before")
                .may_take::<Nothing>()
                .answers_nothing(202, "It goes back"),
            "fail" => Route::post(path, Access::Operator, fail)
                .doc(version.tag, "Give a failed operation up")
                .may_take::<Nothing>()
                .answers::<render::VnfLcmOpOcc>(200, "The operation"),
            _ => Route::post(path, Access::Operator, cancel)
                .doc(version.tag, "Stop an operation")
                .takes::<CancelRequest>()
                .answers_nothing(202, "It stops"),
        });
    }
    routes.into_iter().map(|route| route.api(version.api)).collect()
}

async fn list(mut call: Call) -> Answer {
    call.query = call.query.replace("exclude-fields=", "exclude_fields=");
    let listing = call.listing(&OPERATION)?;
    let api = api_of(&call);
    let instance = listing
        .equal_conditions()
        .into_iter()
        .find(|(attribute, values)| *attribute == "vnfInstanceId" && values.len() == 1)
        .and_then(|(_, values)| values[0].parse().ok());
    let call_ref = &call;
    page(&call, &listing, async |after: Option<String>, limit: u32| {
        let query = OperationQuery { after: after.and_then(|id| id.parse().ok()), limit, instance };
        let operations = call_ref.app.store.operations(&query).await?;
        let shown = operations
            .iter()
            .map(|operation| (operation.id.to_string(), render::operation(call_ref, operation, api)));
        Ok::<_, AppError>(shown.collect())
    })
    .await
}

async fn show(call: Call) -> Answer {
    let id: OperationId = call.id("vnfLcmOpOccId")?;
    let found = call.app.store.operation(id).await?;
    let operation =
        found.ok_or_else(|| AppError::not_found(format!("there is no operation occurrence {id}")))?;
    Ok(answer(&call, &operation).with_etag(operation.rev))
}

async fn retry(mut call: Call) -> Answer {
    let id: OperationId = call.id("vnfLcmOpOccId")?;
    call.json_or_empty::<Nothing>().await?;
    lcm::retry(&call.app, id).await?;
    Ok(Reply::accepted(&render::operation_url(&call, api_of(&call), id)))
}

async fn rollback(mut call: Call) -> Answer {
    let id: OperationId = call.id("vnfLcmOpOccId")?;
    call.json_or_empty::<Nothing>().await?;
    lcm::rollback(&call.app, id).await?;
    Ok(Reply::accepted(&render::operation_url(&call, api_of(&call), id)))
}

async fn fail(mut call: Call) -> Answer {
    let id: OperationId = call.id("vnfLcmOpOccId")?;
    call.json_or_empty::<Nothing>().await?;
    let operation = lcm::fail(&call.app, id).await?;
    Ok(answer(&call, &operation))
}

async fn cancel(mut call: Call) -> Answer {
    let id: OperationId = call.id("vnfLcmOpOccId")?;
    let request: CancelRequest = call.json().await?;
    lcm::cancel(&call.app, id, request.cancel_mode).await?;
    Ok(Reply::accepted(&render::operation_url(&call, api_of(&call), id)))
}

fn answer(call: &Call, operation: &Operation) -> Reply {
    Reply::ok(&render::operation(call, operation, api_of(call)))
}
