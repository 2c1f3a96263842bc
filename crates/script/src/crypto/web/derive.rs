//! `deriveBits` and `deriveKey`: PBKDF2 (RFC 8018), HKDF (RFC 5869), ECDH and X25519.

use rquickjs::{Exception, Result, Value};

use super::algorithm::{self, Algorithm, member, usage};
use super::key::{self, Key, Material};
use super::{ec, export, import};
use crate::crypto::digest::{Hash, Hmac};
use crate::native::{Call, to_i64};
use crate::raw;
use crate::state;

/// Iterations of PBKDF2 between looks at the limits: a few milliseconds.
const STRETCH: u32 = 4096;

/// `deriveBits(algorithm, baseKey, length)`
pub(crate) fn derive_bits<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let length = bytes_of_bits(call, &call.arg(2))?;
    let bits = derive(call, usage::DERIVE_BITS, "deriveBits", length)?;
    export::array_buffer(call.ctx(), &bits)
}

/// `deriveKey(algorithm, baseKey, derivedAlgorithm, extractable, usages)`
pub(crate) fn derive_key<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let parameters = call.arg(2);
    let purpose = import::purpose(&parameters, &call.arg(3), &call.arg(4))?;
    let name = purpose.algorithm.name();
    if !purpose.algorithm.is_secret() {
        return Err(call.type_error(&format!("unsupported derived key \"{name}\"")));
    }
    let given = member(&parameters, "length")?;
    if given.is_undefined() {
        return Err(call.type_error("derivedKeyAlgorithm.length is not provided"));
    }
    let length = bytes_of_bits(call, &given)?;
    if purpose.algorithm.is_aes() && !matches!(length, 16 | 24 | 32) {
        return Err(call.type_error(&format!("deriveKey \"{name}\" length must be 128 or 256")));
    }
    let hash = purpose.hash()?;
    let bits = derive(call, usage::DERIVE_KEY, "deriveKey", length)?;
    purpose.key(hash, Material::Secret(bits))?.into_js(call.ctx())
}

/// A length in bits, as bytes.
fn bytes_of_bits<'js>(call: &Call<'_, 'js>, value: &Value<'js>) -> Result<usize> {
    let bits = to_i64(value)?;
    let limit = state::of(call.ctx()).memory_max();
    usize::try_from(bits / 8)
        .ok()
        .filter(|bytes| *bytes > 0 && *bytes <= limit)
        .ok_or_else(|| call.type_error("derived bit length is out of range"))
}

fn derive(call: &Call<'_, '_>, usage: u32, operation: &str, length: usize) -> Result<Vec<u8>> {
    let parameters = call.arg(0);
    let algorithm = Algorithm::of(&parameters)?;
    let key = key::argument(call, 1, algorithm, usage, operation)?;
    let bytes = |name: &str| -> Result<Vec<u8>> {
        let value = member(&parameters, name)?;
        let missing = format!("{} algorithm.{name} is not provided", algorithm.name());
        raw::bytes(&value).ok_or_else(|| call.type_error(&missing))
    };
    match algorithm {
        Algorithm::Pbkdf2 => {
            let hash = algorithm::hash_of(&parameters)?;
            let salt = bytes("salt")?;
            if salt.len() < 16 {
                let message = "PBKDF2 algorithm.salt must be at least 16 bytes long";
                return Err(call.type_error(message));
            }
            let iterations = to_i64(&member(&parameters, "iterations")?)?;
            let iterations = u32::try_from(iterations).ok().filter(|n| *n > 0);
            let iterations = iterations
                .ok_or_else(|| call.type_error("PBKDF2 algorithm.iterations is out of range"))?;
            let state = state::of(call.ctx());
            pbkdf2(hash, key.secret(), &salt, iterations, length, || !state.meter.must_end())
                .ok_or_else(|| Exception::throw_internal(call.ctx(), "interrupted"))
        }
        Algorithm::Hkdf => {
            let hash = algorithm::hash_of(&parameters)?;
            hkdf(hash, key.secret(), &bytes("salt")?, &bytes("info")?, length)
                .ok_or_else(|| call.type_error("HKDF length is out of range"))
        }
        _ => agree(call, &key, length),
    }
}

