//! `all_fields`, `fields`, `exclude_fields`, `exclude_default`: which attributes are shown (SOL013 5.3).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{ListingError, Resource, last};

/// More attributes than any resource has.
const ATTRIBUTES: usize = 256;

/// Which attributes of entries are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Every one.
    All,
    /// All but these.
    Without(Tree),
    /// These alone.
    Only(Tree),
}

/// Ways into an entry; one without branches means the whole attribute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Tree>);

impl Selector {
    /// Reads the selectors of a query.
    pub(super) fn parse(
        resource: &'static Resource,
        pairs: &[(String, String)],
    ) -> Result<Self, ListingError> {
        let flag = |name: &'static str| match last(pairs, name) {
            None => Ok(false),
            // The flags have no value; `=` and `=true` are what some clients cannot do without.
            Some("" | "true" | "True" | "yes") => Ok(true),
            Some(other) => {
                Err(ListingError::new(name, format!("it takes no value, and {other:?} was given")))
            }
        };
        let (all, default) = (flag("all_fields")?, flag("exclude_default")?);
        let fields = last(pairs, "fields").map(|text| paths(resource, "fields", text)).transpose()?;
        let exclude =
            last(pairs, "exclude_fields").map(|text| paths(resource, "exclude_fields", text)).transpose()?;
        let only_one = "of all_fields, fields, exclude_fields and exclude_default a request has one, or fields \
                        together with exclude_default";
        match (all, fields, exclude, default) {
            (true, None, None, false) => Ok(Self::All),
            (false, Some(fields), None, false) => {
                let mut tree = Tree::of(resource.mandatory);
                for path in &fields {
                    tree.add(path);
                }
                Ok(Self::Only(tree))
            }
            (false, Some(fields), None, true) => {
                let mut tree = Tree::of(resource.excluded);
                for path in &fields {
                    tree.spare(path);
                }
                Ok(Self::Without(tree))
            }
            (false, None, Some(exclude), false) => {
                let mut tree = Tree::default();
                for path in &exclude {
                    tree.add(path);
                }
                // What must be there stays there.
                for name in resource.mandatory {
                    tree.0.remove(*name);
                }
                Ok(Self::Without(tree))
            }
            (false, None, None, _) => Ok(Self::Without(Tree::of(resource.excluded))),
            (true, ..) => Err(ListingError::new("all_fields", only_one)),
            (false, _, Some(_), _) => Err(ListingError::new("exclude_fields", only_one)),
        }
    }

    /// Whether any of a top-level attribute is shown.
    pub fn shows(&self, attribute: &str) -> bool {
        match self {
            Self::All => true,
            Self::Without(tree) => tree.0.get(attribute).is_none_or(|branch| !branch.0.is_empty()),
            Self::Only(tree) => tree.0.contains_key(attribute),
        }
    }

    /// An entry with what is shown of it.
    pub fn select(&self, entry: Value) -> Value {
        match self {
            Self::All => entry,
            Self::Without(tree) => tree.without(entry),
            Self::Only(tree) => tree.only(entry),
        }
    }
}

impl Tree {
    fn of(names: &[&str]) -> Self {
        Self(names.iter().map(|name| ((*name).to_owned(), Self::default())).collect())
    }

    /// Adds a way. A whole attribute stays whole when a part of it is named too.
    fn add(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else {
            self.0.clear();
            return;
        };
        match self.0.get_mut(first) {
            Some(branch) if branch.0.is_empty() => {}
            Some(branch) => branch.add(rest),
            None => {
                let mut branch = Self::default();
                if !rest.is_empty() {
                    branch.add(rest);
                }
                self.0.insert(first.clone(), branch);
            }
        }
    }

    /// Takes an attribute out of what is left out, also where only a part of it is named.
    fn spare(&mut self, path: &[String]) {
        if let Some(first) = path.first() {
            self.0.remove(first);
        }
    }

    fn without(&self, value: Value) -> Value {
        match value {
            Value::Array(elements) => {
                Value::Array(elements.into_iter().map(|element| self.without(element)).collect())
            }
            Value::Object(map) => Value::Object(
                map.into_iter()
                    .filter_map(|(name, inner)| match self.0.get(&name) {
                        None => Some((name, inner)),
                        Some(branch) if branch.0.is_empty() => None,
                        Some(branch) => Some((name, branch.without(inner))),
                    })
                    .collect::<Map<_, _>>(),
            ),
            plain => plain,
        }
    }

    fn only(&self, value: Value) -> Value {
        if self.0.is_empty() {
            return value;
        }
        match value {
            Value::Array(elements) => {
                Value::Array(elements.into_iter().map(|element| self.only(element)).collect())
            }
            Value::Object(map) => Value::Object(
                map.into_iter()
                    .filter_map(|(name, inner)| {
                        let branch = self.0.get(&name)?;
                        let shown = branch.only(inner);
                        Some((name, shown))
                    })
                    .collect::<Map<_, _>>(),
            ),
            plain => plain,
        }
    }
}

/// `a,b/c` as ways; the first step of each must be an attribute of the resource.
fn paths(resource: &Resource, parameter: &'static str, text: &str) -> Result<Vec<Vec<String>>, ListingError> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let path: Vec<String> = part.split('/').map(unescape).collect();
        if path.iter().any(String::is_empty) {
            return Err(ListingError::new(
                parameter,
                format!("{text:?}: the name of an attribute is missing; write attribute,other/part"),
            ));
        }
        resource.check(parameter, &path[0])?;
        all.push(path);
        if all.len() > ATTRIBUTES {
            return Err(ListingError::new(parameter, format!("there are more than {ATTRIBUTES} attributes")));
        }
    }
    Ok(all)
}

/// The escapes of attributes' names, as in filters; anything else is taken as it stands.
fn unescape(name: &str) -> String {
    if !name.contains('~') {
        return name.to_owned();
    }
    name.replace("~1", "/").replace("~a", ",").replace("~b", "@").replace("~0", "~")
}
