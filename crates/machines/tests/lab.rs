//! The lab on a real kernel. These tests need root, mmdebstrap, nftables, iproute2 and an SSH client;
//! without them they fail and say so. `cargo test -p guywire-machines --lib` runs without any of it.

#[path = "lab/crash.rs"]
mod crash;
#[path = "lab/harness.rs"]
mod harness;
#[path = "lab/life.rs"]
mod life;
#[path = "lab/refusals.rs"]
mod refusals;
#[path = "lab/walls.rs"]
mod walls;
