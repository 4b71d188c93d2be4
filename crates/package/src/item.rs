//! Reading typed values out of the tree: a value together with the path of names that leads to it, so that a
//! complaint reads `Definitions/vnfd.yaml:41: masterNode: vdu_profile: min_number_of_instances: expected …`.

use crate::{
    rejection::{Rejection, printable},
    yaml::{Key, Kind, Node, integer},
};

/// A value and how a person would name it.
#[derive(Debug, Clone)]
pub struct Item {
    pub label: String,
    pub node: Node,
    /// Where a person looks for it: the line of its key, where it has one.
    pub line: u32,
}

/// What was passed over in a package, bounded so that a package cannot fill a log.
#[derive(Debug, Default)]
pub struct Notes(Vec<String>);

const MOST_NOTES: usize = 100;

impl Notes {
    /// Notes something at a value.
    pub fn at(&mut self, item: &Item, what: &str) {
        self.push(format!("{}:{}: {}: {what}", item.node.file(), item.line, item.label));
    }

    /// Notes something, once.
    pub fn push(&mut self, note: String) {
        match self.0.len() {
            MOST_NOTES => self.0.push("further warnings are left out".into()),
            0..MOST_NOTES if !self.0.contains(&note) => self.0.push(note),
            _ => {}
        }
    }

    /// All notes.
    pub fn into_inner(self) -> Vec<String> {
        self.0
    }
}

impl Item {
    /// A value under a name.
    pub fn new(label: impl Into<String>, node: Node) -> Self {
        Self { label: label.into(), line: node.line(), node }
    }

    /// The same value under another name.
    pub fn relabelled(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// A complaint about this value.
    pub fn refuse(&self, reason: impl AsRef<str>) -> Rejection {
        Rejection::at(self.node.file(), self.line, format!("{}: {}", self.label, reason.as_ref()))
    }

    /// "expected …, found …".
    pub fn expected(&self, what: &str) -> Rejection {
        self.refuse(format!("expected {what}, found {}", self.node.found()))
    }

    /// A part that may be missing. Null, and what is not known yet, count as missing.
    pub fn field(&self, name: &str) -> Option<Item> {
        let (key, node) = self.node.find(name)?;
        (!matches!(node.kind(), Kind::Unresolved(_))).then(|| self.child(key, node))
    }

    /// A part that must be there.
    pub fn need(&self, name: &str, expected: &str) -> Result<Item, Rejection> {
        match self.node.find(name) {
            Some((key, node)) => match node.kind() {
                Kind::Unresolved(why) => {
                    Err(self.child(key, node).refuse(format!("expected {expected}, but {why}")))
                }
                _ => Ok(self.child(key, node)),
            },
            None => Err(self.refuse(format!("{name} is missing; expected {expected}"))),
        }
    }

    /// The entries of a mapping; null has none.
    pub fn entries(&self) -> Result<Vec<(&str, Item)>, Rejection> {
        match self.node.kind() {
            _ if self.node.is_null() => Ok(Vec::new()),
            Kind::Map(entries) => {
                Ok(entries.iter().map(|(key, node)| (key.text.as_str(), self.child(key, node))).collect())
            }
            _ => Err(self.expected("a mapping")),
        }
    }

    /// The items of a list; null has none.
    pub fn items(&self) -> Result<Vec<Item>, Rejection> {
        match self.node.kind() {
            _ if self.node.is_null() => Ok(Vec::new()),
            Kind::List(items) => Ok(items.iter().map(|node| Item::new(&self.label, node.clone())).collect()),
            _ => Err(self.expected("a list")),
        }
    }

    /// What TOSCA writes as a list of mappings with one entry each, or as one mapping: names and values.
    pub fn named(&self) -> Result<Vec<(String, Item)>, Rejection> {
        if matches!(self.node.kind(), Kind::Map(_)) {
            return Ok(self.entries()?.into_iter().map(|(name, item)| (name.to_owned(), item)).collect());
        }
        let mut named = Vec::new();
        for item in self.items()? {
            match item.node.kind() {
                // A name by itself promises nothing more than the type already does.
                Kind::Scalar { text, .. } => {
                    let key = Key { text: text.clone(), line: item.line };
                    named.push((text.clone(), item.child(&key, &item.node.replaced(null()))));
                }
                _ => named.extend(item.entries()?.into_iter().map(|(name, item)| (name.to_owned(), item))),
            }
        }
        Ok(named)
    }

    /// Text. Numbers and truth values are taken as written: `version: 1.0` is `1.0`.
    pub fn text(&self) -> Result<String, Rejection> {
        let text = self.node.text().ok_or_else(|| self.expected("text"))?;
        if text.len() > LONGEST_TEXT {
            return Err(self.refuse(format!("has {} bytes; at most {LONGEST_TEXT} are taken", text.len())));
        }
        Ok(text.to_owned())
    }

    /// A list of texts.
    pub fn texts(&self) -> Result<Vec<String>, Rejection> {
        self.items()?.iter().map(Item::text).collect()
    }

    /// A word that names something: not empty, of one line, and of moderate length.
    pub fn word(&self) -> Result<String, Rejection> {
        let text = self.text()?;
        if text.trim() != text || text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
            return Err(self.expected("a name of 1 to 255 bytes on one line"));
        }
        Ok(text)
    }

