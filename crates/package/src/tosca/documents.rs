//! The files that make up a service template: the entry and everything that it imports.

use std::collections::BTreeSet;

use crate::{
    archive::{Archive, name},
    item::{Item, Notes},
    policy::Limits,
    rejection::{Rejection, printable},
    yaml::{self, Kind},
};

/// The files, read.
#[derive(Debug)]
pub struct Documents {
    /// The parsed files, the entry first.
    pub all: Vec<Document>,
    /// The paths of all files in the package that make up the template, ETSI's own type files included.
    pub files: Vec<String>,
    /// The values in all of them.
    weight: u64,
}

/// One file.
#[derive(Debug, Clone)]
pub struct Document {
    pub path: String,
    pub root: Item,
}

/// Where an import leads.
enum Target {
    /// ETSI's types, which are known here; the path where the package ships them.
    Known(Option<String>),
    /// A file of the package.
    File(String),
}

impl Documents {
    /// Reads the entry and, from each file, what it imports. A file that is imported twice, or in a circle, is read once.
    pub fn load(
        archive: &mut Archive,
        entry: &str,
        limits: &Limits,
        notes: &mut Notes,
    ) -> Result<Self, Rejection> {
        let mut documents = Self { all: Vec::new(), files: Vec::new(), weight: 0 };
        let mut seen = BTreeSet::new();
        documents.add(archive, entry, limits, &mut seen, notes)?;
        Ok(documents)
    }

    /// Adds one more file and what it imports.
    pub fn add(
        &mut self,
        archive: &mut Archive,
        path: &str,
        limits: &Limits,
        seen: &mut BTreeSet<String>,
        notes: &mut Notes,
    ) -> Result<(), Rejection> {
        seen.extend(self.files.iter().cloned());
        let mut waiting = vec![path.to_owned()];
        seen.insert(path.to_owned());
        while let Some(path) = waiting.pop() {
            if self.files.len() >= limits.definitions {
                let reason =
                    format!("is one definition file too many; at most {} are taken", limits.definitions);
                return Err(Rejection::file(path, reason));
            }
            let document = Document::read(archive, &path, limits)?;
            self.weight = self.weight.saturating_add(document.root.node.weight());
            if self.weight > limits.yaml_nodes {
                let most = limits.yaml_nodes;
                return Err(Rejection::file(
                    path,
                    format!("brings the definitions to more than {most} values"),
                ));
            }
            self.files.push(path.clone());
            let mut next = Vec::new();
            for target in document.imports(archive, notes)? {
                match target {
                    Target::Known(Some(shipped)) if seen.insert(shipped.clone()) => self.files.push(shipped),
                    Target::File(file) if seen.insert(file.clone()) => next.push(file),
                    Target::Known(_) | Target::File(_) => {}
                }
            }
            waiting.extend(next.into_iter().rev());
            self.all.push(document);
        }
        Ok(())
    }

    /// The file that everything starts from.
    pub fn entry(&self) -> &Document {
        &self.all[0]
    }
}

impl Document {
    /// Reads one file, which must be a TOSCA service template of a version that is understood.
    pub fn read(archive: &mut Archive, path: &str, limits: &Limits) -> Result<Self, Rejection> {
        let missing = || Rejection::file(path, "is not in the package");
        let text = archive.text(path, limits.text_bytes)?.ok_or_else(missing)?;
        let root = Item::new("service template", yaml::parse(path, &text, limits)?);
        if !matches!(root.node.kind(), Kind::Map(_)) {
            return Err(root.expected("a mapping with tosca_definitions_version"));
        }
        let expected = "tosca_simple_yaml_1_0 to tosca_simple_yaml_1_3";
        let version = root.need("tosca_definitions_version", expected)?;
        if !matches!(version.text()?.strip_prefix("tosca_simple_yaml_1_"), Some("0" | "1" | "2" | "3")) {
            return Err(version.expected(expected));
        }
        Ok(Self { path: path.to_owned(), root })
    }

    /// The topology template, where the file has one.
    pub fn topology(&self) -> Option<Item> {
        self.root.field("topology_template").map(|item| item.relabelled("topology_template"))
    }

    fn imports(&self, archive: &Archive, notes: &mut Notes) -> Result<Vec<Target>, Rejection> {
        let Some(imports) = self.root.field("imports") else { return Ok(Vec::new()) };
        let imports = imports.relabelled("imports");
        let items = match imports.node.kind() {
            Kind::List(_) => imports.items()?,
            _ => vec![imports],
        };
        let mut targets = Vec::new();
        for item in items {
            match item.node.kind() {
                Kind::Map(_) if item.field("file").is_some() => {
                    targets.push(self.target(&item.need("file", "a file")?, archive, notes)?);
                }
                Kind::Map(_) => {
                    for (_, named) in item.entries()? {
                        let file = named.field("file").unwrap_or(named);
                        targets.push(self.target(&file, archive, notes)?);
                    }
                }
                _ => targets.push(self.target(&item, archive, notes)?),
            }
        }
        Ok(targets)
    }

    fn target(&self, import: &Item, archive: &Archive, notes: &mut Notes) -> Result<Target, Rejection> {
        let reference = import.text()?;
        let is_url = reference.contains("://");
        let found = if is_url { None } else { self.locate(&reference, archive) };
        if is_etsi_types(name::base(&reference)) {
            return Ok(Target::Known(found));
        }
        if is_url {
            return Err(import.refuse(format!(
                "{} is outside the package; put the file into the package and import it from there",
                printable(&reference)
            )));
        }
        if !has_yaml_extension(&reference) {
            notes.at(import, "imports a file whose name does not end in .yaml");
        }
        let looked = || name::join(name::parent(&self.path), &reference);
        found.map(Target::File).ok_or_else(|| match looked() {
            Some(path) => import.refuse(format!("{} is not in the package", printable(&path))),
            None => import.refuse(format!("{} leads out of the package", printable(&reference))),
        })
    }

    /// A file that this one refers to: relative to it, or else to the root of the package.
    pub fn locate(&self, reference: &str, archive: &Archive) -> Option<String> {
        locate(&self.path, reference, |path| archive.size(path).is_some())
    }
}

/// A file that another one refers to: relative to it, or else to the root of the package.
pub fn locate(from: &str, reference: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
    let relative = name::join(name::parent(from), reference);
    let from_root = name::join("", reference);
    relative.into_iter().chain(from_root).find(|path| exists(path))
}

/// ETSI's own type files, in every version: `etsi_nfv_sol001_vnfd_types.yaml`, `etsi_nfv_sol001_vnfd_2_6_1_types.yaml`.
pub fn is_etsi_types(base: &str) -> bool {
    base.contains("etsi_nfv_sol001_") && base.contains("types") && has_yaml_extension(base)
}

/// Whether a name is one of a YAML file.
pub fn has_yaml_extension(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml")
}
