//! A topology template with its functions replaced and its nodes sorted by what they are.

use std::collections::BTreeMap;

use crate::{
    item::{Item, Notes},
    rejection::{Rejection, printable},
    tosca::{NodeKind, Scope, Types},
    yaml::{Key, Kind, Node},
};

/// A topology template.
#[derive(Debug)]
pub struct Topology {
    pub item: Item,
    pub templates: Vec<Template>,
    scope: Scope,
}

/// A node template.
#[derive(Debug)]
pub struct Template {
    pub name: String,
    pub type_name: String,
    pub kind: NodeKind,
    /// The whole template.
    pub item: Item,
    /// Its properties as written in the template.
    pub given: Item,
    /// The same with the defaults of its type.
    pub properties: Item,
}

/// A policy.
#[derive(Debug)]
pub struct Policy {
    pub name: String,
    /// The type without `tosca.policies.nfv.`, or in full where it is none of SOL001's.
    pub kind: String,
    pub item: Item,
}

/// More nodes, policies or inherited properties than these are an attack, not a VNF.
const MOST_TEMPLATES: usize = 1_000;
const MOST_POLICIES: usize = 500;
const MOST_DEFAULTS: usize = 300;

impl Topology {
    /// Reads a topology. `outer` holds the properties of the node that it stands in for, which feed its inputs.
    pub fn read(
        item: &Item,
        types: &Types,
        outer: Option<&Node>,
        notes: &mut Notes,
    ) -> Result<Self, Rejection> {
        let mut inputs = BTreeMap::new();
        if let Some(Kind::Map(entries)) = outer.map(Node::kind) {
            let given = entries.iter().filter(|(_, value)| super::is_given(value));
            inputs.extend(given.map(|(key, value)| (key.text.clone(), value.clone())));
        }
        if let Some(declared) = item.field("inputs") {
            for (name, input) in declared.entries()? {
                if let Some(default) = input.field("default").filter(|_| !inputs.contains_key(name)) {
                    inputs.insert(name.to_owned(), default.node);
                }
            }
        }
        let mut raw = Vec::new();
        let mut properties = BTreeMap::new();
        if let Some(templates) = item.field("node_templates") {
            for (name, template) in templates.entries()? {
                let template = template.relabelled(printable(name));
                if !matches!(template.node.kind(), Kind::Map(_)) {
                    return Err(template.expected("a node template with a type"));
                }
                if let Some(found) = template.field("properties") {
                    properties.insert(name.to_owned(), found.node);
                }
                raw.push((name.to_owned(), template));
                if raw.len() > MOST_TEMPLATES {
                    return Err(
                        templates.refuse(format!("has more than the {MOST_TEMPLATES} nodes that are taken"))
                    );
                }
            }
        }
        let scope = Scope::new(inputs, properties);
        let mut templates = Vec::new();
        for (name, raw) in raw {
            templates.push(Template::read(name, &raw, types, &scope, notes)?);
        }
        Ok(Self { item: item.clone(), templates, scope })
    }

    /// The nodes of these kinds.
    pub fn of(&self, kinds: &'static [NodeKind]) -> impl Iterator<Item = &Template> {
        self.templates.iter().filter(|template| kinds.contains(&template.kind))
    }

    /// The names of nodes of these kinds, for messages.
    pub fn names(&self, kinds: &'static [NodeKind]) -> String {
        let names: Vec<_> = self.of(kinds).map(|template| printable(&template.name)).collect();
        if names.is_empty() {
            "none is there".into()
        } else {
            format!("expected one of {}", names.join(", "))
        }
    }

    /// The node of the VNF itself.
    pub fn vnf(&self) -> Result<Option<&Template>, Rejection> {
        let mut nodes = self.of(&[NodeKind::Vnf]);
        let vnf = nodes.next();
        match nodes.next() {
            Some(second) => Err(second.item.refuse("is a second node of the VNF; expected one")),
            None => Ok(vnf),
        }
    }

    /// What the template stands in for.
    pub fn mappings(&self) -> Option<Item> {
        self.item.field("substitution_mappings").map(|item| item.relabelled("substitution_mappings"))
    }

