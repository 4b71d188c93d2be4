//! What cargo knows about this workspace: its crates, and the test programs that it has built.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{places, process};

/// A crate of the workspace and those that it depends on.
#[derive(Debug, Clone, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Where its manifest is.
    pub manifest_path: PathBuf,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
}

/// One line of a crate's dependencies.
#[derive(Debug, Clone, Deserialize)]
pub struct Dependency {
    /// The crate.
    pub name: String,
    /// `dev`, `build`, or nothing for a plain one.
    pub kind: Option<String>,
}

/// A program that runs tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestProgram {
    /// The program.
    pub path: PathBuf,
    /// The directory of its crate, which tests expect to be in.
    pub dir: PathBuf,
    /// Its main file, from the checkout.
    pub source: PathBuf,
}

/// The workspace's crates.
pub fn packages() -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let mut cargo = process::cargo();
    let text = process::answer(cargo.args(["metadata", "--format-version", "1", "--no-deps", "--locked"]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("what cargo metadata printed")?;
    Ok(metadata.packages)
}

/// Builds all tests at once, so that crates share what they are built from, and names the programs.
pub fn test_programs() -> Result<Vec<TestProgram>> {
    let mut cargo = process::cargo();
    cargo.args(["test", "--quiet", "--locked", "--workspace", "--no-run"]);
    cargo.arg("--message-format=json-render-diagnostics").stderr(std::process::Stdio::inherit());
    test_programs_in(&process::answer(&mut cargo)?, &places::root())
}

fn test_programs_in(messages: &str, root: &Path) -> Result<Vec<TestProgram>> {
    #[derive(Deserialize)]
    struct Message {
        manifest_path: Option<PathBuf>,
        executable: Option<PathBuf>,
        profile: Option<Profile>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }
    #[derive(Deserialize)]
    struct Target {
        src_path: PathBuf,
    }
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Message =
            serde_json::from_str(line).with_context(|| format!("what cargo said: {line}"))?;
        let (Some(path), Some(manifest), Some(Profile { test: true }), Some(target)) =
            (message.executable, message.manifest_path, message.profile, message.target)
        else {
            continue;
        };
        let dir = manifest.parent().unwrap_or(root).to_owned();
        let source = target.src_path.strip_prefix(root).unwrap_or(&target.src_path).to_owned();
        programs.push(TestProgram { path, dir, source });
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_from_cargos_messages() {
        let artifact = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/src/crates/plan/Cargo.toml","profile":{{"test":{test}}},"target":{{"src_path":"/src/crates/plan/tests/engine.rs"}},"executable":{executable}}}"#
            )
        };
        let messages = [
            artifact(true, r#""/src/target/debug/deps/engine-1""#),
            artifact(false, r#""/src/target/debug/guywire""#),
            artifact(true, "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let programs = test_programs_in(&messages.join("\n"), Path::new("/src")).unwrap();
        assert_eq!(
            programs,
            [TestProgram {
                path: "/src/target/debug/deps/engine-1".into(),
                dir: "/src/crates/plan".into(),
                source: "crates/plan/tests/engine.rs".into(),
            }]
        );
    }
}
