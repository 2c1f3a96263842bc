//! Encrypted private keys in the form of PKCS#8 (RFC 5958): PBES2 (RFC 8018) with PBKDF2 or scrypt
//! (RFC 7914), and of PBES1 the two kinds with triple DES (RFC 7292), which are what OpenSSL 3 has
//! without its legacy provider.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{self, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2;
use des::cipher::{BlockDecrypt, KeyInit};
use sha1::{Digest, Sha1};
use zeroize::Zeroizing;

use super::der::{OBJECT, OCTET_STRING, Reader, SEQUENCE};
use super::error::{MAYBE_WRONG_PASSWORD, NO_KEY, UNKNOWN_ALGORITHM};
use super::key::PrivateKey;

const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
const SCRYPT: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x04, 0x0b];
/// Behind it the number of the hash.
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02];
/// Behind it the number of the cipher.
const PKCS12: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x01];
/// Behind it the number of length and mode.
const AES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];
const DES_EDE3: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x03, 0x07];

/// The most rounds of a derivation: seconds of time, for a file that was made by mistake.
const ROUNDS_MAX: u64 = 1 << 24;
/// The most memory for scrypt, bytes: OpenSSL's limit.
const SCRYPT_MEMORY_MAX: u64 = 32 << 20;

/// A block cipher in CBC mode with padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cipher {
    Aes128,
    Aes192,
    Aes256,
    Des3,
}

impl Cipher {
    pub(super) fn key_len(self) -> usize {
        match self {
            Cipher::Aes128 => 16,
            Cipher::Aes192 | Cipher::Des3 => 24,
            Cipher::Aes256 => 32,
        }
    }

    pub(super) fn iv_len(self) -> usize {
        if self == Cipher::Des3 { 8 } else { 16 }
    }

    /// Decrypts; none when the padding is wrong, as it is after a wrong password.
    pub(super) fn open(self, key: &[u8], iv: &[u8], data: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let algorithm = match self {
            Cipher::Aes128 => &cipher::AES_128,
            Cipher::Aes192 => &cipher::AES_192,
            Cipher::Aes256 => &cipher::AES_256,
            Cipher::Des3 => return open_des3(key, iv, data),
        };
        let mut data = Zeroizing::new(data.to_vec());
        let iv = FixedLength::from(<[u8; 16]>::try_from(iv).ok()?);
        let key = UnboundCipherKey::new(algorithm, key).ok()?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
        let len = key.decrypt(&mut data, DecryptionContext::Iv128(iv)).ok()?.len();
        data.truncate(len);
        Some(data)
    }
}

fn open_des3(key: &[u8], iv: &[u8], data: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    const BLOCK: usize = 8;
    let des = des::TdesEde3::new_from_slice(key).ok()?;
    let mut last = <[u8; BLOCK]>::try_from(iv).ok()?;
    let mut out = Zeroizing::new(Vec::with_capacity(data.len()));
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    if !rest.is_empty() {
        return None;
    }
    for block in blocks {
        let mut plain = (*block).into();
        des.decrypt_block(&mut plain);
        out.extend(plain.iter().zip(last).map(|(byte, mask)| byte ^ mask));
        last = *block;
    }
    let padding = usize::from(*out.last()?);
    let len = out.len().checked_sub(padding)?;
    let is_padding = (1..=BLOCK).contains(&padding)
        && out.iter().skip(len).all(|byte| usize::from(*byte) == padding);
    out.truncate(len);
    is_padding.then_some(out)
}

