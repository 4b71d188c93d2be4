//! Fault management: `/vnffm/v1`.

use super::Route;

/// The routes.
pub fn routes() -> Vec<Route> {
    Vec::new()
}
