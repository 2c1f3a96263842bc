//! Errors of settings, before there is a session.

use std::fmt;

use pki::{pem, x509};

use crate::certified::{RSA_BITS_MAX, RSA_BITS_MIN};
use crate::protocols::Protocol;

/// Why a certificate, a key or settings make no configuration. `Display` has OpenSSL's words where
/// it has some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// A chain or a key is no PEM.
    Pem(pem::Error),
    /// The chain is empty.
    NoCertificate,
    /// The first certificate of the chain cannot be parsed.
    Certificate(x509::Malformed),
    /// The key is of no supported form; the library's reason.
    Key(String),
    /// The size of an RSA key, which is too small or too large to sign with.
    RsaBits(u32),
    /// The library cannot tell the public key of a private one.
    NoPublicPart,
    /// The key belongs to another certificate.
    Mismatch,
    /// None of these versions can be had.
    NoProtocol(Vec<Protocol>),
    /// None of the cipher suites can be had.
    NoCipher,
    /// None of the groups can be had.
    NoGroup,
    /// The library refuses a combination; its reason.
    Library(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigError::Pem(error) => return error.fmt(f),
            ConfigError::NoCertificate => "no certificate",
            ConfigError::Certificate(error) => return error.fmt(f),
            ConfigError::Key(reason) | ConfigError::Library(reason) => reason,
            ConfigError::RsaBits(bits) => {
                return write!(
                    f,
                    "the RSA key has {bits} bits: {RSA_BITS_MIN} to {RSA_BITS_MAX} are supported"
                );
            }
            ConfigError::NoPublicPart => "the key has no public part",
            ConfigError::Mismatch => {
                "SSL: error:05800074:x509 certificate routines::key values mismatch"
            }
            ConfigError::NoProtocol(asked) => {
                let names: Vec<_> = asked.iter().map(|one| one.name()).collect();
                let names = names.join(" ");
                return write!(
                    f,
                    "no supported protocol in \"{names}\": there are TLSv1.2, TLSv1.3"
                );
            }
            ConfigError::NoCipher => "no cipher match",
            ConfigError::NoGroup => "no group match",
        })
    }
}

impl std::error::Error for ConfigError {}

impl From<pem::Error> for ConfigError {
    fn from(error: pem::Error) -> ConfigError {
        ConfigError::Pem(error)
    }
}
