//! Remote units and inventory hosts on real machines with systemd.

mod harness;
mod hosts;
#[allow(dead_code, reason = "the lab's own tests use the rest")]
#[path = "../lab/harness.rs"]
mod lab;
mod survive;
mod units;
