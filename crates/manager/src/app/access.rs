//! Who may ask, and for what.
//!
//! A secret of ours is 256 random bits, so its SHA-256 is as good a keepsake as any slow hash: there is nothing to
//! guess. It is shown once, when it is made.

mod cache;
mod slow;

use std::{path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use cache::Cache;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
pub use slow::Slow;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::{
    domain::{AppError, ErrorKind, hex},
    store::{Store, StoreErrorKind},
};

pub use crate::domain::{Credential, CredentialKind, Role};

/// How long an access token of an `OAuth2` client lasts, in seconds.
pub const ACCESS_SECONDS: i64 = 3600;
/// How long somebody stays logged in at the console: a shift.
pub const CONSOLE_SECONDS: i64 = 12 * 3600;
/// The file in the data directory that holds the first administrator's token.
pub const ADMIN_TOKEN: &str = "admin-token";
/// The name of that administrator.
const ADMIN: &str = "admin";
/// Longer than any secret of ours: what is longer is refused before it is hashed.
const LONGEST: usize = 256;
/// Longer names are no names.
const LONGEST_NAME: usize = 255;

/// Somebody who has proved who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The credential's name.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

/// A secret that is shown once.
pub type Shown = Zeroizing<String>;

/// Lets callers in, or not.
pub struct Gate {
    store: Arc<Store>,
    cache: Cache,
    slow: Slow,
    open: bool,
}

impl Gate {
    /// A gate. An `open` one takes everybody for an administrator.
    pub fn new(store: Arc<Store>, open: bool) -> Self {
        Self { store, cache: Cache::default(), slow: Slow::default(), open }
    }

    /// Whether everybody is an administrator.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Slows those down who guess.
    pub fn slow(&self) -> &Slow {
        &self.slow
    }

    /// Who has this token: one of a person, or an access token of an `OAuth2` client.
    pub async fn token(&self, token: &str) -> Result<Caller, AppError> {
        self.known(token, &["token", "access"]).await?.ok_or_else(|| {
            unauthenticated(
                "the token is unknown or has ended; get another one from an administrator or log in again",
            )
        })
    }

    /// Who is logged in at the console with this cookie.
    pub async fn session(&self, cookie: &str) -> Result<Caller, AppError> {
        let known = self.known(cookie, &["console"]).await?;
        known.ok_or_else(|| unauthenticated("the session has ended; log in again"))
    }

    /// Who a verified certificate stands for.
    pub async fn certificate(&self, names: &[String]) -> Result<Caller, AppError> {
        for name in names {
            let key = digest(&format!("certificate\0{name}"));
            if let Some(caller) = self.cache.get(&key) {
                return Ok(caller);
            }
            let Some(found) = self.store.certificate(name).await? else { continue };
            if found.expires.is_none_or(|end| end > Timestamp::now()) {
                let caller = found.caller();
                self.cache.put(key, caller.clone(), found.expires);
                return Ok(caller);
            }
        }
        Err(unauthenticated(format!(
            "no credential of kind certificate is named {}; an administrator can make one",
            names.join(" or ")
        )))
    }

    /// Exchanges an `OAuth2` client's id (or name) and secret for an access token. `None` if they do not fit.
    pub async fn access_token(
        &self,
        client: &str,
        secret: &str,
    ) -> Result<Option<(Shown, Caller)>, AppError> {
        if client.len() > LONGEST || secret.len() > LONGEST {
            return Ok(None);
        }
        let given = hash(secret);
        let found = self.store.credential(client).await?;
        let Some((credential, Some(kept))) = found else { return Ok(None) };
        let now = Timestamp::now();
        let live = credential.expires.is_none_or(|end| end > now);
        let fits: bool = kept.as_bytes().ct_eq(given.as_bytes()).into();
        if credential.kind != CredentialKind::Client || !live || !fits {
            return Ok(None);
        }
        let token = self.give(&credential, "access", ACCESS_SECONDS).await?;
        Ok(Some((token, credential.caller())))
    }

    /// Exchanges a token for a session of the console.
    pub async fn log_in(&self, token: &str) -> Result<(Shown, Caller), AppError> {
        let wrong = || unauthenticated("the token is unknown or has ended");
        if token.len() > LONGEST {
            return Err(wrong());
        }
        let right = self.store.right(&hash(token)).await?;
        let right = right.filter(|right| right.kind == "token").ok_or_else(wrong)?;
        if right.expires.is_some_and(|end| end <= Timestamp::now()) {
            return Err(wrong());
        }
        let cookie = self.give(&right.credential, "console", CONSOLE_SECONDS).await?;
        Ok((cookie, right.credential.caller()))
    }

    /// Ends a session of the console.
    pub async fn log_out(&self, cookie: &str) -> Result<(), AppError> {
        self.store.delete_session(&hash(cookie)).await?;
        self.cache.clear();
        Ok(())
    }

    /// Makes a credential; its secret, if it has one, is in the answer and nowhere else.
    pub async fn create(
        &self,
        name: &str,
        kind: CredentialKind,
        role: Role,
        expires: Option<Timestamp>,
    ) -> Result<(Credential, Option<Shown>), AppError> {
        check_name(name)?;
        let now = Timestamp::now();
        if expires.is_some_and(|end| end <= now) {
            return Err(AppError::invalid("expires: that time is over; name one that is to come"));
        }
        let credential =
            Credential { id: Uuid::now_v7(), name: name.to_owned(), kind, role, created: now, expires };
        let secret = (kind != CredentialKind::Certificate).then(|| make(prefix(kind)));
        let kept = secret.as_ref().map(|secret| hash(secret));
        match self.store.insert_credential(&credential, kept).await {
            Err(error) if error.kind == StoreErrorKind::Taken => Err(AppError::conflict(format!(
                "name: there is a credential named {name:?} already; choose another"
            ))),
            done => done.map_err(AppError::from).map(|()| (credential, secret)),
        }
    }

    /// Deletes a credential by id or name. Other managers of the same database heed it within seconds.
    pub async fn delete(&self, id_or_name: &str) -> Result<(), AppError> {
        let missing = || AppError::not_found(format!("there is no credential {id_or_name:?}"));
        let (found, _) = self.store.credential(id_or_name).await?.ok_or_else(missing)?;
        if found.role == Role::Admin {
            let now = Timestamp::now();
            let all = self.store.credentials().await?;
            let other = |one: &Credential| {
                one.id != found.id && one.role == Role::Admin && one.expires.is_none_or(|end| end > now)
            };
            if !all.iter().any(other) {
                return Err(AppError::conflict(
                    "this is the last administrator; make another one before you delete it",
                ));
            }
        }
        if !self.store.delete_credential(&found.id.to_string()).await? {
            return Err(missing());
        }
        self.cache.clear();
        Ok(())
    }

    async fn known(&self, secret: &str, kinds: &[&str]) -> Result<Option<Caller>, AppError> {
        if secret.len() > LONGEST {
            return Ok(None);
        }
        // The kind is part of the key, so that a cookie is no token from the cache either.
        let key = digest(&format!("{}\0{secret}", kinds[0]));
        if let Some(caller) = self.cache.get(&key) {
            return Ok(Some(caller));
        }
        let Some(right) = self.store.right(&hash(secret)).await? else { return Ok(None) };
        let live = right.expires.is_none_or(|end| end > Timestamp::now());
        if !live || !kinds.contains(&right.kind.as_str()) {
            return Ok(None);
        }
        let caller = right.credential.caller();
        self.cache.put(key, caller.clone(), right.expires);
        Ok(Some(caller))
    }

    async fn give(&self, credential: &Credential, kind: &str, seconds: i64) -> Result<Shown, AppError> {
        let secret = make(if kind == "access" { "gwa_" } else { "gws_" });
        let now = Timestamp::now();
        let end = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        self.store.insert_session(&hash(&secret), credential, kind, now, end).await?;
        Ok(secret)
    }
}

/// Makes sure that somebody can get in: the first start makes an administrator whose token lies in the data directory,
/// for its owner alone. A token file whose token is unknown (a restored or another database) is made valid again.
pub async fn ensure_admin(store: &Store, data: &Path) -> Result<(), AppError> {
    let file = data.join(ADMIN_TOKEN);
    let unwritable = |error: std::io::Error| {
        AppError::new(ErrorKind::Unavailable, format!("{}: it cannot be read or written", file.display()))
            .because(error)
    };
    if store.credentials().await?.iter().any(|one| one.name == ADMIN) {
        return Ok(());
    }
    // The file comes first: a token in the database that nobody knows would lock everybody out.
    let fresh = make(prefix(CredentialKind::Token));
    guywire_secrets::private::create(&file, format!("{}\n", *fresh).as_bytes()).map_err(unwritable)?;
    let kept = Zeroizing::new(std::fs::read_to_string(&file).map_err(unwritable)?);
    let token = kept.trim();
    if token.len() < fresh.len() {
        return Err(AppError::new(
            ErrorKind::Unavailable,
            format!("{} holds no token; remove it and start again", file.display()),
        ));
    }
    let admin = Credential {
        id: Uuid::now_v7(),
        name: ADMIN.to_owned(),
        kind: CredentialKind::Token,
        role: Role::Admin,
        created: Timestamp::now(),
        expires: None,
    };
    match store.insert_credential(&admin, Some(hash(token))).await {
        // Another manager of the same data directory was faster, with the same file.
        Err(error) if error.kind == StoreErrorKind::Taken => Ok(()),
        done => done.map_err(AppError::from),
    }
}

/// Gives the first administrator's credential a new token and writes it to the data directory, whoever holds the
/// data directory being who may do that anyway.
pub async fn renew_admin(store: &Store, data: &Path) -> Result<(), AppError> {
    let file = data.join(ADMIN_TOKEN);
    let fresh = make(prefix(CredentialKind::Token));
    guywire_secrets::private::replace(&file, format!("{}\n", *fresh).as_bytes()).map_err(|error| {
        AppError::new(ErrorKind::Unavailable, format!("{}: it cannot be written", file.display()))
            .because(error)
    })?;
    if store.renew_credential(ADMIN, &hash(&fresh)).await? { Ok(()) } else { ensure_admin(store, data).await }
}

impl Credential {
    fn caller(&self) -> Caller {
        Caller { name: self.name.clone(), role: self.role }
    }
}

impl Caller {
    /// Whoever asks an open gate.
    pub fn anonymous() -> Self {
        Self { name: "anonymous".to_owned(), role: Role::Admin }
    }
}

/// The hash under which a secret is kept.
pub fn hash(secret: &str) -> String {
    hex(&digest(secret))
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// 256 random bits. The prefix tells people, and scanners for leaked secrets, what it is.
fn make(prefix: &str) -> Shown {
    let bits: Zeroizing<[u8; 32]> = Zeroizing::new(rand::random());
    Zeroizing::new(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(&bits[..])))
}

fn prefix(kind: CredentialKind) -> &'static str {
    match kind {
        CredentialKind::Token => "gwt_",
        CredentialKind::Client | CredentialKind::Certificate => "gwc_",
    }
}

fn check_name(name: &str) -> Result<(), AppError> {
    let good = |c: char| !c.is_control();
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(good) || name.trim() != name {
        return Err(AppError::invalid(format!(
            "name: it has 1 to {LONGEST_NAME} characters, no control characters and no space around it"
        )));
    }
    Ok(())
}

fn unauthenticated(detail: impl Into<String>) -> AppError {
    AppError::new(ErrorKind::Unauthenticated, detail)
}

#[cfg(test)]
mod tests;
