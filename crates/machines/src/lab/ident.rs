//! What a lab's kernel objects are called.
//!
//! Interfaces, cgroups and firewall tables are the host's, shared by every lab on it. Each lab has an
//! id made from its data directory and its name; the data directory's part comes first, so that all
//! that belongs to a data directory is found even when its files are gone.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use guywire_model::{LabName, MachineName};
use sha2::{Digest, Sha256};

/// Characters of a lab's id that stand for its data directory.
const DATA_LEN: usize = 5;
/// Characters of a lab's id that stand for its name.
const NAME_LEN: usize = 3;
/// Characters of an interface's name that stand for its machine.
const MACHINE_LEN: usize = 4;

/// What all kernel objects of one data directory have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DataId(String);

/// What all kernel objects of one lab have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabId(String);

impl DataId {
    /// The id of a data directory, which must be a canonical path.
    pub(super) fn of(data: &Path) -> Self {
        Self(short(&[b"data", data.as_os_str().as_bytes()], DATA_LEN))
    }

    /// The id of one lab in it.
    pub(super) fn lab(&self, name: &LabName) -> LabId {
        LabId(format!("{}{}", self.0, short(&[b"lab", name.as_str().as_bytes()], NAME_LEN)))
    }

    /// The id of the lab that an interface belongs to, if it is a lab of this data directory.
    pub(super) fn lab_of_link(&self, link: &str) -> Option<LabId> {
        self.lab_of(link.strip_prefix("gw")?)
    }

    /// The id of the lab that a firewall table belongs to, if it is a lab of this data directory.
    pub(super) fn lab_of_table(&self, table: &str) -> Option<LabId> {
        self.lab_of(table.strip_prefix("gw_")?)
    }

    /// The id of the lab that `text` begins with, if it is a lab of this data directory.
    pub(super) fn lab_of(&self, text: &str) -> Option<LabId> {
        let id = text.get(..DATA_LEN + NAME_LEN)?;
        id.starts_with(&self.0).then(|| LabId(id.to_owned()))
    }
}

impl LabId {
    /// The id as text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The bridge of the lab's site number `index`, counted from 1.
    pub(super) fn bridge(&self, index: usize) -> String {
        format!("gw{}s{index}", self.0)
    }

    /// The host's end of a machine's cable.
    pub(super) fn cable(&self, machine: &MachineName) -> String {
        format!("gw{}m{}", self.0, short(&[b"machine", machine.as_str().as_bytes()], MACHINE_LEN))
    }

    /// The lab's firewall table.
    pub(super) fn table(&self) -> String {
        format!("gw_{}", self.0)
    }

    /// A hardware address that stays the same over restarts, so that neighbours need not learn anew.
    pub(super) fn hardware_address(&self, of: &str) -> String {
        let hash = Sha256::new().chain_update(&self.0).chain_update(of).finalize();
        // 02 marks an address that was given locally, to one host.
        format!("02:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", hash[0], hash[1], hash[2], hash[3], hash[4])
    }

    /// Forty bits for the lab's unique local IPv6 prefix.
    pub(super) fn global_id(&self) -> u64 {
        let hash = Sha256::new().chain_update(&self.0).chain_update("global id").finalize();
        hash[..5].iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
    }
}

/// The first `len` characters of a hash, five bits in each, all of them allowed in every kind of name.
fn short(parts: &[&[u8]], len: usize) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
        hasher.update([0]);
    }
    hasher.finalize().iter().take(len).map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_kernel_and_are_found_again() {
        let data = DataId::of(Path::new("/var/lib/guywire"));
        let lab = data.lab(&LabName::new("demo").unwrap());
        let cable = lab.cable(&MachineName::new("m1").unwrap());
        assert!(cable.len() <= 15 && lab.bridge(9999).len() <= 15, "{cable}");
        assert_eq!(data.lab_of_link(&cable).as_ref(), Some(&lab));
        assert_eq!(data.lab_of_link(&lab.bridge(1)).as_ref(), Some(&lab));
        assert_eq!(data.lab_of_table(&lab.table()).as_ref(), Some(&lab));
        assert_eq!(data.lab_of_link("gwbr0"), None);
        let other = DataId::of(Path::new("/srv/guywire"));
        assert_eq!(other.lab_of_link(&cable), None);
        assert_ne!(other.lab(&LabName::new("demo").unwrap()), lab);
        assert!(lab.global_id() < 1 << 40);
    }
}
