//! Lifecycle management: from a request to an operation, from an operation to plans, from plans to an outcome.

mod accept;
mod decide;
mod driver;
mod finish;
mod outline;
mod request;
mod stages;
mod wishes;

#[cfg(test)]
mod tests;

pub use accept::{Accepted, accept, create, delete, find, modify, start};
pub use driver::drive;
pub use request::Request;
pub use wishes::{Wish, cancel, fail, retry, rollback, wishes_allowed};
