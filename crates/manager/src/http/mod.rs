//! Requests to calls, results to answers.
//!
//! A [`Route`] is one line of a table that is dispatched from, authorised by, described by and tested with. A handler
//! is an `async fn(Call) -> Answer`; whatever goes wrong is an [`AppError`](crate::domain::AppError), which becomes
//! problem details in one place.

mod accept;
mod auth;
mod call;
pub mod console;
mod credentials;
mod dispatch;
mod health;
mod login;
mod metrics;
mod openapi;
mod page;
mod problem;
mod query;
mod reply;
mod route;
mod routes;
mod server;
pub mod subscriptions;
mod table;
mod tls;
mod versions;
mod vims;
pub mod vnffm;
pub mod vnflcm;
pub mod vnfpkgm;

pub use call::{Call, Peer, parse as parse_json};
pub use dispatch::Shared;
pub use openapi::openapi;
pub use page::page;
pub use reply::{Payload, Reply, content_tag};
pub use route::{
    Access, Answer, AnswerDoc, ApiVersions, BODY_LIMIT, Doc, FM_V1, Handler, JSON, LCM_V1, LCM_V2,
    MERGE_PATCH, PKGM_V1, QueryDoc, RequestDoc, Route, SchemaOf,
};
pub use routes::all;
pub use server::{Bound, ServeError, ServeOptions, bind};
pub use tls::TlsFiles;

#[cfg(test)]
mod tests;
