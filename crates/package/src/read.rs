//! The verdict on a package: structure first, since that is cheap, then every byte.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    path::Path,
};

use crate::{
    archive::name,
    archive::{Archive, file_name, unreadable},
    entry::{Entry, META},
    hash::{Algorithm, Promise, hex},
    item::Notes,
    manifest::Manifest,
    package::{Artifact, ArtifactKind, Package},
    policy::{Policy, Signature},
    rejection::Rejection,
    signature::{self, Content, Signer},
    sol001,
    tosca::{Documents, Types, documents::has_yaml_extension, documents::is_etsi_types},
};

/// The hashes of a file, by algorithm.
type Hashes = BTreeMap<Algorithm, String>;

/// Reads a package and verifies everything in it: the archive, the descriptor, the hashes, the signature.
pub fn read(csar: &Path, policy: &Policy) -> Result<Package, Rejection> {
    let limits = &policy.limits;
    let mut notes = Notes::default();
    let mut archive = Archive::open(csar, limits)?;
    let files: BTreeSet<String> = archive.files().map(str::to_owned).collect();

    let entry = Entry::find(&mut archive, limits, &mut notes)?;
    let (documents, types) = definitions(&mut archive, &entry.definitions, policy, &mut notes)?;
    let described = sol001::describe(&documents, &types, &files, &mut notes)?;
    let manifest = match &entry.manifest {
        Some(path) => Some(Manifest::read(&mut archive, path, limits, &mut notes)?),
        None => None,
    };

    let mut promises = described.promises;
    promises.extend(entry.promises.iter().cloned());
    promises.extend(manifest.iter().flat_map(|manifest| manifest.promises.iter().cloned()));
    let signer = signer(&mut archive, &entry, manifest.as_ref(), policy, csar, &mut notes)?;
    let hashes = verify(&mut archive, &files, &promises)?;
    let (sha256, size) = whole(csar)?;

    let kinds = described.kinds;
    let declared: BTreeMap<&str, Algorithm> =
        promises.iter().rev().map(|promise| (promise.path.as_str(), promise.algorithm)).collect();
    let mut artifacts = Vec::new();
    for path in &files {
        let special = [Some(META), entry.manifest.as_deref(), entry.certificate.as_deref()];
        if documents.files.contains(path) || special.contains(&Some(path.as_str())) {
            continue;
        }
        let algorithm = declared.get(path.as_str()).copied().unwrap_or(Algorithm::Sha256);
        artifacts.push(Artifact {
            path: path.clone(),
            algorithm: algorithm.name().into(),
            hash: hashes.get(path).and_then(|hashes| hashes.get(&algorithm)).cloned().unwrap_or_default(),
            size: archive.size(path).unwrap_or(0),
            kind: kinds
                .get(path)
                .copied()
                .filter(|kind| *kind != ArtifactKind::Other)
                .unwrap_or_else(|| kind(path, &entry)),
            metadata: entry.metadata.get(path).cloned().unwrap_or_default(),
        });
    }
    let warnings = notes.into_inner();
    Ok(Package {
        vnfd: described.vnfd,
        vnfd_files: documents.files,
        artifacts,
        signer,
        sha256,
        size,
        warnings,
    })
}

/// Reads the definitions. An entry that describes no machines and imports no flavour finds them in the files beside it.
fn definitions(
    archive: &mut Archive,
    entry: &str,
    policy: &Policy,
    notes: &mut Notes,
) -> Result<(Documents, Types), Rejection> {
    let mut documents = Documents::load(archive, entry, &policy.limits, notes)?;
    let types = Types::collect(&documents, notes)?;
    let mut has_flavour = false;
    for document in &documents.all {
        has_flavour |= sol001::is_flavour(document, &types)?;
    }
    if has_flavour || sol001::has_machines(documents.entry(), &types)? {
        return Ok((documents, types));
    }
    let directory = name::parent(entry);
    let beside: Vec<String> = archive
        .files()
        .filter(|path| name::parent(path) == directory && has_yaml_extension(path))
        .filter(|path| !is_etsi_types(name::base(path)) && !documents.files.iter().any(|file| file == path))
        .map(str::to_owned)
        .collect();
    let mut seen = BTreeSet::new();
    for path in beside {
        // Other YAML may lie there too, which is none of ours.
        let text = archive.text(&path, policy.limits.text_bytes)?.unwrap_or_default();
        if text.contains("substitution_mappings") && !seen.contains(&path) {
            documents.add(archive, &path, &policy.limits, &mut seen, notes)?;
        }
    }
    let types = Types::collect(&documents, notes)?;
    Ok((documents, types))
}

