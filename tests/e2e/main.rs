//! The real `guywire` binary, driven as a user would, on real lab machines.
//!
//! These tests need root and a built binary (`cargo build -p guywire`). They make labs below the temporary
//! directory, several side by side, and leave none of them behind.

mod database;
mod harness;
mod host;

mod examples;
mod fence;
mod hosts;
mod job;
mod kill;
mod postgres;
mod secrets;
mod shells;
mod wrong;
