//! The lab file: a lab written down by a person, with the line in every complaint.
//!
//! Wire types stand apart from [`LabSpec`], which is always valid.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::{
    Egress, HostNumber, LabName, LabSpec, Login, MachineName, MachineSpec, SiteName, SiteSpec, TemplateName,
    TemplateSpec, VolumeMount,
};

/// What is wrong in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct FileError {
    /// The file as the user named it.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
    /// What is wrong and what to do.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabFile {
    name: LabName,
    #[serde(default)]
    nat: bool,
    #[serde(default)]
    login: Option<Login>,
    #[serde(default)]
    sites: Vec<Spanned<SiteEntry>>,
    #[serde(default)]
    templates: Vec<Spanned<TemplateSpec>>,
    machines: Vec<Spanned<MachineEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteEntry {
    name: SiteName,
    #[serde(default)]
    v4: Option<Ipv4Net>,
    #[serde(default)]
    v6: Option<Ipv6Net>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineEntry {
    name: MachineName,
    #[serde(default)]
    site: Option<SiteName>,
    #[serde(default)]
    address: Option<Spanned<Ipv4Addr>>,
    #[serde(default)]
    template: Option<TemplateName>,
    #[serde(default)]
    login: Option<Login>,
    #[serde(default)]
    volumes: Vec<VolumeMount>,
}

/// Reads a lab file. `default_login` is for machines that name no login of their own.
pub fn parse_lab_file(file: &str, text: &str, default_login: &Login) -> Result<LabSpec, FileError> {
    let raw: LabFile = serde_saphyr::from_str(text).map_err(|error| FileError::from_yaml(file, &error))?;
    let reader = Reader { file };
    let sites = reader.sites(&raw.sites)?;
    let templates = reader.templates(raw.templates)?;
    let numbers = reader.numbers(&raw.machines, &sites, &templates)?;
    let machine = |(entry, number): (Spanned<MachineEntry>, HostNumber)| {
        let machine = entry.value;
        MachineSpec {
            name: machine.name,
            site: machine.site.unwrap_or_else(|| sites[0].name.clone()),
            number,
            template: machine.template.unwrap_or_else(base_template),
            login: machine.login.or_else(|| raw.login.clone()).unwrap_or_else(|| default_login.clone()),
            volumes: machine.volumes,
        }
    };
    let machines = raw.machines.into_iter().zip(numbers).map(machine).collect();
    let egress = if raw.nat { Egress::Nat } else { Egress::None };
    Ok(LabSpec { name: raw.name, egress, sites, templates, machines })
}

/// Turns what the file says into what is wanted, one list after the other.
struct Reader<'a> {
    file: &'a str,
}

impl Reader<'_> {
    fn at<T>(&self, line: u64, message: String) -> Result<T, FileError> {
        Err(FileError { file: self.file.to_owned(), line, message })
    }

    fn sites(&self, entries: &[Spanned<SiteEntry>]) -> Result<Vec<SiteSpec>, FileError> {
        let mut sites: Vec<SiteSpec> = Vec::new();
        for entry in entries {
            let line = entry.referenced.line();
            let SiteEntry { name, v4, v6 } = &entry.value;
            if sites.iter().any(|site| site.name == *name) {
                return self
                    .at(line, format!("site {name} is there twice; give each site a name of its own"));
            }
            if let Some(net) = v4.filter(|net| !(16..=28).contains(&net.prefix_len())) {
                return self.at(line, format!("site {name}: {net} must be a /16 to a /28"));
            }
            if let Some(net) = v6.filter(|net| net.prefix_len() > 96) {
                return self.at(line, format!("site {name}: {net} must be a /96 or larger"));
            }
            let site = SiteSpec { name: name.clone(), v4: v4.map(|n| n.trunc()), v6: v6.map(|n| n.trunc()) };
            if let Some(other) = sites.iter().find(|other| site.overlaps(other)) {
                return self
                    .at(line, format!("site {name}: its subnet overlaps that of site {}", other.name));
            }
            sites.push(site);
        }
        if sites.is_empty() {
            sites.push(SiteSpec {
                name: SiteName::new(LabSpec::DEFAULT_SITE).expect("valid"),
                v4: None,
                v6: None,
            });
        }
        Ok(sites)
    }

    fn templates(&self, entries: Vec<Spanned<TemplateSpec>>) -> Result<Vec<TemplateSpec>, FileError> {
        let mut templates: Vec<TemplateSpec> = Vec::new();
        for entry in entries {
            if templates.iter().any(|template| template.name == entry.value.name) {
                let message =
                    format!("template {} is there twice; give each a name of its own", entry.value.name);
                return self.at(entry.referenced.line(), message);
            }
            templates.push(entry.value);
        }
        if !templates.iter().any(|template| template.name == base_template()) {
            templates.push(TemplateSpec { name: base_template(), packages: Vec::new(), content: Vec::new() });
        }
        Ok(templates)
    }

    /// Each machine's number. Addresses that people chose come first, so that a default never takes one.
    fn numbers(
        &self,
        machines: &[Spanned<MachineEntry>],
        sites: &[SiteSpec],
        templates: &[TemplateSpec],
    ) -> Result<Vec<HostNumber>, FileError> {
        let mut taken: BTreeMap<&SiteName, BTreeSet<HostNumber>> = BTreeMap::new();
        let mut names = BTreeSet::new();
        let mut chosen = Vec::new();
        for entry in machines {
            let line = entry.referenced.line();
            let MachineEntry { name, site, template, .. } = &entry.value;
            if !names.insert(name) {
                return self
                    .at(line, format!("machine {name} is there twice; give each machine a name of its own"));
            }
            let wanted = site.as_ref().unwrap_or(&sites[0].name);
            let Some(site) = sites.iter().find(|known| known.name == *wanted) else {
                let known: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
                let known = known.join(", ");
                return self
                    .at(line, format!("machine {name}: no site {wanted} here; the sites are {known}"));
            };
            if let Some(wanted) =
                template.as_ref().filter(|wanted| !templates.iter().any(|t| t.name == **wanted))
            {
                return self
                    .at(line, format!("machine {name}: no template {wanted} here; add it under templates"));
            }
            let number = self.chosen_number(&entry.value, site)?;
            if let Some((number, line)) = number
                && !taken.entry(&site.name).or_default().insert(number)
            {
                return self.at(line, format!("machine {name}: its address is taken twice; choose another"));
            }
            chosen.push((line, &site.name, number.map(|(number, _)| number)));
        }
        let mut numbers = Vec::new();
        for (line, site, number) in chosen {
            let taken = taken.entry(site).or_default();
            let Some(number) = number.or_else(|| LabSpec::free_number(taken)) else {
                let most = LabSpec::MAX_MACHINES;
                return self.at(line, format!("site {site} holds at most {most} machines; add a site"));
            };
            taken.insert(number);
            numbers.push(number);
        }
        Ok(numbers)
    }

    /// The number behind an address that a person chose, and the address's line.
    fn chosen_number(
        &self,
        machine: &MachineEntry,
        site: &SiteSpec,
    ) -> Result<Option<(HostNumber, u64)>, FileError> {
        let (name, Some(address)) = (&machine.name, &machine.address) else { return Ok(None) };
        let line = address.referenced.line();
        let Some(v4) = site.v4 else {
            let message =
                format!("machine {name}: an address needs the site's subnet; add v4 to site {}", site.name);
            return self.at(line, message);
        };
        match HostNumber::of(v4, address.value) {
            Ok(number) => Ok(Some((number, line))),
            Err(error) => self.at(line, format!("machine {name}: {error}")),
        }
    }
}

