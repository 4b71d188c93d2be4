//! Remote units and inventory hosts on real machines with systemd.

mod harness;
mod survive;
mod units;
