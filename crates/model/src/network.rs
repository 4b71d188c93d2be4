//! A site's network and the addresses in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::SiteName;

/// What is wanted of a site's network. Without subnets, free ones are chosen where it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteSpec {
    /// The site.
    pub name: SiteName,
    /// The IPv4 subnet, if somebody insists on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v4: Option<Ipv4Net>,
    /// The IPv6 subnet, if somebody insists on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6: Option<Ipv6Net>,
}

/// A site's network as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteNetwork {
    /// The site.
    pub name: SiteName,
    /// Its IPv4 subnet.
    pub v4: Ipv4Net,
    /// Its IPv6 subnet.
    pub v6: Ipv6Net,
}

/// A machine's place in its site's subnets: the same number in IPv4 and IPv6, so that it can be
/// chosen before the subnets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostNumber(pub u16);

/// One host's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddressPair {
    /// IPv4.
    pub v4: Ipv4Addr,
    /// IPv6.
    pub v6: Ipv6Addr,
}

/// Why an address does not fit a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The address belongs to another network.
    #[error("address {address} is outside {network}; choose one from {first} to {last}")]
    Outside {
        /// The address.
        address: IpAddr,
        /// The network it should be in.
        network: Ipv4Net,
        /// The first address that would do.
        first: Ipv4Addr,
        /// The last address that would do.
        last: Ipv4Addr,
    },
    /// The subnet has no room for this host.
    #[error("{network} has no host {number}; use a larger subnet or fewer machines")]
    TooSmall {
        /// The subnet.
        network: Ipv4Net,
        /// The host that does not fit.
        number: u16,
    },
}

impl SiteSpec {
    /// Whether both insist on subnets that share addresses.
    pub fn overlaps(&self, other: &Self) -> bool {
        let v4 = matches!((self.v4, other.v4), (Some(a), Some(b)) if a.contains(&b) || b.contains(&a));
        v4 || matches!((self.v6, other.v6), (Some(a), Some(b)) if a.contains(&b) || b.contains(&a))
    }
}

impl HostNumber {
    /// The bridge itself.
    pub const GATEWAY: Self = Self(1);
    /// The first number that machines get by default; those below are kept for people to choose.
    pub const FIRST_MACHINE: Self = Self(11);
    /// The first number of reserved addresses (VIPs).
    pub const FIRST_RESERVED: Self = Self(200);

    /// Where `address` stands in `network`.
    pub fn of(network: Ipv4Net, address: Ipv4Addr) -> Result<Self, NetworkError> {
        let (net, broadcast) = (u32::from(network.network()), u32::from(network.broadcast()));
        let number = u32::from(address).wrapping_sub(net);
        if number > u32::from(Self::GATEWAY.0)
            && number < broadcast - net
            && let Ok(number) = u16::try_from(number)
        {
            return Ok(Self(number));
        }
        Err(NetworkError::Outside {
            address: address.into(),
            network,
            first: Ipv4Addr::from(net + 2),
            last: Ipv4Addr::from(broadcast.saturating_sub(1)),
        })
    }
}

impl SiteNetwork {
    /// The addresses of host `number`. The IPv6 one shows the same decimal digits, so that
    /// `10.250.0.11` and `…::11` are easily seen to be one machine.
    pub fn host(&self, number: HostNumber) -> Result<AddressPair, NetworkError> {
        let net = u32::from(self.v4.network());
        let v4 = Ipv4Addr::from(net + u32::from(number.0));
        if number.0 == 0 || u32::from(v4) >= u32::from(self.v4.broadcast()) {
            return Err(NetworkError::TooSmall { network: self.v4, number: number.0 });
        }
        let digits =
            u128::from_str_radix(&number.0.to_string(), 16).expect("decimal digits are hexadecimal ones");
        Ok(AddressPair { v4, v6: Ipv6Addr::from(u128::from(self.v6.network()) + digits) })
    }

    /// The bridge's own addresses.
    pub fn gateway(&self) -> AddressPair {
        self.host(HostNumber::GATEWAY).expect("every subnet that we accept has a host 1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> SiteNetwork {
        SiteNetwork {
            name: SiteName::new("s").unwrap(),
            v4: "10.250.3.0/24".parse().unwrap(),
            v6: "fd00:3::/64".parse().unwrap(),
        }
    }

    #[test]
    fn a_number_has_the_same_digits_in_both_families() {
        let pair = site().host(HostNumber(11)).unwrap();
        assert_eq!(
            (pair.v4.to_string().as_str(), pair.v6.to_string().as_str()),
            ("10.250.3.11", "fd00:3::11")
        );
        assert!(site().host(HostNumber(255)).is_err());
        assert!(site().host(HostNumber(0)).is_err());
    }

    #[test]
    fn an_address_outside_says_which_would_do() {
        let error = HostNumber::of(site().v4, "10.250.4.11".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(
            error,
            "address 10.250.4.11 is outside 10.250.3.0/24; choose one from 10.250.3.2 to 10.250.3.254"
        );
        assert!(HostNumber::of(site().v4, "10.250.3.1".parse().unwrap()).is_err(), "the gateway's own");
        assert_eq!(HostNumber::of(site().v4, "10.250.3.77".parse().unwrap()).unwrap(), HostNumber(77));
    }
}