/// Who signed the package, as far as the policy asks.
fn signer(
    archive: &mut Archive,
    entry: &Entry,
    manifest: Option<&Manifest>,
    policy: &Policy,
    csar: &Path,
    notes: &mut Notes,
) -> Result<Option<String>, Rejection> {
    if policy.signature == Signature::Ignore {
        return Ok(None);
    }
    let (signer, file, line) = if let Some(envelope) = archive.envelope() {
        let certificates: Vec<_> = envelope.certificates.iter().map(|(_, bytes)| bytes.clone()).collect();
        let (file, bytes) = &envelope.signature;
        let mut content = Stream { archive };
        let verified = signature::verify(bytes, &mut content, &certificates, &policy.trust);
        (verified.map_err(|reason| Rejection::file(file, reason))?, file.clone(), None)
    } else if let Some((manifest, (pem, line))) =
        manifest.and_then(|found| Some((found, found.signature.as_ref()?)))
    {
        let certificate = match &entry.certificate {
            Some(path) => archive.bytes(path, policy.limits.text_bytes)?,
            None => None,
        };
        let certificates: Vec<_> = certificate.into_iter().collect();
        let mut content = Text(&manifest.signed);
        let verified = signature::verify(pem.as_bytes(), &mut content, &certificates, &policy.trust);
        let signer = verified.map_err(|reason| Rejection::at(&manifest.path, *line, reason))?;
        if let Some(unsigned) = uncovered(archive, entry, manifest) {
            let reason = format!("{unsigned} is not listed with a hash, so the signature does not cover it");
            if policy.signature == Signature::Required {
                return Err(Rejection::file(&manifest.path, reason));
            }
            notes.push(format!("{}: {reason}; the package counts as unsigned", manifest.path));
            return Ok(None);
        }
        (signer, manifest.path.clone(), Some(*line))
    } else if policy.signature == Signature::Required {
        let reason = "is not signed; this site takes signed packages only (a CMS signature in the manifest, or the \
                      package in a ZIP beside its .cms)";
        return Err(Rejection::file(file_name(csar), reason));
    } else {
        return Ok(None);
    };
    let Signer { subject, is_trusted } = signer;
    if is_trusted {
        return Ok(Some(subject));
    }
    let reason = format!("signed by {subject}, who cannot be judged: no trusted certificates are configured");
    if policy.signature == Signature::Required {
        return Err(Rejection { file, line, reason, ours: false });
    }
    notes.push(format!("{file}: {reason}; the package counts as unsigned"));
    Ok(None)
}

/// A file that a signed manifest says nothing about.
fn uncovered(archive: &Archive, entry: &Entry, manifest: &Manifest) -> Option<String> {
    let covered: BTreeSet<&str> = manifest.promises.iter().map(|promise| promise.path.as_str()).collect();
    let is_free = |path: &str| path == manifest.path || Some(path) == entry.certificate.as_deref();
    archive.files().find(|path| !covered.contains(path) && !is_free(path)).map(str::to_owned)
}

