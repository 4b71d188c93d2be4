//! A real manager and its real clients: our command line, the `OpenStack` client from `PyPI`, a browser.
//!
//! These tests need root and a built binary (`cargo build -p guywire`), `GUYWIRE_TEST_OPENSTACK` (the `openstack`
//! program with python-tackerclient) and `GUYWIRE_TEST_CHROMIUM`; `cargo xtask test` gives them all.

#[path = "../e2e/harness.rs"]
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod harness;

mod browser;
mod callback;
mod cli;
mod console;
mod guide;
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod manager;
mod openstack;
mod wrong;
