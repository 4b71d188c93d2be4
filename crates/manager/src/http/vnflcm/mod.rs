//! Lifecycle management: `/vnflcm/v1` and `/vnflcm/v2`.

use super::Route;

/// The routes.
pub fn routes() -> Vec<Route> {
    Vec::new()
}
