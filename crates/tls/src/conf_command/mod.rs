//! The commands of `ssl_conf_command`: OpenSSL's `SSL_CONF_cmd`, as nginx calls it.
//!
//! A command that cannot be had is refused where the result would be weaker than what it asks for,
//! and else gets a warning.

mod options;

use std::fmt;

use crate::ciphers::{self, Ciphers, Suite};
use crate::groups::Groups;
use crate::protocols::{Protocol, Version};
use pki::x509::SCHEMES;

/// The setting of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// The suites of TLS 1.3, best first; empty for none.
    Suites(Vec<Suite>),
    /// The suites of TLS 1.2.
    Ciphers(Ciphers),
    /// The groups.
    Groups(Groups),
    /// No older version is accepted.
    Oldest(Version),
    /// No newer version is accepted.
    Newest(Version),
    /// Versions that are turned on or off.
    Versions(Vec<(Version, bool)>),
    /// The file of a certificate.
    Certificate(String),
    /// The file of a private key.
    PrivateKey(String),
    /// The signature schemes that are used, best first, by their numbers.
    SignatureAlgorithms(Vec<u16>),
    /// Whether session tickets are used.
    SessionTickets(bool),
    /// The number of tickets sent after a handshake of TLS 1.3.
    TicketCount(u32),
    /// Whether the server's order of suites counts.
    ServerPreference(bool),
    /// Whether certificates are sent compressed.
    CertificateCompression(bool),
}

/// The outcome of a line of `ssl_conf_command`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Parsed {
    /// What it sets.
    pub commands: Vec<Command>,
    /// Parts that are without effect; to warn of.
    pub warnings: Vec<String>,
}

impl Parsed {
    fn command(command: Command) -> Parsed {
        Parsed { commands: vec![command], warnings: Vec::new() }
    }

    fn nothing() -> Parsed {
        Parsed::default()
    }

    fn warning(name: &str, value: &str) -> Parsed {
        let text = format!("\"ssl_conf_command {name} {value}\" has no effect here");
        Parsed { commands: Vec::new(), warnings: vec![text] }
    }
}

/// nginx's message for a command that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    name: String,
    value: String,
    reason: Reason,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Reason {
    UnknownName,
    /// With what OpenSSL says before, if anything.
    BadValue(Option<String>),
    /// Known to OpenSSL, and not to be had.
    Unsupported(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error { name, value, reason } = self;
        write!(f, "SSL_CONF_cmd(\"{name}\", \"{value}\") failed")?;
        match reason {
            Reason::UnknownName => {
                write!(f, " (SSL: error:0A000182:SSL routines::unknown cmd name:cmd={name})")
            }
            Reason::BadValue(before) => {
                let before = before.as_ref().map(|text| format!("{text} ")).unwrap_or_default();
                let last = "error:0A000180:SSL routines::bad value";
                write!(f, " (SSL: {before}{last}:cmd={name}, value={value})")
            }
            Reason::Unsupported(instead) => write!(f, ": not supported, {instead}"),
        }
    }
}

impl std::error::Error for Error {}

/// The kinds of commands.
#[derive(Clone, Copy)]
enum Kind {
    SignatureAlgorithms,
    Groups,
    EcdhParameters,
    CipherString,
    Ciphersuites,
    Protocol,
    MinProtocol,
    MaxProtocol,
    Options,
    Certificate,
    PrivateKey,
    NumTickets,
    RecordPadding,
    VerifyMode,
    /// A file or a directory that changes nothing.
    IdleFile,
    /// A file or a directory without which clients would not be checked as asked.
    VerifyFile,
    ClientSignatureAlgorithms,
}

/// The names that OpenSSL has for files, and that mean the same in letters of any case.
const NAMES: &[(&str, Kind)] = &[
    ("SignatureAlgorithms", Kind::SignatureAlgorithms),
    ("ClientSignatureAlgorithms", Kind::ClientSignatureAlgorithms),
    ("Curves", Kind::Groups),
    ("Groups", Kind::Groups),
    ("ECDHParameters", Kind::EcdhParameters),
    ("CipherString", Kind::CipherString),
    ("Ciphersuites", Kind::Ciphersuites),
    ("Protocol", Kind::Protocol),
    ("MinProtocol", Kind::MinProtocol),
    ("MaxProtocol", Kind::MaxProtocol),
    ("Options", Kind::Options),
    ("VerifyMode", Kind::VerifyMode),
    ("Certificate", Kind::Certificate),
    ("PrivateKey", Kind::PrivateKey),
    ("ServerInfoFile", Kind::IdleFile),
    ("ChainCAPath", Kind::IdleFile),
    ("ChainCAFile", Kind::IdleFile),
    ("VerifyCAPath", Kind::VerifyFile),
    ("VerifyCAFile", Kind::VerifyFile),
    ("RequestCAFile", Kind::IdleFile),
    ("ClientCAFile", Kind::IdleFile),
    ("RequestCAPath", Kind::IdleFile),
    ("ClientCAPath", Kind::IdleFile),
    ("DHParameters", Kind::IdleFile),
    ("RecordPadding", Kind::RecordPadding),
    ("NumTickets", Kind::NumTickets),
];

