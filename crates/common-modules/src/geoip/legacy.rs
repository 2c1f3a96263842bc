//! The older format (`.dat`): a binary trie over the bits of an address, then records.
//!
//! ```text
//! node:  [left][right], 3 bytes each, little end first (4 in databases of owners)
//! a value below the number of nodes is the next node, another one is where the record is
//! end:   FF FF FF, the type, then the number of nodes where that is not fixed
//! ```

use std::net::IpAddr;

use super::places::{self, Country};
use super::{About, Field};

const COUNTRY: u8 = 1;
const CITY_REV1: u8 = 2;
const ISP: u8 = 4;
const ORG: u8 = 5;
const CITY_REV0: u8 = 6;
const ASNUM: u8 = 9;
const DOMAIN: u8 = 11;
const COUNTRY_V6: u8 = 12;
const ASNUM_V6: u8 = 21;
const ISP_V6: u8 = 22;
const ORG_V6: u8 = 23;
const DOMAIN_V6: u8 = 24;
const CITY_REV1_V6: u8 = 30;
const CITY_REV0_V6: u8 = 31;

/// The number of nodes that databases of countries have by definition: what lies above it is a
/// country's number.
const COUNTRY_BEGIN: usize = 0x00ff_ff00;

/// The distance from the end of a file within which its type is searched, bytes.
const END_MAX: usize = 20;

/// A database in the older format.
pub struct Legacy {
    bytes: Vec<u8>,
    edition: u8,
    nodes: usize,
    /// Bytes of half a node.
    width: usize,
    utf8: bool,
}

/// Takes a part that a NUL ends.
fn text<'a>(record: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = memchr::memchr(0, record)?;
    let part = &record[..end];
    *record = &record[end + 1..];
    Some(part)
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

