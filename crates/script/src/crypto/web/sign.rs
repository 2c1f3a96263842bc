//! `sign`, `verify` and `digest`.

use rquickjs::{Result, Value};

use super::algorithm::{self, Algorithm, member, usage};
use super::cipher::data;
use super::key::{self, Key, Material};
use super::{ec, export, rsa_keys};
use crate::crypto::digest::{Hash, Hmac};
use crate::native::{Call, to_i64};

/// `digest(algorithm, data)`
pub fn digest<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let hash = algorithm::hash(&call.arg(0))?;
    export::array_buffer(call.ctx(), &hash.of(&data(call, 1)?))
}

/// The hash function of an operation: that of the key, or of ECDSA's argument.
fn hash(call: &Call<'_, '_>, key: &Key) -> Result<Hash> {
    match key.algorithm {
        Algorithm::Ecdsa => algorithm::hash_of(&call.arg(0)),
        _ => Ok(key.hash.unwrap_or(Hash::Sha256)),
    }
}

/// The length of PSS's salt.
fn salt(call: &Call<'_, '_>) -> Result<usize> {
    let length = to_i64(&member(&call.arg(0), "saltLength")?)?;
    // More than any key has room for.
    usize::try_from(length)
        .ok()
        .filter(|length| *length <= 2048)
        .ok_or_else(|| call.type_error("RSA-PSS algorithm.saltLength is out of range"))
}

/// `sign(algorithm, key, data)`
pub fn sign<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let algorithm = Algorithm::of(&call.arg(0))?;
    let key = key::argument(call, 1, algorithm, usage::SIGN, "sign")?;
    let data = data(call, 2)?;
    let hash = hash(call, &key)?;
    let signature = match (&key.material, algorithm) {
        (Material::Secret(secret), _) => Some(Hmac::of(hash, secret, &data)),
        (Material::RsaPrivate(rsa), Algorithm::RsaPss) => {
            rsa_keys::pss_sign(rsa, hash, salt(call)?, &hash.of(&data))
        }
        (Material::RsaPrivate(rsa), _) => rsa_keys::pkcs1_sign(rsa, hash, &hash.of(&data)),
        (Material::Ec { curve, private: Some(scalar), .. }, _) => {
            ec::sign(*curve, scalar, &hash.of(&data))
        }
        (Material::Okp { private: Some(private), .. }, _) => ec::ed25519_sign(private, &data),
        _ => None,
    };
    let signature = signature
        .ok_or_else(|| call.type_error(&format!("{} signing failed", algorithm.name())))?;
    export::array_buffer(call.ctx(), &signature)
}

/// `verify(algorithm, key, signature, data)`
pub fn verify<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let algorithm = Algorithm::of(&call.arg(0))?;
    let key = key::argument(call, 1, algorithm, usage::VERIFY, "verify")?;
    let (signature, data) = (data(call, 2)?, data(call, 3)?);
    let hash = hash(call, &key)?;
    let right = match (&key.material, algorithm) {
        (Material::Secret(secret), _) => {
            let wanted = Hmac::of(hash, secret, &data);
            // Without an early end, so that the time says nothing about the place of a difference.
            let differences = wanted.iter().zip(&signature).fold(0, |sum, (a, b)| sum | (a ^ b));
            wanted.len() == signature.len() && differences == 0
        }
        (Material::RsaPublic(rsa), Algorithm::RsaPss) => {
            rsa_keys::pss_verify(rsa, hash, salt(call)?, &hash.of(&data), &signature)
        }
        (Material::RsaPublic(rsa), _) => {
            rsa_keys::pkcs1_verify(rsa, hash, &hash.of(&data), &signature)
        }
        (Material::Ec { curve, public, .. }, _) => {
            ec::verify(*curve, public, &hash.of(&data), &signature)
        }
        (Material::Okp { public, .. }, _) => ec::ed25519_verify(public, &data, &signature),
        _ => false,
    };
    call.bool(right)
}
