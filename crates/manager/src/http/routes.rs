//! All routes, in one list.

use super::{
    Route, console, credentials, health, login, metrics, openapi, subscriptions, versions, vims, vnffm,
    vnflcm, vnfpkgm,
};

/// Every route that is served.
pub fn all() -> Vec<Route> {
    [
        vnflcm::routes(),
        subscriptions::routes(),
        vnffm::routes(),
        vnfpkgm::routes(),
        vims::routes(),
        console::routes(),
        login::routes(),
        credentials::routes(),
        versions::routes(),
        health::routes(),
        metrics::routes(),
        openapi::routes(),
    ]
    .concat()
}
