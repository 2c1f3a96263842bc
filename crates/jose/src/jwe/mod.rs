//! Encrypted tokens (RFC 7516) in the compact form:
//! `header.encrypted key.initialization vector.ciphertext.tag`.

mod agreement;
mod content;
mod inflate;
mod key_wrap;

use aws_lc_rs::rsa;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::alg::Hash;
use crate::header::{Header, Limits, decode, split};
use crate::jwk::{Key, Material, RsaPrivate};
use agreement::Agreement;

use crate::{ContentEncryption, Error, KeyManagement, KeySet, Part};

/// A decrypted token. Unless its key is shared with the issuer alone, anybody may have made it: a
/// public key encrypts for everyone.
#[derive(Debug)]
pub struct Decrypted {
    /// The members of the header, which the tag covers.
    pub header: Map<String, Value>,
    /// The content without encryption and compression.
    pub plaintext: Vec<u8>,
}

/// The parts of a token.
struct Parts<'a> {
    /// The encoded header, which the tag covers.
    aad: &'a [u8],
    encrypted_key: Vec<u8>,
    iv: Vec<u8>,
    ciphertext: Vec<u8>,
    tag: Vec<u8>,
}

/// Decrypts a token with one of the keys.
///
/// # Errors
/// The token is malformed or has a member that is refused, no key fits, or none decrypts it. The
/// reason is not told apart, because it would say which part an attacker got right.
pub fn decrypt(token: &[u8], keys: &KeySet, limits: Limits) -> Result<Decrypted, Error> {
    let [aad, encrypted_key, iv, ciphertext, tag] = split::<5>(token, limits)?;
    let header = Header::parse(aad)?;
    let parts = Parts {
        aad,
        encrypted_key: decode(encrypted_key, Part::EncryptedKey)?,
        iv: decode(iv, Part::Iv)?,
        ciphertext: decode(ciphertext, Part::Ciphertext)?,
        tag: decode(tag, Part::Tag)?,
    };
    let alg = KeyManagement::parse(header.alg()?)?;
    let enc = header.text("enc", "enc is no string")?.ok_or(Error::Header("enc is missing"))?;
    let enc = ContentEncryption::parse(enc)?;
    let is_compressed = header.is_compressed()?;
    let more = match alg {
        KeyManagement::AesGcmKw(_) => More::GcmWrap(GcmWrap::of(&header)?),
        KeyManagement::EcdhEs | KeyManagement::EcdhEsAesKw(_) => {
            More::Agreement(Agreement::of(&header)?)
        }
        _ => More::Nothing,
    };
    for key in keys.candidates(header.kid(), |key| key.decrypts(alg, enc))? {
        let Some(cek) = content_key(key, alg, enc, &parts, &more) else { continue };
        if let Some(mut plaintext) = content::decrypt(enc, &cek, &parts) {
            if is_compressed {
                plaintext = inflate::inflate(&plaintext, limits.token_bytes_max)?;
            }
            return Ok(Decrypted { header: header.members, plaintext });
        }
    }
    Err(Error::Decryption)
}

/// What else of the header the key of the content depends on.
enum More {
    Nothing,
    GcmWrap(GcmWrap),
    Agreement(Agreement),
}

/// What the header has of a key wrapped with AES-GCM (RFC 7518 section 4.7.1).
struct GcmWrap {
    iv: Vec<u8>,
    tag: Vec<u8>,
}

impl GcmWrap {
    fn of(header: &Header) -> Result<GcmWrap, Error> {
        let missing = Error::Header("iv or tag of the encrypted key is missing or no string");
        let wrong = Error::Header("iv or tag of the encrypted key is no base64url of its length");
        let part = |name, bytes| {
            let text = header.members.get(name).and_then(Value::as_str).ok_or(missing)?;
            let part = crate::base64url::decode(text.as_bytes());
            part.filter(|part| part.len() == bytes).ok_or(wrong)
        };
        Ok(GcmWrap { iv: part("iv", 12)?, tag: part("tag", 16)? })
    }
}

/// The key of the content.
fn content_key(
    key: &Key,
    alg: KeyManagement,
    enc: ContentEncryption,
    parts: &Parts<'_>,
    more: &More,
) -> Option<Zeroizing<Vec<u8>>> {
    let cek = match (&key.material, alg, more) {
        // RFC 7516 section 5.2 step 10: nothing is encrypted, so the part is empty.
        (Material::Secret(secret), KeyManagement::Direct, _) if parts.encrypted_key.is_empty() => {
            secret.clone()
        }
        (Material::Secret(secret), KeyManagement::AesKw(_), _) => {
            key_wrap::unwrap(secret, &parts.encrypted_key)?
        }
        (Material::Secret(secret), KeyManagement::AesGcmKw(_), More::GcmWrap(wrap)) => {
            let cek = content::open_gcm(secret, &wrap.iv, b"", &parts.encrypted_key, &wrap.tag)?;
            Zeroizing::new(cek)
        }
        (Material::Rsa { private: Some(private), .. }, alg, _) => {
            rsa_key(private, alg, enc, &parts.encrypted_key)?
        }
        (material, alg, More::Agreement(agreement)) => {
            let private = material.agrees_with()?;
            match alg {
                KeyManagement::EcdhEs if parts.encrypted_key.is_empty() => {
                    agreement.key(private, enc.name(), enc.key_bytes())?
                }
                KeyManagement::EcdhEsAesKw(bytes) => {
                    let wrapping = agreement.key(private, alg.name()?, bytes)?;
                    key_wrap::unwrap(&wrapping, &parts.encrypted_key)?
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    (cek.len() == enc.key_bytes()).then_some(cek)
}

/// The key of the content that was encrypted with RSA.
fn rsa_key(
    private: &RsaPrivate,
    alg: KeyManagement,
    enc: ContentEncryption,
    encrypted: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let oaep = match alg {
        KeyManagement::RsaOaep => &rsa::OAEP_SHA1_MGF1SHA1,
        KeyManagement::RsaOaepSha2(Hash::Sha256) => &rsa::OAEP_SHA256_MGF1SHA256,
        KeyManagement::RsaOaepSha2(Hash::Sha384) => &rsa::OAEP_SHA384_MGF1SHA384,
        KeyManagement::RsaOaepSha2(Hash::Sha512) => &rsa::OAEP_SHA512_MGF1SHA512,
        KeyManagement::Rsa1_5 => {
            // RFC 7516 section 11.5: what has no valid padding goes on with a random key and fails
            // where an intact one of another content fails, so that nobody learns which it was.
            let mut cek = Zeroizing::new(vec![0; enc.key_bytes()]);
            aws_lc_rs::rand::fill(&mut cek).ok()?;
            let mut out = Zeroizing::new(vec![0; private.pkcs1.min_output_size()]);
            if let Ok(found) = private.pkcs1.decrypt(encrypted, &mut out)
                && found.len() == cek.len()
            {
                cek.copy_from_slice(found);
            }
            return Some(cek);
        }
        _ => return None,
    };
    let mut out = Zeroizing::new(vec![0; private.oaep.min_output_size()]);
    let n = private.oaep.decrypt(oaep, encrypted, &mut out, None).ok()?.len();
    out.truncate(n);
    Some(out)
}

#[cfg(test)]
mod tests;
