//! Modes of AES: GCM (NIST SP 800-38D), CTR and CBC (SP 800-38A), key wrap (RFC 3394).
//!
//! The Web Cryptography API has more of them than a TLS library: nonces of any length, short tags,
//! counters of some bits.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use ghash::GHash;
use ghash::universal_hash::UniversalHash;

/// Bytes of a block.
const BLOCK: usize = 16;

type Block = [u8; BLOCK];

/// AES with a key of 16, 24 or 32 bytes.
pub enum Aes {
    /// 128 bits
    Aes128(Box<Aes128>),
    /// 192 bits
    Aes192(Box<Aes192>),
    /// 256 bits
    Aes256(Box<Aes256>),
}

impl Aes {
    /// The cipher with a key; `None` if its length is wrong.
    pub fn new(key: &[u8]) -> Option<Aes> {
        Some(match key.len() {
            16 => Aes::Aes128(Box::new(Aes128::new_from_slice(key).ok()?)),
            24 => Aes::Aes192(Box::new(Aes192::new_from_slice(key).ok()?)),
            32 => Aes::Aes256(Box::new(Aes256::new_from_slice(key).ok()?)),
            _ => return None,
        })
    }

    fn encrypt(&self, mut block: Block) -> Block {
        match self {
            Aes::Aes128(aes) => aes.encrypt_block((&mut block).into()),
            Aes::Aes192(aes) => aes.encrypt_block((&mut block).into()),
            Aes::Aes256(aes) => aes.encrypt_block((&mut block).into()),
        }
        block
    }

    fn decrypt(&self, mut block: Block) -> Block {
        match self {
            Aes::Aes128(aes) => aes.decrypt_block((&mut block).into()),
            Aes::Aes192(aes) => aes.decrypt_block((&mut block).into()),
            Aes::Aes256(aes) => aes.decrypt_block((&mut block).into()),
        }
        block
    }

    /// Encrypts or decrypts in counter mode. `bits` of the counter block count, from 1 to 128.
    /// `None` if the counter would repeat.
    pub(crate) fn ctr(&self, counter: Block, bits: u32, data: &[u8]) -> Option<Vec<u8>> {
        let blocks = data.len().div_ceil(BLOCK) as u128;
        let mask = if bits >= 128 { u128::MAX } else { (1 << bits) - 1 };
        if blocks > 0 && blocks - 1 > mask {
            return None;
        }
        let start = u128::from_be_bytes(counter);
        let mut out = data.to_vec();
        for (chunk, n) in out.chunks_mut(BLOCK).zip(0u128..) {
            let counter = (start & !mask) | (start.wrapping_add(n) & mask);
            xor(chunk, &self.encrypt(counter.to_be_bytes()));
        }
        Some(out)
    }

    /// Encrypts in CBC mode with PKCS #7 padding.
    pub(crate) fn cbc_encrypt(&self, iv: Block, data: &[u8]) -> Vec<u8> {
        let padding = BLOCK - data.len() % BLOCK;
        let mut out = data.to_vec();
        out.resize(data.len() + padding, padding as u8);
        let mut before = iv;
        for chunk in out.chunks_exact_mut(BLOCK) {
            xor(chunk, &before);
            before = self.encrypt(block(chunk));
            chunk.copy_from_slice(&before);
        }
        out
    }

    /// Decrypts what [`cbc_encrypt`](Aes::cbc_encrypt) has made; `None` if the padding is wrong.
    pub(crate) fn cbc_decrypt(&self, iv: Block, data: &[u8]) -> Option<Vec<u8>> {
        if data.is_empty() || !data.len().is_multiple_of(BLOCK) {
            return None;
        }
        let mut out = Vec::with_capacity(data.len());
        let mut before = iv;
        for chunk in data.chunks_exact(BLOCK) {
            let mut plain = self.decrypt(block(chunk));
            xor(&mut plain, &before);
            out.extend_from_slice(&plain);
            before = block(chunk);
        }
        let padding = usize::from(*out.last()?);
        let rest = out.len().checked_sub(padding).filter(|_| (1..=BLOCK).contains(&padding))?;
        let right = out[rest..].iter().fold(0, |sum, byte| sum | (byte ^ padding as u8)) == 0;
        out.truncate(rest);
        right.then_some(out)
    }

