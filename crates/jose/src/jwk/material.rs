//! The key itself, by type: `oct`, `RSA`, `EC` and `OKP`.

use aws_lc_rs::agreement::{self, PrivateKey};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{self, KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    ParsedPublicKey,
};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::Flaw;
use super::rsa_public::RsaPublic;
use crate::alg::Hash;
use crate::{KeyManagement, Signing, base64url};

/// RFC 7518 sections 3.3 and 4.3: 2048 bits or more. The upper bound is that of the cryptography,
/// and limits the time of a check.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A curve, with the one algorithm of signatures that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    pub(crate) fn hash(self) -> Hash {
        match self {
            Curve::P256 => Hash::Sha256,
            Curve::P384 => Hash::Sha384,
            Curve::P521 => Hash::Sha512,
        }
    }

    fn for_agreement(self) -> AgreementCurve {
        match self {
            Curve::P256 => AgreementCurve::P256,
            Curve::P384 => AgreementCurve::P384,
            Curve::P521 => AgreementCurve::P521,
        }
    }

    /// Bytes of a coordinate; a signature has two of such numbers.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
            Curve::P521 => 66,
        }
    }
}

pub(crate) enum Material {
    Secret(Zeroizing<Vec<u8>>),
    Rsa {
        public: Box<RsaPublic>,
        /// For decryption.
        private: Option<RsaPrivate>,
    },
    Ec {
        curve: Curve,
        public: ParsedPublicKey,
        /// For key agreement.
        private: Option<PrivateKey>,
    },
    Ed25519(ParsedPublicKey),
    /// For key agreement.
    X25519(Option<PrivateKey>),
}

/// A private key of RSA, for each of the paddings.
pub(crate) struct RsaPrivate {
    pub(crate) oaep: rsa::OaepPrivateDecryptingKey,
    pub(crate) pkcs1: rsa::Pkcs1PrivateDecryptingKey,
}

/// A curve for key agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgreementCurve {
    P256,
    P384,
    P521,
    X25519,
}

impl AgreementCurve {
    /// By the type and the curve's name (RFC 7518 section 6.2.1.1, RFC 8037 section 2).
    pub(crate) fn parse(kty: &str, crv: &str) -> Option<AgreementCurve> {
        Some(match (kty, crv) {
            ("EC", "P-256") => AgreementCurve::P256,
            ("EC", "P-384") => AgreementCurve::P384,
            ("EC", "P-521") => AgreementCurve::P521,
            ("OKP", "X25519") => AgreementCurve::X25519,
            _ => return None,
        })
    }

    pub(crate) fn algorithm(self) -> &'static agreement::Algorithm {
        match self {
            AgreementCurve::P256 => &agreement::ECDH_P256,
            AgreementCurve::P384 => &agreement::ECDH_P384,
            AgreementCurve::P521 => &agreement::ECDH_P521,
            AgreementCurve::X25519 => &agreement::X25519,
        }
    }

    /// Bytes of a coordinate, and of a private key.
    pub(crate) fn bytes(self) -> usize {
        match self {
            AgreementCurve::P256 | AgreementCurve::X25519 => 32,
            AgreementCurve::P384 => 48,
            AgreementCurve::P521 => 66,
        }
    }
}

impl Material {
    pub(super) fn parse(members: &Map<String, Value>) -> Result<Material, Flaw> {
        let Some(Value::String(kty)) = members.get("kty") else {
            return Err(Flaw::Malformed("kty is missing or no string"));
        };
        match kty.as_str() {
            "oct" => {
                let secret = bytes(members, "k", "k is missing or no base64url")?;
                if secret.is_empty() {
                    return Err(Flaw::Malformed("k is empty"));
                }
                Ok(Material::Secret(secret))
            }
            "RSA" => rsa(members),
            "EC" => ec(members),
            "OKP" => okp(members),
            _ => Err(Flaw::Unsupported("its type (kty) is not supported")),
        }
    }

    /// Whether signatures of the algorithm are made with keys of this type. Length is not asked
    /// for: a secret that is too short gets an error of its own.
    pub(crate) fn can_sign(&self, alg: Signing) -> bool {
        match (self, alg) {
            (Material::Secret(_), Signing::Hmac(_))
            | (Material::Rsa { .. }, Signing::RsaPkcs1(_) | Signing::RsaPss(_))
            | (Material::Ed25519(_), Signing::Ed25519) => true,
            (Material::Ec { curve, .. }, Signing::Ecdsa(hash)) => curve.hash() == hash,
            _ => false,
        }
    }

