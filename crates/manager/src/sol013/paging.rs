//! Pages: a marker that says where the next one starts, and the link that carries it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};

use super::ListingError;

/// Entries of a page, as in Tacker.
pub const PAGE: usize = 100;

/// Bytes of the checksum in a marker: it tells a marker of ours from anything else, and keeps no secret.
const CHECK: usize = 6;
/// What may stand in a query as it is; the rest is percent-encoded. Filters stay readable.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/')
    .remove(b',')
    .remove(b'(')
    .remove(b')')
    .remove(b';');

/// Where a page starts.
pub struct Marker;

impl Marker {
    /// A marker for the page after the entry with this id.
    pub fn seal(resource: &str, id: &str) -> String {
        let mut bytes = check(resource, id).to_vec();
        bytes.extend_from_slice(id.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The id in a marker that we made for the same list.
    pub fn open(resource: &str, marker: &str) -> Result<String, ListingError> {
        let wrong = || {
            ListingError::new(
                "nextpage_opaque_marker",
                "it is none of ours; take the one in the Link header of the page before, unchanged",
            )
        };
        let bytes = URL_SAFE_NO_PAD.decode(marker).map_err(|_| wrong())?;
        let (sum, id) = bytes.split_at_checked(CHECK).ok_or_else(wrong)?;
        let id = std::str::from_utf8(id).map_err(|_| wrong())?;
        if id.is_empty() || sum != check(resource, id) {
            return Err(wrong());
        }
        Ok(id.to_owned())
    }
}

/// All of a query but the marker, encoded again.
pub(super) fn query_without_marker(pairs: &[(String, String)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, PLAIN).to_string();
    let kept = pairs.iter().filter(|(name, _)| name != "nextpage_opaque_marker");
    let parts: Vec<String> = kept
        .map(|(name, value)| match value.as_str() {
            // Flags lose their name with clients that drop what has no value.
            "" => format!("{}=true", encode(name)),
            value => format!("{}={}", encode(name), encode(value)),
        })
        .collect();
    parts.join("&")
}

fn check(resource: &str, id: &str) -> [u8; CHECK] {
    let digest = Sha256::new().chain_update(resource).chain_update([0]).chain_update(id).finalize();
    let mut sum = [0; CHECK];
    sum.copy_from_slice(&digest[..CHECK]);
    sum
}
