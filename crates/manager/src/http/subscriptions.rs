//! Subscriptions of every interface.

use super::Route;

/// The routes.
pub fn routes() -> Vec<Route> {
    Vec::new()
}
