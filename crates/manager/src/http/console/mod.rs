//! The console, and what only it asks for.

use super::Route;

/// The routes.
pub fn routes() -> Vec<Route> {
    Vec::new()
}
