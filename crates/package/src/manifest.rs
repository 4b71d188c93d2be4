//! The manifest of SOL004: what the package holds, the hash of each file, and a signature over all that.

use crate::{
    archive::Archive,
    entry::{Line, promise},
    hash::Promise,
    item::Notes,
    policy::Limits,
    rejection::{Rejection, printable},
    tosca::documents::locate,
};

/// A manifest that was read.
#[derive(Debug)]
pub struct Manifest {
    pub path: String,
    pub promises: Vec<Promise>,
    /// The part that a signature covers.
    pub signed: Vec<u8>,
    /// The signature, PEM, and the line that it begins on.
    pub signature: Option<(String, u32)>,
}

const BEGIN: &str = "-----BEGIN CMS-----";

impl Manifest {
    /// Reads a manifest; every file that it lists must be in the package.
    pub fn read(
        archive: &mut Archive,
        path: &str,
        limits: &Limits,
        notes: &mut Notes,
    ) -> Result<Self, Rejection> {
        let missing = || Rejection::file(path, "is not in the package");
        let text = archive.text(path, limits.text_bytes)?.ok_or_else(missing)?;
        let (body, signature) = match text.find(BEGIN) {
            Some(at) => {
                let line = text[..at].lines().count() + 1;
                (&text[..at], Some((text[at..].to_owned(), u32::try_from(line).unwrap_or(u32::MAX))))
            }
            None => (text.as_str(), None),
        };
        let mut promises = Vec::new();
        let mut listed = Listed::default();
        for (index, raw) in body.lines().enumerate() {
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            // The metadata and the sets of non-MANO artifacts are read by others; here only files matter.
            let Some((key, value)) = raw.split_once(':') else { continue };
            let key = key.trim().trim_start_matches("- ").to_ascii_lowercase();
            let line = Line { key, value: value.trim().to_owned(), number };
            match line.key.as_str() {
                "source" | "name" => {
                    promises.extend(listed.promise(archive, path, notes)?);
                    listed = Listed { source: Some(line), ..Listed::default() };
                }
                "algorithm" => listed.algorithm = Some(line),
                "hash" => listed.hash = Some(line),
                _ => {}
            }
        }
        promises.extend(listed.promise(archive, path, notes)?);
        Ok(Self { path: path.to_owned(), promises, signed: body.as_bytes().to_vec(), signature })
    }
}

/// One listed file.
#[derive(Debug, Default)]
struct Listed {
    source: Option<Line>,
    algorithm: Option<Line>,
    hash: Option<Line>,
}

impl Listed {
    fn promise(
        &self,
        archive: &Archive,
        manifest: &str,
        notes: &mut Notes,
    ) -> Result<Option<Promise>, Rejection> {
        let Some(source) = &self.source else { return Ok(None) };
        if source.value.contains("://") {
            let shown = printable(&source.value);
            notes.push(format!(
                "{manifest}:{}: {shown} is outside the package, and not checked",
                source.number
            ));
            return Ok(None);
        }
        let exists = |path: &str| archive.size(path).is_some();
        // Sources are given from the root of the package; some tools give them from the manifest.
        let at_root = exists(&source.value).then(|| source.value.clone());
        let Some(path) = at_root.or_else(|| locate(manifest, &source.value, exists)) else {
            let reason = format!("{} is listed here, but is not in the package", printable(&source.value));
            return Err(source.refuse(manifest, &reason));
        };
        promise(manifest, &path, self.algorithm.as_ref(), self.hash.as_ref())
    }
}
