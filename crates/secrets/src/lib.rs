//! References to secrets, the encrypted store that they point into, and masking.

mod key;
mod mask;
mod patterns;
pub mod private;
mod reference;
mod secret;
mod store;

pub use key::{Key, KeyError};
pub use mask::{MaskStream, Masker};
pub use reference::{InvalidReference, SecretRef};
pub use secret::Secret;
pub use store::{Store, StoreError};
