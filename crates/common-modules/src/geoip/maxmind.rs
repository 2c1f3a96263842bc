//! The present format (`.mmdb`), read by the `maxminddb` crate.

use std::fmt;
use std::net::IpAddr;

use maxminddb::{PathElement, Reader};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{About, Field, OpenError, places};

/// A database, whole in memory.
pub struct MaxMind(Reader<Vec<u8>>);

/// A step towards a value: a key of a map, or a place in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathPart {
    /// A key.
    Key(String),
    /// A place, from 0 on.
    Place(usize),
}

impl PathPart {
    /// A step as it is written: a number is a place.
    pub fn of(text: &str) -> PathPart {
        text.parse().map_or_else(|_| PathPart::Key(text.to_owned()), PathPart::Place)
    }
}

/// The marker before a file's metadata.
const MARK: &[u8] = b"\xab\xcd\xefMaxMind.com";

impl MaxMind {
    /// Says whether bytes are a file of this format.
    pub fn is_one(bytes: &[u8]) -> bool {
        let end = bytes.len().saturating_sub(128 << 10);
        memchr::memmem::find(&bytes[end..], MARK).is_some()
    }

    /// Takes a file's bytes.
    ///
    /// # Errors
    ///
    /// [`OpenError::Format`]
    pub fn parse(bytes: Vec<u8>) -> Result<MaxMind, OpenError> {
        match Reader::from_source(bytes) {
            Ok(reader) => Ok(MaxMind(reader)),
            Err(e) => Err(OpenError::Format(e.to_string())),
        }
    }

    /// Its type as the file says it: `GeoLite2-City`.
    pub fn kind(&self) -> &str {
        &self.0.metadata().database_type
    }

    /// The time when it was built, seconds since 1970.
    pub(crate) fn built_secs(&self) -> u64 {
        self.0.metadata().build_epoch
    }

    /// Its subject, by the words of its type.
    pub fn about(&self) -> About {
        let kind = self.kind().to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| kind.contains(word));
        if has(&["city", "enterprise"]) {
            About::Cities
        } else if has(&["country"]) {
            About::Countries
        } else if has(&["asn", "isp", "organization", "domain"]) {
            About::Owners
        } else {
            About::Other
        }
    }

    /// The value at a path in the record of an address, as text: numbers in decimal (fractions with
    /// five places), truth as 1 and 0. Nothing for maps and lists.
    pub fn value(&self, ip: IpAddr, path: &[PathPart]) -> Option<Vec<u8>> {
        self.text(ip, path, 5)
    }

    fn text(&self, ip: IpAddr, path: &[PathPart], places: usize) -> Option<Vec<u8>> {
        let path: Vec<PathElement<'_>> = path
            .iter()
            .map(|part| match part {
                PathPart::Key(key) => PathElement::Key(key),
                PathPart::Place(place) => PathElement::Index(*place),
            })
            .collect();
        // A damaged file tells nothing; that is no reason to refuse the request.
        let found = self.0.lookup(ip).ok()?.decode_path::<Scalar>(&path).ok()??;
        Some(match found {
            Scalar::Text(text) => text,
            Scalar::Fraction(value) => format!("{value:.places$}").into_bytes(),
            Scalar::None => return None,
        })
    }

    fn at(&self, ip: IpAddr, path: &[&str]) -> Option<Vec<u8>> {
        let path: Vec<_> = path.iter().map(|part| PathPart::of(part)).collect();
        self.text(ip, &path, 4)
    }

    /// The country that an address is in, or else is registered in.
    fn country(&self, ip: IpAddr, path: &[&str]) -> Option<Vec<u8>> {
        let of = |key| self.at(ip, &[&[key], path].concat());
        of("country").or_else(|| of("registered_country"))
    }

    /// A value by the name that the older format's library has for it.
    pub fn field(&self, ip: IpAddr, field: Field) -> Option<Vec<u8>> {
        match field {
            Field::ContinentCode => self.at(ip, &["continent", "code"]),
            Field::CountryCode => self.country(ip, &["iso_code"]),
            Field::CountryCode3 => {
                let code = self.country(ip, &["iso_code"])?;
                let country = places::country_of_code(std::str::from_utf8(&code).ok()?)?;
                Some(country.code3.into())
            }
            Field::CountryName => self.country(ip, &["names", "en"]),
            Field::RegionCode => self.at(ip, &["subdivisions", "0", "iso_code"]),
            Field::RegionName => self.at(ip, &["subdivisions", "0", "names", "en"]),
            Field::City => self.at(ip, &["city", "names", "en"]),
            Field::PostalCode => self.at(ip, &["postal", "code"]),
            Field::Latitude => self.at(ip, &["location", "latitude"]),
            Field::Longitude => self.at(ip, &["location", "longitude"]),
            Field::DmaCode => {
                let code = self.at(ip, &["location", "metro_code"]);
                Some(code.unwrap_or_else(|| b"0".to_vec()))
            }
            // Nobody records these any more.
            Field::AreaCode => Some(b"0".to_vec()),
            Field::Organization => self.organization(ip),
        }
    }

    fn organization(&self, ip: IpAddr) -> Option<Vec<u8>> {
        for key in ["organization", "isp", "domain"] {
            if let Some(name) = self.at(ip, &[key]) {
                return Some(name);
            }
        }
        // As the older databases of autonomous systems have it: `AS64496 Example`.
        let number = self.at(ip, &["autonomous_system_number"]);
        let name = self.at(ip, &["autonomous_system_organization"]);
        match (number, name) {
            (None, name) => name,
            (Some(number), name) => {
                let name = name.map(|name| [b" ", &name[..]].concat()).unwrap_or_default();
                Some([b"AS", &number[..], &name].concat())
            }
        }
    }
}

/// A value that can be shown as text.
enum Scalar {
    Text(Vec<u8>),
    Fraction(f64),
    None,
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Scalar, D::Error> {
        d.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

fn shown<E>(value: impl fmt::Display) -> Result<Scalar, E> {
    Ok(Scalar::Text(value.to_string().into_bytes()))
}

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
        shown(u8::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
        shown(value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        shown(value)
    }

    fn visit_u128<E>(self, value: u128) -> Result<Scalar, E> {
        Ok(Scalar::Text(format!("{value:#034x}").into_bytes()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.as_bytes().to_vec()))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_vec()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::None)
    }
}
