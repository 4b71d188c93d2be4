//! Scripts' steps on real lab machines, through the engine. These tests need root and what a lab needs;
//! without that they fail and say so. `cargo test -p guywire-roles --lib --test sandbox` runs without.

#[path = "../starter/mod.rs"]
mod starter;

mod harness;
mod hello;
mod life;
