//! What people call things: an id, the beginning or the end of one, or a name; one thing must be meant.

use anyhow::bail;
use serde_json::Value;

use super::Client;

/// A kind of thing that a manager keeps.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// What it is called.
    pub what: &'static str,
    /// Where they are.
    pub path: &'static str,
    /// Attributes that people may name it by.
    names: &'static [&'static str],
    /// The command that lists them.
    list: &'static str,
}

pub const INSTANCE: Kind = Kind {
    what: "VNF instance",
    path: "/vnflcm/v2/vnf_instances",
    names: &["vnfInstanceName"],
    list: "guywire vnf list",
};
pub const PACKAGE: Kind = Kind {
    what: "package",
    path: "/vnfpkgm/v1/vnf_packages",
    names: &["vnfdId", "vnfProductName"],
    list: "guywire package list",
};
pub const OPERATION: Kind =
    Kind { what: "operation", path: "/vnflcm/v2/vnf_lcm_op_occs", names: &[], list: "guywire op list" };
pub const ALARM: Kind =
    Kind { what: "alarm", path: "/vnffm/v1/alarms", names: &[], list: "guywire alarm list" };
pub const VIM: Kind = Kind { what: "VIM", path: "/v1.0/vims", names: &["name"], list: "guywire vim list" };
/// Of all interfaces together.
pub const SUBSCRIPTION: Kind = Kind {
    what: "subscription",
    path: "/guywire/v1/subscriptions",
    names: &[],
    list: "guywire subscription list",
};
pub const CREDENTIAL: Kind = Kind {
    what: "credential",
    path: "/guywire/v1/credentials",
    names: &["name"],
    list: "guywire token list",
};

/// How many others a message names.
const SHOWN: usize = 5;
/// How many candidates are looked at: a beginning that so many share is none.
const MOST: u32 = 100;

/// The id of the one thing that `text` names.
pub async fn id(client: &Client, kind: Kind, text: &str) -> anyhow::Result<String> {
    if uuid::Uuid::try_parse(text).is_ok_and(|id| id.hyphenated().to_string() == text) {
        // A VNFD's id is mostly a UUID as well, so what looks like a package's id may be one.
        if kind.names.contains(&"vnfdId")
            && let [one] = some(client, kind, &format!("(eq,vnfdId,'{text}')")).await?.as_slice()
            && let Some(id) = one["id"].as_str()
        {
            return Ok(id.to_owned());
        }
        return Ok(text.to_owned());
    }
    let mut found = Vec::new();
    if kind.path == VIM.path {
        found = vims(client).await?;
    } else if !text.is_empty() {
        let quoted = format!("'{}'", text.replace('\'', "''"));
        if is_part_of_id(text) {
            found.extend(some(client, kind, &format!("(cont,id,{quoted})")).await?);
        }
        for name in kind.names {
            found.extend(some(client, kind, &format!("(eq,{name},{quoted})")).await?);
        }
    }
    match choose(kind, text, &found) {
        Choice::One(id) => Ok(id),
        Choice::Several(message) => bail!(message),
        Choice::None => {
            let others = match kind.path {
                path if path == VIM.path => found,
                path => client.list(path, &[], u32::try_from(SHOWN + 1).unwrap_or(MOST)).await?,
            };
            bail!(unknown(kind, text, &others))
        }
    }
}

/// All VIMs; their list is an object of an older interface.
pub async fn vims(client: &Client) -> anyhow::Result<Vec<Value>> {
    let mut answer = client.get(VIM.path, &[]).await?;
    match answer["vims"].take() {
        Value::Array(vims) => Ok(vims),
        _ => bail!("{}{} answers with no list of VIMs", client.url(), VIM.path),
    }
}

async fn some(client: &Client, kind: Kind, filter: &str) -> anyhow::Result<Vec<Value>> {
    client.list(kind.path, &[("filter", filter)], MOST).await
}

