//! Versions of the protocol, as `ssl_protocols` and commands name them.

use crate::ConfigError;

/// A version that can be had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl Version {
    /// Both, the older one first.
    pub const ALL: [Version; 2] = [Version::Tls12, Version::Tls13];

    /// The number in the protocol.
    pub fn number(self) -> u16 {
        match self {
            Version::Tls12 => 0x0303,
            Version::Tls13 => 0x0304,
        }
    }
}

/// A version that has a name in settings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// SSL 2.
    Sslv2,
    /// SSL 3.
    Sslv3,
    /// TLS 1.0.
    Tls10,
    /// TLS 1.1.
    Tls11,
    /// One that can be had.
    Tls(Version),
}

impl Protocol {
    /// All of them, the oldest first.
    pub const ALL: [Protocol; 6] = [
        Protocol::Sslv2,
        Protocol::Sslv3,
        Protocol::Tls10,
        Protocol::Tls11,
        Protocol::Tls(Version::Tls12),
        Protocol::Tls(Version::Tls13),
    ];

    /// The name in configurations and logs, for example `TLSv1.3`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Sslv2 => "SSLv2",
            Protocol::Sslv3 => "SSLv3",
            Protocol::Tls10 => "TLSv1",
            Protocol::Tls11 => "TLSv1.1",
            Protocol::Tls(Version::Tls12) => "TLSv1.2",
            Protocol::Tls(Version::Tls13) => "TLSv1.3",
        }
    }

    /// The version of a word of `ssl_protocols`, in letters of any case as nginx takes them.
    pub fn word(word: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(word))
    }
}

/// The outcome of a setting of versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocols {
    /// The versions, the older one first; one at least.
    pub versions: Vec<Version>,
    /// Versions that are asked for and cannot be had; to warn of.
    pub warning: Option<String>,
}

impl Protocols {
    /// Takes the versions of `ssl_protocols`.
    ///
    /// # Errors
    /// None of them can be had.
    pub fn new(asked: &[Protocol]) -> Result<Protocols, ConfigError> {
        let names = |protocols: &[&Protocol]| {
            protocols.iter().map(|one| one.name()).collect::<Vec<_>>().join(" ")
        };
        let versions: Vec<_> =
            Version::ALL.into_iter().filter(|one| asked.contains(&Protocol::Tls(*one))).collect();
        let old: Vec<_> = asked.iter().filter(|one| !matches!(one, Protocol::Tls(_))).collect();
        if versions.is_empty() {
            return Err(ConfigError::NoProtocol(asked.to_vec()));
        }
        let warning =
            (!old.is_empty()).then(|| format!("protocols not supported, ignored: {}", names(&old)));
        Ok(Protocols { versions, warning })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::word(protocol.name()), Some(protocol));
            assert_eq!(Protocol::word(&protocol.name().to_uppercase()), Some(protocol));
        }
        assert_eq!(Protocol::word("TLSv1.4"), None);
        for version in Version::ALL {
            assert_eq!(crate::server::versions(&[version.number()]).len(), 1);
        }
    }

    #[test]
    fn old_versions_are_left_out() {
        let of = |words: &str| {
            let asked: Vec<_> = words.split(' ').filter_map(Protocol::word).collect();
            Protocols::new(&asked)
        };
        let both = of("TLSv1.3 TLSv1.2").unwrap();
        assert_eq!((both.versions, both.warning), (Version::ALL.to_vec(), None));
        let old = of("TLSv1 TLSv1.1 TLSv1.2").unwrap();
        assert_eq!(old.versions, [Version::Tls12]);
        assert_eq!(old.warning.unwrap(), "protocols not supported, ignored: TLSv1 TLSv1.1");
        assert_eq!(
            of("SSLv3 TLSv1").unwrap_err().to_string(),
            "no supported protocol in \"SSLv3 TLSv1\": there are TLSv1.2, TLSv1.3"
        );
        assert!(of("").is_err());
    }
}
