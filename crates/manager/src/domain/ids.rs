//! Identifiers. All are UUIDs of version 7, so that the order of ids is the order of creation.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[doc = $doc:literal] $name:ident;)*) => {$(
        #[doc = $doc]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        #[schemars(with = "String", extend("format" = "uuid"))]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new one.
            #[allow(clippy::new_without_default, reason = "an id that appears by default would be a slip")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }
    )*};
}

id! {
    /// A VNF instance.
    InstanceId;
    /// An operation occurrence.
    OperationId;
    /// A package.
    PackageId;
    /// A subscription.
    SubscriptionId;
    /// A VIM.
    VimId;
    /// An alarm.
    AlarmId;
}