/// How the key comes of the password.
enum Derivation<'a> {
    Pbkdf2 { hash: pbkdf2::Algorithm, salt: &'a [u8], rounds: NonZeroU32 },
    Scrypt { salt: &'a [u8], log_n: u8, r: u32, p: u32 },
    Pkcs12 { salt: &'a [u8], rounds: u32, key_len: usize },
}

/// An encrypted key.
pub(super) struct Encrypted<'a> {
    data: &'a [u8],
    /// None with algorithms that are unknown here.
    scheme: Option<(Derivation<'a>, Cipher, &'a [u8])>,
}

impl<'a> Encrypted<'a> {
    /// Reads the outer form; none where it is broken.
    pub(super) fn parse(der: &'a [u8]) -> Option<Encrypted<'a>> {
        let mut parts = Reader::new(der).sequence()?;
        let mut algorithm = parts.sequence()?;
        let object = algorithm.take(OBJECT)?;
        let data = parts.take(OCTET_STRING)?;
        let scheme = match object {
            PBES2 => pbes2(algorithm),
            object => object.strip_prefix(PKCS12).and_then(|kind| pbes1(kind, algorithm)),
        };
        Some(Encrypted { data, scheme })
    }

    /// Whether its algorithms are known, and not too costly.
    #[cfg(test)]
    pub(super) fn is_known(&self) -> bool {
        self.scheme.is_some()
    }

    pub(super) fn open(&self, password: &[u8]) -> Result<PrivateKey, &'static str> {
        let (derivation, cipher, iv) = self.scheme.as_ref().ok_or(UNKNOWN_ALGORITHM)?;
        let (key, iv) = derivation.derive(*cipher, iv, password).ok_or(UNKNOWN_ALGORITHM)?;
        let opened = cipher.open(&key, &iv, self.data).ok_or(MAYBE_WRONG_PASSWORD)?;
        PrivateKey::from_der(&opened).ok_or(NO_KEY)
    }
}

/// Derivation, cipher and initialization vector of PBES2.
fn pbes2(mut algorithm: Reader<'_>) -> Option<(Derivation<'_>, Cipher, &[u8])> {
    let mut parts = algorithm.sequence()?;
    let (mut derivation, mut encryption) = (parts.sequence()?, parts.sequence()?);
    let cipher = match encryption.take(OBJECT)? {
        DES_EDE3 => Cipher::Des3,
        object => match object.strip_prefix(AES)? {
            [2] => Cipher::Aes128,
            [22] => Cipher::Aes192,
            [42] => Cipher::Aes256,
            _ => return None,
        },
    };
    let iv = encryption.take(OCTET_STRING).filter(|iv| iv.len() == cipher.iv_len())?;
    let kind = derivation.take(OBJECT)?;
    let mut parts = derivation.sequence()?;
    let salt = parts.take(OCTET_STRING)?;
    let derivation = match kind {
        PBKDF2 => pbkdf2(salt, parts, cipher)?,
        SCRYPT => scrypt(salt, parts, cipher)?,
        _ => return None,
    };
    Some((derivation, cipher, iv))
}

fn pbkdf2<'a>(salt: &'a [u8], mut parts: Reader<'a>, cipher: Cipher) -> Option<Derivation<'a>> {
    let rounds = parts.number().filter(|rounds| *rounds <= ROUNDS_MAX)?;
    let rounds = NonZeroU32::new(u32::try_from(rounds).ok()?)?;
    key_len(&mut parts, cipher)?;
    let hash = if parts.is_next(SEQUENCE) {
        match parts.sequence()?.take(OBJECT)?.strip_prefix(HMAC)? {
            [7] => pbkdf2::PBKDF2_HMAC_SHA1,
            [9] => pbkdf2::PBKDF2_HMAC_SHA256,
            [10] => pbkdf2::PBKDF2_HMAC_SHA384,
            [11] => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return None,
        }
    } else {
        pbkdf2::PBKDF2_HMAC_SHA1
    };
    parts.is_empty().then_some(Derivation::Pbkdf2 { hash, salt, rounds })
}

fn scrypt<'a>(salt: &'a [u8], mut parts: Reader<'a>, cipher: Cipher) -> Option<Derivation<'a>> {
    let (n, r, p) = (parts.number()?, parts.number()?, parts.number()?);
    key_len(&mut parts, cipher)?;
    let memory = n.checked_add(p)?.checked_mul(r)?.checked_mul(128)?;
    let rounds = n.checked_mul(r)?.checked_mul(p)?;
    if !n.is_power_of_two() || n < 2 || memory > SCRYPT_MEMORY_MAX || rounds > ROUNDS_MAX {
        return None;
    }
    let log_n = u8::try_from(n.ilog2()).ok()?;
    let (r, p) = (u32::try_from(r).ok()?, u32::try_from(p).ok()?);
    parts.is_empty().then_some(Derivation::Scrypt { salt, log_n, r, p })
}

/// The length of the key, which may be missing and has to be the cipher's.
fn key_len(parts: &mut Reader<'_>, cipher: Cipher) -> Option<()> {
    let is_right = !parts.is_next(super::der::INTEGER)
        || parts.number().is_some_and(|len| len == cipher.key_len() as u64);
    is_right.then_some(())
}

/// The kinds of PBES1 with triple DES, of three keys or two.
fn pbes1<'a>(kind: &[u8], mut algorithm: Reader<'a>) -> Option<(Derivation<'a>, Cipher, &'a [u8])> {
    let key_len = match kind {
        [3] => 24,
        [4] => 16,
        _ => return None,
    };
    let mut parts = algorithm.sequence()?;
    let salt = parts.take(OCTET_STRING)?;
    let rounds = parts.number().filter(|rounds| (1..=ROUNDS_MAX).contains(rounds))?;
    let rounds = u32::try_from(rounds).ok()?;
    Some((Derivation::Pkcs12 { salt, rounds, key_len }, Cipher::Des3, &[]))
}

