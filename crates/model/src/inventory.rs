//! The inventory: machines that somebody else made, written down by a person.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    str::FromStr,
};

use guywire_secrets::SecretRef;
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

use crate::{AddressPair, FileError, MachineName, SiteName, SiteNetwork};

/// Hosts that exist, and addresses that may be handed out among them. Always valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inventory {
    /// The hosts, in the file's order.
    pub hosts: Vec<HostSpec>,
    /// The networks that they stand in, as they are; may be left out.
    pub sites: Vec<SiteNetwork>,
    /// Addresses that nobody uses and that may become VIPs.
    pub reserved: Vec<ReservedAddress>,
}

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostSpec {
    /// Its name; a machine of this name is put on this host.
    pub name: MachineName,
    /// Where it answers SSH.
    pub address: HostAddress,
    /// The port of its SSH server.
    pub port: u16,
    /// Who logs in; root, or somebody who may use `sudo` without a password.
    pub user: String,
    /// What opens the door.
    pub login: HostLogin,
    /// Its host key in OpenSSH's format; without it, the first one seen is pinned.
    pub host_key: Option<String>,
    /// What people want to tell hosts apart by.
    pub labels: BTreeMap<String, String>,
}

/// An address literal or a DNS name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostAddress {
    /// IPv4 or IPv6.
    Ip(IpAddr),
    /// A DNS name.
    Name(String),
}

/// What opens a host's door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostLogin {
    /// A private key in a file on the machine that runs guywire.
    KeyFile(PathBuf),
    /// A password in the secrets store.
    Password(SecretRef),
}

/// An address that may be handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReservedAddress {
    /// The site that it belongs to; without one, any.
    pub site: Option<SiteName>,
    /// The address; a family that the place does not have is unspecified (`0.0.0.0`, `::`).
    pub address: AddressPair,
}

/// Why a text is not an address of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an IPv4 or IPv6 address nor a DNS name; write it without port, brackets or user")]
pub struct InvalidHostAddress(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InventoryFile {
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    sites: Vec<Spanned<SiteEntry>>,
    hosts: Vec<Spanned<HostEntry>>,
    #[serde(default)]
    reserved: Vec<Spanned<ReservedEntry>>,
}

/// What every host has unless it says otherwise.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    // Wider than a port, so that our own message says what is wrong with 65536.
    #[serde(default)]
    port: Option<u64>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    key_file: Option<PathBuf>,
    #[serde(default)]
    password: Option<SecretRef>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteEntry {
    name: SiteName,
    v4: ipnet::Ipv4Net,
    v6: ipnet::Ipv6Net,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    name: MachineName,
    address: Spanned<HostAddress>,
    // Wider than a port, so that our own message says what is wrong with 65536.
    #[serde(default)]
    port: Option<u64>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    key_file: Option<PathBuf>,
    #[serde(default)]
    password: Option<SecretRef>,
    #[serde(default)]
    host_key: Option<Spanned<String>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReservedEntry {
    #[serde(default)]
    site: Option<SiteName>,
    #[serde(default)]
    v4: Option<Ipv4Addr>,
    #[serde(default)]
    v6: Option<Ipv6Addr>,
}

/// Reads an inventory file.
pub fn parse_inventory(file: &str, text: &str) -> Result<Inventory, FileError> {
    let raw: InventoryFile =
        serde_saphyr::from_str(text).map_err(|error| FileError::from_yaml(file, &error))?;
    let complain = Complain(file);
    if raw.defaults.key_file.is_some() && raw.defaults.password.is_some() {
        let message = "defaults: there is a key_file and a password; keep one of them";
        return Err(complain.at(1, message.to_owned()));
    }
    let sites = read_sites(complain, &raw.sites)?;
    let mut hosts: Vec<HostSpec> = Vec::new();
    for entry in raw.hosts {
        let (line, address_line) = (entry.referenced.line(), entry.value.address.referenced.line());
        let host = read_host(complain, line, entry.value, &raw.defaults)?;
        for other in &hosts {
            if other.name == host.name {
                let message = format!("host {} is there twice; give each host a name of its own", host.name);
                return Err(complain.at(line, message));
            }
            if (&other.address, other.port) == (&host.address, host.port) {
                let message = format!(
                    "host {}: {} port {} is host {} already; one host cannot be two machines",
                    host.name, host.address, host.port, other.name
                );
                return Err(complain.at(address_line, message));
            }
        }
        hosts.push(host);
    }
    let reserved = read_reserved(complain, &raw.reserved, &sites, &hosts)?;
    Ok(Inventory { hosts, sites, reserved })
}

impl Inventory {
    /// The host of that name.
    pub fn host(&self, name: &MachineName) -> Option<&HostSpec> {
        self.hosts.iter().find(|host| host.name == *name)
    }
}

#[derive(Clone, Copy)]
struct Complain<'a>(&'a str);

impl Complain<'_> {
    fn at(self, line: u64, message: String) -> FileError {
        FileError { file: self.0.to_owned(), line, message }
    }
}

