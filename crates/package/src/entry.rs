//! Where a package begins: `TOSCA-Metadata/TOSCA.meta`, or a single definition at the root.

use std::collections::BTreeMap;

use crate::{
    archive::{Archive, name},
    hash::{Algorithm, Promise},
    item::Notes,
    policy::Limits,
    rejection::{Rejection, printable},
    tosca::documents::{has_yaml_extension, is_etsi_types},
};

/// The file that describes the others.
pub const META: &str = "TOSCA-Metadata/TOSCA.meta";

/// The files that the package names as its beginning.
#[derive(Debug, Default)]
pub struct Entry {
    pub definitions: String,
    pub manifest: Option<String>,
    pub certificate: Option<String>,
    pub change_log: Option<String>,
    /// Directories, without the last '/'.
    pub licences: Option<String>,
    pub tests: Option<String>,
    /// The hashes that `TOSCA.meta` promises.
    pub promises: Vec<Promise>,
    /// What `TOSCA.meta` says about single files, by path.
    pub metadata: BTreeMap<String, BTreeMap<String, String>>,
}

/// A line `Key: value` and its number.
#[derive(Debug, Clone)]
pub struct Line {
    pub key: String,
    pub value: String,
    pub number: u32,
}

impl Entry {
    /// Finds the beginning.
    pub fn find(archive: &mut Archive, limits: &Limits, notes: &mut Notes) -> Result<Self, Rejection> {
        match archive.text(META, limits.text_bytes)? {
            Some(text) => Self::from_meta(&text, archive, notes),
            None => Self::from_root(archive),
        }
    }

    fn from_meta(text: &str, archive: &Archive, notes: &mut Notes) -> Result<Self, Rejection> {
        let mut entry = Self::default();
        let mut blocks = text_blocks(META, text)?.into_iter();
        for line in blocks.next().unwrap_or_default() {
            let exists = || match archive.size(&line.value) {
                Some(_) => Ok(line.value.clone()),
                None => Err(line.refuse(META, &format!("{} is not in the package", printable(&line.value)))),
            };
            match line.key.as_str() {
                "tosca-meta-file-version" | "tosca-meta-version" => {
                    if !matches!(line.value.as_str(), "1.0" | "1.1") {
                        return Err(line.refuse(META, "expected version 1.0 or 1.1"));
                    }
                }
                "csar-version" => {
                    if !matches!(line.value.as_str(), "1.0" | "1.1") {
                        return Err(line.refuse(META, "expected version 1.0 or 1.1"));
                    }
                }
                "entry-definitions" => entry.definitions = exists()?,
                "etsi-entry-manifest" | "entry-manifest" => entry.manifest = Some(exists()?),
                "etsi-entry-certificate" | "entry-certificate" => entry.certificate = Some(exists()?),
                "etsi-entry-change-log" | "entry-change-log" => entry.change_log = Some(exists()?),
                "etsi-entry-licenses" | "entry-licenses" => entry.licences = Some(directory(&line.value)),
                "etsi-entry-tests" | "entry-tests" => entry.tests = Some(directory(&line.value)),
                "created-by" | "other-definitions" => {}
                key => notes.push(format!("{META}:{}: {} is passed over", line.number, printable(key))),
            }
        }
        if entry.definitions.is_empty() {
            let reason = "Entry-Definitions is missing; expected the path of the VNFD in its first block";
            return Err(Rejection::at(META, 1, reason));
        }
        for block in blocks {
            entry.file_block(&block, archive, notes)?;
        }
        if entry.manifest.is_none() {
            entry.manifest = beside(&entry.definitions, archive).or_else(|| only_root(archive, "mf"));
        }
        Ok(entry)
    }

    /// A later block of `TOSCA.meta`: one file, and perhaps its hash.
    fn file_block(&mut self, block: &[Line], archive: &Archive, notes: &mut Notes) -> Result<(), Rejection> {
        let find = |key: &str| block.iter().find(|line| line.key == key);
        let Some(file) = find("name").or_else(|| find("source")) else { return Ok(()) };
        if file.value.contains("://") {
            let shown = printable(&file.value);
            notes.push(format!("{META}:{}: {shown} is outside the package, and not checked", file.number));
            return Ok(());
        }
        if archive.size(&file.value).is_none() {
            return Err(file.refuse(META, &format!("{} is not in the package", printable(&file.value))));
        }
        self.promises.extend(promise(META, &file.value, find("algorithm"), find("hash"))?);
        if let Some(content_type) = find("content-type") {
            let about = self.metadata.entry(file.value.clone()).or_default();
            about.insert("content_type".into(), content_type.value.clone());
        }
        Ok(())
    }

