//! Hashes, encryption and base64url.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{digest, hmac};

/// Bytes as base64url without padding.
pub(crate) fn base64url(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    base::base64::encode_url(bytes, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// The bytes of base64url without padding, in the one way in which they can be written.
pub(crate) fn from_base64url(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let is_right = base::base64::decode_url(text, &mut out);
    (is_right && base64url(&out).as_bytes() == text).then_some(out)
}

/// SHA-256 of parts that cannot run into each other, as base64url.
pub(crate) fn hash_of(parts: &[&[u8]]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    base64url(context.finish().as_ref())
}

/// The key for one purpose from a secret of 256 random bits.
fn key(secret: &[u8], purpose: &str) -> Option<LessSafeKey> {
    let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), purpose.as_bytes());
    UnboundKey::new(&AES_256_GCM, key.as_ref()).ok().map(LessSafeKey::new)
}

/// Encrypts `plain` under a key from `secret`. `context` is authenticated. `None` for more data
/// than AES-GCM takes.
pub(crate) fn seal(
    secret: &[u8],
    purpose: &str,
    context: &str,
    nonce: [u8; NONCE_LEN],
    plain: &[u8],
) -> Option<String> {
    let mut text = plain.to_vec();
    let of = Nonce::assume_unique_for_key(nonce);
    let key = key(secret, purpose)?;
    key.seal_in_place_append_tag(of, Aad::from(context.as_bytes()), &mut text).ok()?;
    Some(base64url(&[&nonce[..], &text].concat()))
}

/// The reverse of [`seal`]; `None` if anything differs.
pub(crate) fn open(secret: &[u8], purpose: &str, context: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = from_base64url(sealed)?;
    let nonce = Nonce::try_assume_unique_for_key(bytes.get(..NONCE_LEN)?).ok()?;
    bytes.drain(..NONCE_LEN);
    let key = key(secret, purpose)?;
    let len = key.open_in_place(nonce, Aad::from(context.as_bytes()), &mut bytes).ok()?.len();
    bytes.truncate(len);
    Some(bytes)
}
