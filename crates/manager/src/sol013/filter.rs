//! `filter=(eq,attribute/path,value);(in,other,a,b)`: which entries are wanted (SOL013 5.2).

use std::cmp::Ordering;

use jiff::Timestamp;
use serde_json::Value;

use super::ListingError;

/// More conditions than a person or a machine writes.
const CONDITIONS: usize = 64;
/// Values of one condition; a list of ids may be long.
const VALUES: usize = 1000;

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// How is compared.
    pub operator: Operator,
    /// The way to the attribute.
    pub path: Vec<Step>,
    /// What with.
    pub values: Vec<String>,
}

/// A step on the way to an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into an attribute of that name.
    Into(String),
    /// To the keys of a map (`@key`).
    Key,
}

/// How is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Equal.
    Eq,
    /// Not equal.
    Neq,
    /// Greater.
    Gt,
    /// Greater or equal.
    Gte,
    /// Less.
    Lt,
    /// Less or equal.
    Lte,
    /// One of several.
    In,
    /// None of several.
    Nin,
    /// Contains one of several.
    Cont,
    /// Contains none of several.
    Ncont,
}

const OPERATORS: [(&str, Operator); 10] = [
    ("eq", Operator::Eq),
    ("neq", Operator::Neq),
    ("gt", Operator::Gt),
    ("gte", Operator::Gte),
    ("lt", Operator::Lt),
    ("lte", Operator::Lte),
    ("in", Operator::In),
    ("nin", Operator::Nin),
    ("cont", Operator::Cont),
    ("ncont", Operator::Ncont),
];

impl Filter {
    /// Adds the conditions of an expression to those that must hold.
    pub fn add(&mut self, text: &str) -> Result<(), ListingError> {
        let mut reader = Reader { text, at: 0 };
        loop {
            let condition = reader.condition()?;
            self.conditions.push(condition);
            if self.conditions.len() > CONDITIONS {
                return Err(reader.wrong(&format!("there are more than {CONDITIONS} conditions")));
            }
            if reader.rest().is_empty() {
                return Ok(());
            }
            reader.expect(';', "conditions are separated by a semicolon")?;
        }
    }

    /// Whether all conditions hold for an entry.
    pub fn matches(&self, entry: &Value) -> bool {
        self.conditions.iter().all(|condition| condition.holds(entry))
    }

    pub(super) fn equal_conditions(&self) -> Vec<(&str, &[String])> {
        let equal = self.conditions.iter().filter(|condition| condition.is_equal_on_top());
        equal.map(|condition| (condition.attribute(), condition.values.as_slice())).collect()
    }
}

impl Condition {
    /// The top-level attribute that it looks at.
    pub fn attribute(&self) -> &str {
        match self.path.first() {
            Some(Step::Into(name)) => name,
            Some(Step::Key) | None => "@key",
        }
    }

    /// Whether it says which values a top-level attribute may have.
    pub fn is_equal_on_top(&self) -> bool {
        self.path.len() == 1 && matches!(self.operator, Operator::Eq | Operator::In)
    }

    /// Texts of which one must stand in the JSON text of an entry that it holds for, so that a database can pass over
    /// the others unread; `None` if it cannot be told. [`Condition::holds`] has the last word.
    pub fn needles(&self) -> Option<Vec<String>> {
        let whole = match self.operator {
            Operator::Eq | Operator::In => true,
            Operator::Cont => false,
            _ => return None,
        };
        let texts: Vec<String> =
            self.values.iter().map(|text| needle(text, !whole)).collect::<Option<_>>()?;
        // Below the top, names are as they are shown: a value that is asked for whole stands right after its name.
        let Some(Step::Into(name)) = self.path.last().filter(|_| whole && self.path.len() > 1) else {
            return Some(texts);
        };
        let name = Value::String(name.clone()).to_string();
        let mut needles: Vec<String> = texts.iter().map(|text| format!("{name}:\"{text}\"")).collect();
        let bare = texts
            .iter()
            .filter(|text| text.parse::<i64>().is_ok() || ["true", "false"].contains(&text.as_str()));
        needles.extend(bare.map(|text| format!("{name}:{text}")));
        // A list may hold it anywhere.
        needles.push(format!("{name}:["));
        Some(needles)
    }

