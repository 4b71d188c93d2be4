//! Takes secrets out of requests: what is stored, shown and told refers to them by name. No I/O.

use guywire_secrets::{Secret, SecretRef};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// A secret that was found, and the name that stands in its place.
pub type Hidden = (SecretRef, Secret);

/// Attributes whose text is a secret, by the end of their name.
const ENDINGS: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "private_key",
    "privatekey",
    "client_key",
    "ssh_key",
    "credential",
];
/// The mark that a reference begins with.
const MARK: &str = "secret:";

/// Puts references in the place of all secrets of `map`, named below `prefix`.
///
/// A text that is a reference already stays, if `may_refer` allows it to be used from here.
pub fn hide(
    map: &mut Map<String, Value>,
    prefix: &str,
    may_refer: &dyn Fn(&SecretRef) -> bool,
) -> Result<Vec<Hidden>, String> {
    let mut hidden = Vec::new();
    for (key, value) in map.iter_mut() {
        walk(value, key, key, prefix, may_refer, &mut hidden)?;
    }
    Ok(hidden)
}

fn walk(
    value: &mut Value,
    key: &str,
    path: &str,
    prefix: &str,
    may_refer: &dyn Fn(&SecretRef) -> bool,
    hidden: &mut Vec<Hidden>,
) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            for (inner, value) in map.iter_mut() {
                let path = format!("{path}/{inner}");
                walk(value, inner, &path, prefix, may_refer, hidden)?;
            }
        }
        Value::Array(list) => {
            for (at, value) in list.iter_mut().enumerate() {
                walk(value, key, &format!("{path}/{at}"), prefix, may_refer, hidden)?;
            }
        }
        Value::String(text) => {
            if text.starts_with(MARK) {
                let reference: SecretRef = text.parse().map_err(|error| format!("{path}: {error}"))?;
                if !may_refer(&reference) {
                    return Err(format!(
                        "{path}: no secret that may be used here is called {:?}; set it with `guywire secret set`",
                        reference.name()
                    ));
                }
            } else if !text.is_empty() && (is_secret(key) || has_password(text)) {
                let name = format!("{MARK}{prefix}.{}", name_of(path));
                let reference: SecretRef = name.parse().map_err(|error| format!("{path}: {error}"))?;
                hidden.push((reference.clone(), Secret::new(text.as_bytes())));
                *text = reference.to_string();
            }
        }
        Value::Number(_) if is_secret(key) => {
            return Err(format!("{path}: write a secret as a text, in quotes"));
        }
        _ => {}
    }
    Ok(())
}

/// Whether an attribute of that name holds a secret.
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    ENDINGS.iter().any(|ending| key.ends_with(ending))
}

/// Whether a text is a URL with a password in it, such as a proxy's.
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

/// A path as part of a secret's name: what a name cannot hold, or what would be too long, is told by a hash.
fn name_of(path: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    if path.len() <= 100 && path.chars().all(good) {
        return path.to_owned();
    }
    let digest = Sha256::digest(path.as_bytes());
    crate::domain::hex(&digest[..12])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(value: Value) -> (Value, Vec<(String, String)>) {
        let Value::Object(mut map) = value else { panic!("an object") };
        let hidden = hide(&mut map, "vnf.1", &|reference| reference.name() == "mine").unwrap();
        let told = hidden
            .iter()
            .map(|(name, secret)| (name.to_string(), String::from_utf8(secret.expose().to_vec()).unwrap()));
        (Value::Object(map), told.collect())
    }

    #[test]
    fn passwords_of_the_seeds_become_references() {
        let (shown, hidden) = run(json!({"additionalParams": {"k8s_cluster_installation_param": {
            "master_node": {"username": "ubuntu", "password": "ubuntu1"},
            "proxy": {"http_proxy": "http://user1:password1@host1:port1", "no_proxy": "10.0.0.1"},
            "private_registry_connection_info": [{"server": "r:5000"}, {"password": "user01"}]}}}));
        let text = shown.to_string();
        for secret in ["ubuntu1", "password1", "user01\""] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(text.contains("\"username\":\"ubuntu\"") && text.contains("10.0.0.1"), "{text}");
        let mut names: Vec<&str> = hidden.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "secret:vnf.1.additionalParams/k8s_cluster_installation_param/master_node/password",
                "secret:vnf.1.additionalParams/k8s_cluster_installation_param/private_registry_connection_info/1/password",
                "secret:vnf.1.additionalParams/k8s_cluster_installation_param/proxy/http_proxy",
            ]
        );
    }

    #[test]
    fn references_stay_if_they_may_be_used() {
        let (shown, hidden) = run(json!({"p": {"password": "secret:mine"}}));
        assert_eq!((shown, hidden.len()), (json!({"p": {"password": "secret:mine"}}), 0));
        let Value::Object(mut map) = json!({"p": {"password": "secret:others"}}) else { panic!() };
        let refused = hide(&mut map, "x", &|_| false).unwrap_err();
        assert!(refused.starts_with("p/password: no secret that may be used here"), "{refused}");
    }

    #[test]
    fn names_that_a_reference_cannot_hold_are_hashed() {
        let (_, hidden) = run(json!({"ä ö": {"password": "x"}, "empty": {"password": ""}}));
        assert_eq!(hidden.len(), 1);
        assert!(hidden[0].0.starts_with("secret:vnf.1.") && hidden[0].0.len() == 37, "{hidden:?}");
    }
}
