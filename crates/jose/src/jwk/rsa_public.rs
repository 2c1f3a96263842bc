//! Public keys of RSA for signatures.

use std::sync::OnceLock;

use aws_lc_rs::signature::{
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters,
};

use crate::alg::Hash;

/// A padding of RSA signatures (RFC 8017 sections 8.1 and 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    Pkcs1,
    Pss,
}

/// A public key. For each algorithm that is used, it keeps what the library computes from the
/// modulus: computed anew, this is a tenth of the cost of a verification.
pub(crate) struct RsaPublic {
    /// RSAPublicKey in DER (RFC 8017 appendix A.1.1).
    der: Vec<u8>,
    parsed: [OnceLock<Option<ParsedPublicKey>>; 6],
}

impl RsaPublic {
    /// A key from its modulus and exponent, big-endian and without leading zeros.
    pub(super) fn new(n: &[u8], e: &[u8]) -> RsaPublic {
        let numbers = [integer(n), integer(e)].concat();
        RsaPublic { der: value(0x30, &numbers), parsed: [const { OnceLock::new() }; 6] }
    }

    /// Whether this key made the signature.
    pub(crate) fn verifies(
        &self,
        padding: Padding,
        hash: Hash,
        signed: &[u8],
        signature: &[u8],
    ) -> bool {
        let (at, parameters): (usize, &'static RsaParameters) = match (padding, hash) {
            (Padding::Pkcs1, Hash::Sha256) => (0, &RSA_PKCS1_2048_8192_SHA256),
            (Padding::Pkcs1, Hash::Sha384) => (1, &RSA_PKCS1_2048_8192_SHA384),
            (Padding::Pkcs1, Hash::Sha512) => (2, &RSA_PKCS1_2048_8192_SHA512),
            (Padding::Pss, Hash::Sha256) => (3, &RSA_PSS_2048_8192_SHA256),
            (Padding::Pss, Hash::Sha384) => (4, &RSA_PSS_2048_8192_SHA384),
            (Padding::Pss, Hash::Sha512) => (5, &RSA_PSS_2048_8192_SHA512),
        };
        let key = self.parsed[at].get_or_init(|| ParsedPublicKey::new(parameters, &self.der).ok());
        key.as_ref().is_some_and(|key| key.verify_sig(signed, signature).is_ok())
    }
}

/// A positive INTEGER (X.690 section 8.3): a first bit of 1 would be a sign.
fn integer(number: &[u8]) -> Vec<u8> {
    let is_signed = number.first().is_some_and(|byte| byte & 0x80 != 0);
    value(2, &[&[0][..usize::from(is_signed)], number].concat())
}

/// A value with its tag and length (X.690 section 8.1).
fn value(tag: u8, contents: &[u8]) -> Vec<u8> {
    let bytes = contents.len().to_be_bytes();
    let length = match contents.len() {
        short @ 0..128 => vec![short as u8],
        _ => {
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let bytes = &bytes[zeros..];
            [&[0x80 | bytes.len() as u8][..], bytes].concat()
        }
    };
    [&[tag][..], &length, contents].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_der() {
        assert_eq!(integer(&[1, 0, 1]), [2, 3, 1, 0, 1]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(value(0x30, &[7; 127])[..3], [0x30, 127, 7]);
        assert_eq!(value(0x30, &[7; 128])[..4], [0x30, 0x81, 128, 7]);
        assert_eq!(value(0x30, &[7; 300])[..5], [0x30, 0x82, 1, 44, 7]);
    }
}
