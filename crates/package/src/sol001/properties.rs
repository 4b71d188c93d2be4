//! The properties of the VNF itself, which SOL001 spreads over the entry, the flavours' files and the node type.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    is_given, json_map,
    topology::{Topology, with_defaults},
};
use crate::{
    item::Item,
    rejection::{Rejection, printable},
    tosca::Types,
    yaml::{Kind, Node, integer},
};

/// Where a property may stand, what counts most first.
#[derive(Debug)]
pub struct Properties {
    sources: Vec<Item>,
    /// Where to point when nothing is there.
    vnf: Item,
}

impl Properties {
    /// Gathers the places for one flavour, and checks given values against the constraints of the VNF's type.
    pub fn gather(top: &Topology, flavour: &Topology, types: &Types) -> Result<Self, Rejection> {
        let (top_vnf, own_vnf) = (top.vnf()?, flavour.vnf()?);
        let mapped = flavour.mappings().and_then(|mappings| mappings.field("properties"));
        let mapped = mapped.map(|mapped| mapped.relabelled("substitution_mappings: properties"));
        // A flavour may do without a node of the VNF if its type says it all.
        let (type_name, vnf) = match (top_vnf.or(own_vnf), flavour.mappings()) {
            (Some(vnf), _) => (vnf.type_name.clone(), vnf.item.clone()),
            (None, Some(mappings)) => (mappings.need("node_type", "the VNF's type")?.word()?, mappings),
            (None, None) => {
                let reason = "has no node of the VNF; expected a node template of a type derived from tosca.nodes.nfv.VNF";
                return Err(top.item.refuse(reason));
            }
        };
        let mut sources: Vec<Item> = Vec::new();
        // A flavour's node may repeat what the entry selects by default; the mapping says which flavour it is.
        sources.extend(mapped);
        sources.extend(own_vnf.map(|vnf| vnf.given.clone()));
        sources.extend(top_vnf.map(|vnf| vnf.given.clone()));
        for source in &sources {
            check(source, &type_name, types)?;
        }
        let nothing = Item { node: vnf.node.replaced(Kind::Map(Vec::new())), ..vnf.clone() };
        sources.push(with_defaults(&nothing, &type_name, types)?);
        Ok(Self { sources, vnf })
    }

    /// A property that must be there, as a word.
    pub fn need(&self, name: &str, expected: &str) -> Result<String, Rejection> {
        let item = self.find(name).ok_or_else(|| {
            let undecided = self.sources.iter().find_map(|source| match source.node.get(name)?.kind() {
                Kind::Unresolved(why) => Some(format!(" ({why})")),
                _ => None,
            });
            let why = undecided.unwrap_or_default();
            self.vnf.refuse(format!("{name} is missing{why}; expected {expected}"))
        })?;
        item.word()
    }

    /// A text that may be missing.
    pub fn text(&self, name: &str) -> Result<Option<String>, Rejection> {
        self.find(name).map(|item| item.text()).transpose()
    }

    /// A list of texts that may be missing.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, Rejection> {
        self.find(name).map(|item| item.texts()).transpose().map(Option::unwrap_or_default)
    }

    /// A mapping that may be missing.
    pub fn map(&self, name: &str) -> Result<BTreeMap<String, Value>, Rejection> {
        self.find(name).map(|item| json_map(&item)).transpose().map(Option::unwrap_or_default)
    }

    /// The first place that has it. Empty text is how samples write "to be given elsewhere".
    fn find(&self, name: &str) -> Option<Item> {
        self.sources.iter().filter_map(|source| source.field(name)).find(|item| item.node.text() != Some(""))
    }
}

/// Checks given properties against the constraints that the type puts on them.
fn check(given: &Item, type_name: &str, types: &Types) -> Result<(), Rejection> {
    for definition in types.chain(type_name) {
        let Some(properties) = definition.field("properties") else { continue };
        for (name, property) in properties.entries()? {
            let (Some(value), Some(constraints)) = (given.field(name), property.field("constraints")) else {
                continue;
            };
            if !is_given(&value.node) || value.node.text() == Some("") {
                continue;
            }
            for (constraint, bound) in constraints.named()? {
                check_one(&value, &constraint, &bound)?;
            }
        }
    }
    Ok(())
}

fn check_one(value: &Item, constraint: &str, bound: &Item) -> Result<(), Rejection> {
    let values = match value.node.kind() {
        Kind::List(items) => items.clone(),
        _ => vec![value.node.clone()],
    };
    let refuse = |what: String| Err(value.expected(&what));
    match constraint {
        "valid_values" => {
            let allowed = bound.items()?;
            if !values.iter().all(|value| allowed.iter().any(|item| same(&item.node, value))) {
                let shown: Vec<_> = allowed.iter().map(|item| item.node.found()).collect();
                return refuse(format!("one of {}", printable(&shown.join(", "))));
            }
        }
        "equal" if !values.iter().all(|value| same(&bound.node, value)) => return refuse(bound.node.found()),
        "min_length" | "max_length" | "length" => {
            let (length, wanted) = (value.text()?.chars().count(), bound.number(0, u32::MAX)? as usize);
            let fits = match constraint {
                "min_length" => length >= wanted,
                "max_length" => length <= wanted,
                _ => length == wanted,
            };
            if !fits {
                return refuse(format!("text whose {} is {wanted}", constraint.replace('_', " ")));
            }
        }
        "greater_than" | "greater_or_equal" | "less_than" | "less_or_equal" => {
            let (Some(number), Some(bound)) = (number(&value.node), number(&bound.node)) else {
                return Ok(());
            };
            let fits = match constraint {
                "greater_than" => number > bound,
                "greater_or_equal" => number >= bound,
                "less_than" => number < bound,
                _ => number <= bound,
            };
            if !fits {
                return refuse(format!("a number {} {bound}", constraint.replace('_', " ")));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Texts are equal as written: `1.0` in a list of versions is not the number one.
fn same(left: &Node, right: &Node) -> bool {
    match (left.text(), right.text()) {
        (Some(left), Some(right)) => left == right,
        _ => left.json() == right.json(),
    }
}

fn number(node: &Node) -> Option<i64> {
    integer(node.text()?)
}
