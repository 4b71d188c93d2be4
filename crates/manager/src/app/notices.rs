//! What a subscriber is told of a change. No I/O.

use serde_json::Value;

use crate::domain::{Notice, Subscription};

/// The notification's body, or `None` if the subscriber does not want to hear of it.
pub fn render(_subscription: &Subscription, _notice: &Notice) -> Option<Value> {
    None
}
