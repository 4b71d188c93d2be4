//! A manager in operation: malformed and mutated requests, races, backups, an NFVO, and its systemd unit.
//!
//! These tests need root, a built binary (`cargo build -p guywire`), `GUYWIRE_TEST_POSTGRES`, and for requests that are made
//! from our `OpenAPI` document `GUYWIRE_TEST_SCHEMATHESIS`; `cargo xtask test` gives them all.

#[path = "../clients/callback.rs"]
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod callback;
#[path = "../e2e/database.rs"]
mod database;
#[path = "../e2e/harness.rs"]
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod harness;
#[path = "../clients/manager.rs"]
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod manager;
#[path = "../crash/managers.rs"]
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod managers;

mod backup;
mod fuzz;
mod garbage;
mod grants;
mod http;
mod mutants;
mod nfvo;
mod races;
mod random;
mod systemd;
