//! The library's cipher suites, with the key schedule of this module.

use std::sync::LazyLock;

use rustls::crypto::hash::HashAlgorithm;
use rustls::crypto::tls13::Hkdf;
use rustls::crypto::{CipherSuiteCommon, aws_lc_rs};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

use super::{SHA256, SHA384};

/// All suites. They live as long as the process, because sessions refer to them.
static SUITES: LazyLock<Vec<SupportedCipherSuite>> =
    LazyLock::new(|| aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().map(own).collect());

/// All cipher suites, in the library's order.
pub(crate) fn suites() -> &'static [SupportedCipherSuite] {
    &SUITES
}

/// The suite with our key schedule, where that is the faster one. The PRF of TLS 1.2 is the
/// library's, which keeps the padded blocks itself.
fn own(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(library) = suite else { return suite };
    let hkdf_provider: &'static dyn Hkdf = match library.common.hash_provider.algorithm() {
        HashAlgorithm::SHA256 if has_sha256() => &SHA256,
        HashAlgorithm::SHA384 if cfg!(target_arch = "x86_64") => &SHA384,
        _ => return suite,
    };
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: library.common.suite,
            hash_provider: library.common.hash_provider,
            confidentiality_limit: library.common.confidentiality_limit,
        },
        hkdf_provider,
        aead_alg: library.aead_alg,
        quic: library.quic,
    })))
}

/// Whether the processor has instructions for SHA-256 that `sha2` uses. Without them, and on other
/// architectures, AWS-LC is faster by more than this module saves.
fn has_sha256() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}
