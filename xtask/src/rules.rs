//! The architecture's rules: every crate is on the map, and crates know only those that they may.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use crate::places;
use crate::workspace::{Package, packages};

/// Which crates of the workspace a crate may depend on. What is not here may depend on none.
const MAY_KNOW: [(&str, &[&str]); 10] = [
    ("guywire-plan", &[]),
    ("guywire-secrets", &[]),
    ("guywire-model", &["guywire-secrets"]),
    ("guywire-machines", &["guywire-model", "guywire-plan", "guywire-secrets"]),
    ("guywire-package", &[]),
    ("guywire-roles", &["guywire-machines", "guywire-model", "guywire-plan", "guywire-secrets"]),
    // How a task is done is not its business: it meets machines and roles in `guywire`.
    ("guywire-manager", &["guywire-model", "guywire-package", "guywire-plan", "guywire-secrets"]),
    // The one place that sees all.
    (
        "guywire",
        &[
            "guywire-machines",
            "guywire-manager",
            "guywire-model",
            "guywire-package",
            "guywire-plan",
            "guywire-roles",
            "guywire-secrets",
        ],
    ),
    // Tests that cross crates run the program; they do not link it.
    ("guywire-tests", &["guywire-machines", "guywire-model", "guywire-plan", "guywire-secrets"]),
    // Must start within seconds on a bare machine.
    ("xtask", &[]),
];

/// Checks the workspace.
pub fn check() -> Result<()> {
    let packages = packages()?;
    let map = std::fs::read_to_string(places::root().join("ARCHITECTURE.md"))
        .context("reading ARCHITECTURE.md, the map of the crates")?;
    let mut wrong = not_on_the_map(&packages, &map);
    wrong.extend(against_the_rules(&packages));
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

/// The crates that the map does not name, as code: `` `plan` `` stands for `guywire-plan`.
fn not_on_the_map(packages: &[Package], map: &str) -> Vec<String> {
    let missing = |package: &&Package| {
        let folder = package.name.trim_start_matches("guywire-");
        !map.contains(&format!("`{folder}`"))
    };
    let tell = |package: &Package| {
        format!(
            "ARCHITECTURE.md does not name `{}`: say what it owns",
            package.name.trim_start_matches("guywire-")
        )
    };
    packages.iter().filter(missing).map(tell).collect()
}

/// Dependencies between crates of the workspace that are not allowed.
fn against_the_rules(packages: &[Package]) -> Vec<String> {
    let rules: BTreeMap<&str, &[&str]> = MAY_KNOW.into();
    let ours = |name: &str| packages.iter().any(|package| package.name == name);
    let mut wrong = Vec::new();
    for package in packages {
        let Some(allowed) = rules.get(package.name.as_str()) else {
            wrong.push(format!(
                "{}: no rule says what it may know; add one to xtask/src/rules.rs",
                package.name
            ));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| ours(&dependency.name)) {
            // A test may use its own crate with other features.
            let itself = dependency.name == package.name && dependency.kind.as_deref() == Some("dev");
            if !allowed.contains(&dependency.name.as_str()) && !itself {
                let manifest =
                    package.manifest_path.strip_prefix(places::root()).unwrap_or(&package.manifest_path);
                wrong.push(format!(
                    "{}: {} must not know {}",
                    manifest.display(),
                    package.name,
                    dependency.name
                ));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, knows: &[&str]) -> Package {
        let dependency = |name: &&str| Dependency { name: (*name).to_owned(), kind: None };
        Package {
            name: name.into(),
            manifest_path: format!("crates/{name}/Cargo.toml").into(),
            dependencies: knows.iter().map(dependency).collect(),
        }
    }

    #[test]
    fn forbidden_dependencies_are_named() {
        let packages = [
            package("guywire-plan", &["serde", "guywire-model"]),
            package("guywire-model", &["guywire-secrets"]),
            package("guywire-secrets", &[]),
            package("guywire-new", &[]),
        ];
        let wrong = against_the_rules(&packages);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert_eq!(wrong[0], "crates/guywire-plan/Cargo.toml: guywire-plan must not know guywire-model");
        assert!(wrong[1].starts_with("guywire-new: no rule"), "{wrong:?}");
    }

    #[test]
    fn every_crate_is_on_the_map() {
        let packages = [package("guywire-plan", &[]), package("xtask", &[])];
        assert_eq!(
            not_on_the_map(&packages, "| `plan` | owns |"),
            ["ARCHITECTURE.md does not name `xtask`: say what it owns"]
        );
        assert!(not_on_the_map(&packages, "`plan` `xtask`").is_empty());
    }
}
