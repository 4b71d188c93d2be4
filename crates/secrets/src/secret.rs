//! A secret in memory.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// A password, token or key. It is wiped when dropped, shows itself to nobody who did not say
/// [`Secret::expose`], and cannot be serialised: what is written down is its [`SecretRef`](crate::SecretRef).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes over; the caller keeps no copy.
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(value.into())
    }

    /// The bytes themselves. Every call is a place to look at in a review.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The secret as text, or `None` where it is none (a binary key).
    pub fn expose_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_debug_nor_display_shows_it() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "*** Secret(***) Some(Secret(***))");
        assert_eq!(secret.expose_str(), Some("hunter2"));
        assert_eq!(Secret::new(vec![0xff]).expose_str(), None);
    }
}
