//! Strings that no tracked file may have: what is true on one machine only.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{places, process};

/// Directories that every machine has, so that naming them gives nothing away.
const EVERYWHERE: [&str; 10] =
    ["/", "/root", "/home", "/tmp", "/srv", "/opt", "/usr/src", "/usr/local/src", "/var/lib", "/var/tmp"];
/// Hosts that everybody may use.
const PUBLIC: [&str; 5] =
    ["deb.debian.org", "security.debian.org", "ftp.debian.org", "httpredir.debian.org", "crates.io"];

/// Checks every tracked file.
pub fn check() -> Result<()> {
    let root = places::root();
    let mut forbidden = paths(&root);
    forbidden.extend(hosts(&apt_sources()));
    let mut git = Command::new("git");
    // A checkout that belongs to somebody else is still the one to look at.
    git.arg("-c").arg(format!("safe.directory={}", root.display())).args(["ls-files", "-z"]);
    let listed = process::answer(git.current_dir(&root)).context("listing the tracked files")?;
    let mut wrong = Vec::new();
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let Ok(bytes) = std::fs::read(root.join(name)) else { continue }; // deleted, and not yet committed
        for (at, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            for word in forbidden.iter().filter(|word| has(line, word)) {
                wrong.push(format!("{name}:{}: {word} is true on this machine only", at + 1));
            }
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

/// The checkout's path and the directory that it is in, where that is not one that everybody has.
fn paths(root: &Path) -> Vec<String> {
    let mut paths: Vec<PathBuf> = vec![root.to_owned()];
    paths.extend(root.parent().map(Path::to_owned));
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let everywhere =
        |path: &PathBuf| EVERYWHERE.iter().any(|dir| path == Path::new(dir)) || Some(path) == home.as_ref();
    paths.into_iter().filter(|path| !everywhere(path)).map(|path| path.display().to_string()).collect()
}

/// The hosts that apt's sources name, except for the public ones.
fn hosts(sources: &str) -> Vec<String> {
    let comments_out = |line: &&str| !line.trim_start().starts_with('#');
    let words = sources.lines().filter(comments_out).flat_map(str::split_whitespace);
    let urls = words.filter_map(|word| word.split_once("://").map(|(_, rest)| rest));
    let mut hosts: Vec<String> =
        urls.map(|rest| rest.split(['/', ':']).next().unwrap_or_default().to_owned()).collect();
    hosts.retain(|host| {
        let public = PUBLIC.contains(&host.as_str()) || host.ends_with(".debian.org");
        !host.is_empty() && host != "localhost" && !public
    });
    hosts.sort();
    hosts.dedup();
    hosts
}

fn apt_sources() -> String {
    let mut text = std::fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    for entry in std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten() {
        text.push('\n');
        text.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default());
    }
    text
}

/// Whether a line has the word as a whole: `/build/x` is in `"/build/x/y"`, not in `/rebuild/x` or
/// `/build/xyz`.
fn has(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(|c| part_of_name(c) || "/}$".contains(c))
            && !after.is_some_and(|c| part_of_name(c) && c != '.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_as_a_whole() {
        for line in ["see /build/x", "\"/build/x/y\"", "dir=/build/x", "/build/x."] {
            assert!(has(line, "/build/x"), "{line}");
        }
        for line in ["/rebuild/x", "$D/build/x", "/build/xyz", "{dir}/build/x", "a/build/x"] {
            assert!(!has(line, "/build/x"), "{line}");
        }
    }

    #[test]
    fn usual_directories_are_no_secret() {
        assert_eq!(paths(Path::new("/srv/guywire")), ["/srv/guywire"]);
        assert_eq!(paths(Path::new("/builds/7/guywire")), ["/builds/7/guywire", "/builds/7"]);
    }

    #[test]
    fn mirrors_are_found_in_both_formats() {
        let text = "deb http://mirror.example:80/debian bookworm main\n# deb http://old.example/ x\n\
                    URIs: https://deb.debian.org/debian\nURIs: https://cache.example/debian\n";
        assert_eq!(hosts(text), ["cache.example", "mirror.example"]);
    }
}
