//! The means of having certificates issued: keys, signatures of requests to an authority (the
//! signer of `proto::acme`), requests for certificates, and certificates that answer challenges.
//!
//! rcgen encodes requests and certificates; keys stay within this module but for [`Key::to_pem`].

pub mod local;

use std::net::IpAddr;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use proto::acme::{Identifier, SignFailed, Signer};
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, DnType, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_RSA_SHA256, RsaKeySize, SanType,
};
use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

use crate::pem::{self, Passwords, Secret};
use crate::x509::der::{Reader, integer, tag};

/// The kind of a key, with its size in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// 256, 384 or 521.
    Ecdsa(u32),
    /// 2048, 3072 or 4096.
    Rsa(u32),
}

/// Why a key, a request or a certificate cannot be made.
#[derive(Debug)]
pub enum Error {
    /// There is no curve of this size.
    NoCurve,
    /// RSA keys of this size are not made.
    NoSize,
    /// The library makes no key: the system has no random numbers.
    Generate,
    /// The text is no PEM.
    Pem(pem::Error),
    /// The key is of another kind than those of [`KeyKind`].
    Unsupported,
    /// A certificate for nobody.
    NoName,
    /// The key has none of the forms of DER; the parser's reason.
    Der(&'static str),
    /// The request or certificate cannot be encoded or signed.
    Encode(rcgen::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Error::NoCurve => "no such curve",
            Error::NoSize => "no such size of a key",
            Error::Generate => "making a key failed",
            Error::Pem(error) => return error.fmt(f),
            Error::Unsupported => "unsupported key",
            Error::NoName => "no name",
            Error::Der(reason) => reason,
            Error::Encode(error) => return error.fmt(f),
        })
    }
}

impl std::error::Error for Error {}

impl From<rcgen::Error> for Error {
    fn from(error: rcgen::Error) -> Error {
        Error::Encode(error)
    }
}

/// The means of a key's signatures.
enum Pair {
    /// With the bits of its curve.
    Ecdsa(EcdsaKeyPair, u32),
    Rsa(RsaKeyPair),
}

/// A private key.
pub struct Key {
    pair: Pair,
    /// PKCS#8, PKCS#1 or SEC 1.
    der: Secret,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// The curves, each with its bits, the name in JSON, and the algorithm's name.
const CURVES: [(u32, &str, &str, &EcdsaSigningAlgorithm); 3] = [
    (256, "P-256", "ES256", &ECDSA_P256_SHA256_FIXED_SIGNING),
    (384, "P-384", "ES384", &ECDSA_P384_SHA384_FIXED_SIGNING),
    (521, "P-521", "ES512", &ECDSA_P521_SHA512_FIXED_SIGNING),
];

impl Key {
    /// Makes a key.
    ///
    /// # Errors
    /// There is no such kind, or the system has no random numbers.
    pub fn generate(kind: KeyKind) -> Result<Key, Error> {
        let (rng, failed) = (SystemRandom::new(), |_| Error::Generate);
        let der = match kind {
            KeyKind::Ecdsa(bits) => {
                let curve = CURVES.iter().find(|curve| curve.0 == bits);
                let (.., algorithm) = curve.ok_or(Error::NoCurve)?;
                let der = EcdsaKeyPair::generate_pkcs8(algorithm, &rng).map_err(failed)?;
                Zeroizing::new(der.as_ref().to_vec())
            }
            KeyKind::Rsa(bits) => {
                let size = match bits {
                    2048 => RsaKeySize::_2048,
                    3072 => RsaKeySize::_3072,
                    4096 => RsaKeySize::_4096,
                    _ => return Err(Error::NoSize),
                };
                let key = rcgen::KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size);
                Zeroizing::new(key?.serialized_der().to_vec())
            }
        };
        Key::from_der(&der).ok_or(Error::Generate)
    }

    /// Reads the first key of a text in PEM.
    ///
    /// # Errors
    /// There is none, or it is of another kind.
    pub fn from_pem(text: &[u8]) -> Result<Key, Error> {
        let key = pem::private_key(text, &Passwords::none()).map_err(Error::Pem)?;
        Key::from_der(key.der()).ok_or(Error::Unsupported)
    }

