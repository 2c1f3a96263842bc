//! The record layer: sealing and opening of TLS 1.2 and 1.3 records with keys that a handshake
//! gave (RFC 5246 §6.2, RFC 8446 §5). rustls does the handshake; its own record layer copies each
//! record three times and allocates for each, so records of an established session pass here.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;
use zeroize::Zeroizing;

use crate::error::Error;

/// The bytes before a record's fragment: type, version, length.
pub(crate) const HEADER: usize = 5;
/// The longest plaintext of a record (RFC 8446 §5.1).
pub const MAX_PLAIN: usize = 16 * 1024;
/// The longest fragment that is accepted: 256 bytes of expansion in TLS 1.3, 2,048 in TLS 1.2.
const MAX_SEALED_13: usize = MAX_PLAIN + 256;
const MAX_SEALED_12: usize = MAX_PLAIN + 2048;
/// The tag of every AEAD here.
const TAG: usize = 16;
/// The part of a nonce that AES-GCM in TLS 1.2 sends with each record (RFC 5288 §3).
const EXPLICIT: usize = 8;
/// The most bytes that sealing adds to a record's plaintext.
pub(crate) const MAX_OVERHEAD: usize = HEADER + EXPLICIT + TAG + 1;

/// Records that one key may seal: half of what keeps AES-GCM's margin (RFC 8446 §5.5).
const SEAL_LIMIT: u64 = 1 << 23;

/// The types of records.
pub(crate) mod kind {
    pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
    pub(crate) const ALERT: u8 = 21;
    pub const HANDSHAKE: u8 = 22;
    pub const DATA: u8 = 23;
}

/// The form of a record, by version and cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The type is sealed with the plaintext; the nonce is counted.
    Tls13,
    /// A part of the nonce goes with each record.
    Gcm12,
    /// The nonce is counted, the type stands in the header.
    Chacha12,
}

/// A cipher of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Cipher {
    Aes128Gcm = 0,
    Aes256Gcm = 1,
    Chacha20Poly1305 = 2,
}

/// The longest key of a cipher.
const KEY_MAX: usize = 32;

/// The bytes that keys are made of.
#[derive(PartialEq, Eq)]
pub(crate) struct Material {
    pub cipher: Cipher,
    /// The key, and zeros behind one that is shorter.
    key: Zeroizing<[u8; KEY_MAX]>,
    pub iv: [u8; NONCE_LEN],
}

impl Material {
    /// Those that a handshake gave.
    ///
    /// # Errors
    /// A cipher that is not here, which no configuration negotiates.
    pub fn extracted(secrets: &ConnectionTrafficSecrets) -> Result<Material, Error> {
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (Cipher::Chacha20Poly1305, key, iv)
            }
            _ => return Err(Error::internal("a cipher without a record layer")),
        };
        Material::of(cipher, key.as_ref(), iv.as_ref())
            .ok_or_else(|| Error::internal("a key or a nonce of a wrong length"))
    }

    /// A cipher's key and nonce; `None` if one of them has a wrong length.
    pub fn of(cipher: Cipher, key: &[u8], iv: &[u8]) -> Option<Material> {
        let mut material =
            Material { cipher, key: Zeroizing::new([0; KEY_MAX]), iv: iv.try_into().ok()? };
        let room = material.key.get_mut(..cipher.key_len())?;
        (room.len() == key.len()).then(|| room.copy_from_slice(key))?;
        Some(material)
    }

    pub fn key(&self) -> &[u8] {
        self.key.get(..self.cipher.key_len()).unwrap_or_default()
    }
}

impl Cipher {
    /// The cipher of this number.
    pub fn numbered(number: u8) -> Option<Cipher> {
        [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305]
            .into_iter()
            .find(|cipher| *cipher as u8 == number)
    }

    /// The length of its keys.
    pub fn key_len(self) -> usize {
        match self {
            Cipher::Aes128Gcm => 16,
            Cipher::Aes256Gcm | Cipher::Chacha20Poly1305 => 32,
        }
    }
}

/// The keys of one direction.
pub(crate) struct Keys {
    /// `None` before [`Keys::make`].
    key: Option<LessSafeKey>,
    iv: [u8; NONCE_LEN],
    sequence: u64,
    form: Form,
}

