//! YAML as a tree in which every value knows its file and line.
//!
//! Scalars stay text until somebody asks for a type, so that `1.0` can be a version and `yes` a word.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Number, Value};

use crate::{
    policy::Limits,
    rejection::{Rejection, printable},
};

/// A value, cheap to clone.
#[derive(Debug, Clone)]
pub struct Node {
    file: Rc<str>,
    line: u32,
    /// How many values it stands for once every alias is followed.
    weight: u64,
    kind: Rc<Kind>,
}

/// What a value is.
#[derive(Debug)]
pub enum Kind {
    /// Text as written. Only plain text, without quotes, can be null, a number or a truth value.
    Scalar { text: String, plain: bool },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<(Key, Node)>),
    /// A TOSCA function whose value is not known when a package is read, and why.
    Unresolved(String),
}

/// The key of a mapping.
#[derive(Debug, Clone)]
pub struct Key {
    pub text: String,
    pub line: u32,
}

/// Parses one file.
pub fn parse(file: &str, text: &str, limits: &Limits) -> Result<Node, Rejection> {
    let mut builder =
        Builder { file: file.into(), limits, open: Vec::new(), anchors: HashMap::new(), root: None };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event
            .map_err(|error| Rejection::at(file, line(error.marker().line()), printable(error.info())))?;
        builder.event(event, span)?;
    }
    builder.root.ok_or_else(|| Rejection::file(file, "is empty; expected a TOSCA service template"))
}

struct Builder<'a> {
    file: Rc<str>,
    limits: &'a Limits,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
}

/// A collection that has not ended yet.
struct Open {
    line: u32,
    anchor: usize,
    weight: u64,
    content: OpenContent,
}

enum OpenContent {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, keys: HashSet<String>, key: Option<Key>, merged: Vec<Node> },
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Rejection> {
        let at = line(span.start.line());
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => match self.root {
                Some(_) => {
                    Err(self.refuse(at, "a second YAML document begins; expected one document in a file"))
                }
                None => Ok(()),
            },
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => self.value(node, at),
                None => Err(self.refuse(at, "an alias stands inside the value that it names")),
            },
            Event::Scalar(text, style, anchor, tag) => {
                let plain = matches!(style, ScalarStyle::Plain) && !is_string(tag.as_deref());
                let node = self.node(at, 1, Kind::Scalar { text: text.into_owned(), plain });
                self.anchor(anchor, &node);
                self.value(node, at)
            }
            Event::SequenceStart(anchor, _) => self.open(at, anchor, OpenContent::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                let (entries, merged) = (Vec::new(), Vec::new());
                self.open(at, anchor, OpenContent::Map { entries, keys: HashSet::new(), key: None, merged })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(at),
        }
    }

    fn open(&mut self, at: u32, anchor: usize, content: OpenContent) -> Result<(), Rejection> {
        if self.open.len() >= self.limits.yaml_depth {
            let reason =
                format!("values nest deeper than the {} levels that are taken", self.limits.yaml_depth);
            return Err(self.refuse(at, &reason));
        }
        self.open.push(Open { line: at, anchor, weight: 1, content });
        Ok(())
    }

    fn close(&mut self, at: u32) -> Result<(), Rejection> {
        let Some(open) = self.open.pop() else {
            return Err(self.refuse(at, "a collection ends that did not begin"));
        };
        let kind = match open.content {
            OpenContent::List(items) => Kind::List(items),
            OpenContent::Map { mut entries, mut keys, merged, .. } => {
                for source in merged.iter().flat_map(|node| match node.kind() {
                    Kind::List(items) => items.as_slice(),
                    _ => std::slice::from_ref(node),
                }) {
                    let Kind::Map(inherited) = source.kind() else {
                        return Err(self.refuse(open.line, "'<<' names something that is not a mapping"));
                    };
                    for (key, value) in inherited {
                        if keys.insert(key.text.clone()) {
                            entries.push((key.clone(), value.clone()));
                        }
                    }
                }
                Kind::Map(entries)
            }
        };
        let node = self.node(open.line, open.weight, kind);
        self.anchor(open.anchor, &node);
        self.value(node, open.line)
    }

    /// Puts a finished value where it belongs: into the innermost open collection, or at the root.
    fn value(&mut self, node: Node, at: u32) -> Result<(), Rejection> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.weight = open.weight.saturating_add(node.weight);
        if open.weight > self.limits.yaml_nodes {
            let most = self.limits.yaml_nodes;
            return Err(self.refuse(at, &format!("holds more than {most} values, aliases followed")));
        }
        match &mut open.content {
            OpenContent::List(items) => items.push(node),
            OpenContent::Map { entries, keys, key, merged } => match key.take() {
                Some(key) if key.text == "<<" => merged.push(node),
                Some(key) => entries.push((key, node)),
                None => {
                    let Kind::Scalar { text, .. } = node.kind() else {
                        return Err(self.refuse(at, "a mapping's key is not a plain word"));
                    };
                    if !keys.insert(text.clone()) {
                        let reason = format!("'{}' stands twice in this mapping", printable(text));
                        return Err(self.refuse(at, &reason));
                    }
                    *key = Some(Key { text: text.clone(), line: at });
                }
            },
        }
        Ok(())
    }

    fn anchor(&mut self, anchor: usize, node: &Node) {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
    }

    fn node(&self, line: u32, weight: u64, kind: Kind) -> Node {
        Node { file: Rc::clone(&self.file), line, weight, kind: Rc::new(kind) }
    }

    fn refuse(&self, at: u32, reason: &str) -> Rejection {
        Rejection::at(&*self.file, at, reason)
    }
}