    /// Whether keys of this type and length are for the algorithm. A secret of another length is
    /// none, because a shorter or longer one cannot be meant.
    pub(super) fn is_of(&self, alg: KeyManagement) -> bool {
        match (self, alg) {
            (Material::Secret(_), KeyManagement::Direct)
            | (
                Material::Rsa { .. },
                KeyManagement::RsaOaep | KeyManagement::RsaOaepSha2(_) | KeyManagement::Rsa1_5,
            )
            | (
                Material::Ec { .. } | Material::X25519(_),
                KeyManagement::EcdhEs | KeyManagement::EcdhEsAesKw(_),
            ) => true,
            (
                Material::Secret(secret),
                KeyManagement::AesKw(bytes) | KeyManagement::AesGcmKw(bytes),
            ) => secret.len() == bytes,
            _ => false,
        }
    }

    /// The same of a key that can decrypt: providers publish public keys that clients encrypt with.
    pub(super) fn can_decrypt(&self, alg: KeyManagement) -> bool {
        self.is_of(alg)
            && !matches!(
                self,
                Material::Rsa { private: None, .. }
                    | Material::Ec { private: None, .. }
                    | Material::X25519(None)
            )
    }

    /// The private key for an agreement.
    pub(crate) fn agrees_with(&self) -> Option<&PrivateKey> {
        match self {
            Material::Ec { private, .. } | Material::X25519(private) => private.as_ref(),
            _ => None,
        }
    }
}

fn bytes(
    members: &Map<String, Value>,
    name: &str,
    wrong: &'static str,
) -> Result<Zeroizing<Vec<u8>>, Flaw> {
    let text = members.get(name).and_then(Value::as_str);
    let bytes = text.and_then(|text| base64url::decode(text.as_bytes()));
    bytes.map(Zeroizing::new).ok_or(Flaw::Malformed(wrong))
}

/// A number without the zeros that some writers put in front, contrary to RFC 7518 section 2.
fn number(
    members: &Map<String, Value>,
    name: &str,
    wrong: &'static str,
) -> Result<Zeroizing<Vec<u8>>, Flaw> {
    let mut number = bytes(members, name, wrong)?;
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    if number.is_empty() { Err(Flaw::Malformed(wrong)) } else { Ok(number) }
}

fn rsa(members: &Map<String, Value>) -> Result<Material, Flaw> {
    let n = number(members, "n", "n is missing or no base64url of a number")?;
    let e = number(members, "e", "e is missing or no base64url of a number")?;
    let bits = n.len() * 8 - n[0].leading_zeros() as usize;
    if bits < *RSA_BITS.start() {
        return Err(Flaw::Unsupported("its RSA modulus is shorter than 2048 bits"));
    }
    if bits > *RSA_BITS.end() {
        return Err(Flaw::Unsupported("its RSA modulus is longer than 8192 bits"));
    }
    // Signatures by an exponent of 1 are the padded hash itself: anybody can make them.
    if e.len() > 4 || e.last().is_some_and(|last| last % 2 == 0) || e[..] == [1] {
        return Err(Flaw::Malformed("e is no odd number from 3 to 2^32"));
    }
    if n.last().is_some_and(|last| last % 2 == 0) {
        return Err(Flaw::Malformed("n is even"));
    }
    if has_pattern_of_roca(&n) {
        return Err(Flaw::Unsupported(
            "its RSA modulus has the pattern of keys that can be factored (CVE-2017-15361)",
        ));
    }
    let private = match members.contains_key("d") {
        true => Some(rsa_private(members, PublicKeyComponents { n: &n[..], e: &e[..] })?),
        false => None,
    };
    Ok(Material::Rsa { public: Box::new(RsaPublic::new(&n, &e)), private })
}

fn rsa_private(
    members: &Map<String, Value>,
    public_key: PublicKeyComponents<&[u8]>,
) -> Result<RsaPrivate, Flaw> {
    if members.contains_key("oth") {
        return Err(Flaw::Unsupported("its RSA modulus has more than two primes"));
    }
    let part =
        |name| number(members, name, "one of d, p, q, dp, dq and qi is missing or no number");
    let components = KeyPairComponents {
        public_key,
        d: part("d")?,
        p: part("p")?,
        q: part("q")?,
        dP: part("dp")?,
        dQ: part("dq")?,
        qInv: part("qi")?,
    };
    let wrong = Flaw::Malformed("the numbers of the RSA key do not belong together");
    let slices = KeyPairComponents {
        public_key: components.public_key,
        d: &components.d[..],
        p: &components.p[..],
        q: &components.q[..],
        dP: &components.dP[..],
        dQ: &components.dQ[..],
        qInv: &components.qInv[..],
    };
    let Ok(pair) = rsa::KeyPair::from_components(&slices) else { return Err(wrong) };
    let Ok(der) = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&pair) else {
        return Err(wrong);
    };
    let key = || rsa::PrivateDecryptingKey::from_pkcs8(der.as_ref()).ok();
    let oaep = key().and_then(|key| rsa::OaepPrivateDecryptingKey::new(key).ok());
    let pkcs1 = key().and_then(|key| rsa::Pkcs1PrivateDecryptingKey::new(key).ok());
    oaep.zip(pkcs1).map(|(oaep, pkcs1)| RsaPrivate { oaep, pkcs1 }).ok_or(wrong)
}

