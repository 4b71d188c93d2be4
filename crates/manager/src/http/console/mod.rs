//! The console, and what only it asks for.

use super::{Answer, Call, Route};
use crate::domain::AppError;

/// The routes.
pub fn routes() -> Vec<Route> {
    Vec::new()
}

/// The first page, for whoever asks `/` for HTML.
pub async fn index(_call: Call) -> Answer {
    Err(AppError::not_found("this manager has no console; ask / for JSON"))
}
