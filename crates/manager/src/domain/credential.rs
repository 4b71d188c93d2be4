//! Who may ask, as it is kept.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What somebody may do. Each role may do what those before it may.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look.
    Reader,
    /// Change VNFs, packages and subscriptions.
    Operator,
    /// Change VIMs and who may do what.
    Admin,
}

/// How somebody proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialKind {
    /// A token, sent with every request.
    Token,
    /// An `OAuth2` client: its id and secret are exchanged for an access token.
    Client,
    /// A client certificate whose common or alternative name is the credential's name.
    Certificate,
}

/// Somebody who may ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Credential {
    /// Its id; also the id of an `OAuth2` client.
    #[schemars(with = "String", extend("format" = "uuid"))]
    pub id: Uuid,
    /// A unique name.
    pub name: String,
    /// How it is proved.
    pub kind: CredentialKind,
    /// What it may do.
    pub role: Role,
    /// When it was made.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created: Timestamp,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub expires: Option<Timestamp>,
}

impl Role {
    const ALL: [Self; 3] = [Self::Reader, Self::Operator, Self::Admin];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role of a word, or the word.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| text.to_owned())
    }
}

impl CredentialKind {
    const ALL: [Self; 3] = [Self::Token, Self::Client, Self::Certificate];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Client => "client",
            Self::Certificate => "certificate",
        }
    }

    /// The kind of a word, or the word.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| text.to_owned())
    }
}