fn is_part_of_id(text: &str) -> bool {
    text.len() <= 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// What a text means among candidates.
#[derive(Debug, PartialEq)]
pub enum Choice {
    /// This id.
    One(String),
    /// Too many; the message names some.
    Several(String),
    /// Nothing.
    None,
}

/// A name decides before the beginning of an id, and that before its end: ids of one minute begin alike.
pub fn choose(kind: Kind, text: &str, candidates: &[Value]) -> Choice {
    let lower = text.to_ascii_lowercase();
    let id = |one: &Value| one["id"].as_str().unwrap_or_default().to_owned();
    let named = |one: &Value| kind.names.iter().any(|name| one[*name] == text);
    let begins = |one: &Value| id(one).starts_with(&lower);
    let ends = |one: &Value| lower.len() >= 4 && id(one).ends_with(&lower);
    if text.is_empty() {
        return Choice::None;
    }
    let ways: [&dyn Fn(&Value) -> bool; 3] = [&named, &begins, &ends];
    for way in ways {
        let mut fitting: Vec<&Value> = candidates.iter().filter(|one| way(one)).collect();
        fitting.sort_by_key(|one| id(one));
        fitting.dedup_by_key(|one| id(one));
        match fitting.as_slice() {
            [] => {}
            [one] => return Choice::One(id(one)),
            several => {
                let what = kind.what;
                let labels = several.iter().take(SHOWN).map(|one| label(kind, one)).collect::<Vec<_>>();
                let more = if several.len() > SHOWN { ", …" } else { "" };
                return Choice::Several(format!(
                    "{text:?} can be any of {} {what}s: {}{more}; write more of the id",
                    several.len(),
                    labels.join(", ")
                ));
            }
        }
    }
    Choice::None
}

/// Says that nothing is called so, and what there is.
pub fn unknown(kind: Kind, text: &str, others: &[Value]) -> String {
    let Kind { what, list, .. } = kind;
    let whose = if kind.names.is_empty() { "" } else { " and none has that name" };
    let begin = format!("no {what}'s id begins or ends with {text:?}{whose}");
    match others {
        [] => format!("{begin}; there are no {what}s at all"),
        others => {
            let names: Vec<String> = others.iter().take(SHOWN).map(|one| label(kind, one)).collect();
            let more = if others.len() > SHOWN { ", …" } else { "" };
            format!("{begin}; there are {}{more}, and `{list}` lists them", names.join(", "))
        }
    }
}

fn label(kind: Kind, one: &Value) -> String {
    let id = one["id"].as_str().unwrap_or_default();
    let name = kind.names.iter().rev().find_map(|name| one[*name].as_str().filter(|name| !name.is_empty()));
    name.map_or_else(|| id.to_owned(), |name| format!("{id} ({name})"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_thing_must_be_meant() {
        let all = [
            json!({"id": "0198aaaa-0000-7000-8000-00000000beef", "vnfInstanceName": "hello"}),
            json!({"id": "0198aaab-0000-7000-8000-0000000012ab", "vnfInstanceName": "0198aaaa"}),
            json!({"id": "0198bbbb-0000-7000-8000-000000001234", "vnfInstanceName": "twin"}),
            json!({"id": "0198cccc-0000-7000-8000-000000005678", "vnfInstanceName": "twin"}),
            json!({"id": "0198cccc-0000-7000-8000-000000005678", "vnfInstanceName": "twin"}),
        ];
        let one = |text: &str| choose(INSTANCE, text, &all);
        let id = |at: usize| Choice::One(all[at]["id"].as_str().expect("an id").to_owned());
        assert_eq!(one("hello"), id(0));
        assert_eq!(one("0198aaab"), id(1));
        assert_eq!(one("0198AAAB"), id(1));
        assert_eq!(one("0198aaaa"), id(1), "a name decides before the beginning of an id");
        assert_eq!(one("beef"), id(0));
        assert_eq!(one("ab"), Choice::None, "too short for an end");
        assert_eq!(one("0198c"), id(3), "found twice is one all the same");
        assert_eq!(one(""), Choice::None);
        assert_eq!(one("nothing"), Choice::None);
        for (text, words) in [("0198", "any of 4 VNF instances"), ("twin", "any of 2 VNF instances")] {
            let Choice::Several(message) = one(text) else { panic!("{text} is ambiguous") };
            assert!(message.contains(words) && message.contains("(twin)"), "{message}");
        }
        let message = unknown(INSTANCE, "nope", &all[..1]);
        assert!(message.contains("0198aaaa-0000-7000-8000-00000000beef (hello)"), "{message}");
        assert!(message.contains("guywire vnf list"), "{message}");
        assert!(unknown(OPERATION, "nope", &[]).contains("no operations at all"));
    }
}
