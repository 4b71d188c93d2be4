//! Files that nodes refer to as artifacts.

use std::collections::{BTreeMap, BTreeSet};

use super::topology::Template;
use crate::{
    hash::{Algorithm, Promise},
    item::Item,
    package::ArtifactKind,
    rejection::{Rejection, printable},
    tosca::documents::locate,
    vnfd::Checksum,
};

/// What has been learned about the package's files so far.
#[derive(Debug)]
pub struct Artifacts<'a> {
    files: &'a BTreeSet<String>,
    pub promises: Vec<Promise>,
    pub kinds: BTreeMap<String, ArtifactKind>,
}

/// An artifact of a node.
#[derive(Debug, Clone)]
pub struct Declared {
    pub name: String,
    pub item: Item,
    /// The `file` as written.
    pub reference: Item,
    pub kind: Option<String>,
}

impl Declared {
    /// An artifact in either notation: `name: path`, or a mapping with `file`.
    pub fn read(name: &str, item: Item) -> Result<Self, Rejection> {
        if item.node.text().is_some() {
            return Ok(Self { name: name.into(), reference: item.clone(), item, kind: None });
        }
        let reference = item.need("file", "the artifact's path in the package")?;
        reference.text()?;
        let kind = item.field("type").map(|kind| kind.word()).transpose()?;
        Ok(Self { name: name.into(), reference, item, kind })
    }

    /// The artifacts of a node.
    pub fn all(node: &Item) -> Result<Vec<Self>, Rejection> {
        let Some(artifacts) = node.field("artifacts") else { return Ok(Vec::new()) };
        let named = artifacts.relabelled(format!("{}: artifacts", node.label)).named()?;
        named.into_iter().map(|(name, item)| Self::read(&name, item)).collect()
    }

    /// Whether it is a software image.
    pub fn is_image(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| kind.ends_with("SwImage")) || self.name == "sw_image"
    }
}

impl<'a> Artifacts<'a> {
    pub fn new(files: &'a BTreeSet<String>) -> Self {
        Self { files, promises: Vec::new(), kinds: BTreeMap::new() }
    }

    /// The path of a file that a value refers to.
    pub fn find(&self, reference: &Item) -> Option<String> {
        locate(reference.node.file(), reference.node.text()?, |path| self.files.contains(path))
    }

    /// The same, where the file must be there. It gets the hash that the artifact promises, and its kind.
    pub fn claim(&mut self, declared: &Declared, kind: ArtifactKind) -> Result<String, Rejection> {
        let path = self.find(&declared.reference).ok_or_else(|| {
            let shown = printable(declared.reference.node.text().unwrap_or_default());
            declared.reference.refuse(format!(
                "{shown} is not in the package; expected a path from the package's root or from this file"
            ))
        })?;
        if let Some(checksum) = declared.item.field("checksum") {
            let algorithm = declared.item.field("checksum_algorithm").map(|name| name.text()).transpose()?;
            self.promise(&path, algorithm.as_deref().unwrap_or("sha-256"), &checksum)?;
        }
        self.kinds.insert(path.clone(), kind);
        Ok(path)
    }

    /// Notes what a definition promises about a file.
    pub fn promise(&mut self, path: &str, algorithm: &str, hash: &Item) -> Result<(), Rejection> {
        self.promises.push(Promise::new(path, algorithm, hash)?);
        Ok(())
    }

    /// Claims the artifacts of a node that nothing else asks for.
    pub fn claim_others(&mut self, template: &Template) -> Result<(), Rejection> {
        for declared in Declared::all(&template.item)?.into_iter().filter(|declared| !declared.is_image()) {
            if !is_elsewhere(&declared.reference) {
                let kind = self.find(&declared.reference).and_then(|path| self.kinds.get(&path).copied());
                self.claim(&declared, kind.unwrap_or(ArtifactKind::Other))?;
            }
        }
        Ok(())
    }
}

/// Whether an artifact is fetched from outside the package.
pub fn is_elsewhere(reference: &Item) -> bool {
    reference.node.text().is_some_and(|text| text.contains("://"))
}

/// A checksum in either notation: a mapping of SOL001 2.6.1 and later, or the bare hash of earlier ones.
pub fn checksum(item: &Item) -> Result<(Checksum, Item), Rejection> {
    let (algorithm, hash) = match item.node.text() {
        Some(_) => ("sha-256".to_owned(), item.clone()),
        None => (
            item.need("algorithm", "sha-256 or sha-512")?.text()?,
            item.need("hash", "the hash in hexadecimal")?,
        ),
    };
    let algorithm = Algorithm::parse(&algorithm).map_err(|reason| item.refuse(reason))?;
    let text = algorithm.check(&hash.text()?).map_err(|reason| hash.refuse(reason))?;
    Ok((Checksum { algorithm: algorithm.name().into(), hash: text }, hash))
}
