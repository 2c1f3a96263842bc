//! Elliptic curves: ECDSA and ECDH on P-256, P-384 and P-521; Ed25519 and X25519.

use aws_lc_rs::agreement::{self, X25519};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use p256::ecdsa::signature::hazmat::{PrehashSigner, PrehashVerifier};
use p256::elliptic_curve::sec1::ToSec1Point;
use p256::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey};

use super::algorithm::{Algorithm, Curve};
use super::key::Material;

/// Runs the same code for the crate of each curve.
macro_rules! on_curve {
    ($curve:expr, $name:ident => $body:expr) => {
        match $curve {
            Curve::P256 => {
                use p256 as $name;
                $body
            }
            Curve::P384 => {
                use p384 as $name;
                $body
            }
            Curve::P521 => {
                use p521 as $name;
                $body
            }
        }
    };
}

/// The key of a scalar; `None` if it is none of the curve.
pub(crate) fn from_scalar(curve: Curve, scalar: &[u8]) -> Option<Material> {
    on_curve!(curve, c => {
        let key = c::SecretKey::from_slice(scalar).ok()?;
        let public = key.public_key().to_sec1_point(false).as_bytes().to_vec();
        Some(Material::Ec { curve, public, private: Some(key.to_bytes().to_vec()) })
    })
}

/// The public key of a point, compressed or not; `None` if it is not on the curve.
pub(crate) fn from_point(curve: Curve, point: &[u8]) -> Option<Material> {
    on_curve!(curve, c => {
        let key = c::PublicKey::from_sec1_bytes(point).ok()?;
        let public = key.to_sec1_point(false).as_bytes().to_vec();
        Some(Material::Ec { curve, public, private: None })
    })
}

/// A new key pair.
pub fn generate(curve: Curve) -> Option<Material> {
    // A random number below the order: for P-521, whose numbers have 521 of 528 bits, the seven
    // highest bits are cleared first. The number of attempts is small for each curve.
    for _ in 0..100 {
        let mut scalar = vec![0; curve.bytes()];
        aws_lc_rs::rand::fill(&mut scalar).ok()?;
        if curve == Curve::P521 {
            scalar[0] &= 1;
        }
        if let Some(key) = from_scalar(curve, &scalar) {
            return Some(key);
        }
    }
    None
}

/// A private key in PKCS #8.
pub fn from_pkcs8(curve: Curve, der: &[u8]) -> Option<Material> {
    on_curve!(curve, c => {
        from_scalar(curve, &c::SecretKey::from_pkcs8_der(der).ok()?.to_bytes())
    })
}

/// A public key as SubjectPublicKeyInfo.
pub(crate) fn from_spki(curve: Curve, der: &[u8]) -> Option<Material> {
    on_curve!(curve, c => {
        let key = c::PublicKey::from_public_key_der(der).ok()?;
        from_point(curve, key.to_sec1_point(false).as_bytes())
    })
}

/// A scalar in PKCS #8.
pub(crate) fn to_pkcs8(curve: Curve, scalar: &[u8]) -> Option<Vec<u8>> {
    on_curve!(curve, c => {
        let key = c::SecretKey::from_slice(scalar).ok()?;
        Some(key.to_pkcs8_der().ok()?.as_bytes().to_vec())
    })
}

/// A point as SubjectPublicKeyInfo.
pub(crate) fn to_spki(curve: Curve, point: &[u8]) -> Option<Vec<u8>> {
    on_curve!(curve, c => {
        let key = c::PublicKey::from_sec1_bytes(point).ok()?;
        Some(key.to_public_key_der().ok()?.as_bytes().to_vec())
    })
}

/// A digest, at least as long as the curve's code wants it: leading zeroes do not change it.
fn padded(curve: Curve, digest: &[u8]) -> Vec<u8> {
    let mut out = vec![0; curve.bytes().saturating_sub(digest.len())];
    out.extend_from_slice(digest);
    out
}

/// Signs a digest; the signature is the two numbers, one behind the other.
pub fn sign(curve: Curve, scalar: &[u8], digest: &[u8]) -> Option<Vec<u8>> {
    on_curve!(curve, c => {
        let key = c::ecdsa::SigningKey::from_slice(scalar).ok()?;
        let signature: c::ecdsa::Signature = key.sign_prehash(&padded(curve, digest)).ok()?;
        Some(signature.to_bytes().to_vec())
    })
}