fn agree(call: &Call<'_, '_>, key: &Key, length: usize) -> Result<Vec<u8>> {
    let name = key.algorithm.name();
    let public = member(&call.arg(0), "public")?;
    if public.is_undefined() {
        return Err(call.type_error("ECDH algorithm.public is not provided"));
    }
    let public = key::of(call.ctx(), &public, "algorithm.public")?;
    if public.algorithm != key.algorithm {
        return Err(call.type_error("algorithm.public key type mismatch"));
    }
    if !key.is_private() {
        return Err(call.type_error(&format!("baseKey must be a private key for {name}")));
    }
    if public.is_private() {
        return Err(call.type_error("algorithm.public must be a public key"));
    }
    let secret = match (&key.material, &public.material) {
        (
            Material::Ec { curve, private: Some(scalar), .. },
            Material::Ec { curve: other, public, .. },
        ) => {
            if curve != other {
                return Err(call.type_error("ECDH keys must use the same curve"));
            }
            ec::agree(*curve, scalar, public)
        }
        (Material::Okp { private: Some(private), .. }, Material::Okp { public, .. }) => {
            ec::x25519_agree(private, public)
        }
        _ => None,
    };
    let mut secret = secret.ok_or_else(|| call.type_error(&format!("{name} derivation failed")))?;
    if secret.len() < length {
        return Err(call.type_error("derived bit length is too small"));
    }
    secret.truncate(length);
    Ok(secret)
}

/// PBKDF2; `None` if `goes_on` says no.
fn pbkdf2(
    hash: Hash,
    password: &[u8],
    salt: &[u8],
    iterations: u32,
    length: usize,
    goes_on: impl Fn() -> bool,
) -> Option<Vec<u8>> {
    let keyed = Hmac::new(hash, password);
    let mut out = Vec::with_capacity(length);
    let mut number = 0u32;
    while out.len() < length {
        number = number.checked_add(1)?;
        let mut hmac = keyed.clone();
        hmac.update(salt);
        hmac.update(&number.to_be_bytes());
        let mut last = hmac.finish();
        let mut block = last.clone();
        for i in 1..iterations {
            if i.is_multiple_of(STRETCH) && !goes_on() {
                return None;
            }
            let mut hmac = keyed.clone();
            hmac.update(&last);
            last = hmac.finish();
            block.iter_mut().zip(&last).for_each(|(a, b)| *a ^= b);
        }
        if !goes_on() {
            return None;
        }
        out.extend_from_slice(&block);
    }
    out.truncate(length);
    Some(out)
}

/// HKDF; `None` if it cannot give so many bytes.
fn hkdf(hash: Hash, secret: &[u8], salt: &[u8], info: &[u8], length: usize) -> Option<Vec<u8>> {
    // An empty salt is one of zeroes, and HMAC fills keys up with zeroes.
    let keyed = Hmac::new(hash, &Hmac::of(hash, salt, secret));
    let mut out = Vec::with_capacity(length);
    let mut last = Vec::new();
    let mut number = 0u8;
    while out.len() < length {
        number = number.checked_add(1)?;
        let mut hmac = keyed.clone();
        hmac.update(&last);
        hmac.update(info);
        hmac.update(&[number]);
        last = hmac.finish();
        out.extend_from_slice(&last);
    }
    out.truncate(length);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::{hkdf, pbkdf2};
    use crate::codec::Encoding;
    use crate::crypto::digest::Hash;

    #[test]
    fn pbkdf2_of_rfc_6070() {
        let out = pbkdf2(Hash::Sha1, b"password", b"salt", 4096, 20, || true).unwrap();
        assert_eq!(Encoding::Hex.encode(&out), "4b007901b765489abead49d926f721d065a429c1");
        assert_eq!(pbkdf2(Hash::Sha1, b"password", b"salt", 4097, 20, || false), None);
    }

    #[test]
    fn hkdf_of_rfc_5869() {
        let salt = Encoding::Hex.decode("000102030405060708090a0b0c");
        let info = Encoding::Hex.decode("f0f1f2f3f4f5f6f7f8f9");
        let out = hkdf(Hash::Sha256, &[0x0b; 22], &salt, &info, 42).unwrap();
        assert_eq!(
            Encoding::Hex.encode(&out),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        );
        assert_eq!(hkdf(Hash::Sha256, b"", b"", b"", 256 * 32), None);
    }
}
