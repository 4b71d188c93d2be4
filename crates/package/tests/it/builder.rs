//! Packages made in memory for tests.

use std::{
    fs,
    io::{Cursor, Write},
    path::{Path, PathBuf},
};

use guywire_package::{Package, Policy, Rejection, read};
use tempfile::TempDir;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// A directory of this crate or of the workspace.
pub fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// A file of the fixtures.
pub fn fixture(name: &str) -> String {
    let path = path("tests/fixtures").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files in the order in which they are packed.
#[derive(Debug, Clone, Default)]
pub struct Csar {
    pub files: Vec<(String, Vec<u8>)>,
}

impl Csar {
    /// A package with an entry definition and `TOSCA.meta`.
    pub fn of(vnfd: &str) -> Self {
        Self::default().with("TOSCA-Metadata/TOSCA.meta", META).with("Definitions/vnfd.yaml", vnfd)
    }

    /// The example, with a script of our own where the tree has none.
    pub fn hello() -> Self {
        let tree = path("../../examples/hello");
        let mut csar = Self::default();
        for file in ["TOSCA-Metadata/TOSCA.meta", "Definitions/hello.yaml", "Definitions/hello_types.yaml"] {
            csar = csar.with(file, fs::read(tree.join(file)).expect("the example is there"));
        }
        csar.with("Scripts/hello.py", "print('[]')\n")
    }

    /// Adds or replaces a file.
    pub fn with(mut self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.files.retain(|(found, _)| found != name);
        self.files.push((name.to_owned(), content.as_ref().to_vec()));
        self
    }

    /// The archive.
    pub fn zip(&self) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        for (name, content) in &self.files {
            writer.start_file(name.as_str(), options).expect("the name is one that ZIP can hold");
            writer.write_all(content).expect("memory can be written");
        }
        writer.finish().expect("memory can be written").into_inner()
    }

    /// The verdict on it.
    pub fn read(&self) -> Result<Package, Rejection> {
        read_bytes(&self.zip(), &Policy::default())
    }

    /// The package, which must be right.
    pub fn accepted(&self) -> Package {
        self.read().unwrap_or_else(|rejection| panic!("refused: {rejection}"))
    }

    /// The complaint, since it must be wrong.
    pub fn rejected(&self) -> String {
        match self.read() {
            Err(rejection) => rejection.to_string(),
            Ok(package) => panic!("taken: {package}"),
        }
    }
}

pub const META: &str = "TOSCA-Meta-File-Version: 1.0\nCSAR-Version: 1.1\nCreated-By: test\n\
                        Entry-Definitions: Definitions/vnfd.yaml\n";

/// Writes bytes to a file of their own; the directory goes with the first part.
pub fn on_disk(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let file = dir.path().join("test.csar");
    fs::write(&file, bytes).expect("a file can be written");
    (dir, file)
}

/// The verdict on an archive.
pub fn read_bytes(bytes: &[u8], policy: &Policy) -> Result<Package, Rejection> {
    let (_dir, file) = on_disk(bytes);
    read(&file, policy)
}
