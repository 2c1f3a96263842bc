//! Signatures of certificates and revocation lists: algorithms, their strength, verification.

use super::der::{self, Reader, tag};
use super::key::{Hash, Kind, PublicKey, pss_hash};
use super::{Malformed, oid};
use aws_lc_rs::signature as aws;
use bytes::Bytes;

/// The AlgorithmIdentifier of a signature.
#[derive(Clone, Debug)]
pub(crate) struct Algorithm {
    der: Bytes,
    scheme: Scheme,
}

/// A scheme of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    RsaPkcs1(Hash),
    RsaPss(Hash),
    Ecdsa(Hash),
    Ed25519,
    /// By a hash that is broken, of which only the kind of key is known.
    Broken(Family),
    /// Known for what key it is, and not verified here since nobody uses it.
    Unsupported(Family),
    Unknown,
}

/// The kind of key that a signature is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Rsa,
    RsaPss,
    Ecdsa,
}

impl Family {
    fn has(self, key: Kind) -> bool {
        match self {
            Family::Rsa => matches!(key, Kind::Rsa(_)),
            Family::RsaPss => matches!(key, Kind::Rsa(_) | Kind::RsaPss(..)),
            Family::Ecdsa => matches!(key, Kind::P256 | Kind::P384 | Kind::P521),
        }
    }
}

impl Algorithm {
    /// A whole AlgorithmIdentifier, which is a part of `owner`.
    pub(crate) fn parse(owner: &Bytes, bytes: &[u8]) -> Result<Algorithm, Malformed> {
        let mut reader = Reader::new(Reader::whole(bytes, tag::SEQUENCE)?);
        let name = der::oid(reader.expect(tag::OID)?)?;
        let parameters = if reader.is_empty() { None } else { Some(reader.next()?) };
        reader.finish()?;
        let scheme = scheme(name, parameters.map(|p| p.raw));
        Ok(Algorithm { der: owner.slice_ref(bytes), scheme })
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }
}

/// Equal if all bytes are.
impl PartialEq for Algorithm {
    fn eq(&self, other: &Algorithm) -> bool {
        self.der == other.der
    }
}

/// The last part of identifiers that begin alike.
fn scheme(name: &[u8], parameters: Option<&[u8]>) -> Scheme {
    /// 1.2.840.113549.1.1, PKCS #1.
    const PKCS1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
    /// 1.2.840.10045.4, X9.62.
    const X962: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4];
    /// 2.16.840.1.101.3.4.3, NIST.
    const NIST: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3];
    if name == oid::ED25519 {
        return Scheme::Ed25519;
    }
    if let Some(last) = name.strip_prefix(PKCS1) {
        return match last {
            [5] => Scheme::RsaPkcs1(Hash::Sha1),
            [10] => parameters
                .and_then(|p| pss_hash(p).ok())
                .filter(|hash| *hash != Hash::Sha1)
                .map_or(Scheme::Unsupported(Family::RsaPss), Scheme::RsaPss),
            [11] => Scheme::RsaPkcs1(Hash::Sha256),
            [12] => Scheme::RsaPkcs1(Hash::Sha384),
            [13] => Scheme::RsaPkcs1(Hash::Sha512),
            // MD2, MD4, MD5
            [2..=4] => Scheme::Broken(Family::Rsa),
            // SHA-224, SHA-512/224, SHA-512/256
            [14..=16] => Scheme::Unsupported(Family::Rsa),
            _ => Scheme::Unknown,
        };
    }
    if let Some(last) = name.strip_prefix(X962) {
        return match last {
            [3, 2] => Scheme::Ecdsa(Hash::Sha256),
            [3, 3] => Scheme::Ecdsa(Hash::Sha384),
            [3, 4] => Scheme::Ecdsa(Hash::Sha512),
            // SHA-1
            [1] => Scheme::Broken(Family::Ecdsa),
            // SHA-224
            [3, 1] => Scheme::Unsupported(Family::Ecdsa),
            _ => Scheme::Unknown,
        };
    }
    match name.strip_prefix(NIST) {
        // SHA-3
        Some([9..=12]) => Scheme::Unsupported(Family::Ecdsa),
        Some([13..=16]) => Scheme::Unsupported(Family::Rsa),
        _ => Scheme::Unknown,
    }
}

