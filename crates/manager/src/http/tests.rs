//! A real listener, real requests.

mod access;
mod errors;
mod tls;
mod vims;
mod walk;
mod world;
