//! Private keys.

use std::fmt;

use zeroize::Zeroizing;

use super::der::{INTEGER, OBJECT, OCTET_STRING, Reader, SEQUENCE};

/// The form of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Pkcs1,
    Pkcs8,
    Sec1,
}

/// A private key in DER. Its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey {
    form: Form,
    der: Zeroizing<Vec<u8>>,
}

impl PrivateKey {
    /// Takes a key whose form is read off its first elements: labels in PEM may be wrong. What
    /// follows the key is left out.
    pub(super) fn from_der(der: &[u8]) -> Option<PrivateKey> {
        let whole = Reader::new(der).whole(SEQUENCE)?;
        let mut parts = Reader::new(whole).sequence()?;
        let version = parts.number()?;
        let form = if parts.is_next(SEQUENCE) {
            // The algorithm, and the key inside.
            parts.sequence()?.take(OBJECT)?;
            parts.take(OCTET_STRING)?;
            Form::Pkcs8
        } else if parts.is_next(OCTET_STRING) {
            parts.take(OCTET_STRING)?;
            Form::Sec1
        } else {
            // Modulus, two exponents, two primes, two more exponents, a coefficient. A key of DSA
            // has fewer numbers, one of RSA with several primes has version 1.
            for _ in 0..8 {
                parts.take(INTEGER)?;
            }
            Form::Pkcs1
        };
        let known = match form {
            Form::Pkcs1 => version == 0,
            Form::Pkcs8 => version <= 1,
            Form::Sec1 => version == 1,
        };
        known.then(|| PrivateKey { form, der: Zeroizing::new(whole.to_vec()) })
    }

    /// The key in DER: PKCS#8, PKCS#1 or SEC 1.
    pub fn der(&self) -> &[u8] {
        &self.der
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({:?})", self.form)
    }
}
