//! Hash functions, and HMAC (RFC 2104) over any of them.

use aws_lc_rs::digest::{self, Algorithm, Context};
use md5::Digest as _;

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// MD5 (RFC 1321), for old protocols alone.
    Md5,
    /// SHA-1
    Sha1,
    /// SHA-224
    Sha224,
    /// SHA-256
    Sha256,
    /// SHA-384
    Sha384,
    /// SHA-512
    Sha512,
    /// SHA-512/256
    Sha512_256,
    Sha3_256,
    Sha3_384,
    Sha3_512,
}

impl Hash {
    /// The function of that name, as OpenSSL calls it: case does not matter.
    pub fn named(name: &str) -> Option<Hash> {
        Some(match name.to_ascii_lowercase().as_str() {
            "md5" => Hash::Md5,
            "sha1" | "sha-1" => Hash::Sha1,
            "sha224" | "sha-224" | "sha2-224" => Hash::Sha224,
            "sha256" | "sha-256" | "sha2-256" => Hash::Sha256,
            "sha384" | "sha-384" | "sha2-384" => Hash::Sha384,
            "sha512" | "sha-512" | "sha2-512" => Hash::Sha512,
            "sha512-256" | "sha-512/256" | "sha2-512/256" => Hash::Sha512_256,
            "sha3-256" => Hash::Sha3_256,
            "sha3-384" => Hash::Sha3_384,
            "sha3-512" => Hash::Sha3_512,
            _ => return None,
        })
    }

    fn algorithm(self) -> Option<&'static Algorithm> {
        Some(match self {
            Hash::Md5 => return None,
            Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha224 => &digest::SHA224,
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha384 => &digest::SHA384,
            Hash::Sha512 => &digest::SHA512,
            Hash::Sha512_256 => &digest::SHA512_256,
            Hash::Sha3_256 => &digest::SHA3_256,
            Hash::Sha3_384 => &digest::SHA3_384,
            Hash::Sha3_512 => &digest::SHA3_512,
        })
    }

    /// Bytes of a block, which HMAC fills its keys up to.
    pub fn block(self) -> usize {
        self.algorithm().map_or(64, |algorithm| algorithm.block_len())
    }

    /// The digest of some bytes.
    pub fn of(self, bytes: &[u8]) -> Vec<u8> {
        let mut hasher = Hasher::new(self);
        hasher.update(bytes);
        hasher.finish()
    }
}

/// A hash function at work.
#[derive(Clone)]
pub enum Hasher {
    Md5(md5::Md5),
    /// The others.
    Sha(Context),
}

impl Hasher {
    /// A function that has read nothing.
    pub fn new(hash: Hash) -> Hasher {
        match hash.algorithm() {
            Some(algorithm) => Hasher::Sha(Context::new(algorithm)),
            None => Hasher::Md5(md5::Md5::new()),
        }
    }

    /// Reads bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Md5(md5) => md5.update(bytes),
            Hasher::Sha(context) => context.update(bytes),
        }
    }

    /// The digest.
    pub fn finish(self) -> Vec<u8> {
        match self {
            Hasher::Md5(md5) => md5.finalize().to_vec(),
            Hasher::Sha(context) => context.finish().as_ref().to_vec(),
        }
    }
}

/// HMAC at work.
#[derive(Clone)]
pub struct Hmac {
    inner: Hasher,
    outer: Hasher,
}

impl Hmac {
    /// HMAC with a key, of which no byte has been read.
    pub fn new(hash: Hash, key: &[u8]) -> Hmac {
        let mut block = if key.len() > hash.block() { hash.of(key) } else { key.to_vec() };
        block.resize(hash.block(), 0);
        let (mut inner, mut outer) = (Hasher::new(hash), Hasher::new(hash));
        inner.update(&block.iter().map(|byte| byte ^ 0x36).collect::<Vec<u8>>());
        outer.update(&block.iter().map(|byte| byte ^ 0x5c).collect::<Vec<u8>>());
        Hmac { inner, outer }
    }

    /// Reads bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.inner.update(bytes);
    }

    /// The code.
    pub fn finish(mut self) -> Vec<u8> {
        self.outer.update(&self.inner.finish());
        self.outer.finish()
    }

    /// The code of some bytes.
    pub fn of(hash: Hash, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        let mut hmac = Hmac::new(hash, key);
        hmac.update(bytes);
        hmac.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Hash, Hmac};
    use crate::codec::Encoding;

    #[test]
    fn codes_of_rfc_2202_and_4231() {
        let hex = |hash, key: &[u8], text: &[u8]| Encoding::Hex.encode(&Hmac::of(hash, key, text));
        let text = b"what do ya want for nothing?";
        assert_eq!(hex(Hash::Md5, b"Jefe", text), "750c783e6ab0b503eaa86e310a5db738");
        assert_eq!(hex(Hash::Sha1, b"Jefe", text), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert_eq!(
            hex(Hash::Sha256, b"Jefe", text),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = [0xaa; 131];
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(
            hex(Hash::Sha256, &long, text),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
