//! A certificate chain with its private key, ready to sign.

use std::sync::Arc;

use rustls::SignatureAlgorithm;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::signatures::Noting;
use crate::x509::Certificate;

/// A chain, the end's own certificate first, with its key.
#[derive(Clone, Debug)]
pub struct Certified {
    pub(crate) key: Arc<CertifiedKey>,
}

impl Certified {
    /// Puts both together; `key` is PKCS#8, PKCS#1 or SEC1 in DER.
    ///
    /// # Errors
    /// The key is of a kind that is not supported, or it is not the certificate's; in OpenSSL's
    /// words where it has some.
    pub fn new(chain: Vec<Vec<u8>>, key: &[u8]) -> Result<Certified, String> {
        let der = PrivateKeyDer::try_from(key.to_vec()).map_err(str::to_owned)?;
        let key = any_supported_type(&der).map_err(|e| e.to_string())?;
        let first = chain.first().ok_or("no certificate")?;
        let certificate = Certificate::parse(first.clone().into()).map_err(|e| e.to_string())?;
        let public = key.public_key().ok_or("the key has no public part")?;
        if certificate.public_key().der() != public.as_ref() {
            return Err(MISMATCH.to_owned());
        }
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        Ok(Certified { key: Arc::new(CertifiedKey::new(chain, Arc::new(Noting(key)))) })
    }

    /// The chain in DER, the end's own certificate first.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.key.cert.iter().map(|certificate| &certificate[..])
    }

    /// The same with an OCSP response to show.
    pub fn with_staple(&self, staple: Vec<u8>) -> Certified {
        let key = CertifiedKey {
            cert: self.key.cert.clone(),
            key: Arc::clone(&self.key.key),
            ocsp: Some(staple),
        };
        Certified { key: Arc::new(key) }
    }

    /// The place in the order of choice: a signature by ECDSA costs a tenth of RSA's.
    pub(crate) fn order(&self) -> u8 {
        match self.key.key.algorithm() {
            SignatureAlgorithm::ECDSA => 0,
            SignatureAlgorithm::ED25519 | SignatureAlgorithm::ED448 => 1,
            _ => 2,
        }
    }
}

/// OpenSSL's words for a key of another certificate.
const MISMATCH: &str = "SSL: error:05800074:x509 certificate routines::key values mismatch";