/// Whether the modulus has the pattern of a library of smart cards whose primes are made of few
/// random bits ("The Return of Coppersmith's Attack", CCS 2017, section 5): modulo each small prime
/// it is a power of 65537. Of other moduli less than one of 2^80 is.
fn has_pattern_of_roca(n: &[u8]) -> bool {
    const PRIMES: [u32; 38] = [
        3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89,
        97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
    ];
    PRIMES.iter().all(|&prime| {
        let rest = n.iter().fold(0u32, |rest, byte| (rest << 8 | u32::from(*byte)) % prime);
        let mut power = 1;
        loop {
            if power == rest {
                return true;
            }
            power = power * (65537 % prime) % prime;
            if power == 1 {
                return false;
            }
        }
    })
}

fn ec(members: &Map<String, Value>) -> Result<Material, Flaw> {
    let Some(Value::String(name)) = members.get("crv") else {
        return Err(Flaw::Malformed("crv is missing or no string"));
    };
    let (curve, algorithm) = match name.as_str() {
        "P-256" => (Curve::P256, &ECDSA_P256_SHA256_FIXED),
        "P-384" => (Curve::P384, &ECDSA_P384_SHA384_FIXED),
        "P-521" => (Curve::P521, &ECDSA_P521_SHA512_FIXED),
        _ => return Err(Flaw::Unsupported("its curve is not supported")),
    };
    let mut point = vec![4];
    for name in ["x", "y"] {
        // RFC 7518 section 6.2.1.2: all bytes of the coordinate, leading zeros among them.
        let coordinate = bytes(members, name, "x or y is missing or no base64url")?;
        if coordinate.len() != curve.bytes() {
            return Err(Flaw::Malformed("x or y has another length than the curve's numbers"));
        }
        point.extend_from_slice(&coordinate);
    }
    let Ok(public) = ParsedPublicKey::new(algorithm, &point) else {
        return Err(Flaw::Malformed("the point is not on the curve"));
    };
    let private = private_of_agreement(members, curve.for_agreement(), &point)?;
    Ok(Material::Ec { curve, public, private })
}

/// The private key (`d`), if there is one.
fn private_of_agreement(
    members: &Map<String, Value>,
    curve: AgreementCurve,
    point: &[u8],
) -> Result<Option<PrivateKey>, Flaw> {
    if !members.contains_key("d") {
        return Ok(None);
    }
    let d = bytes(members, "d", "d is no base64url")?;
    if d.len() != curve.bytes() {
        return Err(Flaw::Malformed("d has another length than the curve's numbers"));
    }
    let Ok(private) = PrivateKey::from_private_key(curve.algorithm(), &d) else {
        return Err(Flaw::Malformed("d is no private key of the curve"));
    };
    match private.compute_public_key() {
        Ok(public) if public.as_ref() == point => Ok(Some(private)),
        _ => Err(Flaw::Malformed("d does not belong to the public key")),
    }
}

fn okp(members: &Map<String, Value>) -> Result<Material, Flaw> {
    match members.get("crv").and_then(Value::as_str) {
        Some("Ed25519") => {}
        Some("X25519") => {
            let x = bytes(members, "x", "x is missing or no base64url")?;
            if x.len() != AgreementCurve::X25519.bytes() {
                return Err(Flaw::Malformed("x has not the 32 bytes of X25519"));
            }
            let private = private_of_agreement(members, AgreementCurve::X25519, &x)?;
            return Ok(Material::X25519(private));
        }
        Some("Ed448") => return Err(Flaw::Unsupported("Ed448 is not supported")),
        Some(_) => return Err(Flaw::Unsupported("its curve is not supported")),
        None => return Err(Flaw::Malformed("crv is missing or no string")),
    }
    let x = bytes(members, "x", "x is missing or no base64url")?;
    if x.len() != 32 {
        return Err(Flaw::Malformed("x has not the 32 bytes of Ed25519"));
    }
    match ParsedPublicKey::new(&ED25519, &x[..]) {
        Ok(key) => Ok(Material::Ed25519(key)),
        Err(_) => Err(Flaw::Malformed("x is no public key of Ed25519")),
    }
}

#[cfg(test)]
mod tests {
    use super::has_pattern_of_roca;

    #[test]
    fn powers_of_65537_have_the_pattern_and_others_do_not() {
        for power in [1u128, 65537, 65537 * 65537, 65537u128.pow(7)] {
            assert!(has_pattern_of_roca(&power.to_be_bytes()), "{power}");
            assert!(!has_pattern_of_roca(&(power + 2).to_be_bytes()), "{power}");
        }
        assert!(!has_pattern_of_roca(&[0]));
    }
}