fn kind(name: &str) -> Option<Kind> {
    NAMES.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
}

/// Whether the value of a command is the name of a file, which nginx completes.
pub fn is_file(name: &str) -> bool {
    matches!(
        kind(name),
        Some(Kind::Certificate | Kind::PrivateKey | Kind::IdleFile | Kind::VerifyFile)
    )
}

/// Reads a command.
///
/// # Errors
/// OpenSSL does not know it, or refuses its value; or it cannot be had, and nothing else is as
/// good.
pub fn parse(name: &str, value: &str) -> Result<Parsed, Error> {
    let error = |reason| Error { name: name.to_owned(), value: value.to_owned(), reason };
    let kind = kind(name).ok_or_else(|| error(Reason::UnknownName))?;
    command(kind, name, value).map_err(error)
}

fn command(kind: Kind, name: &str, value: &str) -> Result<Parsed, Reason> {
    const BAD: Reason = Reason::BadValue(None);
    Ok(match kind {
        Kind::Ciphersuites => {
            let suites = ciphers::tls13(value);
            let (suites, missing) =
                suites.map_err(|reason| Reason::BadValue(Some(reason.to_string())))?;
            let missing = missing.join(":");
            let warning = format!("cipher suites not supported, ignored: {missing}");
            let warnings = if missing.is_empty() { Vec::new() } else { vec![warning] };
            Parsed { commands: vec![Command::Suites(suites)], warnings }
        }
        Kind::CipherString => {
            let ciphers = Ciphers::parse(value)
                .map_err(|error| Reason::BadValue(Some(error.reason.to_string())))?;
            let warnings = ciphers.warnings();
            Parsed { commands: vec![Command::Ciphers(ciphers)], warnings }
        }
        Kind::EcdhParameters if is_automatic(value) => Parsed::nothing(),
        Kind::Groups | Kind::EcdhParameters => {
            let groups = Groups::parse(value).map_err(|error| Reason::BadValue(error.reason))?;
            let warnings = groups.warning().into_iter().collect();
            Parsed { commands: vec![Command::Groups(groups)], warnings }
        }
        Kind::Protocol => Parsed::command(Command::Versions(protocols(value).ok_or(BAD)?)),
        Kind::MinProtocol => match bound(value).ok_or(BAD)? {
            Some(Protocol::Tls(version)) => Parsed::command(Command::Oldest(version)),
            _ => Parsed::nothing(),
        },
        Kind::MaxProtocol => match bound(value).ok_or(BAD)? {
            Some(Protocol::Tls(version)) => Parsed::command(Command::Newest(version)),
            Some(_) => return Err(Reason::Unsupported("there are TLSv1.2, TLSv1.3")),
            None => Parsed::nothing(),
        },
        Kind::Options => options::parse(name, value).ok_or(BAD)?,
        Kind::Certificate => Parsed::command(Command::Certificate(value.to_owned())),
        Kind::PrivateKey => Parsed::command(Command::PrivateKey(value.to_owned())),
        Kind::SignatureAlgorithms => signature_algorithms(schemes(value).ok_or(BAD)?)?,
        Kind::NumTickets => Parsed::command(Command::TicketCount(value.parse().map_err(|_| BAD)?)),
        Kind::RecordPadding => match value.parse::<u32>() {
            // Blocks of one byte are no padding either.
            Ok(0 | 1) => Parsed::nothing(),
            Ok(..=16384) => return Err(Reason::Unsupported("records are not padded")),
            _ => return Err(BAD),
        },
        Kind::VerifyMode => {
            let is_known = items(value)
                .all(|(item, _)| VERIFY_MODES.iter().any(|mode| mode.eq_ignore_ascii_case(item)));
            return Err(if is_known { Reason::Unsupported(VERIFY) } else { BAD });
        }
        Kind::ClientSignatureAlgorithms => {
            schemes(value).ok_or(BAD)?;
            return Err(Reason::Unsupported("all that are safe are accepted"));
        }
        Kind::VerifyFile => {
            return Err(Reason::Unsupported("use \"ssl_client_certificate\""));
        }
        Kind::IdleFile => Parsed::warning(name, value),
    })
}

