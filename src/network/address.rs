//! Blocks of addresses, and the addresses that are not public.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block of addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AddressBlock {
    first: IpAddr,
    bits: u8,
}

impl AddressBlock {
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let all = if address.is_ipv6() { 128 } else { 32 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= all)?,
            None => all,
        };
        let first = match address {
            IpAddr::V4(address) => IpAddr::V4((u32::from(address) & mask(bits, 32) as u32).into()),
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) & mask(bits, 128)).into()),
        };
        Some(Self { first, bits })
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                u32::from(first) == u32::from(address) & mask(self.bits, 32) as u32
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => u128::from(first) == u128::from(address) & mask(self.bits, 128),
            _ => false,
        }
    }

    pub(crate) fn bits(self) -> u8 {
        self.bits
    }

    pub(crate) fn is_v6(self) -> bool {
        self.first.is_ipv6()
    }
}

/// Returns a number of this many bits, of which the first ones are set.
fn mask(bits: u8, all: u8) -> u128 {
    let rest = u32::from(all - bits);
    let full = if all == 128 { u128::MAX } else { (1 << all) - 1 };
    full & u128::MAX.checked_shl(rest).unwrap_or(0)
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.bits < if self.is_v6() { 128 } else { 32 } { write!(f, "/{}", self.bits) } else { Ok(()) }
    }
}

/// The blocks that IANA registers as not globally reachable, except those for documentation, and multicast.
const SPECIAL: [&str; 20] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
    "::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "5f00::/16",
    "fc00::/7",
    "fe80::/9",
    "ff00::/8",
    "::ffff:0:0:0/96",
];

/// Returns true for an address of the public internet that is not this machine's own.
pub(crate) fn is_public(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_special = SPECIAL.iter().filter_map(|block| AddressBlock::read(block)).any(|block| block.contains(address));
    !is_special && within(address).is_none_or(|inner| is_public(inner.into())) && !is_own(address)
}

/// Returns the IPv4 address that an IPv6 address leads to: by NAT64 or by 6to4.
fn within(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let number = u128::from(address);
    let [_, _, a, b, c, d, ..] = address.octets();
    match () {
        () if number >> 32 == u128::from(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)) >> 32 => {
            Some(Ipv4Addr::from((number & u128::from(u32::MAX)) as u32))
        }
        () if address.segments()[0] == 0x2002 => Some(Ipv4Addr::new(a, b, c, d)),
        () => None,
    }
}

/// Returns true for an address of this machine: packets to it come from itself. Nothing is sent.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let source = std::net::UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_has_the_addresses_with_its_bits() {
        let block = |text: &str| AddressBlock::read(text).unwrap();
        assert!(SPECIAL.iter().all(|text| AddressBlock::read(text).is_some()));
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("1.1.1.1", "1.1.1.1", "1.1.1.2"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"),
            ("::/0", "ffff::1", "1.2.3.4"),
        ] {
            assert!(block(text).contains(inside.parse().unwrap()), "{text}");
            assert!(!block(text).contains(outside.parse().unwrap()), "{text}");
        }
        assert!(is_public("93.184.216.34".parse().unwrap()) && is_public("2606:4700::1111".parse().unwrap()));
        assert!(is_public("64:ff9b::5db8:d822".parse().unwrap()), "NAT64 of a public address");
    }
}