impl Scheme {
    /// Whether a key of this kind makes such signatures.
    pub(crate) fn is_of(self, key: Kind) -> bool {
        match self {
            Scheme::RsaPkcs1(_) => Family::Rsa.has(key),
            Scheme::RsaPss(_) => Family::RsaPss.has(key),
            Scheme::Ecdsa(_) => Family::Ecdsa.has(key),
            Scheme::Broken(family) | Scheme::Unsupported(family) => family.has(key),
            Scheme::Ed25519 => key == Kind::Ed25519,
            Scheme::Unknown => false,
        }
    }

    /// Strength in bits as OpenSSL counts it, or less.
    pub(crate) fn security_bits(self) -> u32 {
        match self {
            Scheme::RsaPkcs1(hash) | Scheme::RsaPss(hash) | Scheme::Ecdsa(hash) => {
                hash.security_bits()
            }
            Scheme::Ed25519 => 128,
            // It fails as a signature, and not as a weak one.
            Scheme::Unsupported(_) => 128,
            Scheme::Broken(_) | Scheme::Unknown => 0,
        }
    }
}

/// Whether `signature` over `message` was made with the private key of `key`.
pub(crate) fn verify(scheme: Scheme, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    match algorithm(scheme, key.kind()) {
        Some(algorithm) => {
            aws::UnparsedPublicKey::new(algorithm, key.bits()).verify(message, signature).is_ok()
        }
        None => false,
    }
}

/// The implementation for a scheme with a kind of key. Keys of less than 2048 bits are let through
/// here: whether a key is strong enough is the chain's question, which has its own answer.
fn algorithm(scheme: Scheme, key: Kind) -> Option<&'static dyn aws::VerificationAlgorithm> {
    Some(match (scheme, key) {
        (Scheme::RsaPkcs1(hash), Kind::Rsa(_)) => match hash {
            Hash::Sha1 => &aws::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha256 => &aws::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
            Hash::Sha384 => &aws::RSA_PKCS1_2048_8192_SHA384,
            Hash::Sha512 => &aws::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        },
        (Scheme::RsaPss(hash), Kind::Rsa(_)) => pss(hash)?,
        (Scheme::RsaPss(hash), Kind::RsaPss(_, limit)) if limit.is_none_or(|l| l == hash) => {
            pss(hash)?
        }
        (Scheme::Ecdsa(hash), Kind::P256) => match hash {
            Hash::Sha256 => &aws::ECDSA_P256_SHA256_ASN1,
            Hash::Sha384 => &aws::ECDSA_P256_SHA384_ASN1,
            Hash::Sha512 => &aws::ECDSA_P256_SHA512_ASN1,
            Hash::Sha1 => return None,
        },
        (Scheme::Ecdsa(hash), Kind::P384) => match hash {
            Hash::Sha256 => &aws::ECDSA_P384_SHA256_ASN1,
            Hash::Sha384 => &aws::ECDSA_P384_SHA384_ASN1,
            Hash::Sha512 => &aws::ECDSA_P384_SHA512_ASN1,
            Hash::Sha1 => return None,
        },
        (Scheme::Ecdsa(hash), Kind::P521) => match hash {
            Hash::Sha256 => &aws::ECDSA_P521_SHA256_ASN1,
            Hash::Sha384 => &aws::ECDSA_P521_SHA384_ASN1,
            Hash::Sha512 => &aws::ECDSA_P521_SHA512_ASN1,
            Hash::Sha1 => return None,
        },
        (Scheme::Ed25519, Kind::Ed25519) => &aws::ED25519,
        _ => return None,
    })
}

fn pss(hash: Hash) -> Option<&'static dyn aws::VerificationAlgorithm> {
    Some(match hash {
        Hash::Sha256 => &aws::RSA_PSS_2048_8192_SHA256,
        Hash::Sha384 => &aws::RSA_PSS_2048_8192_SHA384,
        Hash::Sha512 => &aws::RSA_PSS_2048_8192_SHA512,
        Hash::Sha1 => return None,
    })
}
