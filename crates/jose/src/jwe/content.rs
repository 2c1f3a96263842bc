//! Encryption of content (RFC 7518 section 5): AES-GCM, and AES-CBC with HMAC.

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;

use super::Parts;
use crate::ContentEncryption;
use crate::alg::Hash;
use crate::jws::hmac_algorithm;

/// The plaintext; `None` if a byte of anything is another.
pub(super) fn decrypt(enc: ContentEncryption, key: &[u8], parts: &Parts<'_>) -> Option<Vec<u8>> {
    match enc {
        ContentEncryption::Gcm(_) => {
            open_gcm(key, &parts.iv, parts.aad, &parts.ciphertext, &parts.tag)
        }
        ContentEncryption::CbcHmac(hash) => open_cbc(hash, key, parts),
    }
}

/// AES-GCM with a vector of 12 and a tag of 16 bytes (RFC 7518 section 5.3).
pub(super) fn open_gcm(
    key: &[u8],
    iv: &[u8],
    aad: &[u8],
    ciphertext: &[u8],
    tag: &[u8],
) -> Option<Vec<u8>> {
    let algorithm = match key.len() {
        16 => &AES_128_GCM,
        24 => &AES_192_GCM,
        32 => &AES_256_GCM,
        _ => return None,
    };
    if tag.len() != 16 {
        return None;
    }
    let nonce = Nonce::try_assume_unique_for_key(iv).ok()?;
    let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
    let mut out = vec![0; ciphertext.len()];
    key.open_separate_gather(nonce, Aad::from(aad), ciphertext, tag, &mut out).ok()?;
    Some(out)
}

/// RFC 7518 section 5.2.2.2: the first half of the key is the HMAC's, the second the cipher's.
fn open_cbc(hash: Hash, key: &[u8], parts: &Parts<'_>) -> Option<Vec<u8>> {
    let half = hash.bytes() / 2;
    let (mac_key, cipher_key) = key.split_at_checked(half)?;
    let algorithm = match cipher_key.len() {
        16 => &AES_128,
        24 => &AES_192,
        32 => &AES_256,
        _ => return None,
    };
    let iv = <[u8; 16]>::try_from(&parts.iv[..]).ok()?;
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac_algorithm(hash), mac_key));
    mac.update(parts.aad);
    mac.update(&iv);
    mac.update(&parts.ciphertext);
    mac.update(&(parts.aad.len() as u64 * 8).to_be_bytes());
    // The tag first: what fails it is never decrypted, so that padding tells nothing.
    verify_slices_are_equal(mac.sign().as_ref().get(..half)?, &parts.tag).ok()?;
    let key = UnboundCipherKey::new(algorithm, cipher_key).ok()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
    let mut out = parts.ciphertext.clone();
    let context = DecryptionContext::Iv128(FixedLength::from(iv));
    let n = key.decrypt(&mut out, context).ok()?.len();
    out.truncate(n);
    Some(out)
}
