//! All routes, in one list.

use super::{Route, console, subscriptions, vnffm, vnflcm, vnfpkgm};

/// Every route that is served.
pub fn all() -> Vec<Route> {
    [vnflcm::routes(), subscriptions::routes(), vnffm::routes(), vnfpkgm::routes(), console::routes()]
        .concat()
}