fn base_template() -> TemplateName {
    TemplateName::new(LabSpec::DEFAULT_TEMPLATE).expect("a valid constant")
}

impl FileError {
    /// The YAML library's complaint in our form: one line, with the place in front.
    pub fn from_yaml(file: &str, error: &serde_saphyr::Error) -> Self {
        let line = error.location().map_or(1, |location| location.line());
        let text = error.without_snippet().to_string();
        let message = text.lines().next().unwrap_or_default();
        // The library puts the place at the end or the front; ours is there already.
        let message =
            message.split(" at line ").next().unwrap_or(message).trim_start_matches("error: ").to_owned();
        Self { file: file.to_owned(), line, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> Login {
        Login { user: "root".into(), authorized_keys: vec!["ssh-ed25519 AAAA test".into()], password: None }
    }

    #[test]
    fn a_small_file_gets_defaults_for_everything() {
        let lab =
            parse_lab_file("lab.yaml", "name: demo\nmachines:\n- name: a\n- name: b\n", &login()).unwrap();
        assert_eq!(lab.sites.len(), 1);
        assert_eq!(lab.machines[0].number, HostNumber(11));
        assert_eq!(lab.machines[1].number, HostNumber(12));
        assert_eq!(lab.machines[1].login, login());
        assert_eq!(lab.egress, Egress::None);
    }

    #[test]
    fn chosen_addresses_are_kept_free_of_defaults() {
        let text = "name: demo\nsites: [{name: s, v4: 10.9.0.0/24}]\nmachines:\n- name: a\n- {name: b, address: 10.9.0.11}\n";
        let lab = parse_lab_file("lab.yaml", text, &login()).unwrap();
        assert_eq!((lab.machines[0].number, lab.machines[1].number), (HostNumber(12), HostNumber(11)));
    }

    #[test]
    fn every_complaint_names_the_file_the_line_and_the_thing() {
        let head = "name: demo\nsites:\n- {name: s, v4: 10.9.0.0/24}\nmachines:\n";
        let cases = [
            ("name: demo\nmachines:\n- {name: a, colour: red}\n", 3, "colour"),
            (&format!("{head}- name: a\n- name: a\n") as &str, 6, "machine a is there twice"),
            (
                &format!("{head}- {{name: a, address: 10.8.0.7}}\n"),
                5,
                "outside 10.9.0.0/24; choose one from 10.9.0.2",
            ),
            (&format!("{head}- {{name: a, site: t}}\n"), 5, "the sites are s"),
            (&format!("{head}- {{name: a, template: t}}\n"), 5, "add it under templates"),
            (
                &format!("{head}- {{name: a, address: 10.9.0.7}}\n- {{name: b, address: 10.9.0.7}}\n"),
                6,
                "taken twice",
            ),
            ("name: demo\nmachines:\n- {name: a, address: 10.9.0.7}\n", 3, "add v4 to site site1"),
            ("name: Demo\nmachines: []\n", 1, "lab name \"Demo\""),
            ("name: demo\nsites: [{name: s}, {name: s}]\nmachines: []\n", 2, "site s is there twice"),
            ("name: demo\nname: demo\nmachines: []\n", 2, "name"),
        ];
        for (text, line, wanted) in cases {
            let error = parse_lab_file("lab.yaml", text, &login()).unwrap_err();
            assert_eq!((error.file.as_str(), error.line), ("lab.yaml", line), "{error}");
            assert!(error.message.contains(wanted), "{error} should contain {wanted}");
        }
    }
}