/// Reads every file to its end, which checks its length and checksum, and compares what was promised.
fn verify(
    archive: &mut Archive,
    files: &BTreeSet<String>,
    promises: &[Promise],
) -> Result<BTreeMap<String, Hashes>, Rejection> {
    let mut by_path: BTreeMap<&str, Vec<&Promise>> = BTreeMap::new();
    for promise in promises {
        by_path.entry(&promise.path).or_default().push(promise);
    }
    let mut all = BTreeMap::new();
    for path in files {
        let promises = by_path.remove(path.as_str()).unwrap_or_default();
        let mut wanted: BTreeSet<Algorithm> = promises.iter().map(|promise| promise.algorithm).collect();
        if wanted.is_empty() {
            wanted.insert(Algorithm::Sha256);
        }
        let Some(mut reader) = archive.entry(path)? else { continue };
        let hashes = hash(&mut reader, &wanted).map_err(|error| unreadable(path, &error))?;
        for promise in promises {
            match hashes.get(&promise.algorithm) {
                Some(found) if *found == promise.hash => {}
                found => return Err(promise.broken(found.map_or("unknown", String::as_str))),
            }
        }
        all.insert(path.clone(), hashes);
    }
    Ok(all)
}

fn hash(reader: &mut impl Read, algorithms: &BTreeSet<Algorithm>) -> io::Result<Hashes> {
    let mut hashers: Vec<_> = algorithms.iter().map(|algorithm| (*algorithm, algorithm.hasher())).collect();
    let mut buffer = vec![0; 128 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => hashers.iter_mut().for_each(|(_, hasher)| hasher.update(&buffer[..read])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hashers.into_iter().map(|(algorithm, hasher)| (algorithm, hex(&hasher.finish()))).collect())
}

/// The hash and size of the upload as it came.
fn whole(csar: &Path) -> Result<(String, u64), Rejection> {
    let cannot = |error: io::Error| Rejection::io(file_name(csar), "cannot be read", &error);
    let mut file = File::open(csar).map_err(cannot)?;
    let size = file.metadata().map_err(cannot)?.len();
    let mut hashes = hash(&mut file, &BTreeSet::from([Algorithm::Sha256])).map_err(cannot)?;
    Ok((hashes.remove(&Algorithm::Sha256).unwrap_or_default(), size))
}

/// What a file is for, by where it lies.
fn kind(path: &str, entry: &Entry) -> ArtifactKind {
    let below = |directory: &Option<String>, usual: &str| {
        let directory = directory.as_deref().unwrap_or(usual);
        path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
    };
    if entry.change_log.as_deref() == Some(path) || name::base(path).eq_ignore_ascii_case("ChangeLog.txt") {
        ArtifactKind::ChangeLog
    } else if below(&entry.licences, "Licenses") {
        ArtifactKind::Licence
    } else if below(&entry.tests, "Tests") {
        ArtifactKind::Test
    } else {
        ArtifactKind::Other
    }
}

/// The text of a manifest as signed content.
struct Text<'a>(&'a [u8]);

impl Content for Text<'_> {
    fn digests(&mut self, algorithm: Algorithm) -> Result<Vec<Vec<u8>>, String> {
        let digest = |bytes: &[u8]| {
            let mut hasher = algorithm.hasher();
            hasher.update(bytes);
            hasher.finish()
        };
        let mut mail = Vec::with_capacity(self.0.len());
        for (index, &byte) in self.0.iter().enumerate() {
            if byte == b'\n' && (index == 0 || self.0[index - 1] != b'\r') {
                mail.push(b'\r');
            }
            mail.push(byte);
        }
        Ok(vec![digest(self.0), digest(&mail)])
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self.0)
    }
}

/// A whole package as signed content, which is read once and never held.
struct Stream<'a> {
    archive: &'a Archive,
}

impl Content for Stream<'_> {
    fn digests(&mut self, algorithm: Algorithm) -> Result<Vec<Vec<u8>>, String> {
        let mut hasher = algorithm.hasher();
        let mut content = self.archive.content();
        let mut buffer = vec![0; 128 << 10];
        loop {
            match content.read(&mut buffer).map_err(|error| format!("the package cannot be read: {error}"))? {
                0 => return Ok(vec![hasher.finish()]),
                read => hasher.update(&buffer[..read]),
            }
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        None
    }
}
