//! Subscriptions of every interface, and how delivery to them fares.

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Access, Answer, ApiVersions, Call, FM_V1, LCM_V1, LCM_V2, PKGM_V1, Reply, Route, page};
use crate::{
    app::subscriptions::{
        self, FmFilter, FmSubscriptionRequest, LccnFilter, LccnSubscriptionRequest,
        LccnSubscriptionRequestV2, PkgmFilter, PkgmSubscriptionRequest, Subscribed, Wanted,
    },
    domain::{Api, AppError, SubscriptionId, Verbosity},
    sol013::Resource,
};

const PARAMETER: &str = "subscriptionId";

static SUBSCRIPTION: Resource = Resource {
    name: "Subscription",
    mandatory: &["id", "callbackUri", "_links"],
    optional: &["filter", "verbosity"],
    excluded: &[],
    heavy: &[],
};

static DELIVERY: Resource = Resource {
    name: "SubscriptionDelivery",
    mandatory: &["id", "callbackUri", "_links", "api", "delivery"],
    optional: &["filter", "verbosity", "created", "authentication"],
    excluded: &[],
    heavy: &[],
};

/// A subscription as it is shown.
#[derive(Deserialize, JsonSchema)]
#[allow(dead_code, reason = "it describes what another function builds")]
struct Shown<F> {
    id: SubscriptionId,
    #[serde(rename = "callbackUri")]
    callback_uri: String,
    filter: Option<F>,
    verbosity: Option<Verbosity>,
    #[serde(rename = "_links")]
    links: Value,
}

/// A subscription of any interface, and how delivery to it fares.
#[derive(Deserialize, JsonSchema)]
#[allow(dead_code, reason = "it describes what another function builds")]
struct ShownDelivery {
    #[serde(flatten)]
    shown: Shown<Value>,
    /// The interface that it belongs to.
    api: String,
    /// How the manager proves who it is.
    authentication: String,
    created: String,
    delivery: DeliveryState,
}

/// How delivery to a subscription fares.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "it describes what another function builds")]
struct DeliveryState {
    /// Notifications that wait.
    waiting: i64,
    /// How often in a row the first of them has failed.
    failures: i64,
    /// When it is tried again.
    next_try: Option<String>,
    /// Why it failed last.
    last_error: Option<String>,
    last_error_time: Option<String>,
    last_success_time: Option<String>,
    /// How many were delivered.
    delivered: i64,
    /// How many were given up.
    dropped: i64,
}

/// The routes.
pub fn routes() -> Vec<Route> {
    let own = "guywire";
    [
        interface::<_, LccnFilter>(Api::LcmV1, LCM_V1, PATHS_LCM_V1, LccnSubscriptionRequest::wanted),
        interface::<_, LccnFilter>(Api::LcmV2, LCM_V2, PATHS_LCM_V2, LccnSubscriptionRequestV2::wanted),
        interface::<_, PkgmFilter>(Api::Pkgm, PKGM_V1, PATHS_PKGM, PkgmSubscriptionRequest::wanted),
        interface::<_, FmFilter>(Api::Fm, FM_V1, PATHS_FM, FmSubscriptionRequest::wanted),
        vec![
            Route::get("/guywire/v1/subscriptions", Access::Reader, list_deliveries)
                .doc(own, "Subscriptions of all interfaces, and how delivery to them fares")
                .listing()
                .answers::<Vec<ShownDelivery>>(200, "A page of subscriptions"),
            Route::get("/guywire/v1/subscriptions/{subscriptionId}", Access::Reader, show_delivery)
                .doc(own, "A subscription of any interface, and how delivery to it fares")
                .answers::<ShownDelivery>(200, "The subscription"),
        ],
    ]
    .concat()
}

/// All subscriptions of an interface, and one of them.
type Paths = (&'static str, &'static str);

const PATHS_LCM_V1: Paths = ("/vnflcm/v1/subscriptions", "/vnflcm/v1/subscriptions/{subscriptionId}");
const PATHS_LCM_V2: Paths = ("/vnflcm/v2/subscriptions", "/vnflcm/v2/subscriptions/{subscriptionId}");
const PATHS_PKGM: Paths = ("/vnfpkgm/v1/subscriptions", "/vnfpkgm/v1/subscriptions/{subscriptionId}");
const PATHS_FM: Paths = ("/vnffm/v1/subscriptions", "/vnffm/v1/subscriptions/{subscriptionId}");

