//! Remote units and inventory hosts on real machines with systemd.

mod harness;
mod hosts;
mod survive;
mod units;
