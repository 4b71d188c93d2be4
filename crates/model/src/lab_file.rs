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
    let at = |line: u64, message: String| FileError { file: file.to_owned(), line, message };
    let raw: LabFile = serde_saphyr::from_str(text).map_err(|error| FileError::from_yaml(file, &error))?;

    let mut sites: Vec<SiteSpec> = Vec::new();
    for entry in &raw.sites {
        let line = entry.referenced.line();
        let SiteEntry { name, v4, v6 } = &entry.value;
        if sites.iter().any(|site| site.name == *name) {
            return Err(at(line, format!("site {name} is there twice; give each site a name of its own")));
        }
        if let Some(net) = v4.filter(|net| !(16..=28).contains(&net.prefix_len())) {
            return Err(at(line, format!("site {name}: {net} must be a /16 to a /28")));
        }
        if let Some(net) = v6.filter(|net| net.prefix_len() > 112) {
            return Err(at(line, format!("site {name}: {net} must be a /112 or larger")));
        }
        sites.push(SiteSpec { name: name.clone(), v4: v4.map(|n| n.trunc()), v6: v6.map(|n| n.trunc()) });
    }
    for (index, site) in sites.iter().enumerate() {
        let overlaps = |other: &&SiteSpec| matches!((site.v4, other.v4), (Some(a), Some(b)) if a.contains(&b) || b.contains(&a));
        if let Some(other) = sites[..index].iter().find(overlaps) {
            let line = raw.sites[index].referenced.line();
            return Err(at(
                line,
                format!("site {}: its subnet overlaps that of site {}", site.name, other.name),
            ));
        }
    }
    if sites.is_empty() {
        sites.push(SiteSpec {
            name: SiteName::new(LabSpec::DEFAULT_SITE).expect("valid"),
            v4: None,
            v6: None,
        });
    }

    let base = TemplateName::new(LabSpec::DEFAULT_TEMPLATE).expect("valid");
    let mut templates: Vec<TemplateSpec> = Vec::new();
    for entry in raw.templates {
        if templates.iter().any(|template| template.name == entry.value.name) {
            let message =
                format!("template {} is there twice; give each a name of its own", entry.value.name);
            return Err(at(entry.referenced.line(), message));
        }
        templates.push(entry.value);
    }
    if !templates.iter().any(|template| template.name == base) {
        templates.push(TemplateSpec { name: base.clone(), packages: Vec::new(), content: Vec::new() });
    }

    // Addresses that people chose come first, so that a default never takes one of them.
    let mut taken: BTreeMap<SiteName, BTreeSet<HostNumber>> = BTreeMap::new();
    let mut chosen: Vec<Option<HostNumber>> = Vec::new();
    let mut names = BTreeSet::new();
    for entry in &raw.machines {
        let line = entry.referenced.line();
        let MachineEntry { name, site, address, template, .. } = &entry.value;
        if !names.insert(name.clone()) {
            return Err(at(
                line,
                format!("machine {name} is there twice; give each machine a name of its own"),
            ));
        }
        let site = site.as_ref().unwrap_or(&sites[0].name);
        let Some(network) = sites.iter().find(|known| known.name == *site) else {
            let known: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
            return Err(at(
                line,
                format!("machine {name}: no site {site} here; the sites are {}", known.join(", ")),
            ));
        };
        if let Some(wanted) = template.as_ref().filter(|wanted| !templates.iter().any(|t| t.name == **wanted))
        {
            return Err(at(
                line,
                format!("machine {name}: no template {wanted} here; add it under templates"),
            ));
        }
        let number = match (address, network.v4) {
            (None, _) => None,
            (Some(address), None) => {
                let message =
                    format!("machine {name}: an address needs the site's subnet; add v4 to site {site}");
                return Err(at(address.referenced.line(), message));
            }
            (Some(address), Some(v4)) => {
                let line = address.referenced.line();
                let number = HostNumber::of(v4, address.value)
                    .map_err(|error| at(line, format!("machine {name}: {error}")))?;
                if !taken.entry(site.clone()).or_default().insert(number) {
                    return Err(at(
                        line,
                        format!("machine {name}: address {} is taken twice", address.value),
                    ));
                }
                Some(number)
            }
        };
        chosen.push(number);
    }

    let mut machines = Vec::new();
    for (entry, number) in raw.machines.into_iter().zip(chosen) {
        let line = entry.referenced.line();
        let machine = entry.value;
        let site = machine.site.unwrap_or_else(|| sites[0].name.clone());
        let taken = taken.entry(site.clone()).or_default();
        let number = number.or_else(|| LabSpec::free_number(taken)).ok_or_else(|| {
            at(line, format!("site {site} holds at most {} machines; add a site", LabSpec::MAX_MACHINES))
        })?;
        taken.insert(number);
        machines.push(MachineSpec {
            name: machine.name,
            site,
            number,
            template: machine.template.unwrap_or_else(|| base.clone()),
            login: machine.login.or_else(|| raw.login.clone()).unwrap_or_else(|| default_login.clone()),
            volumes: machine.volumes,
        });
    }
    let egress = if raw.nat { Egress::Nat } else { Egress::None };
    Ok(LabSpec { name: raw.name, egress, sites, templates, machines })
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