fn read_sites(complain: Complain<'_>, raw: &[Spanned<SiteEntry>]) -> Result<Vec<SiteNetwork>, FileError> {
    let mut sites: Vec<SiteNetwork> = Vec::new();
    for entry in raw {
        let SiteEntry { name, v4, v6 } = &entry.value;
        if sites.iter().any(|site| site.name == *name) {
            let message = format!("site {name} is there twice; give each site a name of its own");
            return Err(complain.at(entry.referenced.line(), message));
        }
        sites.push(SiteNetwork { name: name.clone(), v4: v4.trunc(), v6: v6.trunc() });
    }
    Ok(sites)
}

fn read_host(
    complain: Complain<'_>,
    line: u64,
    entry: HostEntry,
    defaults: &Defaults,
) -> Result<HostSpec, FileError> {
    let name = entry.name;
    let user = entry.user.or_else(|| defaults.user.clone()).filter(|user| !user.is_empty());
    let Some(user) = user else {
        return Err(complain.at(line, format!("host {name}: no user; add `user:` here or under defaults")));
    };
    // A host's own way in goes before the default one, of whichever kind.
    let (key, password) = match (entry.key_file, entry.password) {
        (None, None) => (defaults.key_file.clone(), defaults.password.clone()),
        own => own,
    };
    let login = match (key, password) {
        (Some(key), None) => HostLogin::KeyFile(key),
        (None, Some(password)) => HostLogin::Password(password),
        (Some(_), Some(_)) => {
            let message = format!("host {name}: there is a key_file and a password; keep one of them");
            return Err(complain.at(line, message));
        }
        (None, None) => {
            let message = format!(
                "host {name}: no way in; add `key_file: PATH` or `password: secret:NAME`, here or under defaults"
            );
            return Err(complain.at(line, message));
        }
    };
    let port = entry.port.or(defaults.port).unwrap_or(22);
    let Some(port) = u16::try_from(port).ok().filter(|port| *port != 0) else {
        return Err(complain.at(line, format!("host {name}: there is no port {port}; use 1 to 65535")));
    };
    if let Some(key) = &entry.host_key {
        let mut words = key.value.split_ascii_whitespace();
        let kind = words.next().is_some_and(|kind| kind.starts_with("ssh-") || kind.starts_with("ecdsa-"));
        if !kind || !words.next().is_some_and(|data| data.starts_with("AAAA")) {
            let message = format!(
                "host {name}: host_key is not a public key; copy the line from /etc/ssh/ssh_host_ed25519_key.pub of the host"
            );
            return Err(complain.at(key.referenced.line(), message));
        }
    }
    let mut labels = defaults.labels.clone();
    labels.extend(entry.labels);
    let host_key = entry.host_key.map(|key| key.value);
    Ok(HostSpec { name, address: entry.address.value, port, user, login, host_key, labels })
}

fn read_reserved(
    complain: Complain<'_>,
    raw: &[Spanned<ReservedEntry>],
    sites: &[SiteNetwork],
    hosts: &[HostSpec],
) -> Result<Vec<ReservedAddress>, FileError> {
    let mut seen = BTreeSet::new();
    let mut reserved = Vec::new();
    for entry in raw {
        let line = entry.referenced.line();
        let ReservedEntry { site, v4, v6 } = &entry.value;
        let given: Vec<IpAddr> = v4.map(IpAddr::from).into_iter().chain(v6.map(IpAddr::from)).collect();
        if given.is_empty() {
            return Err(complain.at(line, "reserved: an entry without address; add v4 or v6".to_owned()));
        }
        for address in given {
            if !seen.insert(address) {
                return Err(complain.at(line, format!("reserved: {address} is there twice; remove one")));
            }
            if let Some(host) = hosts.iter().find(|host| host.address == HostAddress::Ip(address)) {
                let message =
                    format!("reserved: {address} is host {}'s own; reserve one that nobody uses", host.name);
                return Err(complain.at(line, message));
            }
        }
        if let Some(site) = site.as_ref().filter(|site| !sites.iter().any(|known| known.name == **site)) {
            return Err(complain.at(line, format!("reserved: no site {site} here; add it under sites")));
        }
        let address =
            AddressPair { v4: v4.unwrap_or(Ipv4Addr::UNSPECIFIED), v6: v6.unwrap_or(Ipv6Addr::UNSPECIFIED) };
        reserved.push(ReservedAddress { site: site.clone(), address });
    }
    Ok(reserved)
}

impl FromStr for HostAddress {
    type Err = InvalidHostAddress;

    fn from_str(text: &str) -> Result<Self, InvalidHostAddress> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
        };
        // The last label has a letter: four numbers with a mistake in them are no name.
        let good = text.len() <= 253
            && text.split('.').all(label)
            && text.rsplit('.').next().is_some_and(|last| last.bytes().any(|c| c.is_ascii_alphabetic()));
        if good { Ok(Self::Name(text.to_owned())) } else { Err(InvalidHostAddress(text.to_owned())) }
    }
}