/// A key and an initialization vector.
type Derived = (Zeroizing<Vec<u8>>, Zeroizing<Vec<u8>>);

impl Derivation<'_> {
    fn derive(&self, cipher: Cipher, iv: &[u8], password: &[u8]) -> Option<Derived> {
        let mut key = Zeroizing::new(vec![0; cipher.key_len()]);
        match *self {
            Derivation::Pbkdf2 { hash, salt, rounds } => {
                pbkdf2::derive(hash, rounds, salt, password, &mut key);
            }
            Derivation::Scrypt { salt, log_n, r, p } => {
                let params = ::scrypt::Params::new(log_n, r, p, key.len()).ok()?;
                ::scrypt::scrypt(password, salt, &params, &mut key).ok()?;
            }
            Derivation::Pkcs12 { salt, rounds, key_len } => {
                let mut key = pkcs12(1, password, salt, rounds, key_len);
                if key_len == 16 {
                    // Two keys: the first is also the third.
                    key.extend_from_within(..8);
                }
                return Some((key, pkcs12(2, password, salt, rounds, cipher.iv_len())));
            }
        }
        Some((key, Zeroizing::new(iv.to_vec())))
    }
}

/// The derivation of PKCS#12 (RFC 7292 appendix B) with SHA-1; `kind` is 1 for a key and 2 for an
/// initialization vector.
fn pkcs12(kind: u8, password: &[u8], salt: &[u8], rounds: u32, len: usize) -> Zeroizing<Vec<u8>> {
    /// The block of SHA-1.
    const BLOCK: usize = 64;
    let password = utf16(password);
    let parts = [salt, &password];
    let room = |part: &[u8]| part.len().div_ceil(BLOCK) * BLOCK;
    // Room for all of it at once: growing would leave copies behind.
    let mut input = Zeroizing::new(Vec::with_capacity(parts.map(room).iter().sum()));
    for part in parts {
        input.extend(part.iter().copied().cycle().take(room(part)));
    }
    let mut out = Zeroizing::new(Vec::with_capacity(64));
    while out.len() < len {
        let mut hash = Sha1::new_with_prefix([kind; BLOCK]).chain_update(&*input).finalize();
        for _ in 1..rounds {
            hash = Sha1::digest(hash);
        }
        out.extend_from_slice(&hash);
        // Each block of the input grows by the hash and one, as numbers.
        let added: Vec<u8> = hash.iter().copied().cycle().take(BLOCK).collect();
        for block in input.chunks_mut(BLOCK) {
            let mut carry = 1;
            for (byte, more) in block.iter_mut().zip(&added).rev() {
                let sum = u16::from(*byte) + u16::from(*more) + carry;
                (*byte, carry) = (sum as u8, sum >> 8);
            }
        }
    }
    out.truncate(len);
    out
}

/// The password as PKCS#12 wants it: UTF-16, the high byte first, with a zero at its end. A
/// password that is no UTF-8 is taken for ISO 8859-1.
fn utf16(password: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(password.len() * 2 + 2));
    match std::str::from_utf8(password) {
        Ok(text) => out.extend(text.encode_utf16().flat_map(u16::to_be_bytes)),
        Err(_) => out.extend(password.iter().flat_map(|byte| [0, *byte])),
    }
    out.extend([0, 0]);
    out
}
