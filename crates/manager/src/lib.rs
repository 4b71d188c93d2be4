//! The VNF manager: ETSI SOL003 on the durable plan engine.
//!
//! Three layers, each knowing only those after it: `http` (requests to calls, results to answers), `app` (what an
//! operation means, when it may start, what follows what), `store` (one transaction a change, `SQLite` or
//! `PostgreSQL`). `domain` holds the nouns that all three share.

pub mod app;
pub mod domain;
pub mod http;
pub mod sol013;
pub mod store;