impl TryFrom<String> for HostAddress {
    type Error = InvalidHostAddress;

    fn try_from(text: String) -> Result<Self, InvalidHostAddress> {
        text.parse()
    }
}

impl From<HostAddress> for String {
    fn from(address: HostAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_read_and_defaults_fill_the_gaps() {
        let text = "\
defaults: {user: ops, key_file: /etc/guywire/id, labels: {rack: a, kind: blade}}
sites:
- {name: north, v4: 10.1.0.0/24, v6: 'fd00:1::/64'}
hosts:
- {name: n1, address: 10.1.0.11}
- name: n2
  address: fd00:1::12
  port: 2222
  user: root
  password: secret:hosts/n2
  host_key: ssh-ed25519 AAAAC3Nz n2
  labels: {rack: b}
- {name: n3, address: n3.example.org}
reserved:
- {site: north, v4: 10.1.0.200, v6: 'fd00:1::200'}
- {v4: 10.1.0.201}
";
        let inventory = parse_inventory("hosts.yaml", text).unwrap();
        let [n1, n2, n3] = &inventory.hosts[..] else { panic!("three hosts") };
        assert_eq!((n1.port, n1.user.as_str()), (22, "ops"));
        assert_eq!(n1.login, HostLogin::KeyFile("/etc/guywire/id".into()));
        assert_eq!(n2.login, HostLogin::Password("secret:hosts/n2".parse().unwrap()));
        assert_eq!((n2.labels["rack"].as_str(), n2.labels["kind"].as_str()), ("b", "blade"));
        assert_eq!(n3.address, HostAddress::Name("n3.example.org".into()));
        assert_eq!(inventory.reserved[1].address.v6, Ipv6Addr::UNSPECIFIED);
        assert_eq!(inventory.host(&n2.name), Some(n2));
    }

    #[test]
    fn every_complaint_names_the_file_the_line_and_what_to_do() {
        let host = "hosts:\n- {name: a, address: 10.0.0.1, user: root, key_file: k}\n";
        let cases = [
            ("hosts:\n- {name: a, colour: red}\n".to_owned(), 2, "colour"),
            ("hosts:\n- {name: a, user: root, key_file: k}\n".to_owned(), 2, "address"),
            (
                format!("{host}- {{name: a, address: 10.0.0.2, user: u, key_file: k}}\n"),
                3,
                "host a is there twice",
            ),
            (
                format!("{host}- {{name: b, address: 10.0.0.1, user: u, key_file: k}}\n"),
                3,
                "is host a already",
            ),
            (format!("{host}- {{name: b, address: 10.0.0.2, key_file: k}}\n"), 3, "add `user:`"),
            (format!("{host}- {{name: b, address: 10.0.0.2, user: u}}\n"), 3, "add `key_file: PATH`"),
            (
                format!("{host}- {{name: b, address: 10.0.0.2, user: u, key_file: k, password: secret:p}}\n"),
                3,
                "keep one of them",
            ),
            (
                format!("{host}- {{name: b, address: 10.0.0.2, user: u, password: hunter2}}\n"),
                3,
                "write secret:NAME",
            ),
            (
                format!("{host}- {{name: b, address: 10.0.0.256, user: u, key_file: k}}\n"),
                3,
                "neither an IPv4",
            ),
            (format!("{host}- {{name: b, address: 'b:22', user: u, key_file: k}}\n"), 3, "without port"),
            (format!("{host}- {{name: b, address: b, port: 0, user: u, key_file: k}}\n"), 3, "1 to 65535"),
            (format!("{host}- {{name: b, address: b, port: 65536, user: u, key_file: k}}\n"), 3, "65536"),
            (
                format!("{host}- name: b\n  address: b\n  user: u\n  key_file: k\n  host_key: SHA256:abc\n"),
                7,
                "ssh_host_ed25519_key.pub",
            ),
            (format!("{host}reserved:\n- {{}}\n"), 4, "add v4 or v6"),
            (format!("{host}reserved:\n- {{v4: 10.0.0.1}}\n"), 4, "host a's own"),
            (format!("{host}reserved:\n- {{v4: 10.0.0.9}}\n- {{v4: 10.0.0.9}}\n"), 5, "there twice"),
            (format!("{host}reserved:\n- {{v4: 10.0.0.9, site: x}}\n"), 4, "no site x"),
            ("defaults: {port: 22, user: a, colour: red}\nhosts: []\n".to_owned(), 1, "colour"),
        ];
        for (text, line, wanted) in cases {
            let error = parse_inventory("hosts.yaml", &text).unwrap_err();
            assert_eq!((error.file.as_str(), error.line), ("hosts.yaml", line), "{error}\n{text}");
            assert!(error.message.contains(wanted), "{error} should contain {wanted}");
            assert!(!error.message.contains("hunter2"), "a password is not repeated");
        }
    }
}
