//! `geo` blocks: a value by an address, from networks or from ranges.
//!
//! Networks nest; the longest that an address lies in counts. Ranges cut into one another. Both
//! become one sorted list of where values change, which a look-up halves.

mod flat;
mod ranges;
mod variable;

use std::collections::HashMap;
use std::net::IpAddr;

use bytes::Bytes;
use conf::{ConfError, Node, Word, warn};

use flat::Flat;
use net::Cidr;
use ranges::Ranges;

pub use variable::module;

/// A compiled block.
pub(crate) struct Geo {
    v4: Flat<u32>,
    v6: Flat<u128>,
    values: Vec<Bytes>,
    /// Trusted proxies: their `X-Forwarded-For` is believed.
    pub proxies: Vec<Cidr>,
    /// `proxy_recursive`
    pub recursive: bool,
    /// `volatile`: the value is not kept.
    pub volatile: bool,
}

/// The address that clients without one, such as those of a unix socket, are looked up by.
const NO_ADDRESS: u32 = u32::MAX;

/// A block while it is read.
#[derive(Default)]
struct Draft {
    values: Vec<Bytes>,
    known: HashMap<Bytes, u32>,
    networks: HashMap<Cidr, u32>,
    ranges: Option<Ranges>,
    default: Option<u32>,
    proxies: Vec<Cidr>,
    recursive: bool,
    volatile: bool,
}

impl Geo {
    /// Compiles the block of `node`.
    ///
    /// # Errors
    ///
    /// The first wrong line, in nginx's words. nginx's warnings are logged.
    pub fn parse(node: &Node) -> Result<Geo, ConfError> {
        // The empty value is the first, for addresses that no line names.
        let mut draft = Draft { values: vec![Bytes::new()], ..Draft::default() };
        draft.known.insert(Bytes::new(), 0);
        for line in node.entries() {
            draft.line(line?)?;
        }
        Ok(draft.finish())
    }

    /// The value for an address; `None` is that of a client without one.
    pub fn find(&self, ip: Option<IpAddr>) -> &Bytes {
        let index = match ip {
            Some(IpAddr::V4(ip)) => self.v4.find(ip.to_bits()),
            Some(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
                Some(ip) => self.v4.find(ip.to_bits()),
                None => self.v6.find(ip.to_bits()),
            },
            None => self.v4.find(NO_ADDRESS),
        };
        &self.values[index as usize]
    }
}

impl Draft {
    fn line(&mut self, line: &Node) -> Result<(), ConfError> {
        let name = &line.name;
        match (name.bytes(), &line.args[..]) {
            (b"ranges", []) => {
                if !self.networks.is_empty() {
                    let m =
                        "the \"ranges\" directive must be the first directive inside \"geo\" block";
                    return Err(ConfError::at(name, m));
                }
                self.ranges.get_or_insert_default();
            }
            (b"proxy_recursive", []) => self.recursive = true,
            (b"volatile", []) => self.volatile = true,
            (b"proxy", [net]) => self.proxies.push(Cidr::configured(net)?),
            (b"default", [value]) => self.fallback(name, value),
            (b"delete", [what]) => self.delete(what)?,
            (_, [value]) => self.entry(name, value)?,
            _ => return Err(ConfError::at(name, "invalid number of the geo parameters")),
        }
        Ok(())
    }

    fn value(&mut self, word: &Word) -> u32 {
        let next = self.values.len() as u32;
        let index = *self.known.entry(word.text.clone()).or_insert(next);
        if index == next {
            self.values.push(word.text.clone());
        }
        index
    }

    fn shown(&self, index: u32) -> String {
        String::from_utf8_lossy(&self.values[index as usize]).into_owned()
    }

    fn fallback(&mut self, name: &Word, word: &Word) {
        let value = self.value(word);
        let (m, old) = if self.ranges.is_some() {
            ("duplicate default geo range value:", self.default.replace(value))
        } else {
            let mut add = |net| self.networks.insert(net, value);
            ("duplicate network \"default\", value:", add(Cidr::ALL_IPV4).or(add(Cidr::ALL_IPV6)))
        };
        if let Some(old) = old {
            let (new, old) = (word.lossy(), self.shown(old));
            warn(name, format_args!("{m} \"{new}\", old value: \"{old}\""));
        }
    }

    fn entry(&mut self, name: &Word, word: &Word) -> Result<(), ConfError> {
        let value = self.value(word);
        let old = if let Some(ranges) = &mut self.ranges {
            let (start, end) = ranges::parse(name)?;
            ranges.add(start, end, value).map_err(|other| {
                let m = format!("range \"{}\" overlaps \"{other}\"", name.lossy());
                ConfError::at(name, m)
            })?
        } else {
            self.networks.insert(Cidr::configured(name)?, value)
        };
        if let Some(old) = old {
            let what = if self.ranges.is_some() { "range" } else { "network" };
            let (key, new, old) = (name.lossy(), word.lossy(), self.shown(old));
            let m = format!("duplicate {what} \"{key}\", value: \"{new}\", old value: \"{old}\"");
            warn(name, m);
        }
        Ok(())
    }