    /// Without `TOSCA.meta` there is one definition at the root, and its manifest has the same name.
    fn from_root(archive: &Archive) -> Result<Self, Rejection> {
        let roots: Vec<&str> = archive
            .files()
            .filter(|path| !path.contains('/') && has_yaml_extension(path) && !is_etsi_types(path))
            .collect();
        let [definitions] = roots.as_slice() else {
            let found = match roots.len() {
                0 => "no .yaml file".to_owned(),
                _ => roots.iter().take(5).map(|root| printable(root)).collect::<Vec<_>>().join(", "),
            };
            let reason = format!(
                "is not in the package; expected it, or exactly one .yaml file at the root, found {found}"
            );
            return Err(Rejection::file(META, reason));
        };
        let definitions = (*definitions).to_owned();
        let manifest = beside(&definitions, archive).or_else(|| only_root(archive, "mf"));
        let certificate = only_root(archive, "cert");
        Ok(Self { definitions, manifest, certificate, ..Self::default() })
    }
}

impl Line {
    /// A complaint about this line.
    pub fn refuse(&self, file: &str, reason: &str) -> Rejection {
        Rejection::at(file, self.number, format!("{}: {reason}", printable(&self.key)))
    }
}

/// Text of `Key: value` lines in blocks that empty lines separate. A line that begins with a space continues the last.
pub fn text_blocks(file: &str, text: &str) -> Result<Vec<Vec<Line>>, Rejection> {
    let mut blocks: Vec<Vec<Line>> = vec![Vec::new()];
    for (index, raw) in text.lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let last = blocks.last_mut().and_then(|block| block.last_mut());
        if raw.trim().is_empty() {
            if last.is_some() {
                blocks.push(Vec::new());
            }
        } else if let (Some(last), true) = (last, raw.starts_with(' ')) {
            last.value += raw.trim();
        } else {
            let Some((key, value)) = raw.split_once(':') else {
                let reason = format!("expected 'Key: value', found '{}'", printable(raw));
                return Err(Rejection::at(file, number, reason));
            };
            let line = Line { key: key.trim().to_ascii_lowercase(), value: value.trim().to_owned(), number };
            if let Some(block) = blocks.last_mut() {
                block.push(line);
            }
        }
    }
    Ok(blocks)
}

/// The promise of a block with `Algorithm` and `Hash`, which come together or not at all.
pub fn promise(
    file: &str,
    path: &str,
    algorithm: Option<&Line>,
    hash: Option<&Line>,
) -> Result<Option<Promise>, Rejection> {
    let (algorithm, hash) = match (algorithm, hash) {
        (Some(algorithm), Some(hash)) => (algorithm, hash),
        (None, None) => return Ok(None),
        (Some(line), None) => return Err(line.refuse(file, "stands without a Hash")),
        (None, Some(line)) => return Err(line.refuse(file, "stands without an Algorithm")),
    };
    let kind = Algorithm::parse(&algorithm.value).map_err(|reason| algorithm.refuse(file, &reason))?;
    let text = kind.check(&hash.value).map_err(|reason| hash.refuse(file, &reason))?;
    Ok(Some(Promise { path: path.into(), algorithm: kind, hash: text, source: (file.into(), hash.number) }))
}

fn directory(value: &str) -> String {
    value.trim_end_matches('/').to_owned()
}

/// The manifest beside a definition: the same name with `.mf`.
fn beside(definitions: &str, archive: &Archive) -> Option<String> {
    let stem = definitions.rsplit_once('.')?.0;
    let path = format!("{stem}.mf");
    let at_root = name::base(&path).to_owned();
    [path, at_root].into_iter().find(|path| archive.size(path).is_some())
}

/// The one file at the root with that extension.
fn only_root(archive: &Archive, extension: &str) -> Option<String> {
    let mut found = archive.files().filter(|path| {
        !path.contains('/')
            && path.rsplit_once('.').is_some_and(|(_, found)| found.eq_ignore_ascii_case(extension))
    });
    let first = found.next()?.to_owned();
    found.next().is_none().then_some(first)
}