impl Keys {
    /// The keys of a direction whose next record has the number `sequence`.
    ///
    /// # Errors
    /// A cipher that is not here, which no configuration negotiates.
    pub fn new(
        is_13: bool,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Keys, Error> {
        Keys::of(is_13, sequence, &Material::extracted(&secrets)?)
    }

    /// The same of bytes.
    ///
    /// # Errors
    /// The key has another length than its cipher's.
    pub fn of(is_13: bool, sequence: u64, material: &Material) -> Result<Keys, Error> {
        let mut keys = Keys::to_make(is_13, sequence, material.cipher);
        keys.make(material)?;
        Ok(keys)
    }

    /// Keys that know the form of records. Before the first record is sealed or opened,
    /// [`Keys::make`] completes them.
    pub fn to_make(is_13: bool, sequence: u64, cipher: Cipher) -> Keys {
        let form = match (is_13, cipher) {
            (true, _) => Form::Tls13,
            (false, Cipher::Aes128Gcm | Cipher::Aes256Gcm) => Form::Gcm12,
            (false, Cipher::Chacha20Poly1305) => Form::Chacha12,
        };
        Keys { key: None, iv: [0; NONCE_LEN], sequence, form }
    }

    /// Whether records can be sealed and opened.
    #[inline]
    pub fn are_made(&self) -> bool {
        self.key.is_some()
    }

    /// Completes the keys.
    ///
    /// # Errors
    /// The key has another length than its cipher's.
    pub fn make(&mut self, material: &Material) -> Result<(), Error> {
        let algorithm = match material.cipher {
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::Chacha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, material.key())
            .map_err(|_| Error::internal("a key of a wrong length"))?;
        (self.key, self.iv) = (Some(LessSafeKey::new(key)), material.iv);
        Ok(())
    }

    /// The number of the next record.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the key has sealed as much as one may.
    pub fn is_worn(&self) -> bool {
        self.sequence >= SEAL_LIMIT
    }

    /// The bytes that sealing adds to `plain` bytes of data.
    pub fn overhead(&self) -> usize {
        match self.form {
            Form::Tls13 => HEADER + 1 + TAG,
            Form::Gcm12 => HEADER + EXPLICIT + TAG,
            Form::Chacha12 => HEADER + TAG,
        }
    }

    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, counted) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= counted;
        }
        nonce
    }

    /// Appends one record of the bytes that `pieces` gives to `out`; they are `len` in all,
    /// [`MAX_PLAIN`] at most.
    ///
    /// # Errors
    /// The cipher's, which has none for lengths in range; the session is at its end then.
    pub fn seal<'a>(
        &mut self,
        kind: u8,
        len: usize,
        pieces: impl Iterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let nonce = self.nonce();
        let key = self.key.as_ref().ok_or_else(unmade)?;
        let sealed = len + self.overhead() - HEADER;
        out.reserve(HEADER + sealed);
        let outer = if self.form == Form::Tls13 { kind::DATA } else { kind };
        let header = header(outer, sealed);
        out.extend_from_slice(&header);
        if self.form == Form::Gcm12 {
            out.extend_from_slice(&nonce[NONCE_LEN - EXPLICIT..]);
        }
        let begin = out.len();
        pieces.for_each(|piece| out.extend_from_slice(piece));
        debug_assert_eq!(out.len() - begin, len);
        if self.form == Form::Tls13 {
            out.push(kind);
        }
        let text = out.get_mut(begin..).unwrap_or_default();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = match self.form {
            Form::Tls13 => key.seal_in_place_separate_tag(nonce, Aad::from(header), text),
            _ => {
                let aad = Aad::from(aad12(self.sequence, kind, len));
                key.seal_in_place_separate_tag(nonce, aad, text)
            }
        };
        let tag = tag.map_err(|_| Error::internal("a record could not be sealed"))?;
        out.extend_from_slice(tag.as_ref());
        // 2^64 records are out of reach: keys are changed, or the session ends, long before.
        self.sequence += 1;
        Ok(())
    }

    /// Opens a record where it lies: its type and plaintext.
    ///
    /// # Errors
    /// It is not the peer's, or not in its place.
    pub fn open<'a>(
        &mut self,
        header: [u8; HEADER],
        fragment: &'a mut [u8],
    ) -> Result<(u8, &'a mut [u8]), Error> {
        let mut nonce = self.nonce();
        let kind = header[0];
        let explicit = if self.form == Form::Gcm12 { EXPLICIT } else { 0 };
        let Some(len) = fragment.len().checked_sub(explicit + TAG) else {
            return Err(Error::peer(alert::BAD_RECORD_MAC, "a record is too short"));
        };
        let (salt, text) = fragment.split_at_mut(explicit);
        if explicit > 0 {
            nonce[NONCE_LEN - EXPLICIT..].copy_from_slice(salt);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let key = self.key.as_ref().ok_or_else(unmade)?;
        let opened = match self.form {
            Form::Tls13 => key.open_in_place(nonce, Aad::from(header), text),
            _ => key.open_in_place(nonce, Aad::from(aad12(self.sequence, kind, len)), text),
        };
        let Ok(plain) = opened else {
            return Err(Error::peer(alert::BAD_RECORD_MAC, "decryption failed or bad record mac"));
        };
        self.sequence += 1;
        let (kind, plain) = match self.form {
            Form::Tls13 => unpadded(plain)?,
            _ => (kind, plain),
        };
        if plain.len() > MAX_PLAIN {
            return Err(Error::peer(alert::RECORD_OVERFLOW, "a record is too long"));
        }
        Ok((kind, plain))
    }

    /// The length of the fragment behind a record's header.
    ///
    /// # Errors
    /// It is too long, or not a header.
    pub(crate) fn fragment_len(&self, header: [u8; HEADER]) -> Result<usize, Error> {
        let [kind, major, minor, high, low] = header;
        let len = usize::from(u16::from_be_bytes([high, low]));
        // The version of a TLS 1.3 record is ignored here, but sealed.
        let versioned = major == 3 && (minor == 3 || self.form == Form::Tls13);
        // A sealed record of TLS 1.3 hides its type. A change_cipher_spec has no place behind the
        // handshake (RFC 8446 section 5).
        let is_typed = match self.form {
            Form::Tls13 => kind == kind::DATA,
            _ => (kind::CHANGE_CIPHER_SPEC..=kind::DATA).contains(&kind),
        };
        if !versioned || !is_typed {
            return Err(Error::peer(alert::UNEXPECTED_MESSAGE, "wrong version number"));
        }
        let max = if self.form == Form::Tls13 { MAX_SEALED_13 } else { MAX_SEALED_12 };
        if len > max {
            return Err(Error::peer(alert::RECORD_OVERFLOW, "encrypted length too long"));
        }
        Ok(len)
    }
}