    fn from_der(der: &[u8]) -> Option<Key> {
        let of_curve = |(bits, _, _, algorithm): &(u32, _, _, &'static EcdsaSigningAlgorithm)| {
            let pair = EcdsaKeyPair::from_private_key_der(algorithm, der).ok()?;
            Some(Pair::Ecdsa(pair, *bits))
        };
        let rsa = || {
            let pair = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).ok()?;
            Some(Pair::Rsa(pair))
        };
        let pair = CURVES.iter().find_map(of_curve).or_else(rsa)?;
        Some(Key { pair, der: Zeroizing::new(der.to_vec()) })
    }

    /// Curve or number of bits.
    pub fn kind(&self) -> KeyKind {
        match &self.pair {
            Pair::Ecdsa(_, bits) => KeyKind::Ecdsa(*bits),
            Pair::Rsa(pair) => {
                KeyKind::Rsa(u32::try_from(pair.public_modulus_len() * 8).unwrap_or(0))
            }
        }
    }

    /// The key in PEM.
    pub fn to_pem(&self) -> Secret {
        let mut base64 = Zeroizing::new(Vec::with_capacity(self.der.len() * 4 / 3 + 4));
        base::base64::encode(&self.der, &mut base64);
        let (begin, end) = match PrivateKeyDer::try_from(&self.der[..]) {
            Ok(PrivateKeyDer::Sec1(_)) => {
                ("-----BEGIN EC PRIVATE KEY-----\n", "-----END EC PRIVATE KEY-----\n")
            }
            Ok(PrivateKeyDer::Pkcs1(_)) => {
                ("-----BEGIN RSA PRIVATE KEY-----\n", "-----END RSA PRIVATE KEY-----\n")
            }
            _ => ("-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----\n"),
        };
        let lines = base64.len() / 64 + 1;
        let mut out = Zeroizing::new(Vec::with_capacity(base64.len() + lines + 80));
        out.extend_from_slice(begin.as_bytes());
        for line in base64.chunks(64) {
            out.extend_from_slice(line);
            out.push(b'\n');
        }
        out.extend_from_slice(end.as_bytes());
        out
    }

    /// A request for a certificate of these names, in DER; with `common_name` the first name (or
    /// else the first address) is the subject's, too.
    ///
    /// # Errors
    /// A name is not ASCII, or the key does not sign.
    pub fn request(&self, names: &[Identifier], common_name: bool) -> Result<Vec<u8>, Error> {
        let mut params = params(names)?;
        if common_name {
            let is_name = |name: &&Identifier| matches!(name, Identifier::Dns(_));
            let first = names.iter().find(is_name).or(names.first()).ok_or(Error::NoName)?;
            params.distinguished_name.push(DnType::CommonName, first.value());
        }
        let request = params.serialize_request(&self.rcgen()?)?;
        Ok(request.der().to_vec())
    }

    /// The certificate that answers a challenge by ALPN (RFC 8737 section 3) for one name, in PEM.
    ///
    /// # Errors
    /// As [`Key::request`].
    pub fn challenge_certificate(
        &self,
        name: &Identifier,
        key_authorization: &str,
    ) -> Result<Vec<u8>, Error> {
        let mut params = params(std::slice::from_ref(name))?;
        params.distinguished_name.push(DnType::CommonName, "ACME challenge");
        let hash = digest(&SHA256, key_authorization.as_bytes());
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash.as_ref())];
        let certificate = params.self_signed(&self.rcgen()?)?;
        Ok(crate::x509::pem::write(certificate.der()))
    }

    fn rcgen(&self) -> Result<rcgen::KeyPair, Error> {
        let algorithm = match self.kind() {
            KeyKind::Ecdsa(256) => &PKCS_ECDSA_P256_SHA256,
            KeyKind::Ecdsa(384) => &PKCS_ECDSA_P384_SHA384,
            KeyKind::Ecdsa(_) => &PKCS_ECDSA_P521_SHA512,
            KeyKind::Rsa(_) => &PKCS_RSA_SHA256,
        };
        let der = PrivateKeyDer::try_from(&self.der[..]).map_err(Error::Der)?;
        Ok(rcgen::KeyPair::from_der_and_sign_algo(&der, algorithm)?)
    }

    /// Modulus and exponent of an RSA key.
    fn rsa_numbers(pair: &RsaKeyPair) -> Option<(Vec<u8>, Vec<u8>)> {
        let public = pair.public_key().as_ref();
        let mut parts = Reader::new(Reader::whole(public, tag::SEQUENCE).ok()?);
        let mut number = || {
            let content = integer(parts.expect(tag::INTEGER).ok()?).ok()?;
            // Without the byte that only says "positive".
            Some(content.strip_prefix(&[0]).unwrap_or(content).to_vec())
        };
        Some((number()?, number()?))
    }
}

fn params(names: &[Identifier]) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for name in names {
        params.subject_alt_names.push(match name {
            Identifier::Dns(name) => SanType::DnsName(name.as_str().try_into()?),
            Identifier::Ip(address) => SanType::IpAddress(*address),
        });
    }
    Ok(params)
}

impl Signer for Key {
    fn algorithm(&self) -> &'static str {
        match &self.pair {
            Pair::Ecdsa(_, bits) => {
                CURVES.iter().find(|curve| curve.0 == *bits).map_or("ES256", |curve| curve.2)
            }
            Pair::Rsa(_) => "RS256",
        }
    }

    fn jwk(&self) -> String {
        let text = |bytes: &[u8]| {
            let mut out = Vec::new();
            base::base64::encode_url(bytes, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        match &self.pair {
            Pair::Ecdsa(pair, bits) => {
                // A byte that says "not compressed", then both coordinates.
                let point = pair.public_key().as_ref().get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                let curve =
                    CURVES.iter().find(|curve| curve.0 == *bits).map_or("", |curve| curve.1);
                format!(r#"{{"crv":"{curve}","kty":"EC","x":"{}","y":"{}"}}"#, text(x), text(y))
            }
            Pair::Rsa(pair) => {
                let (n, e) = Key::rsa_numbers(pair).unwrap_or_default();
                format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, text(&e), text(&n))
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignFailed> {
        let (rng, failed) = (SystemRandom::new(), |_| SignFailed);
        match &self.pair {
            Pair::Ecdsa(pair, _) => Ok(pair.sign(&rng, message).map_err(failed)?.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &rng, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
        }
    }
}

/// HMAC with SHA-256.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key);
    aws_lc_rs::hmac::sign(&key, message).as_ref().to_vec()
}

/// SHA-256.
pub fn sha256(message: &[u8]) -> Vec<u8> {
    digest(&SHA256, message).as_ref().to_vec()
}

/// A random number; 0 if the system has none.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}

/// Whether a certificate is for all of these names.
pub fn covers(certificate: &crate::x509::Certificate, names: &[Identifier]) -> bool {
    names.iter().all(|name| match name {
        Identifier::Dns(name) => {
            certificate.dns_names().any(|of| of.eq_ignore_ascii_case(name.as_bytes()))
        }
        Identifier::Ip(address) => certificate.ip_addresses().any(|of| match address {
            IpAddr::V4(v4) => of == v4.octets(),
            IpAddr::V6(v6) => of == v6.octets(),
        }),
    })
}

#[cfg(test)]
mod tests;
