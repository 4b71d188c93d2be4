//! References to secrets, the encrypted store that they point into, and masking.

mod reference;
pub use reference::SecretRef;