fn unmade() -> Error {
    Error::internal("keys that were not made")
}

fn header(kind: u8, len: usize) -> [u8; HEADER] {
    let [high, low] = (len as u16).to_be_bytes();
    [kind, 3, 3, high, low]
}

/// The additional data of TLS 1.2 (RFC 5246 §6.2.3.3).
fn aad12(sequence: u64, kind: u8, len: usize) -> [u8; 13] {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&sequence.to_be_bytes());
    aad[8..].copy_from_slice(&header(kind, len));
    aad
}

/// The real type of a TLS 1.3 record is its last byte that is not 0.
fn unpadded(plain: &mut [u8]) -> Result<(u8, &mut [u8]), Error> {
    match plain.iter().rposition(|&byte| byte != 0) {
        Some(at) => {
            let kind = plain[at];
            Ok((kind, plain.split_at_mut(at).0))
        }
        None => Err(Error::peer(alert::UNEXPECTED_MESSAGE, "a record without a type")),
    }
}

/// Alerts (RFC 8446 §6).
pub(crate) mod alert {
    pub(crate) const CLOSE_NOTIFY: u8 = 0;
    pub const UNEXPECTED_MESSAGE: u8 = 10;
    pub(crate) const BAD_RECORD_MAC: u8 = 20;
    pub const RECORD_OVERFLOW: u8 = 22;
    pub const HANDSHAKE_FAILURE: u8 = 40;
    pub const ILLEGAL_PARAMETER: u8 = 47;
    pub const DECODE_ERROR: u8 = 50;
    pub const PROTOCOL_VERSION: u8 = 70;
    pub const INTERNAL_ERROR: u8 = 80;
    pub(crate) const USER_CANCELED: u8 = 90;
    pub(crate) const NO_RENEGOTIATION: u8 = 100;
}

#[cfg(test)]
mod tests {
    use rustls::ConnectionTrafficSecrets as Secrets;

    use super::*;

