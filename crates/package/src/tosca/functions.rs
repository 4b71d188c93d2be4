//! Functions in values: `get_input`, `get_property` and `concat` are replaced by what they stand for; what is only
//! known once machines run stays unresolved, and matters only where a value is needed to read the package.

use std::{cell::Cell, collections::BTreeMap};

use crate::{
    item::{Item, Notes},
    rejection::printable,
    yaml::{Kind, Node},
};

/// What functions can refer to.
#[derive(Debug)]
pub struct Scope {
    /// The inputs that have a value.
    pub inputs: BTreeMap<String, Node>,
    /// The properties of node templates, as written.
    pub properties: BTreeMap<String, Node>,
    /// How many values may still be made: inputs that name inputs could otherwise multiply without end.
    left: Cell<u32>,
}

const MOST_VALUES: u32 = 300_000;

/// Functions that lead to functions: further than this is a circle.
const DEEPEST: usize = 8;

impl Scope {
    /// What functions in one template can refer to.
    pub fn new(inputs: BTreeMap<String, Node>, properties: BTreeMap<String, Node>) -> Self {
        Self { inputs, properties, left: Cell::new(MOST_VALUES) }
    }

    /// A value with its functions replaced. `owner` is the node template that `SELF` means.
    pub fn resolve(&self, node: &Node, owner: &str, notes: &mut Notes) -> Node {
        self.step(node, owner, 0, notes)
    }

    fn step(&self, node: &Node, owner: &str, depth: usize, notes: &mut Notes) -> Node {
        let Some(left) = self.left.get().checked_sub(1) else {
            return node
                .replaced(Kind::Unresolved(format!("its functions make more than {MOST_VALUES} values")));
        };
        self.left.set(left);
        match node.kind() {
            Kind::Scalar { .. } | Kind::Unresolved(_) => node.clone(),
            Kind::List(items) => {
                let items = items.iter().map(|item| self.step(item, owner, depth, notes)).collect();
                node.replaced(Kind::List(items))
            }
            Kind::Map(entries) => {
                if let [(key, argument)] = entries.as_slice()
                    && is_function(&key.text)
                {
                    return self.call(&key.text, argument, owner, depth, notes).unwrap_or_else(|why| {
                        let item = Item::new(owner, node.clone());
                        notes.at(&item, &format!("{why}, so it counts as not given"));
                        node.replaced(Kind::Unresolved(why))
                    });
                }
                let resolved =
                    entries.iter().map(|(key, value)| (key.clone(), self.step(value, owner, depth, notes)));
                node.replaced(Kind::Map(resolved.collect()))
            }
        }
    }

    fn call(
        &self,
        function: &str,
        argument: &Node,
        owner: &str,
        depth: usize,
        notes: &mut Notes,
    ) -> Result<Node, String> {
        let path: Vec<&str> = match argument.kind() {
            Kind::List(items) => items.iter().filter_map(Node::text).collect(),
            _ => argument.text().into_iter().collect(),
        };
        let shown = || printable(&path.join(", "));
        let found = match (function, path.as_slice()) {
            ("get_input", [name, rest @ ..]) => {
                let input = self.inputs.get(*name).and_then(|node| follow(node, rest));
                input.ok_or_else(|| format!("the input {} has no default", shown()))?
            }
            ("get_property", [entity, rest @ ..]) => {
                let entity = if *entity == "SELF" { owner } else { entity };
                let property = self.properties.get(entity).and_then(|node| follow(node, rest));
                property.ok_or_else(|| format!("get_property {} leads to no value", shown()))?
            }
            ("concat", _) => return self.concat(argument, owner, depth, notes),
            _ => return Err(format!("{function} {} is known only when the VNF runs", shown())),
        };
        if depth >= DEEPEST {
            return Err(format!("{function} {} leads in a circle", shown()));
        }
        match self.step(&found, owner, depth + 1, notes) {
            node if matches!(node.kind(), Kind::Unresolved(_)) => Err(node.found()),
            node => Ok(node),
        }
    }

    fn concat(&self, argument: &Node, owner: &str, depth: usize, notes: &mut Notes) -> Result<Node, String> {
        let Kind::List(items) = argument.kind() else {
            return Err(format!("concat expects a list, found {}", argument.found()));
        };
        if depth >= DEEPEST {
            return Err("concat nests too deep".into());
        }
        let mut text = String::new();
        for item in items {
            let part = self.step(item, owner, depth + 1, notes);
            text += part.text().ok_or_else(|| format!("a part of concat is {}", part.found()))?;
            // Joined inputs can be joined again: without a bound the text doubles with every step.
            if text.len() > LONGEST_CONCAT {
                return Err(format!("concat makes more than {LONGEST_CONCAT} bytes"));
            }
        }
        Ok(argument.replaced(Kind::Scalar { text, plain: false }))
    }
}

const LONGEST_CONCAT: usize = 64 << 10;

fn is_function(name: &str) -> bool {
    matches!(name, "concat" | "token" | "join") || name.starts_with("get_")
}

fn follow(node: &Node, path: &[&str]) -> Option<Node> {
    let mut node = node;
    for part in path {
        node = match node.kind() {
            Kind::List(items) => items.get(part.parse::<usize>().ok()?)?,
            _ => node.get(part)?,
        };
    }
    (!node.is_null()).then(|| node.clone())
}
