//! RSA: PKCS #1 v1.5 and PSS signatures, OAEP, and the encodings of keys.

use rsa::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey};
use rsa::rand_core::{TryCryptoRng, TryRng};
use rsa::sha2::{Sha256, Sha384, Sha512};
use rsa::traits::{PrivateKeyParts, PublicKeyParts};
use rsa::{BoxedUint, Pkcs1v15Sign, PrivateKey, Pss, PublicKey};
use sha1_next::Sha1;

use crate::crypto::digest::Hash;

/// Runs the same code for the type of each hash function.
macro_rules! on_hash {
    ($hash:expr, $name:ident => $body:expr) => {
        match $hash {
            Hash::Sha1 => {
                type $name = Sha1;
                $body
            }
            Hash::Sha384 => {
                type $name = Sha384;
                $body
            }
            Hash::Sha512 => {
                type $name = Sha512;
                $body
            }
            _ => {
                type $name = Sha256;
                $body
            }
        }
    };
}

/// Random numbers for the generator of keys.
struct SystemRandom;

impl TryRng for SystemRandom {
    type Error = std::io::Error;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Self::Error> {
        aws_lc_rs::rand::fill(to).map_err(|_| std::io::Error::other("no random numbers"))
    }
}

impl TryCryptoRng for SystemRandom {}

/// A new key pair. It takes a while, and cannot be interrupted.
pub fn generate(bits: usize, exponent: &[u8]) -> Option<PrivateKey> {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    let size = match bits {
        2048 => Some(KeySize::Rsa2048),
        3072 => Some(KeySize::Rsa3072),
        4096 => Some(KeySize::Rsa4096),
        8192 => Some(KeySize::Rsa8192),
        _ => None,
    };
    let is_usual = exponent.iter().skip_while(|byte| **byte == 0).eq(&[1, 0, 1]);
    match size.filter(|_| is_usual) {
        Some(size) => from_pkcs8(KeyPair::generate(size).ok()?.as_der().ok()?.as_ref()),
        None => PrivateKey::new_with_exp(&mut SystemRandom, bits, number(exponent)).ok(),
    }
}

fn number(bytes: &[u8]) -> BoxedUint {
    BoxedUint::from_be_slice_vartime(bytes)
}

/// The public key of its numbers.
pub fn public(n: &[u8], e: &[u8]) -> Option<PublicKey> {
    PublicKey::new(number(n), number(e)).ok()
}

/// The private key of its numbers: modulus, exponents, primes.
pub fn private(n: &[u8], e: &[u8], d: &[u8], p: &[u8], q: &[u8]) -> Option<PrivateKey> {
    let primes = vec![number(p), number(q)];
    PrivateKey::from_components(number(n), number(e), number(d), primes).ok()
}

/// A private key in PKCS #8.
pub fn from_pkcs8(der: &[u8]) -> Option<PrivateKey> {
    PrivateKey::from_pkcs8_der(der).ok()
}

/// A public key as SubjectPublicKeyInfo.
pub(crate) fn from_spki(der: &[u8]) -> Option<PublicKey> {
    PublicKey::from_public_key_der(der).ok()
}

/// A private key in PKCS #8.
pub(crate) fn to_pkcs8(key: &PrivateKey) -> Option<Vec<u8>> {
    Some(key.to_pkcs8_der().ok()?.as_bytes().to_vec())
}

/// A public key as SubjectPublicKeyInfo.
pub(crate) fn to_spki(key: &PublicKey) -> Option<Vec<u8>> {
    Some(key.to_public_key_der().ok()?.as_bytes().to_vec())
}

/// The numbers of a private key for JWK: d, p, q, dp, dq, qi.
pub fn numbers(key: &PrivateKey) -> Option<[Vec<u8>; 6]> {
    let trimmed = |number: &BoxedUint| number.to_be_bytes_trimmed_vartime().to_vec();
    let [p, q] = key.primes() else { return None };
    Some([
        trimmed(key.d()),
        trimmed(p),
        trimmed(q),
        trimmed(key.dp()?),
        trimmed(key.dq()?),
        trimmed(&key.crt_coefficient()?),
    ])
}

/// Signs a digest by PKCS #1 v1.5.
pub(crate) fn pkcs1_sign(key: &PrivateKey, hash: Hash, digest: &[u8]) -> Option<Vec<u8>> {
    on_hash!(hash, D => key.sign(Pkcs1v15Sign::new::<D>(), digest).ok())
}

/// Whether a signature by PKCS #1 v1.5 is right.
pub(crate) fn pkcs1_verify(key: &PublicKey, hash: Hash, digest: &[u8], signature: &[u8]) -> bool {
    on_hash!(hash, D => key.verify(Pkcs1v15Sign::new::<D>(), digest, signature).is_ok())
}

/// Signs a digest by PSS.
pub(crate) fn pss_sign(
    key: &PrivateKey,
    hash: Hash,
    salt: usize,
    digest: &[u8],
) -> Option<Vec<u8>> {
    on_hash!(hash, D => key.sign(Pss::<D>::new_with_salt(salt), digest).ok())
}

/// Whether a signature by PSS is right.
pub(crate) fn pss_verify(
    key: &PublicKey,
    hash: Hash,
    salt: usize,
    digest: &[u8],
    signature: &[u8],
) -> bool {
    on_hash!(hash, D => key.verify(Pss::<D>::new_with_salt(salt), digest, signature).is_ok())
}

pub(crate) fn oaep_encrypt(key: &PublicKey, hash: Hash, data: &[u8]) -> Option<Vec<u8>> {
    on_hash!(hash, D => key.oaep_encrypt::<D>(data).ok())
}

pub(crate) fn oaep_decrypt(key: &PrivateKey, hash: Hash, data: &[u8]) -> Option<Vec<u8>> {
    on_hash!(hash, D => key.oaep_decrypt::<D>(data).ok())
}

/// Modulus and exponent.
pub(crate) fn public_numbers(key: &PublicKey) -> [Vec<u8>; 2] {
    [key.n_bytes().to_vec(), key.e_bytes().to_vec()]
}
