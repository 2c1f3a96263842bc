//! Signed tokens (RFC 7515) in the compact form: `header.payload.signature`.

use aws_lc_rs::hmac;
use serde_json::{Map, Value};

use crate::alg::Hash;
use crate::header::{Header, Limits, decode, split};
use crate::jwk::{Key, Material, Padding};
use crate::{Error, KeySet, Part, Signing};

/// A token whose signature is valid. Its claims are not checked yet.
#[derive(Debug)]
pub struct Verified {
    /// The members of the header, which the signature covers.
    pub header: Map<String, Value>,
    /// The signed bytes, which are not looked at yet.
    pub payload: Vec<u8>,
}

/// Verifies a signed token with one of the keys.
///
/// # Errors
/// The token is malformed or has a member that is refused, no key fits, or no key that fits made
/// the signature.
pub fn verify(token: &[u8], keys: &KeySet, limits: Limits) -> Result<Verified, Error> {
    let [header, payload, signature] = split::<3>(token, limits)?;
    let signed = &token[..header.len() + 1 + payload.len()];
    let header = Header::parse(header)?;
    // Payloads of signed tokens are never compressed; some libraries did it all the same.
    if header.members.contains_key("zip") {
        return Err(Error::Compressed);
    }
    let payload = decode(payload, Part::Payload)?;
    let signature = decode(signature, Part::Signature)?;
    let alg = Signing::parse(header.alg()?)?;
    let mut why = Error::Signature;
    for key in keys.candidates(header.kid(), |key| key.verifies(alg))? {
        match check(key, alg, signed, &signature) {
            Ok(()) => return Ok(Verified { header: header.members, payload }),
            Err(e @ Error::KeyTooShort { .. }) => why = e,
            Err(_) => {}
        }
    }
    Err(why)
}

fn check(key: &Key, alg: Signing, signed: &[u8], signature: &[u8]) -> Result<(), Error> {
    let is_valid = match (&key.material, alg) {
        (Material::Secret(secret), Signing::Hmac(hash)) => {
            // RFC 7518 section 3.2: a shorter key can be found by trying.
            if secret.len() < hash.bytes() {
                return Err(Error::KeyTooShort { bytes: hash.bytes() });
            }
            let key = hmac::Key::new(hmac_algorithm(hash), secret);
            hmac::verify(&key, signed, signature).is_ok()
        }
        (Material::Rsa { public, .. }, Signing::RsaPkcs1(hash)) => {
            public.verifies(Padding::Pkcs1, hash, signed, signature)
        }
        (Material::Rsa { public, .. }, Signing::RsaPss(hash)) => {
            public.verifies(Padding::Pss, hash, signed, signature)
        }
        // RFC 7518 section 3.4: r and s one after the other, never DER.
        (Material::Ec { curve, public, .. }, Signing::Ecdsa(hash)) if curve.hash() == hash => {
            signature.len() == 2 * curve.bytes() && public.verify_sig(signed, signature).is_ok()
        }
        (Material::Ed25519(key), Signing::Ed25519) => {
            signature.len() == 64 && key.verify_sig(signed, signature).is_ok()
        }
        _ => false,
    };
    if is_valid { Ok(()) } else { Err(Error::Signature) }
}

pub(crate) fn hmac_algorithm(hash: Hash) -> hmac::Algorithm {
    match hash {
        Hash::Sha256 => hmac::HMAC_SHA256,
        Hash::Sha384 => hmac::HMAC_SHA384,
        Hash::Sha512 => hmac::HMAC_SHA512,
    }
}

#[cfg(test)]
mod tests;
