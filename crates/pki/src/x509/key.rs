//! Public keys: their kind and their strength.

use super::der::{self, Reader, tag};
use super::{Malformed, oid};
use aws_lc_rs::signature as aws;
use bytes::Bytes;
use rustls_pki_types::PrivateKeyDer;
use std::sync::OnceLock;

/// A certificate's public key.
#[derive(Clone, Debug)]
pub struct PublicKey {
    /// SubjectPublicKeyInfo.
    der: Bytes,
    /// The key itself: an RSAPublicKey, a point, 32 bytes.
    bits: Bytes,
    /// Found out when somebody asks: a peer can send hundreds of certificates whose points take a
    /// while to check, and few of them are looked at.
    kind: OnceLock<Kind>,
}

/// The kind of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RSA, for every padding; with the bits of its modulus.
    Rsa(u32),
    /// RSA that is for PSS alone, with the hash that it is limited to.
    RsaPss(u32, Option<Hash>),
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// ECDSA on P-521.
    P521,
    /// Ed25519.
    Ed25519,
    /// Another one, or a malformed one: it verifies nothing.
    Unknown,
}

/// A hash of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// For revocation lists only; too weak for certificates.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl PublicKey {
    /// `spki` is a part of `owner`. A key of an unknown or malformed kind is no error here: nothing
    /// can be verified with it.
    pub(crate) fn parse(owner: &Bytes, spki: &[u8]) -> Result<PublicKey, Malformed> {
        let (_, bits, _) = parts(spki)?;
        Ok(PublicKey {
            der: owner.slice_ref(spki),
            bits: owner.slice_ref(bits),
            kind: OnceLock::new(),
        })
    }

    /// The SubjectPublicKeyInfo.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The key itself, for comparison with that of a private key, and for the hash of its issuer
    /// in OCSP.
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// Algorithm, and curve or number of bits.
    pub fn kind(&self) -> Kind {
        *self.kind.get_or_init(|| match parts(&self.der) {
            Ok((algorithm, bits, 0)) => kind(algorithm, bits).unwrap_or(Kind::Unknown),
            _ => Kind::Unknown,
        })
    }

    /// Its strength in bits as OpenSSL counts it; zero if it is of no use.
    pub fn security_bits(&self) -> u32 {
        match self.kind() {
            // NIST SP 800-56B, which OpenSSL rounds to steps of eight: some makers' keys of 2048
            // bits have a few less.
            Kind::Rsa(bits) | Kind::RsaPss(bits, _) => match bits {
                0..1_024 => 0,
                1_024..1_970 => 80,
                1_970..2_680 => 112,
                2_680..7_680 => 128,
                7_680.. => 192,
            },
            Kind::P256 | Kind::Ed25519 => 128,
            Kind::P384 => 192,
            Kind::P521 => 256,
            Kind::Unknown => 0,
        }
    }
}

/// The fields of a SubjectPublicKeyInfo: the algorithm, the key, and how many of its last bits are
/// unused.
fn parts(spki: &[u8]) -> Result<(Reader<'_>, &[u8], u8), Malformed> {
    let mut reader = Reader::new(Reader::whole(spki, tag::SEQUENCE)?);
    let algorithm = reader.sequence()?;
    let (bits, unused) = der::bit_string(reader.expect(tag::BIT_STRING)?)?;
    reader.finish()?;
    let mut name = algorithm;
    der::oid(name.expect(tag::OID)?)?;
    Ok((algorithm, bits, unused))
}

fn kind(mut algorithm: Reader<'_>, bits: &[u8]) -> Result<Kind, Malformed> {
    match algorithm.expect(tag::OID)? {
        // OpenSSL does not look at the parameters; they should be NULL.
        oid::RSA_ENCRYPTION => Ok(Kind::Rsa(modulus_bits(bits)?)),
        oid::RSA_PSS => {
            let hash = if algorithm.is_empty() {
                None
            } else {
                Some(pss_hash(algorithm.expect_element(tag::SEQUENCE)?.raw)?)
            };
            algorithm.finish()?;
            Ok(Kind::RsaPss(modulus_bits(bits)?, hash))
        }
        oid::EC_PUBLIC_KEY => {
            let curve = algorithm.expect(tag::OID)?;
            algorithm.finish()?;
            let (kind, curve) = match curve {
                oid::P256 => (Kind::P256, &aws::ECDSA_P256_SHA256_ASN1),
                oid::P384 => (Kind::P384, &aws::ECDSA_P384_SHA384_ASN1),
                oid::P521 => (Kind::P521, &aws::ECDSA_P521_SHA512_ASN1),
                _ => return Err(Malformed("unknown curve")),
            };
            match aws::ParsedPublicKey::new(curve, bits) {
                Ok(_) => Ok(kind),
                Err(_) => Err(Malformed("no point of the curve")),
            }
        }
        oid::ED25519 => {
            algorithm.finish()?;
            if bits.len() == 32 { Ok(Kind::Ed25519) } else { Err(Malformed("no key of Ed25519")) }
        }
        _ => Err(Malformed("unknown kind of key")),
    }
}