    /// The policies.
    pub fn policies(&self) -> Result<Vec<Policy>, Rejection> {
        let Some(policies) = self.item.field("policies") else { return Ok(Vec::new()) };
        let mut read = Vec::new();
        let named = policies.named()?;
        if named.len() > MOST_POLICIES {
            return Err(policies.refuse(format!("has more than the {MOST_POLICIES} policies that are taken")));
        }
        for (name, item) in named {
            let item = item.relabelled(printable(&name));
            let kind =
                item.need("type", "a policy type such as tosca.policies.nfv.ScalingAspects")?.word()?;
            let kind = kind.strip_prefix("tosca.policies.nfv.").unwrap_or(&kind).to_owned();
            // What could not be resolved was noted where the nodes were read; policies hold plain values.
            let node = self.scope.resolve(&item.node, &name, &mut Notes::default());
            read.push(Policy { name, kind, item: Item { node, ..item } });
        }
        Ok(read)
    }

    /// The members of a group.
    pub fn group(&self, name: &str) -> Result<Option<Vec<String>>, Rejection> {
        let groups = self.item.field("groups");
        let Some(group) = groups.and_then(|groups| groups.field(name)) else { return Ok(None) };
        group
            .field("members")
            .map(|members| members.texts())
            .transpose()
            .map(|members| Some(members.unwrap_or_default()))
    }
}

impl Template {
    fn read(
        name: String,
        raw: &Item,
        types: &Types,
        scope: &Scope,
        notes: &mut Notes,
    ) -> Result<Self, Rejection> {
        let named_at = raw.need("type", "a node type such as tosca.nodes.nfv.Vdu.Compute")?;
        let kind = types.kind(&named_at)?;
        let type_name = named_at.word()?;
        // What the VNF's own node leaves open is given elsewhere, or missed by name; that needs no warning.
        let mut silent = Notes::default();
        let notes = if kind == NodeKind::Vnf { &mut silent } else { notes };
        let item = Item { node: scope.resolve(&raw.node, &name, notes), ..raw.clone() };
        let given = match item.field("properties") {
            Some(given) => given.relabelled(&item.label),
            None => Item { node: item.node.replaced(Kind::Map(Vec::new())), ..item.clone() },
        };
        given.entries()?;
        let properties = with_defaults(&given, &type_name, types)?;
        Ok(Self { name, type_name, kind, item, given, properties })
    }

    /// The targets of a requirement, in either notation: `- virtual_binding: VDU1` or `- virtual_binding: {node: VDU1}`.
    pub fn requirements(&self, name: &str) -> Result<Vec<Item>, Rejection> {
        let Some(requirements) = self.item.field("requirements") else { return Ok(Vec::new()) };
        let mut targets = Vec::new();
        for (found, item) in requirements.relabelled(&self.item.label).named()? {
            // Without a target it is left to whoever connects the VNF.
            if found != name || !super::is_given(&item.node) {
                continue;
            }
            match item.node.kind() {
                Kind::Map(_) => targets.extend(item.field("node")),
                _ => targets.push(item),
            }
        }
        Ok(targets)
    }
}

/// Adds what a type gives by default to what a template says.
pub fn with_defaults(given: &Item, type_name: &str, types: &Types) -> Result<Item, Rejection> {
    let Kind::Map(entries) = given.node.kind() else { return Ok(given.clone()) };
    let mut added = 0;
    let mut entries: Vec<(Key, Node)> = entries.clone();
    for definition in types.chain(type_name) {
        let Some(properties) = definition.field("properties") else { continue };
        for (name, property) in properties.entries().unwrap_or_default() {
            if let Some(default) = property.field("default")
                && !entries.iter().any(|(key, value)| key.text == name && super::is_given(value))
            {
                added += 1;
                if added > MOST_DEFAULTS {
                    return Err(
                        definition.refuse(format!("gives more than {MOST_DEFAULTS} properties by default"))
                    );
                }
                entries.retain(|(key, _)| key.text != name);
                entries.push((Key { text: name.to_owned(), line: default.line }, default.node));
            }
        }
    }
    Ok(Item { node: given.node.replaced(Kind::Map(entries)), ..given.clone() })
}
