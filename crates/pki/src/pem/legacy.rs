//! Keys that PEM itself encrypts (RFC 1421 §4.6.1), with the ciphers that OpenSSL has by default:
//! the key is an MD5 of the password.

use md5::{Digest, Md5};
use zeroize::Zeroizing;

use super::block::Block;
use super::encrypted::Cipher;
use super::error::{BAD_DECRYPT, BAD_IV, NO_KEY, UNSUPPORTED_ENCRYPTION};
use super::key::PrivateKey;

/// The length of the salt: the beginning of the initialization vector.
const SALT: usize = 8;
/// The length of an MD5.
const BLOCK: usize = 16;

pub(super) struct Legacy {
    cipher: Cipher,
    iv: Vec<u8>,
}

impl Legacy {
    /// Reads the header's second line, `DEK-Info: AES-256-CBC,0123…`.
    pub(super) fn parse(block: &Block<'_>) -> Result<Legacy, &'static str> {
        let info = block.header.get(1).and_then(|line| line.strip_prefix(b"DEK-Info:"));
        let mut parts = info.ok_or(NO_KEY)?.splitn(2, |byte| *byte == b',');
        let cipher = match parts.next().unwrap_or_default().trim_ascii() {
            b"AES-128-CBC" => Cipher::Aes128,
            b"AES-192-CBC" => Cipher::Aes192,
            b"AES-256-CBC" => Cipher::Aes256,
            b"DES-EDE3-CBC" => Cipher::Des3,
            _ => return Err(UNSUPPORTED_ENCRYPTION),
        };
        let digits = parts.next().unwrap_or_default().trim_ascii_start();
        let digits = digits.get(..cipher.iv_len() * 2).ok_or(BAD_IV)?;
        let value = |digit: u8| char::from(digit).to_digit(16).ok_or(BAD_IV);
        let byte = |pair: &[u8]| match *pair {
            [high, low] => Ok((value(high)? << 4 | value(low)?) as u8),
            _ => Err(BAD_IV),
        };
        let iv = digits.chunks(2).map(byte).collect::<Result<_, _>>()?;
        Ok(Legacy { cipher, iv })
    }

    pub(super) fn open(&self, data: &[u8], password: &[u8]) -> Result<PrivateKey, &'static str> {
        let salt = self.iv.get(..SALT).unwrap_or_default();
        let mut key = Zeroizing::new(Vec::with_capacity(64));
        while key.len() < self.cipher.key_len() {
            let mut md5 = Md5::new();
            // Each block is a hash of the one before, too.
            md5.update(key.last_chunk::<BLOCK>().map_or(&[][..], |last| last));
            md5.update(password);
            md5.update(salt);
            key.extend_from_slice(&md5.finalize());
        }
        key.truncate(self.cipher.key_len());
        let opened = self.cipher.open(&key, &self.iv, data).ok_or(BAD_DECRYPT)?;
        PrivateKey::from_der(&opened).ok_or(NO_KEY)
    }
}
