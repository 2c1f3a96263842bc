//! Public keys of RSA for signatures.

use std::sync::OnceLock;

use aws_lc_rs::signature::{
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
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
    components: RsaPublicKeyComponents<Box<[u8]>>,
    parsed: [OnceLock<Option<ParsedPublicKey>>; 6],
}

impl RsaPublic {
    /// A key from its modulus and exponent, big-endian and without leading zeros.
    pub(super) fn new(n: &[u8], e: &[u8]) -> RsaPublic {
        let components = RsaPublicKeyComponents { n: n.into(), e: e.into() };
        RsaPublic { components, parsed: [const { OnceLock::new() }; 6] }
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
        let key =
            self.parsed[at].get_or_init(|| self.components.to_parsed_public_key(parameters).ok());
        key.as_ref().is_some_and(|key| key.verify_sig(signed, signature).is_ok())
    }
}