impl Legacy {
    /// Takes a file's bytes; the error is the reason for the log.
    pub fn parse(bytes: Vec<u8>) -> Result<Legacy, &'static str> {
        let end = bytes.len().saturating_sub(END_MAX);
        // Databases of the first years had no mark; a file without one today is something else.
        let broken = "it is no GeoIP database, or cut off";
        let at = bytes[end..].windows(3).rposition(|w| w == [0xff; 3]).ok_or(broken)?;
        let about = &bytes[end + at + 3..];
        let mut edition = *about.first().ok_or("its type is missing")?;
        if edition >= 106 {
            edition -= 105;
        }
        let nodes = match edition {
            COUNTRY | COUNTRY_V6 => COUNTRY_BEGIN,
            _ => number(about.get(1..4).ok_or("its size is missing")?),
        };
        let width = match edition {
            ISP | ORG | ISP_V6 | ORG_V6 | DOMAIN | DOMAIN_V6 => 4,
            _ => 3,
        };
        let has_nodes = bytes.len() >= 2 * width;
        let whole = nodes.checked_mul(2 * width).is_some_and(|len| len <= bytes.len());
        if !has_nodes || (nodes != COUNTRY_BEGIN && !whole) {
            return Err(broken);
        }
        Ok(Legacy { bytes, edition, nodes, width, utf8: false })
    }

    /// Its type's number.
    pub fn edition(&self) -> u8 {
        self.edition
    }

    pub fn about(&self) -> About {
        match self.edition {
            COUNTRY | COUNTRY_V6 => About::Countries,
            CITY_REV0 | CITY_REV1 | CITY_REV0_V6 | CITY_REV1_V6 => About::Cities,
            ISP | ORG | DOMAIN | ASNUM | ISP_V6 | ORG_V6 | DOMAIN_V6 | ASNUM_V6 => About::Owners,
            _ => About::Other,
        }
    }

    pub(crate) fn use_utf8(&mut self) {
        self.utf8 = true;
    }

    fn is_v6(&self) -> bool {
        let v6 = [COUNTRY_V6, CITY_REV0_V6, CITY_REV1_V6, ISP_V6, ORG_V6, DOMAIN_V6, ASNUM_V6];
        v6.contains(&self.edition)
    }

    /// The value of the trie's leaf for an address.
    fn seek(&self, ip: Option<IpAddr>) -> Option<usize> {
        let (bits, count) = if self.is_v6() {
            let bits = match ip {
                Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped().to_bits(),
                Some(IpAddr::V6(ip)) => ip.to_bits(),
                None => 0,
            };
            (bits, 128)
        } else {
            let bits = match ip {
                Some(IpAddr::V4(ip)) => ip.to_bits(),
                // A client without such an address is looked up as the last address.
                _ => u32::MAX,
            };
            (u128::from(bits), 32)
        };
        let mut node = 0usize;
        for place in (0..count).rev() {
            let half = (bits >> place & 1) as usize;
            let at = (2 * node + half).checked_mul(self.width)?;
            node = number(self.bytes.get(at..at + self.width)?);
            if node >= self.nodes {
                return Some(node);
            }
        }
        None
    }

    /// The record that the trie leads to.
    fn record(&self, ip: Option<IpAddr>) -> Option<&[u8]> {
        let found = self.seek(ip)?;
        if found == self.nodes {
            return None;
        }
        self.bytes.get(found.checked_add((2 * self.width - 1) * self.nodes)?..)
    }

    fn shown(&self, latin1: &[u8]) -> Vec<u8> {
        if self.utf8 {
            latin1.iter().map(|byte| char::from(*byte)).collect::<String>().into_bytes()
        } else {
            latin1.to_vec()
        }
    }

    /// The tables are in UTF-8.
    fn named(&self, utf8: &str) -> Vec<u8> {
        if self.utf8 {
            return utf8.as_bytes().to_vec();
        }
        // As the older library wrote them: without accents.
        utf8.chars().map(|c| u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'c')).collect()
    }

    pub fn find(&self, ip: Option<IpAddr>, field: Field) -> Option<Vec<u8>> {
        match self.about() {
            About::Countries => {
                let number = self.seek(ip)?.checked_sub(COUNTRY_BEGIN).filter(|n| *n > 0)?;
                self.of_country(places::country(number)?, field)
            }
            About::Cities => self.city(self.record(ip)?, field),
            About::Owners if field == Field::Organization => {
                text(&mut self.record(ip)?).map(|name| self.shown(name))
            }
            About::Owners | About::Other => None,
        }
    }

    fn of_country(&self, country: &Country, field: Field) -> Option<Vec<u8>> {
        Some(match field {
            Field::CountryCode => country.code.into(),
            Field::CountryCode3 => country.code3.into(),
            Field::CountryName => self.named(country.name),
            Field::ContinentCode => country.continent.into(),
            _ => return None,
        })
    }

    fn city(&self, record: &[u8], field: Field) -> Option<Vec<u8>> {
        let (number_of_country, mut rest) = record.split_first()?;
        let country = places::country(usize::from(*number_of_country))?;
        let region = text(&mut rest)?;
        let city = text(&mut rest)?;
        let postal = text(&mut rest)?;
        let degrees = |at: usize| {
            let value = number(rest.get(at..at + 3)?) as f64 / 10_000.0 - 180.0;
            Some(format!("{:.4}", value as f32).into_bytes())
        };
        let some = |text: &[u8]| (!text.is_empty()).then(|| self.shown(text));
        match field {
            Field::RegionCode => some(region),
            Field::RegionName => {
                let name = places::region(country.code, std::str::from_utf8(region).ok()?)?;
                Some(name.into())
            }
            Field::City => some(city),
            Field::PostalCode => some(postal),
            Field::Latitude => degrees(0),
            Field::Longitude => degrees(3),
            Field::DmaCode | Field::AreaCode => {
                let known = matches!(self.edition, CITY_REV1 | CITY_REV1_V6);
                let codes = if known && country.code == "US" { rest.get(6..9) } else { None };
                let both = codes.map_or(0, number);
                let code = if field == Field::DmaCode { both / 1000 } else { both % 1000 };
                Some(code.to_string().into_bytes())
            }
            _ => self.of_country(country, field),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trie that leads one IPv4 address to `hit` and all others to `miss`.
    fn trie(ip: &str, width: usize, hit: usize, miss: usize) -> Vec<u8> {
        let bits = ip.parse::<std::net::Ipv4Addr>().unwrap().to_bits();
        let mut bytes = Vec::new();
        for place in (0..32u32).rev() {
            let on = if place == 0 { hit } else { (32 - place) as usize };
            let halves = if bits >> place & 1 == 1 { [miss, on] } else { [on, miss] };
            for half in halves {
                bytes.extend_from_slice(&half.to_le_bytes()[..width]);
            }
        }
        bytes
    }

    fn find(d: &Legacy, ip: &str, field: Field) -> Option<String> {
        let found = d.find(Some(ip.parse().unwrap()), field)?;
        Some(String::from_utf8_lossy(&found).into_owned())
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn countries() {
        let mut bytes = trie("10.0.0.1", 3, COUNTRY_BEGIN + 10, COUNTRY_BEGIN);
        bytes.extend_from_slice(&[0, 0, 0, 0xff, 0xff, 0xff, 106]);
        let mut d = Legacy::parse(bytes).unwrap();
        assert_eq!(d.about(), About::Countries);
        assert_eq!(find(&d, "10.0.0.1", Field::CountryCode), some("CW"));
        assert_eq!(find(&d, "10.0.0.1", Field::CountryName), some("Curacao"));
        d.use_utf8();
        assert_eq!(find(&d, "10.0.0.1", Field::CountryName), some("Curaçao"));
        assert_eq!(find(&d, "10.0.0.2", Field::CountryCode), None);
        assert_eq!(find(&d, "::1", Field::CountryCode), None);
        assert_eq!(d.find(None, Field::CountryCode), None);
    }

    #[test]
    fn cities() {
        let mut bytes = trie("10.0.0.1", 3, 33, 32);
        bytes.extend_from_slice(b"\0\xe1CA\0Caf\xe9\0\x0094025\0");
        bytes.truncate(bytes.len() - 7);
        bytes.extend_from_slice(b"94025\0");
        for degrees in [37.4490, -122.1748] {
            let value = ((degrees + 180.0) * 10_000.0) as u32;
            bytes.extend_from_slice(&value.to_le_bytes()[..3]);
        }
        bytes.extend_from_slice(&807_650u32.to_le_bytes()[..3]);
        bytes.extend_from_slice(&[0xff, 0xff, 0xff, CITY_REV1, 32, 0, 0]);
        let mut d = Legacy::parse(bytes).unwrap();
        d.use_utf8();
        for (field, want) in [
            (Field::CountryCode, "US"),
            (Field::ContinentCode, "NA"),
            (Field::RegionCode, "CA"),
            (Field::RegionName, "California"),
            (Field::City, "Café"),
            (Field::PostalCode, "94025"),
            (Field::Latitude, "37.4490"),
            (Field::Longitude, "-122.1748"),
            (Field::DmaCode, "807"),
            (Field::AreaCode, "650"),
        ] {
            assert_eq!(find(&d, "10.0.0.1", field), some(want), "{field:?}");
        }
        assert_eq!(find(&d, "10.0.0.1", Field::Organization), None);
        assert_eq!(find(&d, "10.0.0.3", Field::City), None);
    }

    #[test]
    fn broken_files() {
        for bytes in [&b""[..], b"\xff\xff\xff", b"xxxxxxxx\xff\xff\xff\x02", b"\xff\xff\xff\x05\0"]
        {
            assert!(Legacy::parse(bytes.to_vec()).is_err(), "{bytes:?}");
        }
        // Whatever is in a file, a look-up ends.
        let mut state = 1u32;
        let mut random = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for edition in 0..=255 {
            let mut bytes: Vec<u8> = (0..600).map(|_| random()).collect();
            bytes.extend_from_slice(&[0xff, 0xff, 0xff, edition, 32, 0, 0]);
            let Ok(d) = Legacy::parse(bytes) else { continue };
            for ip in [None, Some("10.0.0.1"), Some("2001:db8::1")] {
                let ip = ip.map(|ip| ip.parse().unwrap());
                for field in [Field::CountryName, Field::City, Field::Organization, Field::DmaCode]
                {
                    d.find(ip, field);
                }
            }
        }
    }
}
