//! `geoip`: databases of the places of addresses, in MaxMind's present format and in the one before
//! it, which nginx's `geoip` modules read.

mod legacy;
mod maxmind;
mod places;
mod variables;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;

pub use maxmind::{MaxMind, PathPart};
pub use variables::module;

/// A fact about an address in a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The names say it.
pub enum Field {
    ContinentCode,
    CountryCode,
    CountryCode3,
    CountryName,
    RegionCode,
    RegionName,
    City,
    PostalCode,
    Latitude,
    Longitude,
    DmaCode,
    AreaCode,
    Organization,
}

/// The subject of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// A database of countries.
    Countries,
    /// Cities, with the countries that they are in.
    Cities,
    /// The owners of addresses: organizations, providers, domains, autonomous systems.
    Owners,
    /// Anything else.
    Other,
}

/// A database, whole in memory.
pub enum Database {
    /// The format with the extension `.dat`.
    Legacy(legacy::Legacy),
    /// The format with the extension `.mmdb`.
    MaxMind(MaxMind),
}

/// The reason that a file cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// It cannot be read.
    Io(io::Error),
    /// The file is not such a database; the text is the reason.
    Format(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io(e) => write!(f, "{}", base::log::os_error(e)),
            OpenError::Format(what) => write!(f, "({what})"),
        }
    }
}

impl Database {
    /// Reads a file of either format.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(path: &Path) -> Result<Database, OpenError> {
        Database::parse(std::fs::read(path).map_err(OpenError::Io)?)
    }

    /// The same from a file's bytes.
    ///
    /// # Errors
    ///
    /// [`OpenError::Format`]
    pub fn parse(bytes: Vec<u8>) -> Result<Database, OpenError> {
        if MaxMind::is_one(&bytes) {
            return MaxMind::parse(bytes).map(Database::MaxMind);
        }
        let legacy = legacy::Legacy::parse(bytes).map_err(|e| OpenError::Format(e.to_owned()))?;
        Ok(Database::Legacy(legacy))
    }

    /// Its subject, and its type as the file names it.
    pub fn about(&self) -> (About, String) {
        match self {
            Database::Legacy(d) => (d.about(), d.edition().to_string()),
            Database::MaxMind(d) => (d.about(), d.kind().to_owned()),
        }
    }

    /// Names in UTF-8 instead of Latin-1, which files of the older format have. Those of the
    /// present one are in UTF-8 anyhow.
    pub(crate) fn use_utf8(&mut self) {
        if let Database::Legacy(d) = self {
            d.use_utf8();
        }
    }

    /// The field of an address; `None` is a client without one.
    pub fn find(&self, ip: Option<IpAddr>, field: Field) -> Option<Vec<u8>> {
        let ip = ip.map(|ip| ip.to_canonical());
        match self {
            Database::Legacy(d) => d.find(ip, field),
            Database::MaxMind(d) => d.field(ip?, field),
        }
    }
}