/// The size of a private RSA key, bits: of its modulus, which PKCS#1 has behind the version and
/// PKCS#8 in an octet string. `None` for keys of another kind, and malformed ones.
pub fn private_rsa_bits(key: &PrivateKeyDer<'_>) -> Option<u32> {
    let of_pkcs1 = |der: &[u8]| {
        let mut reader = Reader::new(Reader::whole(der, tag::SEQUENCE).ok()?);
        reader.expect(tag::INTEGER).ok()?;
        bits_of(der::integer(reader.expect(tag::INTEGER).ok()?).ok()?).ok()
    };
    match key {
        PrivateKeyDer::Pkcs1(key) => of_pkcs1(key.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(key) => {
            let whole = Reader::whole(key.secret_pkcs8_der(), tag::SEQUENCE).ok()?;
            let mut reader = Reader::new(whole);
            reader.expect(tag::INTEGER).ok()?;
            let is_rsa = reader.sequence().ok()?.expect(tag::OID).ok()? == oid::RSA_ENCRYPTION;
            let inner = reader.expect(tag::OCTET_STRING).ok()?;
            if is_rsa { of_pkcs1(inner) } else { None }
        }
        _ => None,
    }
}

fn modulus_bits(key: &[u8]) -> Result<u32, Malformed> {
    let mut reader = Reader::new(Reader::whole(key, tag::SEQUENCE)?);
    let modulus = der::integer(reader.expect(tag::INTEGER)?)?;
    der::integer(reader.expect(tag::INTEGER)?)?;
    reader.finish()?;
    bits_of(modulus)
}

fn bits_of(modulus: &[u8]) -> Result<u32, Malformed> {
    let digits = match modulus {
        [0, digits @ ..] => digits,
        [b, ..] if *b < 0x80 => modulus,
        _ => return Err(Malformed("negative modulus")),
    };
    let first = digits.first().map_or(8, |b| b.leading_zeros());
    Ok((digits.len() as u32 * 8).saturating_sub(first))
}

/// The hash of RSASSA-PSS-params if the parameters are those of TLS: one hash for the message and
/// the mask, and a salt of its length.
pub(crate) fn pss_hash(parameters: &[u8]) -> Result<Hash, Malformed> {
    let mut reader = Reader::new(Reader::whole(parameters, tag::SEQUENCE)?);
    let hash = reader.optional(tag::constructed(0))?.ok_or(Malformed("PSS with SHA-1"))?;
    let mask = reader.optional(tag::constructed(1))?.ok_or(Malformed("PSS with SHA-1"))?;
    let salt = reader.optional(tag::constructed(2))?.ok_or(Malformed("PSS with SHA-1"))?;
    if let Some(trailer) = reader.optional(tag::constructed(3))?
        && Reader::whole(trailer, tag::INTEGER)? != [1]
    {
        return Err(Malformed("unknown trailer of PSS"));
    }
    reader.finish()?;
    let hash = hash_algorithm(Reader::whole(hash, tag::SEQUENCE)?)?;
    let mut mask = Reader::new(Reader::whole(mask, tag::SEQUENCE)?);
    if mask.expect(tag::OID)? != oid::MGF1 {
        return Err(Malformed("unknown mask of PSS"));
    }
    let mask_hash = hash_algorithm(mask.expect(tag::SEQUENCE)?)?;
    mask.finish()?;
    let salt = der::integer(Reader::whole(salt, tag::INTEGER)?)?;
    if mask_hash != hash || salt != [hash.length()] {
        return Err(Malformed("PSS parameters that TLS does not have"));
    }
    Ok(hash)
}

/// The content of an AlgorithmIdentifier that names a hash.
fn hash_algorithm(content: &[u8]) -> Result<Hash, Malformed> {
    let mut reader = Reader::new(content);
    let hash = match reader.expect(tag::OID)? {
        oid::SHA1 => Hash::Sha1,
        oid::SHA256 => Hash::Sha256,
        oid::SHA384 => Hash::Sha384,
        oid::SHA512 => Hash::Sha512,
        _ => return Err(Malformed("unknown hash")),
    };
    // NULL or nothing
    if !reader.is_empty() && reader.next()?.raw != [5, 0] {
        return Err(Malformed("parameters of a hash"));
    }
    reader.finish()?;
    Ok(hash)
}

impl Hash {
    fn length(self) -> u8 {
        match self {
            Hash::Sha1 => 20,
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    /// Half of the bits, and less for what is broken, as OpenSSL counts.
    pub(crate) fn security_bits(self) -> u32 {
        match self {
            Hash::Sha1 => 63,
            _ => u32::from(self.length()) * 4,
        }
    }
}
