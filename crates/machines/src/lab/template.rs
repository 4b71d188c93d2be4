//! Templates: a base root per set of packages, and content laid over it, each made once.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use guywire_model::TemplateSpec;
use guywire_plan::Fence;
use sha2::{Digest, Sha256};

use super::disk::{self, Lock};
use super::error::{Result, invalid, not_found, unavailable, unsupported, while_doing};
use super::store::Key;
use super::tree::{self, Owner};
use super::{Inner, apt, base, tool};
use crate::{InfraError, InfraErrorKind};

/// Room that making a base root needs.
const ROOM: u64 = 2 << 30;
/// How long to wait for another process that makes the same root.
const PATIENCE: Duration = Duration::from_mins(20);

impl Inner {
    pub(super) fn ensure_template(
        &self,
        fence: Fence,
        template: &TemplateSpec,
        say: &dyn Fn(String),
    ) -> Result<()> {
        let name = &template.name;
        let mut packages: BTreeSet<&str> = base::PACKAGES.into();
        for package in &template.packages {
            if !is_package(package) {
                return Err(invalid(format!(
                    "template {name}: {package:?} is not the name of a Debian package"
                )));
            }
            packages.insert(package);
        }
        let mut content = Vec::new();
        for piece in &template.content {
            let target = tree::inside(&piece.path)
                .map_err(|error| invalid(format!("template {name}: {}", error.message)))?;
            if !piece.source.exists() {
                let source = piece.source.display();
                return Err(not_found(format!("template {name}: its content {source} is not there")));
            }
            content.push((piece.source.as_path(), target));
        }
        // A late caller is turned away first; but nobody of this lab waits while a root is being made.
        drop(self.store.change(Key::Template(name), fence)?);
        let root = self.base_root(&packages, say)?;
        let mut layers = vec![root];
        if !content.is_empty() {
            layers.insert(0, self.content_layer(&layers[0], &content, say)?);
        }
        let _key = self.store.change(Key::Template(name), fence)?;
        self.store.keep_template(name, &layers)
    }

    /// The directory of a template's layer, which must be there.
    pub(super) fn layer(&self, name: &str) -> Result<PathBuf> {
        let dir = self.store.templates.join(name);
        if dir.is_dir() {
            return Ok(dir);
        }
        Err(not_found(format!(
            "{}: this part of a template is gone; ensure the template again",
            dir.display()
        )))
    }

    fn base_root(&self, packages: &BTreeSet<&str>, say: &dyn Fn(String)) -> Result<String> {
        let mut hasher = Sha256::new();
        hasher.update(format!("root {} {}\n", base::FORMAT, base::SUITE));
        for package in packages {
            hasher.update(format!("{package}\n"));
        }
        let key = hex(&hasher.finalize());
        self.once(&key, |partial, lock| {
            debootstrap(partial, packages, lock, say)?;
            base::tidy(partial)
        })
    }

    fn content_layer(
        &self,
        root: &str,
        content: &[(&Path, PathBuf)],
        say: &dyn Fn(String),
    ) -> Result<String> {
        let mut hasher = Sha256::new();
        // With the root in the key: where links lead is the root's affair.
        hasher.update(format!("content {} {root}\n", base::FORMAT));
        for (source, target) in content {
            hasher.update(format!("{}\n", target.display()));
            tree::hash(source, &mut hasher)?;
        }
        let key = hex(&hasher.finalize());
        let root = self.layer(root)?;
        self.once(&key, |partial, _| {
            disk::make_dir(partial)?;
            for (source, target) in content {
                say(format!("copying {}", source.display()));
                let target = tree::resolve(&root, target)?;
                let parent = target.parent().unwrap_or(Path::new(""));
                tree::cover_dirs(std::slice::from_ref(&root), partial, parent)?;
                tree::copy(source, &partial.join(&target), Owner::Root)?;
            }
            Ok(())
        })
    }

    /// Makes what `key` stands for unless it is there; what was interrupted is begun anew.
    fn once(&self, key: &str, make: impl FnOnce(&Path, &Lock) -> Result<()>) -> Result<String> {
        let done = self.store.templates.join(key);
        if done.is_dir() {
            return Ok(key.to_owned());
        }
        disk::make_dir(&self.store.templates)?;
        let lock = Lock::take(&disk::beside(&done, ".lock"), PATIENCE)?;
        if !done.is_dir() {
            let partial = disk::beside(&done, ".partial");
            disk::remove_tree(&partial)?;
            if let Err(error) = make(&partial, &lock) {
                disk::remove_tree(&partial)?;
                return Err(error);
            }
            let sync = || File::open(&partial).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
            sync().map_err(while_doing(format_args!("writing {} to the disk", partial.display())))?;
            disk::publish(&partial, &done)?;
        }
        disk::remove_tree(&disk::beside(&done, ".lock"))?;
        Ok(key.to_owned())
    }
}

/// Makes a Debian root with these packages.
fn debootstrap(root: &Path, packages: &BTreeSet<&str>, lock: &Lock, say: &dyn Fn(String)) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(unsupported("making a base root needs root: run it as root"));
    }
    let parent = root.parent().unwrap_or(root);
    let space =
        rustix::fs::statvfs(parent).map_err(while_doing(format_args!("looking at {}", parent.display())))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < ROOM {
        return Err(InfraError::new(
            InfraErrorKind::Exhausted,
            format!(
                "{}: {} MB are free, a base root needs {} MB; make room or use another directory",
                parent.display(),
                free >> 20,
                ROOM >> 20
            ),
        ));
    }
    let sources = disk::beside(root, ".list");
    disk::write(&sources, apt::sources(Path::new("/etc/apt"), base::SUITE)?.as_bytes(), 0o600)?;
    let include: Vec<&str> = packages.iter().copied().collect();
    say(format!("making a base root of {} packages, once; this takes about a minute", include.len()));
    // As its standard input the builder holds our lock: if we die and it does not, nobody else begins.
    let held = lock.share().map_err(while_doing("sharing the lock with mmdebstrap"))?;
    let mut child = Command::new("mmdebstrap")
        .args(["--variant=minbase", "--mode=root", "--format=directory"])
        .args(["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"])
        .args([
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        ])
        .arg(format!("--include={}", include.join(",")))
        .arg(base::SUITE)
        .args([root, &sources])
        .env("LC_ALL", "C")
        .stdin(Stdio::from(held))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| tool::missing("mmdebstrap", "mmdebstrap", error))?;
    let mut last: VecDeque<String> = VecDeque::new();
    for line in BufReader::new(child.stderr.take().expect("it was asked for")).split(b'\n') {
        let line = line.map_err(while_doing("reading what mmdebstrap says"))?;
        // It draws a progress bar over itself; the last state on a line is enough.
        let line = String::from_utf8_lossy(&line);
        let line =
            line.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or_default().trim().to_owned();
        if line.starts_with("I: ") {
            say(line.trim_start_matches("I: ").to_owned());
        }
        if !line.is_empty() {
            last.push_back(line);
        }
        if last.len() > 6 {
            last.pop_front();
        }
    }
    let status = child.wait().map_err(while_doing("waiting for mmdebstrap"))?;
    fs::remove_file(&sources).map_err(while_doing(format_args!("removing {}", sources.display())))?;
    if status.success() {
        return Ok(());
    }
    let last: Vec<String> = last.into();
    Err(unavailable(format!("mmdebstrap failed ({status}): {}", last.join("; "))))
}

fn is_package(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    (2..=100).contains(&name.len())
        && name.chars().all(plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}
