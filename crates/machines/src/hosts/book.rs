//! What this installation remembers of hosts that they cannot remember themselves.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use guywire_model::{AddressName, AddressPair, Inventory, SiteName};
use guywire_plan::Fence;
use guywire_secrets::private;
use serde::{Deserialize, Serialize};

use crate::{InfraError, InfraErrorKind};

/// A file in the data directory with the addresses that were handed out, and the highest fence seen for
/// each key, which outlives a claim.
#[derive(Clone)]
pub(super) struct Book {
    file: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    fences: BTreeMap<String, Fence>,
    #[serde(default)]
    reserved: BTreeMap<AddressName, AddressPair>,
}

impl Book {
    pub(super) fn new(data: &Path) -> Self {
        Self { file: data.join("hosts.json") }
    }

    /// Lets a caller with this fence change what `key` names, and from now on nobody with a lower one.
    pub(super) fn admit(&self, key: &str, fence: Fence) -> Result<(), InfraError> {
        self.edit(|page| page.admit(key, fence))
    }

    /// The address of that name, the same one each time.
    pub(super) fn reserve(
        &self,
        inventory: &Inventory,
        fence: Fence,
        site: &SiteName,
        name: &AddressName,
    ) -> Result<AddressPair, InfraError> {
        self.edit(|page| {
            page.admit(&format!("address {name}"), fence)?;
            if let Some(address) = page.reserved.get(name) {
                return Ok(*address);
            }
            let free = inventory
                .reserved
                .iter()
                .filter(|entry| entry.site.as_ref().is_none_or(|of| of == site))
                .find(|entry| !page.reserved.values().any(|taken| *taken == entry.address));
            let Some(entry) = free else {
                let (kind, what) = if inventory.reserved.is_empty() {
                    (InfraErrorKind::Unsupported, "the inventory lists no addresses to hand out")
                } else {
                    (InfraErrorKind::Exhausted, "all reserved addresses for it are handed out")
                };
                let message = format!("address {name} in site {site}: {what}; add one under `reserved:`");
                return Err(InfraError::new(kind, message));
            };
            page.reserved.insert(name.clone(), entry.address);
            Ok(entry.address)
        })
    }

    /// Takes an address back; one that was not handed out is success.
    pub(super) fn release(&self, fence: Fence, name: &AddressName) -> Result<(), InfraError> {
        self.edit(|page| {
            page.admit(&format!("address {name}"), fence)?;
            page.reserved.remove(name);
            Ok(())
        })
    }

    /// All addresses that are handed out.
    pub(super) fn reserved(&self) -> Result<Vec<(AddressName, AddressPair)>, InfraError> {
        Ok(self.read()?.reserved.into_iter().collect())
    }

    fn edit<T>(&self, change: impl FnOnce(&mut Page) -> Result<T, InfraError>) -> Result<T, InfraError> {
        let lock = private::lock(&self.file).map_err(|error| self.trouble(error))?;
        let mut page = self.read()?;
        let answer = change(&mut page)?;
        let text = serde_json::to_vec_pretty(&page).map_err(|error| self.trouble(error))?;
        private::replace(&self.file, &text).map_err(|error| self.trouble(error))?;
        drop(lock);
        Ok(answer)
    }

    fn read(&self) -> Result<Page, InfraError> {
        let text = match fs::read(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Page::default()),
            result => result.map_err(|error| self.trouble(error))?,
        };
        serde_json::from_slice(&text).map_err(|error| {
            let message = format!(
                "{}: it is damaged or from a newer guywire; restore it from a backup",
                self.file.display()
            );
            InfraError::new(InfraErrorKind::Invalid, message).because(error)
        })
    }

    fn trouble(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> InfraError {
        let message = format!("{}: cannot read or write it; check the data directory", self.file.display());
        InfraError::new(InfraErrorKind::Unavailable, message).because(error)
    }
}

impl Page {
    fn admit(&mut self, key: &str, fence: Fence) -> Result<(), InfraError> {
        let seen = self.fences.entry(key.to_owned()).or_insert(fence);
        if fence < *seen {
            return Err(fenced(key, *seen, fence));
        }
        *seen = fence;
        Ok(())
    }
}

pub(super) fn fenced(what: &str, seen: Fence, ours: Fence) -> InfraError {
    let message =
        format!("{what}: a newer manager has taken over (fence {seen}, ours is {ours}); nothing was changed");
    InfraError::new(InfraErrorKind::Fenced, message)
}

#[cfg(test)]
mod tests {
    use guywire_model::parse_inventory;

    use super::*;

    fn name(text: &str) -> AddressName {
        AddressName::new(text).unwrap()
    }

    #[test]
    fn addresses_are_handed_out_once_and_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let text = "sites: [{name: n, v4: 10.0.0.0/24, v6: 'fd00::/64'}]\nhosts: []\nreserved:\n- {site: n, v4: 10.0.0.9}\n- {v4: 10.0.1.9}\n";
        let inventory = parse_inventory("hosts.yaml", text).unwrap();
        let (north, south) = (SiteName::new("n").unwrap(), SiteName::new("s").unwrap());
        let reserve =
            |site, of: &str, fence| Book::new(dir.path()).reserve(&inventory, Fence(fence), site, &name(of));
        assert_eq!(
            reserve(&south, "a", 1).unwrap().v4.to_string(),
            "10.0.1.9",
            "the other is for site n alone"
        );
        assert_eq!(reserve(&north, "b", 1).unwrap().v4.to_string(), "10.0.0.9");
        assert_eq!(reserve(&north, "b", 2).unwrap().v4.to_string(), "10.0.0.9");
        let error = reserve(&north, "c", 1).unwrap_err();
        assert_eq!(error.kind, InfraErrorKind::Exhausted, "{error}");
        assert_eq!(reserve(&north, "b", 1).unwrap_err().kind, InfraErrorKind::Fenced);
        Book::new(dir.path()).release(Fence(3), &name("b")).unwrap();
        assert_eq!(reserve(&north, "c", 1).unwrap().v4.to_string(), "10.0.0.9");
        assert_eq!(Book::new(dir.path()).reserved().unwrap().len(), 2);
    }

    #[test]
    fn without_a_list_nothing_is_handed_out_and_a_damaged_book_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let inventory = parse_inventory("hosts.yaml", "hosts: []\n").unwrap();
        let book = Book::new(dir.path());
        let error = book.reserve(&inventory, Fence(1), &SiteName::new("s").unwrap(), &name("a")).unwrap_err();
        assert_eq!(error.kind, InfraErrorKind::Unsupported);
        assert!(error.to_string().contains("under `reserved:`"), "{error}");
        fs::write(dir.path().join("hosts.json"), "{").unwrap();
        let error = book.reserved().unwrap_err().to_string();
        assert!(error.contains("hosts.json") && error.contains("backup"), "{error}");
    }
}