    fn delete(&mut self, what: &Word) -> Result<(), ConfError> {
        let text = what.lossy();
        if let Some(ranges) = &mut self.ranges {
            let (start, end) = ranges::parse(what)?;
            if !ranges.delete(start, end) {
                warn(what, format_args!("no address range \"{text}\" to delete"));
            }
        } else if self.networks.remove(&Cidr::configured(what)?).is_none() {
            warn(what, format_args!("no network \"{text}\" to delete"));
        }
        Ok(())
    }

    fn finish(self) -> Geo {
        let Draft { values, networks, ranges, default, proxies, recursive, volatile, .. } = self;
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (net, value) in networks {
            match net.network() {
                IpAddr::V4(ip) => v4.push((ip.to_bits(), net.bits(), value)),
                IpAddr::V6(ip) => v6.push((ip.to_bits(), net.bits(), value)),
            }
        }
        let default = default.unwrap_or(0);
        let (v4, v6) = match ranges {
            // Ranges are IPv4 only; all other addresses have the value of a client without an
            // address.
            Some(ranges) => {
                let v4 = ranges.flat(default);
                let other = v4.find(NO_ADDRESS);
                (v4, Flat::new(other))
            }
            None => (Flat::of_networks(v4), Flat::of_networks(v6)),
        };
        Geo { v4, v6, values, proxies, recursive, volatile }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::Path;

    use conf::parse::{Options, parse_bytes};

    use super::*;

    fn parse(lines: &str) -> Result<Geo, ConfError> {
        let text = format!("geo $x {{ {lines} }}");
        let tree = parse_bytes(Path::new("t"), text.into(), &Options::default());
        Geo::parse(&tree.expect("a block's text").nodes[0])
    }

    fn find<'a>(geo: &'a Geo, ip: &str) -> &'a str {
        let ip = (ip != "unix").then(|| ip.parse().unwrap());
        std::str::from_utf8(geo.find(ip)).unwrap()
    }

    fn warnings(lines: &str) -> String {
        let (log, told) = base::log::capture(base::log::Level::Warn);
        let before = base::log::default();
        base::log::set_default(log);
        let done = parse(lines);
        base::log::set_default(before);
        assert!(done.is_ok(), "{lines}");
        told.take()
    }

    #[test]
    fn the_longest_network_counts() {
        let geo = parse(
            "127.0.0.0/8 loopback; 10.0.0.0/8 a; 10.1.0.0/16 b; 10.1.2.3 c; 10.255.0.0/16 d; \
             2001:db8::/32 e; 2001:db8:1::/48 f; ::1 g; default none; 255.255.255.255 last;",
        )
        .unwrap();
        for (ip, want) in [
            ("127.1.2.3", "loopback"),
            ("128.0.0.0", "none"),
            ("9.255.255.255", "none"),
            ("10.0.0.0", "a"),
            ("10.1.0.0", "b"),
            ("10.1.2.3", "c"),
            ("10.1.2.4", "b"),
            ("10.2.0.0", "a"),
            ("10.255.255.255", "d"),
            ("11.0.0.0", "none"),
            ("::ffff:10.1.2.3", "c"),
            ("2001:db8::1", "e"),
            ("2001:db8:1::1", "f"),
            ("2001:db8:2::", "e"),
            ("2001:db9::", "none"),
            ("::1", "g"),
            ("::2", "none"),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "none"),
            ("unix", "last"),
        ] {
            assert_eq!(find(&geo, ip), want, "{ip}");
        }
    }

    #[test]
    fn nothing_said_is_empty() {
        let geo = parse("10.0.0.0/8 a; delete 10.0.0.0/8; 11.0.0.0/8 '';").unwrap();
        assert_eq!((find(&geo, "10.0.0.1"), find(&geo, "::1"), find(&geo, "unix")), ("", "", ""));
        let geo = parse("0.0.0.0/0 world; 127.0.0.0/8 a; delete 127.0.0.0/8;").unwrap();
        assert_eq!((find(&geo, "127.0.0.1"), find(&geo, "::1")), ("world", ""));
    }

    #[test]
    fn ranges_cut_into_one_another() {
        let geo = parse(
            "ranges; default none; 127.0.0.0-127.0.0.255 a; 127.0.0.10-127.0.0.20 b; \
             127.0.0.15-127.0.0.15 c; 127.0.0.0-127.0.0.1 d; 127.0.0.254-127.0.0.255 e; \
             10.10.3.0-10.13.2.255 f; 10.12.0.0-10.12.255.255 g; 0.0.0.0-0.0.0.0 zero;",
        )
        .unwrap();
        for (ip, want) in [
            ("127.0.0.0", "d"),
            ("127.0.0.2", "a"),
            ("127.0.0.10", "b"),
            ("127.0.0.15", "c"),
            ("127.0.0.20", "b"),
            ("127.0.0.21", "a"),
            ("127.0.0.255", "e"),
            ("127.0.1.0", "none"),
            ("10.10.2.255", "none"),
            ("10.10.3.0", "f"),
            ("10.11.255.255", "f"),
            ("10.12.0.0", "g"),
            ("10.13.2.255", "f"),
            ("10.13.3.0", "none"),
            ("0.0.0.0", "zero"),
            ("0.0.0.1", "none"),
            ("255.255.255.255", "none"),
            ("::1", "none"),
            ("unix", "none"),
        ] {
            assert_eq!(find(&geo, ip), want, "{ip}");
        }
    }

    #[test]
    fn ranges_are_deleted_whole() {
        let geo = parse(
            "ranges; default none; 127.0.0.0-127.1.0.0 a; delete 127.0.0.0-127.1.0.0; \
             10.0.0.0-10.0.0.255 b; 10.0.0.1-10.0.0.1 c; delete 10.0.0.2-10.0.0.255;",
        )
        .unwrap();
        assert_eq!((find(&geo, "127.0.0.1"), find(&geo, "127.1.0.0")), ("none", "none"));
        assert_eq!((find(&geo, "10.0.0.0"), find(&geo, "10.0.0.1")), ("b", "c"));
        assert_eq!(find(&geo, "10.0.0.2"), "none");
    }

    #[test]
    fn all_addresses_in_one_range() {
        let geo = parse("ranges; 0.0.0.0-255.255.255.254 test; default none;").unwrap();
        assert_eq!((find(&geo, "1.2.3.4"), find(&geo, "unix")), ("test", "none"));
        assert_eq!(geo.v4.len(), 2, "equal neighbours are one");
    }

    #[test]
    fn what_is_wrong() {
        for (lines, message) in [
            ("a b c;", "invalid number of the geo parameters"),
            ("a;", "invalid number of the geo parameters"),
            ("10.0.0.0/33 a;", "invalid network \"10.0.0.0/33\""),
            ("proxy nobody;", "invalid network \"nobody\""),
            ("delete x;", "invalid network \"x\""),
            ("default a; ranges;", "the \"ranges\" directive must be the first directive"),
            ("ranges; 10.0.0.0/8 a;", "invalid range \"10.0.0.0/8\""),
            ("ranges; 10.0.0.2-10.0.0.1 a;", "invalid range \"10.0.0.2-10.0.0.1\""),
            ("ranges; ::1-::2 a;", "invalid range \"::1-::2\""),
            (
                "ranges; 10.0.0.5-10.0.0.9 a; 10.0.0.0-10.0.0.6 b;",
                "range \"10.0.0.0-10.0.0.6\" overlaps \"10.0.0.5-10.0.0.9\"",
            ),
            (
                "ranges; 10.0.0.5-10.0.0.9 a; 10.0.0.0-10.0.0.20 b;",
                "range \"10.0.0.0-10.0.0.20\" overlaps \"10.0.0.5-10.0.0.9\"",
            ),
        ] {
            let error = parse(lines).err().map(|e| e.message).unwrap_or_default();
            assert!(error.starts_with(message), "{lines}: {error}");
        }
    }

    #[test]
    fn what_is_odd_is_warned_of() {
        for (lines, message) in [
            (
                "10.0.0.0/8 a; 10.0.0.0/8 b;",
                "duplicate network \"10.0.0.0/8\", value: \"b\", old value: \"a\"",
            ),
            (
                "default a; default b;",
                "duplicate network \"default\", value: \"b\", old value: \"a\"",
            ),
            ("10.0.0.1/8 a;", "low address bits of 10.0.0.1/8 are meaningless"),
            ("delete 10.0.0.0/8;", "no network \"10.0.0.0/8\" to delete"),
            (
                "ranges; default a; default b;",
                "duplicate default geo range value: \"b\", old value: \"a\"",
            ),
            (
                "ranges; 1.1.1.1-1.1.1.2 a; 1.1.1.1-1.1.1.2 b;",
                "duplicate range \"1.1.1.1-1.1.1.2\", value: \"b\", old value: \"a\"",
            ),
            ("ranges; delete 1.1.1.1-1.1.1.2;", "no address range \"1.1.1.1-1.1.1.2\" to delete"),
        ] {
            let told = warnings(lines);
            assert!(told.contains(message), "{lines}: {told}");
        }
        assert_eq!(warnings("default a; 10.0.0.0/8 b; delete 10.0.0.0/8;"), "");
    }

    #[test]
    fn many_networks() {
        let mut lines = String::from("default none;");
        for n in 0..20_000u32 {
            lines.push_str(&format!("{}/32 v{};", Ipv4Addr::from_bits(n * 200_003), n % 7));
        }
        let geo = parse(&lines).unwrap();
        for n in (0..20_000u32).step_by(97) {
            let ip = n * 200_003;
            assert_eq!(find(&geo, &Ipv4Addr::from_bits(ip).to_string()), format!("v{}", n % 7));
            assert_eq!(find(&geo, &Ipv4Addr::from_bits(ip + 1).to_string()), "none");
        }
    }
}
