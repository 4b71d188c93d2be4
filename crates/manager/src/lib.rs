//! The VNF manager: ETSI SOL003 on the durable plan engine.
//!
//! Three layers, each knowing only those after it: `http` (requests to calls, results to answers), `app` (what an
//! operation means, when it may start, what follows what), `store` (one transaction a change, `SQLite` or
//! `PostgreSQL`). Below all three lie `domain`, the nouns, `notices`, what subscribers are told of their changes, and
//! `sol013`, what lists are asked for.

pub mod app;
pub mod domain;
pub mod http;
pub mod notices;
pub mod sol013;
pub mod store;