    /// The counter block of GCM's authentication, and the hash function.
    fn gcm(&self, iv: &[u8]) -> (Block, GHash) {
        let key = self.encrypt([0; BLOCK]);
        let ghash = GHash::new(&key.into());
        let mut counter = [0; BLOCK];
        if iv.len() == 12 {
            counter[..12].copy_from_slice(iv);
            counter[15] = 1;
        } else {
            let mut hash = ghash.clone();
            hash.update_padded(iv);
            hash.update(&[lengths(0, iv.len()).into()]);
            counter = hash.finalize().into();
        }
        (counter, ghash)
    }

    fn gcm_tag(&self, counter: Block, mut hash: GHash, extra: &[u8], cipher: &[u8]) -> Block {
        hash.update_padded(extra);
        hash.update_padded(cipher);
        hash.update(&[lengths(extra.len(), cipher.len()).into()]);
        let mut tag: Block = hash.finalize().into();
        xor(&mut tag, &self.encrypt(counter));
        tag
    }

    /// Encrypts in GCM mode; the tag of `tag` bytes is behind the data.
    pub(crate) fn gcm_encrypt(&self, iv: &[u8], extra: &[u8], tag: usize, data: &[u8]) -> Vec<u8> {
        let (counter, hash) = self.gcm(iv);
        let mut out = self.gcm_data(counter, data);
        let full = self.gcm_tag(counter, hash, extra, &out);
        out.extend_from_slice(&full[..tag.min(BLOCK)]);
        out
    }

    /// Decrypts what [`gcm_encrypt`](Aes::gcm_encrypt) has made; `None` if the tag is wrong.
    pub(crate) fn gcm_decrypt(
        &self,
        iv: &[u8],
        extra: &[u8],
        tag: usize,
        data: &[u8],
    ) -> Option<Vec<u8>> {
        let (cipher, given) = data.split_at_checked(data.len().checked_sub(tag)?)?;
        let (counter, hash) = self.gcm(iv);
        let full = self.gcm_tag(counter, hash, extra, cipher);
        let same = full.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0;
        same.then(|| self.gcm_data(counter, cipher))
    }

    /// The data's counter is one ahead of that of the tag, and has 32 bits.
    fn gcm_data(&self, counter: Block, data: &[u8]) -> Vec<u8> {
        let next = u128::from_be_bytes(counter);
        let low = (next as u32).wrapping_add(1);
        let next = (next & !u128::from(u32::MAX)) | u128::from(low);
        // 2^32 blocks are 64 GB: there is no such buffer.
        self.ctr(next.to_be_bytes(), 32, data).unwrap_or_default()
    }

    /// Wraps a key of at least two groups of eight bytes (RFC 3394 section 2.2.1).
    pub fn wrap(&self, key: &[u8]) -> Option<Vec<u8>> {
        if key.len() < 16 || !key.len().is_multiple_of(8) {
            return None;
        }
        let mut out = vec![0xa6; 8];
        out.extend_from_slice(key);
        let groups = key.len() / 8;
        for step in 1..=6 * groups {
            let at = ((step - 1) % groups + 1) * 8;
            let mut pair = [0; BLOCK];
            pair[..8].copy_from_slice(&out[..8]);
            pair[8..].copy_from_slice(&out[at..at + 8]);
            let pair = self.encrypt(pair);
            out[..8].copy_from_slice(&pair[..8]);
            xor(&mut out[..8], &(step as u64).to_be_bytes());
            out[at..at + 8].copy_from_slice(&pair[8..]);
        }
        Some(out)
    }

