//! The lab on a real kernel: needs root, mmdebstrap, nftables and iproute2.

#[path = "lab/bench.rs"]
mod bench;