    /// A whole number within bounds.
    pub fn number(&self, least: u32, most: u32) -> Result<u32, Rejection> {
        let number = match self.node.kind() {
            Kind::Scalar { text, plain: true } => integer(text).and_then(|number| u32::try_from(number).ok()),
            _ => None,
        };
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.expected(&format!("a whole number from {least} to {most}")))
    }

    /// A truth value.
    pub fn truth(&self) -> Result<bool, Rejection> {
        match self.node.text() {
            Some("true" | "True" | "TRUE" | "yes") => Ok(true),
            Some("false" | "False" | "FALSE" | "no") => Ok(false),
            _ => Err(self.expected("true or false")),
        }
    }

    /// A TOSCA `scalar-unit.size` in bytes, such as `512 MB`.
    pub fn size(&self) -> Result<u64, Rejection> {
        self.node.text().and_then(size).ok_or_else(|| self.expected("a size such as '512 MB' or '2 GiB'"))
    }

    /// Notes the names in this mapping that its type does not have.
    pub fn note_unknown(&self, known: &[&str], notes: &mut Notes) -> Result<(), Rejection> {
        for (name, item) in self.entries()? {
            if !known.contains(&name) {
                notes.at(&item, "unknown property, passed over");
            }
        }
        Ok(())
    }

    fn child(&self, key: &Key, node: &Node) -> Item {
        let label = format!("{}: {}", self.label, printable(&key.text));
        Item { label, node: node.clone(), line: key.line }
    }
}

/// Texts in a descriptor are words, sentences and cloud-init files.
const LONGEST_TEXT: usize = 64 << 10;

fn null() -> Kind {
    Kind::Scalar { text: String::new(), plain: true }
}

/// A number and a unit, which TOSCA compares without regard to case; a bare number is bytes.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "kib" => 1 << 10,
        "mb" => 1_000_000,
        "mib" => 1 << 20,
        "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        "tb" => 1_000_000_000_000,
        "tib" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // Thousandths of a unit are fine enough for any size that a person writes.
    let fraction = fraction.get(..fraction.len().min(3))?;
    let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let part = fraction.parse::<u64>().ok()?.checked_mul(factor)? / scale;
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Limits;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("512 MB", Some(512_000_000)),
            ("2 GiB", Some(2 << 30)),
            ("1.5 kB", Some(1_500)),
            ("1GB", Some(1_000_000_000)),
            ("7", Some(7)),
            ("1 gb", Some(1_000_000_000)),
            ("", None),
            ("GB", None),
            ("-1 GB", None),
            ("1 parsec", None),
            ("1. GB", None),
            ("99999999999999 TB", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }

    #[test]
    fn complaints_name_the_path() {
        let text = "vdu_profile:\n  min: many\n  max: 3";
        let node = crate::yaml::parse("d/v.yaml", text, &Limits::default()).expect("it parses");
        let item = Item::new("masterNode", node);
        let profile = item.need("vdu_profile", "a profile").expect("it is there");
        let refused = |result: Result<u32, Rejection>| result.expect_err("it is refused").to_string();
        assert_eq!(
            refused(profile.need("min", "").and_then(|min| min.number(0, 9))),
            "d/v.yaml:2: masterNode: vdu_profile: min: expected a whole number from 0 to 9, found 'many'"
        );
        assert_eq!(
            refused(profile.need("most", "a number").and_then(|most| most.number(0, 9))),
            "d/v.yaml:1: masterNode: vdu_profile: most is missing; expected a number"
        );
    }
}
