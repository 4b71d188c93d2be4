//! Lists as ETSI SOL013 has them: which entries (filter), which of their attributes (selector), how many (paging).
//!
//! Pure: text in, decisions out.

mod filter;
mod paging;
mod selector;

pub use filter::{Condition, Filter, Operator};
pub use paging::{Marker, PAGE};
pub use selector::Selector;
use serde_json::Value;

/// A kind of entry that is listed.
#[derive(Debug)]
pub struct Resource {
    /// Its name, such as `VnfInstance`.
    pub name: &'static str,
    /// Attributes that are always shown.
    pub mandatory: &'static [&'static str],
    /// Attributes that may be there and may be left out.
    pub optional: &'static [&'static str],
    /// Optional attributes that a list leaves out by default.
    pub excluded: &'static [&'static str],
    /// Attributes that cost another look: [`Listing::wants_body`] says whether one of them is needed.
    pub heavy: &'static [&'static str],
}

/// What a list is asked for.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Which entries.
    pub filter: Filter,
    /// Which attributes of them.
    pub selector: Selector,
    /// The id after which the page starts.
    pub marker: Option<String>,
    /// How many entries make a page; `None` gives all.
    pub limit: Option<usize>,
    resource: &'static Resource,
    path: String,
    /// All of the query but the marker, for the link to the next page.
    query: String,
}

/// What is wrong with the query of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{parameter}: {reason}")]
pub struct ListingError {
    /// The parameter.
    pub parameter: &'static str,
    /// What is wrong with it, and what is expected.
    pub reason: String,
}

impl Listing {
    /// Reads the decoded pairs of a query; those that are not about lists are left to others.
    pub fn parse(
        resource: &'static Resource,
        pairs: &[(String, String)],
        path: &str,
    ) -> Result<Self, ListingError> {
        let mut filter = Filter::default();
        for (_, text) in pairs.iter().filter(|(name, _)| name == "filter") {
            filter.add(text)?;
        }
        for condition in &filter.conditions {
            resource.check("filter", condition.attribute())?;
        }
        let selector = Selector::parse(resource, pairs)?;
        let marker = last(pairs, "nextpage_opaque_marker")
            .map(|text| Marker::open(resource.name, text))
            .transpose()?;
        let limit = match last(pairs, "all_records") {
            None => Some(PAGE),
            Some("yes") => None,
            Some(other) => {
                return Err(ListingError::new("all_records", format!("{other:?} is not known; write yes")));
            }
        };
        let query = paging::query_without_marker(pairs);
        Ok(Self { filter, selector, marker, limit, resource, path: path.to_owned(), query })
    }

    /// Whether the attributes that cost another look are needed, to be shown or to be filtered by.
    pub fn wants_body(&self) -> bool {
        self.resource.heavy.iter().any(|heavy| self.wants(heavy))
    }

    /// Whether an attribute is needed, to be shown or to be filtered by.
    pub fn wants(&self, attribute: &str) -> bool {
        self.selector.shows(attribute)
            || self.filter.conditions.iter().any(|condition| condition.attribute() == attribute)
    }

    /// Conditions on top-level attributes that say which values are fine, for a database to look for. They are
    /// necessary; [`Listing::matches`] has the last word.
    pub fn equal_conditions(&self) -> Vec<(&str, &[String])> {
        self.filter.equal_conditions()
    }

    /// Whether every condition can be left to a database that knows these attributes' columns.
    pub fn only_equal_on(&self, attributes: &[&str]) -> bool {
        self.filter
            .conditions
            .iter()
            .all(|condition| condition.is_equal_on_top() && attributes.contains(&condition.attribute()))
    }

    /// Whether an entry is wanted.
    pub fn matches(&self, entry: &Value) -> bool {
        self.filter.matches(entry)
    }

    /// An entry with the attributes that are wanted.
    pub fn select(&self, entry: Value) -> Value {
        self.selector.select(entry)
    }

    /// The value of the `Link` header that leads to the page after the entry `last`.
    pub fn next_link(&self, base: &str, last: &str) -> String {
        let marker = Marker::seal(self.resource.name, last);
        let mut query = self.query.clone();
        if !query.is_empty() {
            query.push('&');
        }
        let path = &self.path;
        format!("<{}{path}?{query}nextpage_opaque_marker={marker}>;rel=\"next\"", base.trim_end_matches('/'))
    }

    /// Gathers a page. `fetch` gives up to so many entries with their ids, in the order of ids, after an id; it is
    /// asked again as long as entries are filtered out. Says whether more follow, with the last entry's id.
    pub async fn collect<F, R, E>(&self, mut fetch: F) -> Result<(Vec<Value>, Option<String>), E>
    where
        F: FnMut(Option<String>, u32) -> R,
        R: Future<Output = Result<Vec<(String, Value)>, E>>,
    {
        let limit = self.limit.unwrap_or(usize::MAX);
        let batch = self.batch();
        let mut after = self.marker.clone();
        let mut page = Vec::new();
        let mut last = None;
        loop {
            let rows = fetch(after.clone(), batch).await?;
            let ended = rows.len() < batch as usize;
            for (id, entry) in rows {
                after = Some(id.clone());
                if !self.matches(&entry) {
                    continue;
                }
                if page.len() == limit {
                    return Ok((page, last));
                }
                page.push(self.select(entry));
                last = Some(id);
            }
            if ended {
                return Ok((page, None));
            }
        }
    }

    /// One entry more than a page, to see whether another page follows; larger steps where many are filtered out.
    fn batch(&self) -> u32 {
        let page = u32::try_from(PAGE).expect("a page is small");
        match (self.limit, self.filter.conditions.is_empty()) {
            (Some(_), true) => page + 1,
            (Some(_), false) => page * 3,
            (None, _) => page * 10,
        }
    }
}

impl Resource {
    /// Refuses an attribute that entries of this kind do not have.
    pub(super) fn check(&self, parameter: &'static str, attribute: &str) -> Result<(), ListingError> {
        let mut known = self.mandatory.iter().chain(self.optional);
        if known.any(|name| *name == attribute) {
            return Ok(());
        }
        let names: Vec<&str> = self.mandatory.iter().chain(self.optional).copied().collect();
        Err(ListingError::new(
            parameter,
            format!("{} has no attribute {attribute:?}; it has {}", self.name, names.join(", ")),
        ))
    }
}

impl ListingError {
    pub(super) fn new(parameter: &'static str, reason: impl Into<String>) -> Self {
        Self { parameter, reason: reason.into() }
    }
}

fn last<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests;