    const FORMS: [(bool, fn() -> Secrets); 4] = [
        (true, || Secrets::Aes256Gcm { key: key(), iv: iv() }),
        (true, || Secrets::Chacha20Poly1305 { key: key(), iv: iv() }),
        (false, || Secrets::Aes256Gcm { key: key(), iv: iv() }),
        (false, || Secrets::Chacha20Poly1305 { key: key(), iv: iv() }),
    ];

    fn key() -> rustls::crypto::cipher::AeadKey {
        [7; 32].into()
    }

    fn iv() -> rustls::crypto::cipher::Iv {
        rustls::crypto::cipher::Iv::new([9; 12])
    }

    fn split(record: &[u8]) -> ([u8; HEADER], Vec<u8>) {
        (record[..HEADER].try_into().unwrap(), record[HEADER..].to_vec())
    }

    fn pairs() -> Vec<(Keys, Keys)> {
        let keys = |(is_13, secrets): (bool, fn() -> Secrets)| Keys::new(is_13, (3, secrets()));
        FORMS.into_iter().map(|form| (keys(form).unwrap(), keys(form).unwrap())).collect()
    }

    #[test]
    fn records_open_in_their_order_alone() {
        for (mut near, mut far) in pairs() {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            near.seal(kind::DATA, 5, [&b"he"[..], b"llo"].into_iter(), &mut first).unwrap();
            assert_eq!(first.len(), 5 + near.overhead());
            near.seal(kind::ALERT, 2, [&[1, 0][..]].into_iter(), &mut second).unwrap();
            let (header, mut fragment) = split(&second);
            assert!(far.open(header, &mut fragment).is_err(), "out of order");
            for (record, kind, text) in
                [(&first, kind::DATA, &b"hello"[..]), (&second, 21, &[1, 0])]
            {
                let (header, mut fragment) = split(record);
                assert_eq!(far.fragment_len(header).unwrap(), fragment.len());
                let (k, plain) = far.open(header, &mut fragment).unwrap();
                assert_eq!((k, &*plain), (kind, text));
            }
        }
    }

    #[test]
    fn no_bit_of_a_record_can_change() {
        for (mut near, mut far) in pairs() {
            let mut record = Vec::new();
            near.seal(kind::DATA, 4, [&b"text"[..]].into_iter(), &mut record).unwrap();
            for at in 0..record.len() * 8 {
                let mut changed = record.clone();
                changed[at / 8] ^= 1 << (at % 8);
                let (header, mut fragment) = split(&changed);
                let opened = far.fragment_len(header).is_ok_and(|len| len == fragment.len())
                    && far.open(header, &mut fragment).is_ok();
                assert!(!opened, "bit {at} of {:?}", far.form);
            }
            for len in 0..record.len() - HEADER {
                let (header, mut fragment) = split(&record[..HEADER + len]);
                assert!(far.open(header, &mut fragment).is_err(), "cut to {len}");
            }
            let (header, mut fragment) = split(&record);
            assert!(far.open(header, &mut fragment).is_ok());
        }
    }

    #[test]
    fn padding_hides_no_type() {
        let (mut near, mut far) = pairs().remove(0);
        let mut record = Vec::new();
        // As a padded record is: data, its type, zeros, sealed as a whole.
        near.seal(0, 8, [&b"text\x17\0\0\0"[..]].into_iter(), &mut record).unwrap();
        let (header, mut fragment) = split(&record);
        let (kind, plain) = far.open(header, &mut fragment).unwrap();
        assert_eq!((kind, &*plain), (kind::DATA, &b"text"[..]));
        record.clear();
        near.seal(0, 3, [&[0, 0, 0][..]].into_iter(), &mut record).unwrap();
        let (header, mut fragment) = split(&record);
        assert!(far.open(header, &mut fragment).is_err());
    }

    #[test]
    fn a_header_that_is_none_is_refused() {
        let (keys, _) = pairs().remove(0);
        for header in [*b"GET /", [23, 2, 0, 0, 9], [19, 3, 3, 0, 9], [23, 3, 3, 0x41, 1]] {
            assert!(keys.fragment_len(header).is_err(), "{header:?}");
        }
        assert_eq!(keys.fragment_len([23, 3, 3, 0x41, 0]).unwrap(), 16640);
        for kind in [kind::CHANGE_CIPHER_SPEC, kind::ALERT, kind::HANDSHAKE] {
            let refused = keys.fragment_len([kind, 3, 3, 0, 1]).unwrap_err();
            assert_eq!(refused.alert, Some(alert::UNEXPECTED_MESSAGE), "{kind} in the clear");
        }
    }
}