fn signature_algorithms(all: Vec<(&str, u16)>) -> Result<Parsed, Reason> {
    let (had, missing): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, scheme)| SCHEMES.contains(scheme));
    if had.is_empty() {
        return Err(Reason::Unsupported("none of these algorithms is to be had"));
    }
    let missing: Vec<_> = missing.into_iter().map(|(name, _)| name).collect();
    let warning = format!("signature algorithms not supported, ignored: {}", missing.join(":"));
    let warnings = if missing.is_empty() { Vec::new() } else { vec![warning] };
    let had = had.into_iter().map(|(_, scheme)| scheme).collect();
    Ok(Parsed { commands: vec![Command::SignatureAlgorithms(had)], warnings })
}

const VERIFY: &str = "use \"ssl_verify_client\"";

const VERIFY_MODES: &[&str] =
    &["Peer", "Request", "Require", "Once", "RequestPostHandshake", "RequirePostHandshake"];

fn is_automatic(value: &str) -> bool {
    value.strip_prefix('+').unwrap_or(value).eq_ignore_ascii_case("automatic")
}

/// The items of a list with commas, each with whether it is turned on.
fn items(value: &str) -> impl Iterator<Item = (&str, bool)> {
    value.split(',').map(str::trim).map(|item| match item.strip_prefix('-') {
        Some(item) => (item, false),
        None => (item.strip_prefix('+').unwrap_or(item), true),
    })
}

/// The versions that `Protocol` turns on and off; those that cannot be had are left out.
fn protocols(value: &str) -> Option<Vec<(Version, bool)>> {
    let mut versions = Vec::new();
    for (item, is_on) in items(value) {
        if item.eq_ignore_ascii_case("ALL") {
            versions.extend(Version::ALL.map(|version| (version, is_on)));
            continue;
        }
        match Protocol::word(item) {
            Some(Protocol::Tls(version)) => versions.push((version, is_on)),
            Some(_) => {}
            None if is_dtls(item) => {}
            None => return None,
        }
    }
    Some(versions)
}

fn is_dtls(name: &str) -> bool {
    ["DTLSv1", "DTLSv1.2"].iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// The value of `MinProtocol` and `MaxProtocol`, in its exact letters; the inner none is no bound.
fn bound(value: &str) -> Option<Option<Protocol>> {
    match value {
        "None" | "DTLSv1" | "DTLSv1.2" => Some(None),
        "SSLv2" => None,
        value => Protocol::word(value).filter(|one| one.name() == value).map(Some),
    }
}

/// Signature schemes with their numbers: `rsa_pss_rsae_sha256`, or `RSA-PSS+SHA256`.
fn schemes(value: &str) -> Option<Vec<(&str, u16)>> {
    let items = value.split(':').map(|item| item.trim().trim_start_matches('?'));
    items.map(|item| Some((item, scheme(item)?))).collect()
}

fn scheme(name: &str) -> Option<u16> {
    let Some((signature, hash)) = name.split_once('+') else {
        return proto::tls_names::signature_algorithm_number(name);
    };
    let hash = match hash {
        "SHA1" => 2,
        "SHA224" => 3,
        "SHA256" => 4,
        "SHA384" => 5,
        "SHA512" => 6,
        _ => return None,
    };
    match signature {
        "RSA" => Some(hash << 8 | 1),
        "DSA" => Some(hash << 8 | 2),
        "ECDSA" => Some(hash << 8 | 3),
        "RSA-PSS" | "PSS" if hash >= 4 => Some(0x0800 | hash),
        _ => None,
    }
}

/// The versions that are left of those of `ssl_protocols` after all commands. As in OpenSSL, the
/// bounds hold whatever is turned on, and the last of each kind counts.
pub fn versions(settings: &[Version], commands: &[Command]) -> Vec<Version> {
    let mut is_on = Version::ALL.map(|version| (version, settings.contains(&version)));
    let (mut oldest, mut newest) = (Version::Tls12, Version::Tls13);
    for command in commands {
        match command {
            Command::Versions(list) => {
                for (version, value) in list {
                    let of = is_on.iter_mut().find(|(other, _)| other == version);
                    of.into_iter().for_each(|one| one.1 = *value);
                }
            }
            Command::Oldest(version) => oldest = *version,
            Command::Newest(version) => newest = *version,
            _ => {}
        }
    }
    let left =
        is_on.into_iter().filter(|(version, is_on)| *is_on && (oldest..=newest).contains(version));
    left.map(|(version, _)| version).collect()
}

#[cfg(test)]
mod tests;
