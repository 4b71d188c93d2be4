//! Names that people give to things. They become host names, directories and DNS labels, so all of
//! them follow the rules of a DNS label.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{Deserialize, Serialize};

/// The longest name. A host name could have 63 characters; we leave room for a suffix.
const MAX: usize = 40;

/// A validated name of one kind of thing: a machine's name cannot be passed where a site's is wanted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<K> {
    text: String,
    kind: PhantomData<K>,
}

/// What a [`Name`] names; the word appears in error messages.
pub trait NameKind {
    /// The field's own word for the thing, such as `machine`.
    const WHAT: &'static str;
}

/// Why a text cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} name {text:?}: use 1 to {MAX} of a-z, 0-9 and '-', beginning and ending with a letter or digit"
)]
pub struct InvalidName {
    what: &'static str,
    text: String,
}

/// Markers that tell the kinds of names apart.
pub mod kinds {
    use super::NameKind;

    macro_rules! kind {
        ($(#[doc = $doc:literal] $name:ident = $what:literal;)*) => {$(
            #[doc = $doc]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $name {}
            impl NameKind for $name {
                const WHAT: &'static str = $what;
            }
        )*};
    }

    kind! {
        /// A lab.
        Lab = "lab";
        /// A site.
        Site = "site";
        /// A machine.
        Machine = "machine";
        /// A template that machines start from.
        Template = "template";
        /// A volume that outlives machines.
        Volume = "volume";
        /// A reserved address.
        Address = "address";
    }
}

/// The name of a lab.
pub type LabName = Name<kinds::Lab>;
/// The name of a site.
pub type SiteName = Name<kinds::Site>;
/// The name of a machine; also its host name.
pub type MachineName = Name<kinds::Machine>;
/// The name of a template.
pub type TemplateName = Name<kinds::Template>;
/// The name of a volume.
pub type VolumeName = Name<kinds::Volume>;
/// The name under which an address is reserved.
pub type AddressName = Name<kinds::Address>;

impl<K: NameKind> Name<K> {
    /// Checks `text` and makes it a name.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
        let text = text.into();
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let edge = |c: Option<&u8>| c.is_some_and(|c| *c != b'-');
        let bytes = text.as_bytes();
        let good = bytes.len() <= MAX
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|c| inner(*c));
        if good { Ok(Self { text, kind: PhantomData }) } else { Err(InvalidName { what: K::WHAT, text }) }
    }
}

impl<K> Name<K> {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<K> fmt::Display for Name<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl<K> fmt::Debug for Name<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl<K: NameKind> FromStr for Name<K> {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl<K> Serialize for Name<K> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, K: NameKind> Deserialize<'de> for Name<K> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass_and_bad_ones_say_why() {
        for good in ["a", "m1", "site-1", "0", &"x".repeat(40)] {
            assert!(MachineName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "a/b", "ü", &"x".repeat(41)] {
            let error = MachineName::new(bad).unwrap_err().to_string();
            assert!(error.starts_with("machine name "), "{error}");
        }
    }
}
