//! What makes a machine itself, written once into its disk: name, keys, user.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};

use guywire_model::MachineSpec;
use guywire_secrets::Secret;
use russh::keys::{Algorithm, PrivateKey, ssh_key::LineEnding};
use sha_crypt::{PasswordHasher, ShaCrypt};

use super::accounts::{Accounts, User};
use super::error::{Result, unavailable, while_doing};
use super::{disk, tree};

/// Where the public part of a machine's host key is, relative to its root.
pub(super) const HOST_KEY: &str = "etc/ssh/ssh_host_ed25519_key.pub";

/// The upper layer of a new machine's disk.
struct Upper<'a> {
    dir: &'a Path,
    layers: &'a [PathBuf],
}

/// Writes a machine's identity into the upper layer `dir` over `layers`.
pub(super) fn write(
    dir: &Path,
    layers: &[PathBuf],
    spec: &MachineSpec,
    password: Option<&Secret>,
) -> Result<()> {
    let upper = Upper { dir, layers };
    // The upper layer's own directory is the machine's root directory.
    disk::make_dir(dir)?;
    upper.file("etc/hostname", &format!("{}\n", spec.name), 0o644, 0, 0)?;
    let id: u128 = rand::random();
    upper.file("etc/machine-id", &format!("{id:032x}\n"), 0o444, 0, 0)?;
    upper.host_key(spec)?;

    let hash = password.map(hash_password).transpose()?;
    let text = |path: &str| -> Result<String> { Ok(upper.read(path)?.unwrap_or_default()) };
    let before =
        Accounts { passwd: text("etc/passwd")?, shadow: text("etc/shadow")?, group: text("etc/group")? };
    let mut accounts = before.clone();
    let User { id, home } = accounts.admit(&spec.login.user, hash.as_deref())?;
    if accounts != before {
        let shadow = upper.group_of("etc/shadow");
        upper.file("etc/passwd", &accounts.passwd, 0o644, 0, 0)?;
        upper.file("etc/shadow", &accounts.shadow, 0o640, 0, shadow)?;
        upper.file("etc/group", &accounts.group, 0o644, 0, 0)?;
    }
    if spec.login.user != "root" {
        let rule = format!("{} ALL=(ALL:ALL) NOPASSWD: ALL\n", spec.login.user);
        upper.file("etc/sudoers.d/90-guywire", &rule, 0o440, 0, 0)?;
    }
    upper.home(&home, id, &spec.login.authorized_keys)?;
    if password.is_some() {
        let root = if spec.login.user == "root" { "PermitRootLogin yes\n" } else { "" };
        let drop_in = format!("PasswordAuthentication yes\n{root}");
        upper.file("etc/ssh/sshd_config.d/10-guywire.conf", &drop_in, 0o644, 0, 0)?;
    }
    Ok(())
}

impl Upper<'_> {
    fn host_key(&self, spec: &MachineSpec) -> Result<()> {
        let failed =
            |error| unavailable(format!("machine {}: making its host key", spec.name)).because(error);
        let mut key = PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).map_err(failed)?;
        key.set_comment(format!("root@{}", spec.name));
        let private = key.to_openssh(LineEnding::LF).map_err(failed)?;
        let public = key.public_key().to_openssh().map_err(failed)?;
        self.file(HOST_KEY.trim_end_matches(".pub"), &private, 0o600, 0, 0)?;
        self.file(HOST_KEY, &format!("{public}\n"), 0o644, 0, 0)
    }

    fn home(&self, home: &str, id: u32, keys: &[String]) -> Result<()> {
        let directory = |path: &str, mode| {
            let parent = Path::new(path).parent().unwrap_or(Path::new(""));
            tree::cover_dirs(self.layers, self.dir, parent)?;
            let path = self.dir.join(path);
            disk::make_dir(&path)?;
            own(&path, mode, id, id)
        };
        directory(home, 0o700)?;
        directory(&format!("{home}/.ssh"), 0o700)?;
        let text: String = keys.iter().flat_map(|key| [key.trim(), "\n"]).collect();
        self.file(&format!("{home}/.ssh/authorized_keys"), &text, 0o600, id, id)
    }

    fn file(&self, path: &str, text: &str, mode: u32, uid: u32, gid: u32) -> Result<()> {
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        tree::cover_dirs(self.layers, self.dir, parent)?;
        let path = self.dir.join(path);
        disk::write(&path, text.as_bytes(), mode)?;
        own(&path, mode, uid, gid)
    }

    /// A file of the template, whichever layer has it.
    fn read(&self, path: &str) -> Result<Option<String>> {
        for layer in self.layers {
            if let Some(text) = disk::read(&layer.join(path))? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    fn group_of(&self, path: &str) -> u32 {
        self.layers.iter().find_map(|layer| fs::metadata(layer.join(path)).ok()).map_or(0, |meta| meta.gid())
    }
}

fn own(path: &Path, mode: u32, uid: u32, gid: u32) -> Result<()> {
    let doing = || format!("giving {} to user {uid}", path.display());
    lchown(path, Some(uid), Some(gid)).map_err(while_doing(doing()))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(path, mode).map_err(while_doing(doing()))
}

/// The form in which a password may be on a disk.
fn hash_password(password: &Secret) -> Result<String> {
    // Twelve bytes are the sixteen characters of salt that crypt(3) looks at.
    let salt: [u8; 12] = rand::random();
    let hash = ShaCrypt::SHA512
        .hash_password_with_salt(password.expose(), &salt)
        .map_err(|error| unavailable(format!("hashing a password: {error}")))?;
    Ok(hash.as_str().to_owned())
}
