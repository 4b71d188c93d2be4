//! Where the manager is and who we are there: options, environment, contexts, data directory, in this order.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use guywire_secrets::private;
use serde::{Deserialize, Serialize};

use crate::{
    cli::{Global, target::Target},
    installation,
    output::read_bounded,
};

/// Where a manager listens unless it was told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:9890";
/// The token that a manager leaves for the user who started it.
const ADMIN_TOKEN: &str = "admin-token";
/// Contexts are short; anything longer is not ours.
const MOST: u64 = 1 << 20;

/// The manager that a command talks to.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its address.
    pub url: String,
    /// Who vouches for it.
    pub ca: Option<PathBuf>,
    token: Token,
}

/// Where a token is from.
#[derive(Clone)]
enum Token {
    /// `GUYWIRE_TOKEN`.
    Environment(String),
    /// A context.
    Kept(String, String),
    /// The file that the manager left in the data directory, read when it is needed.
    DataDirectory(PathBuf),
    /// Given at login.
    Given(String),
    /// There is none.
    None,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Environment(_) => "Environment",
            Self::Kept(..) => "Kept",
            Self::DataDirectory(_) => "DataDirectory",
            Self::Given(_) => "Given",
            Self::None => "None",
        })
    }
}

/// The file of contexts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The one that is used.
    pub current: Option<String>,
    /// All, by name.
    pub contexts: BTreeMap<String, Kept>,
}

/// A manager that was logged in to.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Its address.
    pub url: String,
    /// The token.
    pub token: String,
    /// Who vouches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("url", &self.url).field("ca", &self.ca).finish_non_exhaustive()
    }
}

impl Found {
    /// A manager and a token that were just named.
    pub fn given(url: String, ca: Option<PathBuf>, token: String) -> Self {
        Self { url, ca, token: Token::Given(token) }
    }

    /// The token, if there is one.
    pub fn token(&self) -> anyhow::Result<Option<String>> {
        match &self.token {
            Token::Environment(token) | Token::Kept(_, token) | Token::Given(token) => {
                Ok(Some(token.clone()))
            }
            Token::DataDirectory(file) if file.exists() => Ok(Some(read_bounded(file, 4096)?)),
            Token::DataDirectory(_) | Token::None => Ok(None),
        }
    }

    /// What to do when the manager does not know us.
    pub fn advice(&self) -> String {
        match &self.token {
            Token::Environment(_) => "the token is GUYWIRE_TOKEN's".to_owned(),
            Token::Kept(name, _) => format!(
                "the token is that of the context {name}; log in again with `guywire login {}`",
                self.url
            ),
            Token::DataDirectory(file) if file.exists() => format!(
                "the token is that in {}; if the manager has another data directory, name it with --data",
                file.display()
            ),
            Token::DataDirectory(file) => format!(
                "no token was sent, as there is no {}; name the manager's data directory with --data, or log in with `guywire login {}`",
                file.display(),
                self.url
            ),
            Token::Given(_) => "the token is the one that was just given".to_owned(),
            Token::None => {
                format!("no token was sent; log in with `guywire login {}`, or set GUYWIRE_TOKEN", self.url)
            }
        }
    }

    /// What to do when nobody answers.
    pub fn absent(&self) -> String {
        let elsewhere = "say where it is with --url, GUYWIRE_URL or `guywire login URL`";
        if is_loopback(&self.url) {
            format!("start one with `guywire manager serve`, or {elsewhere}")
        } else {
            format!("see whether it runs there, or {elsewhere}")
        }
    }
}

/// Finds the manager.
pub fn find(target: &Target, global: &Global) -> anyhow::Result<Found> {
    let environment = std::env::var("GUYWIRE_TOKEN").ok().filter(|token| !token.is_empty());
    let data = || Ok(installation::data_directory(global)?.join(ADMIN_TOKEN));
    choose(target, environment, Contexts::load, data)
}

fn choose(
    target: &Target,
    environment: Option<String>,
    contexts: impl FnOnce() -> anyhow::Result<Contexts>,
    admin_token: impl FnOnce() -> anyhow::Result<PathBuf>,
) -> anyhow::Result<Found> {
    // With both in the environment nobody's files matter, and none that is broken is in the way.
    if let (Some(url), Some(token)) = (&target.url, &environment) {
        return Ok(Found {
            url: url.clone(),
            ca: target.ca.clone(),
            token: Token::Environment(token.clone()),
        });
    }
    let contexts = contexts()?;
    let kept = match (&target.url, &target.context) {
        // A context's token is for its own address only.
        (Some(url), _) => contexts.contexts.iter().find(|(_, kept)| same(&kept.url, url)),
        (None, Some(name)) => Some(contexts.get(name)?),
        (None, None) => contexts.current.as_deref().map(|name| contexts.get(name)).transpose()?,
    };
    let url = match (&target.url, &kept) {
        (Some(url), _) => url.clone(),
        (None, Some((_, kept))) => kept.url.clone(),
        (None, None) => DEFAULT_URL.to_owned(),
    };
    let ca = target.ca.clone().or_else(|| kept.and_then(|(_, kept)| kept.ca.clone()));
    let token = match (environment, kept) {
        (Some(token), _) => Token::Environment(token),
        (None, Some((name, kept))) => Token::Kept(name.clone(), kept.token.clone()),
        // The administrator's token never leaves this host.
        (None, None) if is_loopback(&url) => Token::DataDirectory(admin_token()?),
        (None, None) => Token::None,
    };
    Ok(Found { url, ca, token })
}

impl Contexts {
    /// Reads the user's contexts; none if there is no file.
    pub fn load() -> anyhow::Result<Self> {
        Self::read(&Self::file()?)
    }

