//! The engine against real databases and real processes that die.
//!
//! `PostgreSQL` is reached through `GUYWIRE_TEST_POSTGRES`, a URL whose user may create databases;
//! `cargo xtask test` starts a server and sets it.

mod behaviour;
mod crash;
mod faults;
mod journals;
mod leases;
mod stores;
#[allow(dead_code, reason = "the victim uses the rest")]
mod world;