fn interface<T, F>(
    api: Api,
    versions: ApiVersions,
    (all, one): Paths,
    wanted: fn(T) -> Result<Wanted, AppError>,
) -> Vec<Route>
where
    T: serde::de::DeserializeOwned + JsonSchema + Send + 'static,
    F: JsonSchema,
{
    let tag = versions.name;
    vec![
        Route::get(all, Access::Reader, move |call| list(call, api))
            .api(versions)
            .doc(tag, "Subscriptions")
            .listing()
            .answers::<Vec<Shown<F>>>(200, "A page of subscriptions"),
        Route::post(all, Access::Operator, move |call| create(call, api, wanted))
            .api(versions)
            .doc(tag, "Subscribe; the callback is asked with a GET first, and must answer 204")
            .takes::<T>()
            .answers::<Shown<F>>(201, "The subscription")
            .answers_nothing(303, "There is one with this callback and filter already; Location says where"),
        Route::get(one, Access::Reader, move |call| show(call, api))
            .api(versions)
            .doc(tag, "A subscription")
            .answers::<Shown<F>>(200, "The subscription"),
        Route::delete(one, Access::Operator, move |call| delete(call, api))
            .api(versions)
            .doc(tag, "Unsubscribe")
            .answers_nothing(204, "It is gone"),
    ]
}

async fn create<T: serde::de::DeserializeOwned>(
    mut call: Call,
    api: Api,
    wanted: fn(T) -> Result<Wanted, AppError>,
) -> Answer {
    let wanted = wanted(call.json().await?)?;
    let location = |id: SubscriptionId| call.url(&format!("{}/subscriptions/{id}", api.root()));
    Ok(match subscriptions::subscribe(&call.app, api, wanted).await? {
        Subscribed::New(new) => Reply::created(&location(new.id), &subscriptions::shown(&new, &call.url(""))),
        Subscribed::Known(id) => Reply::see_other(&location(id)),
    })
}

async fn list(call: Call, api: Api) -> Answer {
    let listing = call.listing(&SUBSCRIPTION)?;
    let (store, address) = (call.app.store.clone(), call.url(""));
    page(&call, &listing, |after, limit| {
        let (store, address) = (store.clone(), address.clone());
        async move {
            let after = after.map(|id| marker(&id)).transpose()?;
            let found = store.subscriptions(api, after, limit).await?;
            Ok(found.iter().map(|one| (one.id.to_string(), subscriptions::shown(one, &address))).collect())
        }
    })
    .await
}

async fn show(call: Call, api: Api) -> Answer {
    let found = subscriptions::find(&call.app, api, call.id(PARAMETER)?).await?;
    Ok(Reply::ok(&subscriptions::shown(&found, &call.url(""))).with_content_etag())
}

async fn delete(call: Call, api: Api) -> Answer {
    subscriptions::unsubscribe(&call.app, api, call.id(PARAMETER)?).await?;
    Ok(Reply::no_content())
}

async fn list_deliveries(call: Call) -> Answer {
    let listing = call.listing(&DELIVERY)?;
    let (store, address) = (call.app.store.clone(), call.url(""));
    page(&call, &listing, |after, limit| {
        let (store, address) = (store.clone(), address.clone());
        async move {
            let after = after.map(|id| marker(&id)).transpose()?;
            let found = store.deliveries(after, limit).await?;
            let shown = found.iter().map(|(one, delivery)| {
                (one.id.to_string(), subscriptions::shown_with_delivery(one, delivery, &address))
            });
            Ok(shown.collect())
        }
    })
    .await
}

async fn show_delivery(call: Call) -> Answer {
    let id: SubscriptionId = call.id(PARAMETER)?;
    let found = call.app.store.delivery(id).await?;
    let (subscription, delivery) =
        found.ok_or_else(|| AppError::not_found(format!("there is no subscription {id}")))?;
    Ok(Reply::ok(&subscriptions::shown_with_delivery(&subscription, &delivery, &call.url(""))))
}

fn marker<T: std::str::FromStr>(id: &str) -> Result<T, AppError> {
    id.parse().map_err(|_| AppError::invalid("nextpage_opaque_marker: it is none of ours"))
}
