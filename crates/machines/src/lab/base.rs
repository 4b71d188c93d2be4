//! What a base root is: Debian packages, made fit for a machine without hardware.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::error::{Result, while_doing};
use super::names;

/// Raised when anything below changes, so that old roots are not taken for new ones.
pub(super) const FORMAT: u32 = 1;
/// The Debian release that machines run.
pub(super) const SUITE: &str = "bookworm";
/// What every machine has.
pub(super) const PACKAGES: [&str; 14] = [
    "ca-certificates",
    "curl",
    "dbus",
    "ethtool",
    "iproute2",
    "iputils-ping",
    "kmod",
    "nftables",
    "openssh-server",
    "procps",
    "socat",
    "sudo",
    "systemd",
    "systemd-sysv",
];

/// Units that want hardware, a console or time that belongs to the host.
const MASKED: [&str; 36] = [
    "console-getty.service",
    "cryptsetup.target",
    "dev-hugepages.mount",
    "getty-static.service",
    "getty.target",
    "hwclock.service",
    "integritysetup.target",
    "kmod-static-nodes.service",
    "modprobe@.service",
    "proc-sys-fs-binfmt_misc.automount",
    "remote-cryptsetup.target",
    "remote-veritysetup.target",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-initctl.socket",
    "systemd-journald-audit.socket",
    "systemd-modules-load.service",
    "systemd-network-generator.service",
    "systemd-networkd.service",
    "systemd-pcrphase-sysinit.service",
    "systemd-pcrphase.service",
    "systemd-random-seed.service",
    "systemd-repart.service",
    "systemd-timesyncd.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udevd.service",
    "systemd-update-utmp-runlevel.service",
    "veritysetup.target",
];

/// Programs that look for hardware at each start; each costs a process on the way to SSH.
const GENERATORS: [&str; 11] = [
    "systemd-cryptsetup-generator",
    "systemd-debug-generator",
    "systemd-getty-generator",
    "systemd-gpt-auto-generator",
    "systemd-hibernate-resume-generator",
    "systemd-integritysetup-generator",
    "systemd-rc-local-generator",
    "systemd-run-generator",
    "systemd-system-update-generator",
    "systemd-sysv-generator",
    "systemd-veritysetup-generator",
];

/// Units that packages may start by themselves; any other waits for `systemctl enable`.
const ENABLED: [&str; 1] = ["ssh.service"];

/// Small files of our own.
const FILES: [(&str, &str); 6] = [
    ("etc/systemd/system-preset/00-guywire.preset", "disable *\n"),
    // The host's kernel log is the host's, and logs of many machines share the host's memory.
    ("etc/systemd/journald.conf.d/guywire.conf", "[Journal]\nReadKMsg=no\nAudit=no\nRuntimeMaxUse=16M\n"),
    ("etc/systemd/system.conf.d/guywire.conf", "[Manager]\nDefaultTimeoutStopSec=10s\n"),
    ("etc/ssh/sshd_config.d/10-guywire.conf", "PasswordAuthentication no\n"),
    // Debian's units for fstab wait for devices; a machine has none.
    ("etc/fstab", ""),
    ("etc/nftables.conf", "#!/usr/sbin/nft -f\n"),
];

/// Makes a fresh Debian root into a base for machines.
pub(super) fn tidy(root: &Path) -> Result<()> {
    let units = root.join("etc/systemd/system");
    for unit in super::disk::entries(&units)? {
        if unit.strip_suffix(".wants").or(unit.strip_suffix(".requires")).is_some() {
            for wanted in super::disk::entries(&units.join(&unit))? {
                if !ENABLED.contains(&wanted.as_str()) {
                    super::disk::remove_tree(&units.join(&unit).join(wanted))?;
                }
            }
        }
    }
    for unit in MASKED {
        link(&units.join(unit), "/dev/null")?;
    }
    link(&units.join("default.target"), "/lib/systemd/system/multi-user.target")?;
    let generators = root.join("etc/systemd/system-generators");
    for generator in GENERATORS {
        link(&generators.join(generator), "/dev/null")?;
    }
    // These set what belongs to the host and all its machines; a role's own settings still apply.
    for name in super::disk::entries(&root.join("usr/lib/sysctl.d"))? {
        link(&root.join("etc/sysctl.d").join(name), "/dev/null")?;
    }
    for (path, text) in FILES {
        let path = root.join(path);
        make_parent(&path)?;
        fs::write(&path, text).map_err(while_doing(format_args!("writing {}", path.display())))?;
    }
    for name in ["hosts", "resolv.conf"] {
        link(&root.join("etc").join(name), &format!("{}/{name}", names::IN_MACHINE))?;
    }
    for dir in ["var/lib/containerd", "var/lib/kubelet", "var/lib/etcd"] {
        super::disk::make_dir(&root.join(dir))?;
    }
    // Every machine has an identity of its own.
    for name in super::disk::entries(&root.join("etc/ssh"))? {
        if name.starts_with("ssh_host_") {
            super::disk::remove_tree(&root.join("etc/ssh").join(name))?;
        }
    }
    for name in ["etc/machine-id", "etc/hostname", "var/lib/dbus/machine-id"] {
        super::disk::remove_tree(&root.join(name))?;
    }
    Ok(())
}

fn link(path: &Path, target: &str) -> Result<()> {
    make_parent(path)?;
    super::disk::remove_tree(path)?;
    symlink(target, path).map_err(while_doing(format_args!("linking {}", path.display())))
}

fn make_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), super::disk::make_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_ssh_starts_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let wants = dir.path().join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        for unit in ["ssh.service", "haproxy.service"] {
            symlink("/lib/x", wants.join(unit)).unwrap();
        }
        fs::create_dir_all(dir.path().join("etc/ssh")).unwrap();
        fs::write(dir.path().join("etc/ssh/ssh_host_ed25519_key"), "secret").unwrap();
        for _ in 0..2 {
            tidy(dir.path()).unwrap();
            assert_eq!(super::super::disk::entries(&wants).unwrap(), ["ssh.service"]);
            assert!(!dir.path().join("etc/ssh/ssh_host_ed25519_key").exists());
            assert_eq!(
                fs::read_link(dir.path().join("etc/hosts")).unwrap(),
                Path::new("/run/guywire-lab/hosts")
            );
        }
    }
}
