//! The signature of a handshake by the peer's certificate. rustls's own check is not used: it
//! takes certificates of version 3 alone.

use super::Certificate;
use super::key::{Hash, Kind};
use super::signature::{Scheme, verify};

/// The protocol whose rule tells which scheme goes with which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2
    Tls12,
    /// TLS 1.3
    Tls13,
}

/// The numbers of RFC 8446 section 4.2.3 for what a peer may sign a handshake with, the preferred
/// ones first. This is OpenSSL's list at its level 2, without SHA-224 and the curve of 448 bits.
pub const SCHEMES: [u16; 13] = [
    ECDSA_P256,
    ECDSA_P384,
    ECDSA_P521,
    ED25519,
    PSS_PSS_SHA256,
    PSS_PSS_SHA384,
    PSS_PSS_SHA512,
    PSS_RSA_SHA256,
    PSS_RSA_SHA384,
    PSS_RSA_SHA512,
    PKCS1_SHA256,
    PKCS1_SHA384,
    PKCS1_SHA512,
];

/// The strength of a scheme of [`SCHEMES`] in bits, as OpenSSL's security levels count it.
pub fn scheme_bits(scheme: u16) -> u32 {
    match scheme {
        ECDSA_P384 | PSS_PSS_SHA384 | PSS_RSA_SHA384 | PKCS1_SHA384 => 192,
        ECDSA_P521 | PSS_PSS_SHA512 | PSS_RSA_SHA512 | PKCS1_SHA512 => 256,
        _ => 128,
    }
}

const PKCS1_SHA256: u16 = 0x0401;
const PKCS1_SHA384: u16 = 0x0501;
const PKCS1_SHA512: u16 = 0x0601;
const ECDSA_P256: u16 = 0x0403;
const ECDSA_P384: u16 = 0x0503;
const ECDSA_P521: u16 = 0x0603;
const PSS_RSA_SHA256: u16 = 0x0804;
const PSS_RSA_SHA384: u16 = 0x0805;
const PSS_RSA_SHA512: u16 = 0x0806;
const ED25519: u16 = 0x0807;
const PSS_PSS_SHA256: u16 = 0x0809;
const PSS_PSS_SHA384: u16 = 0x080a;
const PSS_PSS_SHA512: u16 = 0x080b;

/// Whether the protocol allows a scheme for `certificate`'s key.
pub fn is_scheme_for(certificate: &Certificate, version: Version, scheme: u16) -> bool {
    scheme_for(certificate.public_key().kind(), version, scheme).is_some()
}

/// Whether `certificate`'s key made `signature` over `message` under a scheme that the protocol
/// allows for it. The strength of the key is the chain's question.
pub fn verify_handshake_signature(
    certificate: &Certificate,
    version: Version,
    scheme: u16,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let key = certificate.public_key();
    match scheme_for(key.kind(), version, scheme) {
        Some(scheme) => verify(scheme, key, message, signature),
        None => false,
    }
}

fn scheme_for(key: Kind, version: Version, scheme: u16) -> Option<Scheme> {
    let ecdsa = |curve: Kind, hash| {
        // TLS 1.2 has the hash in the scheme, and the curve in the certificate; TLS 1.3 binds them.
        let is_curve = matches!(key, Kind::P256 | Kind::P384 | Kind::P521);
        let allowed = key == curve || version == Version::Tls12 && is_curve;
        allowed.then_some(Scheme::Ecdsa(hash))
    };
    let rsa = |scheme| matches!(key, Kind::Rsa(_)).then_some(scheme);
    let pss_key = |scheme| matches!(key, Kind::RsaPss(..)).then_some(scheme);
    let pkcs1 = |hash| {
        // RFC 8446: only in certificates, never in a handshake.
        if version == Version::Tls13 { None } else { rsa(Scheme::RsaPkcs1(hash)) }
    };
    match scheme {
        ECDSA_P256 => ecdsa(Kind::P256, Hash::Sha256),
        ECDSA_P384 => ecdsa(Kind::P384, Hash::Sha384),
        ECDSA_P521 => ecdsa(Kind::P521, Hash::Sha512),
        ED25519 => (key == Kind::Ed25519).then_some(Scheme::Ed25519),
        PSS_RSA_SHA256 => rsa(Scheme::RsaPss(Hash::Sha256)),
        PSS_RSA_SHA384 => rsa(Scheme::RsaPss(Hash::Sha384)),
        PSS_RSA_SHA512 => rsa(Scheme::RsaPss(Hash::Sha512)),
        PSS_PSS_SHA256 => pss_key(Scheme::RsaPss(Hash::Sha256)),
        PSS_PSS_SHA384 => pss_key(Scheme::RsaPss(Hash::Sha384)),
        PSS_PSS_SHA512 => pss_key(Scheme::RsaPss(Hash::Sha512)),
        PKCS1_SHA256 => pkcs1(Hash::Sha256),
        PKCS1_SHA384 => pkcs1(Hash::Sha384),
        PKCS1_SHA512 => pkcs1(Hash::Sha512),
        _ => None,
    }
}
