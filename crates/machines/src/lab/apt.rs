//! The host's own package sources, for a base root of the same suite.

use std::path::Path;

use super::disk;
use super::error::{Result, unsupported};

/// The `deb` lines for `suite` and its updates out of everything that apt reads on this host.
pub(super) fn sources(etc: &Path, suite: &str) -> Result<String> {
    let mut lines = Vec::new();
    let dir = etc.join("sources.list.d");
    let mut files = vec![etc.join("sources.list")];
    files.extend(disk::entries(&dir)?.into_iter().map(|name| dir.join(name)));
    for file in files {
        let Some(text) = disk::read(&file)? else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => lines.extend(one_line(&text, suite)),
            Some("sources") => lines.extend(deb822(&text, suite)),
            _ => {}
        }
    }
    if lines.is_empty() {
        return Err(unsupported(format!(
            "{} names no Debian archive with suite {suite}; add one, as machines are made from it",
            etc.display()
        )));
    }
    Ok(lines.join("\n") + "\n")
}

/// Whether a suite is the one that is wanted, or updates to it.
fn fits(suite: &str, wanted: &str) -> bool {
    suite.strip_prefix(wanted).is_some_and(|rest| ["", "-updates", "-security"].contains(&rest))
}

/// The fitting lines of the old format.
fn one_line(text: &str, wanted: &str) -> Vec<String> {
    let fitting = |line: &&str| {
        // Options stand in brackets and may hold spaces.
        let Some(rest) = line.strip_prefix("deb ").or_else(|| line.strip_prefix("deb\t")) else {
            return false;
        };
        let rest = rest.trim_start();
        let rest =
            if rest.starts_with('[') { rest.split_once(']').map_or("", |(_, rest)| rest) } else { rest };
        let mut words = rest.split_whitespace();
        let suite = words.nth(1).unwrap_or_default();
        fits(suite, wanted) && words.any(|word| word == "main")
    };
    text.lines().map(str::trim).filter(fitting).map(str::to_owned).collect()
}

/// The fitting stanzas of the new format, as lines of the old one.
fn deb822(text: &str, wanted: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            let found = stanza.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            });
            found.unwrap_or_default()
        };
        let has = |value: &str, word: &str| value.split_whitespace().any(|have| have == word);
        if !has(field("Types"), "deb") || !has(field("Components"), "main") || field("Enabled") == "no" {
            continue;
        }
        // A key inside the stanza has no place on a line; the archive's own keyring is used then.
        let option = Some(field("Signed-By")).filter(|path| path.starts_with('/'));
        let option = option.map_or_else(String::new, |path| format!("[signed-by={path}] "));
        for uri in field("URIs").split_whitespace() {
            for suite in field("Suites").split_whitespace().filter(|suite| fits(suite, wanted)) {
                lines.push(format!("deb {option}{uri} {suite} {}", field("Components")));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fitting_sources_are_taken() {
        let list = "# deb http://a/ bookworm main\ndeb http://a/debian bookworm main contrib\n\
            deb [arch=amd64 signed-by=/k] http://b/ bookworm-updates main\ndeb-src http://a/ bookworm main\n\
            deb http://c/ trixie main\ndeb http://d/ bookworm stable\n";
        let wanted = [
            "deb http://a/debian bookworm main contrib",
            "deb [arch=amd64 signed-by=/k] http://b/ bookworm-updates main",
        ];
        assert_eq!(one_line(list, "bookworm"), wanted);
    }

    #[test]
    fn stanzas_become_lines() {
        let text = "Types: deb deb-src\n# a comment\nURIs: http://a/debian\nSuites: bookworm bookworm-updates sid\n\
            Components: main\nSigned-By: /k.gpg\n\nTypes: deb\nURIs: http://x\nSuites: nodistro\nComponents: main\n\n\
            Enabled: no\nTypes: deb\nURIs: http://y\nSuites: bookworm\nComponents: main\n";
        let wanted = [
            "deb [signed-by=/k.gpg] http://a/debian bookworm main",
            "deb [signed-by=/k.gpg] http://a/debian bookworm-updates main",
        ];
        assert_eq!(deb822(text, "bookworm"), wanted);
    }

    #[test]
    fn a_host_without_sources_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(sources(dir.path(), "bookworm").unwrap_err().message.contains("bookworm"));
    }
}
