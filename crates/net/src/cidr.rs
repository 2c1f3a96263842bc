//! Ranges of addresses: `10.0.0.0/8`, `2001:db8::/32`, `127.0.0.1`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conf::{ConfError, Word, warn};
use os::SockAddr;

use crate::ip::parse_ip;

/// A network: an address with the number of leading bits that count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cidr {
    net: IpAddr,
    bits: u8,
}

impl Cidr {
    /// Every IPv4 address.
    pub const ALL_IPV4: Cidr = Cidr { net: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bits: 0 };
    /// Every IPv6 address.
    pub const ALL_IPV6: Cidr = Cidr { net: IpAddr::V6(Ipv6Addr::UNSPECIFIED), bits: 0 };

    /// The range of the addresses that share the first `bits` bits with `ip`; `None` when there are
    /// not that many.
    pub fn new(ip: IpAddr, bits: u8) -> Option<Cidr> {
        let net = match ip {
            IpAddr::V4(ip) => {
                let mask = mask(32, bits)? as u32;
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask(128, bits)?)),
        };
        Some(Cidr { net, bits })
    }

    /// The range that holds one address.
    pub fn host(ip: IpAddr) -> Cidr {
        Cidr { net: ip, bits: if ip.is_ipv4() { 32 } else { 128 } }
    }

    /// Reads `ADDRESS` or `ADDRESS/BITS` (for IPv4 also `ADDRESS/MASK`). The flag says that the
    /// address has bits set that the range does not look at, which nginx warns of: "low address
    /// bits of X are meaningless".
    pub fn parse(text: &[u8]) -> Option<(Cidr, bool)> {
        let Some(slash) = memchr::memchr(b'/', text) else {
            return Some((Cidr::host(parse_ip(text)?), false));
        };
        let ip = parse_ip(&text[..slash])?;
        let bits = std::str::from_utf8(&text[slash + 1..]).ok()?;
        let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let bits = match ip {
            _ if digits => bits.parse().ok()?,
            IpAddr::V4(_) => mask_bits(bits.parse().ok()?)?,
            IpAddr::V6(_) => return None,
        };
        let cidr = Cidr::new(ip, bits)?;
        Some((cidr, cidr.net != ip))
    }

    /// Reads a network of the configuration; bits of it that do not count are warned of.
    ///
    /// # Errors
    ///
    /// `invalid network "x"`
    pub fn configured(word: &Word) -> Result<Cidr, ConfError> {
        let Some((net, low_bits)) = Cidr::parse(word.bytes()) else {
            return Err(ConfError::at(word, format!("invalid network \"{}\"", word.lossy())));
        };
        if low_bits {
            warn(word, format_args!("low address bits of {} are meaningless", word.lossy()));
        }
        Ok(net)
    }

    /// Whether `ip` lies in the range. An IPv4 address that came over IPv6 (`::ffff:10.0.0.1`) is
    /// taken as the IPv4 address it is.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = match (self.net, ip) {
            (IpAddr::V4(_), IpAddr::V6(v6)) => match v6.to_ipv4_mapped() {
                Some(v4) => IpAddr::V4(v4),
                None => return false,
            },
            _ => ip,
        };
        Cidr::new(ip, self.bits).is_some_and(|c| c.net == self.net)
    }

    /// The first address of the range.
    pub fn network(&self) -> IpAddr {
        self.net
    }

    /// The number of leading bits that count.
    pub fn bits(&self) -> u8 {
        self.bits
    }
}

/// The `bits` highest of `width` bits; `None` when that is more than there are.
fn mask(width: u32, bits: u8) -> Option<u128> {
    let low = width.checked_sub(bits.into())?;
    let all = u128::MAX >> (128 - width);
    // A shift by the whole width is no shift to the processor, and for us it is: nothing is left.
    Some(all.checked_shl(low).unwrap_or(0) & all)
}

fn mask_bits(mask: Ipv4Addr) -> Option<u8> {
    let mask = mask.to_bits();
    let bits = mask.leading_ones();
    (mask.count_ones() == bits).then_some(bits as u8)
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.net, self.bits)
    }
}

/// A client that a directive picks by where it comes from: a range, or any unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Origin {
    /// Addresses within a range.
    Net(Cidr),
    /// Connections over unix sockets (`unix:`).
    Unix,
}

impl Origin {
    /// Whether a client with this address is meant.
    pub fn matches(&self, addr: &SockAddr) -> bool {
        match (self, addr.ip_addr()) {
            (Origin::Unix, ip) => ip.is_none(),
            (Origin::Net(cidr), Some(ip)) => cidr.contains(ip),
            (Origin::Net(_), None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text.as_bytes()).unwrap().0
    }

    #[test]
    fn text_forms() {
        assert_eq!(cidr("10.0.0.0/8").to_string(), "10.0.0.0/8");
        assert_eq!(cidr("10.0.0.0/255.255.0.0").to_string(), "10.0.0.0/16");
        assert_eq!(cidr("127.0.0.1").to_string(), "127.0.0.1/32");
        assert_eq!(cidr("::/0").to_string(), "::/0");
        assert_eq!(cidr("2001:db8::1").bits(), 128);
        assert_eq!(Cidr::parse(b"10.0.0.1/8"), Some((cidr("10.0.0.0/8"), true)));
        for bad in ["", "x", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/255.0.255.0", "::/129", "::/+1"]
        {
            assert_eq!(Cidr::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn membership() {
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(cidr("10.0.0.0/8").contains(ip("10.255.0.1")));
        assert!(!cidr("10.0.0.0/8").contains(ip("11.0.0.1")));
        assert!(cidr("0.0.0.0/0").contains(ip("1.2.3.4")));
        assert!(!cidr("0.0.0.0/0").contains(ip("::1")));
        assert!(cidr("10.0.0.0/8").contains(ip("::ffff:10.1.2.3")));
        assert!(cidr("2001:db8::/32").contains(ip("2001:db8:1::")));
        assert!(!cidr("2001:db8::/33").contains(ip("2001:db8:8000::")));
        assert!(cidr("::/0").contains(ip("2001::")));
    }

    #[test]
    fn origins() {
        let unix = SockAddr::parse(b"unix:/x").unwrap();
        let tcp = SockAddr::parse(b"127.0.0.1:5").unwrap();
        assert!(Origin::Unix.matches(&unix) && !Origin::Unix.matches(&tcp));
        let net = Origin::Net(cidr("127.0.0.0/8"));
        assert!(net.matches(&tcp) && !net.matches(&unix));
    }
}