    /// Unwraps a key; `None` if it was not wrapped with this one.
    pub fn unwrap(&self, wrapped: &[u8]) -> Option<Vec<u8>> {
        if wrapped.len() < 24 || !wrapped.len().is_multiple_of(8) {
            return None;
        }
        let mut out = wrapped.to_vec();
        let groups = wrapped.len() / 8 - 1;
        for step in (1..=6 * groups).rev() {
            let at = ((step - 1) % groups + 1) * 8;
            let mut pair = [0; BLOCK];
            pair[..8].copy_from_slice(&out[..8]);
            xor(&mut pair[..8], &(step as u64).to_be_bytes());
            pair[8..].copy_from_slice(&out[at..at + 8]);
            let pair = self.decrypt(pair);
            out[..8].copy_from_slice(&pair[..8]);
            out[at..at + 8].copy_from_slice(&pair[8..]);
        }
        let right = out[..8].iter().fold(0, |sum, byte| sum | (byte ^ 0xa6)) == 0;
        right.then(|| out.split_off(8))
    }
}

fn block(bytes: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    block.copy_from_slice(&bytes[..BLOCK]);
    block
}

fn xor(to: &mut [u8], with: &[u8]) {
    to.iter_mut().zip(with).for_each(|(a, b)| *a ^= b);
}

/// The last block of GHASH: two lengths in bits.
fn lengths(extra: usize, data: usize) -> Block {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&(extra as u64 * 8).to_be_bytes());
    block[8..].copy_from_slice(&(data as u64 * 8).to_be_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::Aes;
    use crate::codec::Encoding;

    fn bytes(hex: &str) -> Vec<u8> {
        Encoding::Hex.decode(hex)
    }

    #[test]
    fn gcm_of_sp_800_38d() {
        // Test cases 4 and 6 of the proposal: nonces of 12 and 60 bytes.
        let aes = Aes::new(&bytes("feffe9928665731c6d6a8f9467308308")).unwrap();
        let plain = bytes(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        );
        let extra = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let short = bytes("cafebabefacedbaddecaf888");
        let out = aes.gcm_encrypt(&short, &extra, 16, &plain);
        assert_eq!(out[60..], bytes("5bc94fbc3221a5db94fae95ae7121a47"));
        assert_eq!(aes.gcm_decrypt(&short, &extra, 16, &out).as_deref(), Some(&plain[..]));
        assert_eq!(aes.gcm_decrypt(&short, &[], 16, &out), None);
        let long = bytes(
            "9313225df88406e555909c5aff5269aa6a7a9538534f7da1e4c303d2a318a728\
             c3c0c95156809539fcf0e2429a6b525416aedbf5a0de6a57a637b39b",
        );
        let out = aes.gcm_encrypt(&long, &extra, 12, &plain);
        assert_eq!(out[60..], bytes("619cc5aefffe0bfa462af43c"));
    }

    #[test]
    fn key_wrap_of_rfc_3394() {
        let aes = Aes::new(&bytes("000102030405060708090a0b0c0d0e0f")).unwrap();
        let key = bytes("00112233445566778899aabbccddeeff");
        let wrapped = bytes("1fa68b0a8112b447aef34bd8fb5a7b829d3e862371d2cfe5");
        assert_eq!(aes.wrap(&key).as_ref(), Some(&wrapped));
        assert_eq!(aes.unwrap(&wrapped), Some(key));
        let mut broken = wrapped;
        broken[3] ^= 1;
        assert_eq!(aes.unwrap(&broken), None);
    }

    #[test]
    fn cbc_and_ctr_of_sp_800_38a() {
        let aes = Aes::new(&bytes("2b7e151628aed2a6abf7158809cf4f3c")).unwrap();
        let plain = bytes("6bc1bee22e409f96e93d7e117393172a");
        let iv = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let out = aes.cbc_encrypt(iv, &plain);
        assert_eq!(out[..16], bytes("7649abac8119b246cee98e9b12e9197d"));
        assert_eq!(aes.cbc_decrypt(iv, &out), Some(plain.clone()));
        assert_eq!(aes.cbc_decrypt(iv, &out[..16]), None);
        let counter = bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff").try_into().unwrap();
        let out = aes.ctr(counter, 64, &plain).unwrap();
        assert_eq!(out, bytes("874d6191b620e3261bef6864990db6ce"));
        assert!(aes.ctr(counter, 1, &[0; 33]).is_none());
        assert!(aes.ctr(counter, 1, &[0; 32]).is_some());
    }
}