    /// Whether it holds. Where the way leads to several values, one that fits is enough; where it leads to none, it
    /// does not hold, whatever the operator.
    pub fn holds(&self, entry: &Value) -> bool {
        self.walk(entry, &self.path)
    }

    fn walk(&self, value: &Value, path: &[Step]) -> bool {
        if let Value::Array(elements) = value {
            return elements.iter().any(|element| self.walk(element, path));
        }
        match (path.split_first(), value) {
            (None, _) => self.fits(value),
            (Some((Step::Key, rest)), Value::Object(map)) => {
                rest.is_empty() && map.keys().any(|key| self.fits(&Value::String(key.clone())))
            }
            (Some((Step::Into(name), rest)), Value::Object(map)) => {
                map.get(name).is_some_and(|inner| self.walk(inner, rest))
            }
            _ => false,
        }
    }

    fn fits(&self, value: &Value) -> bool {
        let first = || self.values.first().and_then(|text| compare(value, text));
        let any = || self.values.iter().any(|text| compare(value, text) == Some(Ordering::Equal));
        match self.operator {
            Operator::Eq | Operator::In => any(),
            Operator::Neq | Operator::Nin => is_plain(value) && !any(),
            Operator::Gt => first() == Some(Ordering::Greater),
            Operator::Gte => matches!(first(), Some(Ordering::Greater | Ordering::Equal)),
            Operator::Lt => first() == Some(Ordering::Less),
            Operator::Lte => matches!(first(), Some(Ordering::Less | Ordering::Equal)),
            Operator::Cont => contains(value, &self.values),
            Operator::Ncont => is_plain(value) && !contains(value, &self.values),
        }
    }
}

