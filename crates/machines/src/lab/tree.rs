//! Trees of files: hashing them, copying them, and paths inside a root that is not ours.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::disk;
use super::error::{Result, invalid, while_doing};

/// Whose the copied files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// Root's, whoever had the originals.
    Root,
    /// The same as the originals'.
    Same,
}

/// Feeds a tree's names, kinds, modes and contents to a hash, in an order that does not vary.
pub(super) fn hash(path: &Path, into: &mut Sha256) -> Result<()> {
    let doing = || format!("reading {}", path.display());
    let meta = fs::symlink_metadata(path).map_err(while_doing(doing()))?;
    into.update((meta.mode() & 0o7777).to_le_bytes());
    if meta.is_dir() {
        into.update(b"dir");
        for name in disk::entries(path)? {
            into.update((name.len() as u64).to_le_bytes());
            into.update(&name);
            hash(&path.join(name), into)?;
        }
        into.update(b"end");
    } else if meta.is_symlink() {
        into.update(b"link");
        let target = fs::read_link(path).map_err(while_doing(doing()))?;
        into.update(target.as_os_str().as_encoded_bytes());
    } else if meta.is_file() {
        into.update(b"file");
        into.update(meta.len().to_le_bytes());
        let mut file = File::open(path).map_err(while_doing(doing()))?;
        io::copy(&mut file, &mut HashWriter(into)).map_err(while_doing(doing()))?;
    } else {
        return Err(invalid(format!("{}: only files, directories and links can be copied", path.display())));
    }
    Ok(())
}

/// Copies a tree; a directory that is there already is filled.
pub(super) fn copy(source: &Path, target: &Path, owner: Owner) -> Result<()> {
    let doing = || format!("copying {} to {}", source.display(), target.display());
    let meta = fs::symlink_metadata(source).map_err(while_doing(doing()))?;
    if meta.is_dir() {
        if !target.is_dir() {
            fs::create_dir(target).map_err(while_doing(doing()))?;
        }
        for name in disk::entries(source)? {
            copy(&source.join(&name), &target.join(&name), owner)?;
        }
    } else if meta.is_symlink() {
        let leads_to = fs::read_link(source).map_err(while_doing(doing()))?;
        disk::remove_tree(target)?;
        symlink(leads_to, target).map_err(while_doing(doing()))?;
    } else if meta.is_file() {
        fs::copy(source, target).map_err(while_doing(doing()))?;
    } else {
        return Err(invalid(format!(
            "{}: only files, directories and links can be copied",
            source.display()
        )));
    }
    let (uid, gid) = if owner == Owner::Same { (meta.uid(), meta.gid()) } else { (0, 0) };
    lchown(target, Some(uid), Some(gid)).map_err(while_doing(doing()))?;
    if !meta.is_symlink() {
        // After the owner: changing that takes the set-user bit away.
        let mode = fs::Permissions::from_mode(meta.mode() & 0o7777);
        fs::set_permissions(target, mode).map_err(while_doing(doing()))?;
    }
    Ok(())
}

/// Checks a path inside a machine: absolute, with no step upwards, and not the root itself.
pub(super) fn inside(path: &Path) -> Result<PathBuf> {
    let mut relative = PathBuf::new();
    let mut components = path.components();
    let absolute = components.next() == Some(Component::RootDir);
    for component in components {
        match component {
            Component::Normal(name) => relative.push(name),
            _ => return Err(invalid(format!("{}: write the path without `..`", path.display()))),
        }
    }
    if !absolute || relative.as_os_str().is_empty() {
        return Err(invalid(format!("{}: an absolute path below / is needed", path.display())));
    }
    Ok(relative)
}

/// Where `path` (relative) really is inside the root at `root`: links on the way, such as `lib` to
/// `usr/lib`, are followed as if `root` were the root. The last component is not followed.
pub(super) fn resolve(root: &Path, path: &Path) -> Result<PathBuf> {
    let mut todo: Vec<_> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    let mut done = PathBuf::new();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == ".." {
            done.pop();
            continue;
        }
        let here = done.join(&part);
        let is_link = fs::symlink_metadata(root.join(&here)).is_ok_and(|meta| meta.is_symlink());
        if todo.is_empty() || !is_link {
            done = here;
            continue;
        }
        links += 1;
        if links > 40 {
            return Err(invalid(format!("{}: too many links on the way", path.display())));
        }
        let target = fs::read_link(root.join(&here))
            .map_err(while_doing(format_args!("reading {}", here.display())))?;
        if target.is_absolute() {
            done = PathBuf::new();
        }
        let named = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
        todo.extend(target.components().rev().filter(named).map(|part| part.as_os_str().to_owned()));
    }
    Ok(done)
}

/// Makes the directories of `path` (relative) in an upper layer, each like the one that it covers.
pub(super) fn cover_dirs(lower: &[PathBuf], upper: &Path, path: &Path) -> Result<()> {
    let mut here = PathBuf::new();
    for component in path.components() {
        here.push(component);
        let target = upper.join(&here);
        if target.is_dir() {
            continue;
        }
        let doing = || format!("making {}", target.display());
        fs::create_dir(&target).map_err(while_doing(doing()))?;
        let covered = lower.iter().find_map(|layer| fs::metadata(layer.join(&here)).ok());
        let (mode, uid, gid) =
            covered.map_or((0o755, 0, 0), |meta| (meta.mode() & 0o7777, meta.uid(), meta.gid()));
        lchown(&target, Some(uid), Some(gid)).map_err(while_doing(doing()))?;
        fs::set_permissions(&target, fs::Permissions::from_mode(mode)).map_err(while_doing(doing()))?;
    }
    Ok(())
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_only_inside_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("/usr", root.join("absolute")).unwrap();
        symlink("../../../usr", root.join("up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for (path, wanted) in [
            ("lib/a/b", "usr/lib/a/b"),
            ("absolute/lib/x", "usr/lib/x"),
            ("up/lib/x", "usr/lib/x"),
            ("opt/new", "opt/new"),
            ("lib", "lib"),
        ] {
            assert_eq!(resolve(root, Path::new(path)).unwrap(), Path::new(wanted), "{path}");
        }
        assert!(resolve(root, Path::new("loop/x")).is_err());
        assert_eq!(inside(Path::new("/a/./b")).unwrap(), Path::new("a/b"));
        for bad in ["a", "/", "/a/../b", ""] {
            assert!(inside(Path::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_hash_sees_names_modes_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let digest = || {
            let mut hasher = Sha256::new();
            hash(dir.path(), &mut hasher).unwrap();
            hasher.finalize()
        };
        fs::write(&file, "one").unwrap();
        let first = digest();
        assert_eq!(digest(), first);
        fs::write(&file, "two").unwrap();
        let second = digest();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let third = digest();
        assert!(first != second && second != third);
    }
}