/// Whether a signature is right.
pub fn verify(curve: Curve, point: &[u8], digest: &[u8], signature: &[u8]) -> bool {
    on_curve!(curve, c => {
        let key = c::ecdsa::VerifyingKey::from_sec1_bytes(point);
        let signature = c::ecdsa::Signature::from_slice(signature);
        match (key, signature) {
            (Ok(key), Ok(signature)) => {
                key.verify_prehash(&padded(curve, digest), &signature).is_ok()
            }
            _ => false,
        }
    })
}

/// The shared secret of ECDH.
pub fn agree(curve: Curve, scalar: &[u8], point: &[u8]) -> Option<Vec<u8>> {
    on_curve!(curve, c => {
        let private = c::SecretKey::from_slice(scalar).ok()?;
        let public = c::PublicKey::from_sec1_bytes(point).ok()?;
        Some(private.diffie_hellman(&public).raw_secret_bytes().to_vec())
    })
}

/// The last byte of the object identifiers 1.3.101.110 and 1.3.101.112 (RFC 8410 section 3).
fn oid(algorithm: Algorithm) -> u8 {
    if algorithm == Algorithm::X25519 { 110 } else { 112 }
}

/// PKCS #8 of a private key in front of its 32 bytes (RFC 8410 section 7).
fn okp_pkcs8(algorithm: Algorithm) -> [u8; 16] {
    let oid = oid(algorithm);
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, oid, 4, 0x22, 4, 0x20]
}

/// SubjectPublicKeyInfo in front of its 32 bytes (RFC 8410 section 4).
fn okp_spki(algorithm: Algorithm) -> [u8; 12] {
    [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, oid(algorithm), 3, 0x21, 0]
}

/// The key of 32 private bytes.
pub(crate) fn okp_from_private(algorithm: Algorithm, private: &[u8]) -> Option<Material> {
    let public = match algorithm {
        Algorithm::X25519 => {
            let key = agreement::PrivateKey::from_private_key(&X25519, private).ok()?;
            key.compute_public_key().ok()?.as_ref().to_vec()
        }
        _ => Ed25519KeyPair::from_seed_unchecked(private).ok()?.public_key().as_ref().to_vec(),
    };
    Some(Material::Okp { public, private: Some(private.to_vec()) })
}

/// The key of 32 public bytes.
pub(crate) fn okp_from_public(public: &[u8]) -> Option<Material> {
    (public.len() == 32).then(|| Material::Okp { public: public.to_vec(), private: None })
}

/// A new key pair.
pub(crate) fn okp_generate(algorithm: Algorithm) -> Option<Material> {
    let mut private = [0; 32];
    aws_lc_rs::rand::fill(&mut private).ok()?;
    okp_from_private(algorithm, &private)
}

/// A private key in PKCS #8; attributes behind it are ignored.
pub(crate) fn okp_from_pkcs8(algorithm: Algorithm, der: &[u8]) -> Option<Material> {
    let info = p256::pkcs8::PrivateKeyInfoRef::try_from(der).ok()?;
    let name = format!("1.3.101.{}", oid(algorithm));
    if info.algorithm.oid.to_string() != name {
        return None;
    }
    okp_from_private(algorithm, info.private_key.as_bytes().strip_prefix(&[4, 0x20])?)
}

/// A public key as SubjectPublicKeyInfo.
pub(crate) fn okp_from_spki(algorithm: Algorithm, der: &[u8]) -> Option<Material> {
    okp_from_public(der.strip_prefix(&okp_spki(algorithm))?)
}

/// A private key in PKCS #8.
pub(crate) fn okp_to_pkcs8(algorithm: Algorithm, private: &[u8]) -> Vec<u8> {
    [&okp_pkcs8(algorithm)[..], private].concat()
}

/// A public key as SubjectPublicKeyInfo.
pub(crate) fn okp_to_spki(algorithm: Algorithm, public: &[u8]) -> Vec<u8> {
    [&okp_spki(algorithm)[..], public].concat()
}

pub(crate) fn ed25519_sign(private: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let key = Ed25519KeyPair::from_seed_unchecked(private).ok()?;
    Some(key.sign(data).as_ref().to_vec())
}

/// Whether a signature of Ed25519 is right.
pub(crate) fn ed25519_verify(public: &[u8], data: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public).verify(data, signature).is_ok()
}

/// The shared secret of X25519; `None` if it is zero, which a peer can bring about.
pub(crate) fn x25519_agree(private: &[u8], public: &[u8]) -> Option<Vec<u8>> {
    let key = agreement::PrivateKey::from_private_key(&X25519, private).ok()?;
    let peer = agreement::UnparsedPublicKey::new(&X25519, public);
    agreement::agree(&key, peer, (), |secret| Ok(secret.to_vec())).ok()
}