/// Reads an expression and knows where it is.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// What is wrong, with the position for people: the first character is 1.
    fn wrong(&self, reason: &str) -> ListingError {
        let position = self.text[..self.at].chars().count() + 1;
        let found = match self.rest().chars().next() {
            Some(next) => format!("before {next:?}"),
            None => "at the end".to_owned(),
        };
        ListingError::new(
            "filter",
            format!("character {position}, {found}: {reason}; a filter looks like (eq,attribute/path,value)"),
        )
    }

    fn expect(&mut self, wanted: char, reason: &str) -> Result<(), ListingError> {
        if !self.rest().starts_with(wanted) {
            return Err(self.wrong(reason));
        }
        self.at += wanted.len_utf8();
        Ok(())
    }

    fn condition(&mut self) -> Result<Condition, ListingError> {
        self.expect('(', "a condition begins with a parenthesis")?;
        let operator = self.operator()?;
        self.expect(',', "a comma and an attribute follow the operator")?;
        let path = self.path()?;
        let mut values = Vec::new();
        while self.rest().starts_with(',') {
            self.at += 1;
            values.push(self.value()?);
            if values.len() > VALUES {
                return Err(self.wrong(&format!("there are more than {VALUES} values")));
            }
        }
        if values.is_empty() {
            return Err(self.wrong("a comma and a value follow the attribute"));
        }
        let one = !matches!(operator, Operator::In | Operator::Nin | Operator::Cont | Operator::Ncont);
        if one && values.len() > 1 {
            return Err(self.wrong("this operator takes one value; for several write in, nin, cont or ncont"));
        }
        self.expect(')', "a condition ends with a parenthesis; quote a value that holds one: 'a)b'")?;
        Ok(Condition { operator, path, values })
    }

    fn operator(&mut self) -> Result<Operator, ListingError> {
        let word = self.word(&[',', ')', '(']).to_owned();
        let Some((_, operator)) = OPERATORS.into_iter().find(|(name, _)| *name == word) else {
            let names: Vec<&str> = OPERATORS.iter().map(|(name, _)| *name).collect();
            return Err(self.wrong(&format!("{word:?} is no operator; there are {}", names.join(", "))));
        };
        self.at += word.len();
        Ok(operator)
    }

    fn path(&mut self) -> Result<Vec<Step>, ListingError> {
        let mut path = Vec::new();
        loop {
            let word = self.word(&[',', ')', '(', '/', '\'']).to_owned();
            if word.is_empty() {
                return Err(self.wrong("the name of an attribute is missing"));
            }
            path.push(if word == "@key" { Step::Key } else { Step::Into(self.unescape(&word)?) });
            self.at += word.len();
            if !self.rest().starts_with('/') {
                break;
            }
            if path.last() == Some(&Step::Key) {
                return Err(self.wrong("nothing can follow @key"));
            }
            self.at += 1;
        }
        if path.first() == Some(&Step::Key) {
            return Err(self.wrong("@key stands after the name of a map"));
        }
        Ok(path)
    }

    /// Resolves `~0` (`~`), `~1` (`/`), `~a` (`,`) and `~b` (`@`), each once: `~01` is `~1`.
    fn unescape(&self, word: &str) -> Result<String, ListingError> {
        let mut out = String::with_capacity(word.len());
        let mut letters = word.chars();
        while let Some(letter) = letters.next() {
            if letter != '~' {
                out.push(letter);
                continue;
            }
            out.push(match letters.next() {
                Some('0') => '~',
                Some('1') => '/',
                Some('a') => ',',
                Some('b') => '@',
                _ => return Err(self.wrong("after ~ stands 0 (for ~), 1 (for /), a (for ,) or b (for @)")),
            });
        }
        Ok(out)
    }

    /// A value: bare up to a comma or parenthesis, or in quotes where two quotes stand for one.
    fn value(&mut self) -> Result<String, ListingError> {
        if !self.rest().starts_with('\'') {
            let word = self.word(&[',', ')']).to_owned();
            if word.contains('\'') {
                return Err(
                    self.wrong("a value with a quote in it is quoted, and the quote doubled: 'it''s'")
                );
            }
            self.at += word.len();
            return Ok(word);
        }
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(end) = self.rest().find('\'') else {
                self.at = start;
                return Err(self.wrong("this quote is never closed"));
            };
            out.push_str(&self.text[self.at..self.at + end]);
            self.at += end + 1;
            if !self.rest().starts_with('\'') {
                return Ok(out);
            }
            out.push('\'');
            self.at += 1;
        }
    }

    fn word(&self, ends: &[char]) -> &str {
        let rest = self.rest();
        &rest[..rest.find(ends).unwrap_or(rest.len())]
    }
}

/// Compares what is there with what was written, by the kind of what is there; `None` where that makes no sense.
fn compare(value: &Value, text: &str) -> Option<Ordering> {
    match value {
        Value::String(there) => match (there.parse::<Timestamp>(), text.parse::<Timestamp>()) {
            (Ok(there), Ok(asked)) => Some(there.cmp(&asked)),
            _ => Some(there.as_str().cmp(text)),
        },
        Value::Number(there) => match (there.as_i128(), text.parse::<i128>()) {
            (Some(there), Ok(asked)) => Some(there.cmp(&asked)),
            _ => there.as_f64()?.partial_cmp(&text.parse::<f64>().ok()?),
        },
        Value::Bool(there) => {
            let asked = match text {
                "true" => true,
                "false" => false,
                _ => return None,
            };
            Some(there.cmp(&asked))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A value as it stands in JSON. Equal numbers and times can be written in several ways; only a short whole number is
/// part of all of them.
fn needle(text: &str, contained: bool) -> Option<String> {
    if !contained {
        let whole = text.parse::<i64>().is_ok_and(|number| number.to_string() == text && text.len() < 16);
        if !whole && (text.parse::<f64>().is_ok() || text.parse::<Timestamp>().is_ok()) {
            return None;
        }
    }
    let quoted = Value::String(text.to_owned()).to_string();
    Some(quoted[1..quoted.len() - 1].to_owned())
}

fn contains(value: &Value, texts: &[String]) -> bool {
    match value {
        Value::String(there) => texts.iter().any(|text| there.contains(text.as_str())),
        Value::Number(_) | Value::Bool(_) => {
            let there = value.to_string();
            texts.iter().any(|text| there.contains(text.as_str()))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Whether something can be compared with at all.
fn is_plain(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}