impl Node {
    /// What the value is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The file that it stands in.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line that it begins on.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// How many values it stands for once every alias is followed.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// A value that stands where this one does.
    pub fn replaced(&self, kind: Kind) -> Self {
        Self { file: Rc::clone(&self.file), line: self.line, weight: self.weight, kind: Rc::new(kind) }
    }

    /// Whether it is null, which TOSCA authors write for "nothing here".
    pub fn is_null(&self) -> bool {
        matches!(self.kind(), Kind::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The value of a key, if this is a mapping that has it and it is not null.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.find(key).map(|(_, value)| value)
    }

    /// The same, with the key.
    pub fn find(&self, key: &str) -> Option<(&Key, &Node)> {
        let Kind::Map(entries) = self.kind() else { return None };
        let (key, value) = entries.iter().find(|(found, _)| found.text == key)?;
        (!value.is_null()).then_some((key, value))
    }

    /// Its text, if it is a scalar other than null.
    pub fn text(&self) -> Option<&str> {
        match self.kind() {
            Kind::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// What it is, for "expected …, found …".
    pub fn found(&self) -> String {
        match self.kind() {
            _ if self.is_null() => "nothing".into(),
            Kind::Scalar { text, .. } => format!("'{}'", printable(text)),
            Kind::List(_) => "a list".into(),
            Kind::Map(_) => "a mapping".into(),
            Kind::Unresolved(why) => why.clone(),
        }
    }

    /// The same value as JSON, with scalars typed by YAML's core schema. What is not known becomes null.
    pub fn json(&self) -> Value {
        match self.kind() {
            Kind::Unresolved(_) => Value::Null,
            Kind::List(items) => items.iter().map(Node::json).collect(),
            Kind::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (key.text.clone(), value.json()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
            Kind::Scalar { text, plain: false } => Value::String(text.clone()),
            Kind::Scalar { text, plain: true } => plain_json(text),
        }
    }
}

/// A plain scalar by the core schema.
fn plain_json(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    if let Some(integer) = integer(text) {
        return Value::Number(integer.into());
    }
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E'));
    let float = numeric.then(|| text.parse().ok()).flatten().and_then(Number::from_f64);
    float.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

/// An integer by the core schema: decimal, `0o` octal or `0x` hexadecimal.
pub fn integer(text: &str) -> Option<i64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return digits
            .bytes()
            .all(|b| b.is_ascii_hexdigit())
            .then(|| i64::from_str_radix(digits, 16).ok())?;
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return digits.bytes().all(|b| b.is_ascii_digit()).then(|| i64::from_str_radix(digits, 8).ok())?;
    }
    text.parse().ok()
}

fn is_string(tag: Option<&Tag>) -> bool {
    tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str")
}

fn line(line: usize) -> u32 {
    u32::try_from(line.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