    fn read(file: &Path) -> anyhow::Result<Self> {
        let name = file.display();
        match private::open_to_others(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("{name}: cannot be looked at")),
            Ok(Some(mode)) => bail!(
                "{name}: mode {mode:04o} lets others read the tokens in it; run `chmod 600 {name}`, and get new tokens if others may have read them"
            ),
            Ok(None) => {}
        }
        let text = read_bounded(file, MOST)?;
        serde_json::from_str(&text).map_err(|error| {
            // The library's own words may repeat a value, which may be a token: line and column say enough.
            anyhow::anyhow!(
                "{name}:{}:{}: this is no file of contexts; mend it, or remove it and log in again",
                error.line(),
                error.column()
            )
        })
    }

    /// Changes the user's contexts; two logins at once lose nothing.
    pub fn update<T>(change: impl FnOnce(&mut Self) -> anyhow::Result<T>) -> anyhow::Result<T> {
        Self::update_in(&Self::file()?, change)
    }

    fn update_in<T>(file: &Path, change: impl FnOnce(&mut Self) -> anyhow::Result<T>) -> anyhow::Result<T> {
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir).with_context(|| format!("{}: cannot be made", dir.display()))?;
        }
        let _lock = private::lock(file).with_context(|| format!("{}: cannot be locked", file.display()))?;
        let mut contexts = Self::read(file)?;
        let answer = change(&mut contexts)?;
        let text = serde_json::to_string_pretty(&contexts)? + "\n";
        private::replace(file, text.as_bytes())
            .with_context(|| format!("{}: cannot be written", file.display()))?;
        Ok(answer)
    }

    /// One of them.
    pub fn get(&self, name: &str) -> anyhow::Result<(&String, &Kept)> {
        let names = || match self.contexts.keys().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] => "there are none yet; `guywire login URL` makes one".to_owned(),
            names => format!("there are {}", names.join(", ")),
        };
        self.contexts
            .get_key_value(name)
            .with_context(|| format!("no context is called {name:?}; {}", names()))
    }

    fn file() -> anyhow::Result<PathBuf> {
        let absolute =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config =
            absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
        let config = config.context(
            "no directory for contexts: neither HOME nor XDG_CONFIG_HOME is set; set GUYWIRE_URL and GUYWIRE_TOKEN instead",
        )?;
        Ok(config.join("guywire/contexts.json"))
    }
}

/// Whether an address is this host's own.
pub fn is_loopback(url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn same(one: &str, other: &str) -> bool {
    match (url::Url::parse(one), url::Url::parse(other)) {
        (Ok(one), Ok(other)) => one.as_str().trim_end_matches('/') == other.as_str().trim_end_matches('/'),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Contexts {
        let kept = |url: &str, token: &str| Kept { url: url.into(), token: token.into(), ca: None };
        Contexts {
            current: Some("site".into()),
            contexts: [
                ("site".to_owned(), kept("https://site.example", "site-token")),
                ("other".to_owned(), kept("https://other.example/", "other-token")),
            ]
            .into(),
        }
    }

    fn found(url: Option<&str>, context: Option<&str>, token: Option<&str>, contexts: Contexts) -> Found {
        let target = Target { url: url.map(str::to_owned), context: context.map(str::to_owned), ca: None };
        choose(&target, token.map(str::to_owned), || Ok(contexts), || Ok("/data/admin-token".into()))
            .expect("a manager is found")
    }

    #[test]
    fn options_come_before_the_context_and_the_context_before_the_default() {
        let cases = [
            // url, context, environment's token, has contexts -> url, where the token is from
            (None, None, None, false, DEFAULT_URL, "DataDirectory"),
            (None, None, Some("t"), false, DEFAULT_URL, "Environment"),
            (None, None, None, true, "https://site.example", "Kept"),
            (None, Some("other"), None, true, "https://other.example/", "Kept"),
            (None, None, Some("t"), true, "https://site.example", "Environment"),
            (Some("https://other.example"), None, None, true, "https://other.example", "Kept"),
            (Some("https://new.example"), None, None, true, "https://new.example", "None"),
            (Some("http://localhost:1"), None, None, true, "http://localhost:1", "DataDirectory"),
            (Some("http://127.8.0.1:1"), None, None, true, "http://127.8.0.1:1", "DataDirectory"),
            (
                Some("http://localhost.evil.example"),
                None,
                None,
                true,
                "http://localhost.evil.example",
                "None",
            ),
        ];
        for (url, context, token, has, expected, from) in cases {
            let contexts = if has { contexts() } else { Contexts::default() };
            let found = found(url, context, token, contexts);
            assert_eq!((found.url.as_str(), format!("{:?}", found.token).as_str()), (expected, from));
        }
    }

    #[test]
    fn a_context_that_is_not_there_is_answered_with_those_that_are() {
        let error = contexts().get("nope").expect_err("unknown").to_string();
        assert_eq!(error, "no context is called \"nope\"; there are other, site");
        let error = Contexts::default().get("nope").expect_err("unknown").to_string();
        assert!(error.contains("guywire login"), "{error}");
    }

    #[test]
    fn the_file_is_the_owners_alone_and_never_repeated() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a/contexts.json");
        Contexts::update_in(&file, |all| {
            *all = contexts();
            Ok(())
        })
        .expect("it is written");
        let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Contexts::read(&file).expect("it is read"), contexts());
        assert!(!format!("{:?}", contexts()).contains("site-token"));

        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("chmod");
        let error = Contexts::read(&file).expect_err("others may read it").to_string();
        assert!(error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("chmod");
        std::fs::write(&file, "{\"current\": 7, \"token\": \"hunter2\"}").expect("it is written");
        let error = Contexts::read(&file).expect_err("it is wrong").to_string();
        assert!(error.contains("contexts.json:1:") && !error.contains("hunter2"), "{error}");
    }
}
