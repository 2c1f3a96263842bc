//! A certificate chain with its private key, ready to sign.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::SignatureAlgorithm;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

use crate::ConfigError;
use crate::signatures::Noting;
use pki::pem;
use pki::x509::{Certificate, private_rsa_bits};

/// A chain, the end's own certificate first, with its key.
#[derive(Clone, Debug)]
pub struct Certified {
    pub(crate) key: Arc<CertifiedKey>,
    slot: Option<StapleSlot>,
}

/// The place of a staple that changes while the server runs; clones are the same place.
#[derive(Clone, Debug, Default)]
struct StapleSlot(Arc<Mutex<Option<Stapled>>>);

/// A key with its staple, and the last second in which it is shown.
#[derive(Clone, Debug)]
struct Stapled {
    key: Arc<CertifiedKey>,
    until: i64,
}

/// The sizes of RSA keys that the library signs with.
pub(crate) const RSA_BITS_MIN: u32 = 2048;
pub(crate) const RSA_BITS_MAX: u32 = 8192;

/// A private key that is ready to sign. Clones share it, so that its numbers lie in memory once
/// however many servers have it.
#[derive(Clone, Debug)]
pub struct SignKey(Arc<dyn SigningKey>);

impl SignKey {
    /// Takes a key of PKCS#8, PKCS#1 or SEC1 in DER. Keeps none of these bytes.
    ///
    /// # Errors
    /// It is of a kind that is not supported.
    pub fn new(der: &[u8]) -> Result<SignKey, ConfigError> {
        let der = PrivateKeyDer::try_from(der).map_err(|e| ConfigError::Key(e.to_owned()))?;
        // The library does not say that a key is too small.
        any_supported_type(&der).map(SignKey).map_err(|e| match private_rsa_bits(&der) {
            Some(bits) if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) => {
                ConfigError::RsaBits(bits)
            }
            _ => ConfigError::Key(e.to_string()),
        })
    }
}

impl Certified {
    /// Puts both together; `key` is PKCS#8, PKCS#1 or SEC1 in DER.
    ///
    /// # Errors
    /// The key is of a kind that is not supported, or it is not the certificate's; in OpenSSL's
    /// words where it has some.
    pub fn new(chain: Vec<Vec<u8>>, key: &[u8]) -> Result<Certified, ConfigError> {
        Certified::with_key(chain, SignKey::new(key)?)
    }

    /// As [`Certified::new`], with a key that others may have, too.
    ///
    /// # Errors
    /// The key is not the certificate's.
    pub fn with_key(chain: Vec<Vec<u8>>, SignKey(key): SignKey) -> Result<Certified, ConfigError> {
        let first = chain.first().ok_or(ConfigError::NoCertificate)?;
        let certificate =
            Certificate::parse(first.clone().into()).map_err(ConfigError::Certificate)?;
        let public = key.public_key().ok_or(ConfigError::NoPublicPart)?;
        if certificate.public_key().der() != public.as_ref() {
            return Err(ConfigError::Mismatch);
        }
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let key = Arc::new(CertifiedKey::new(chain, Arc::new(Noting(key))));
        Ok(Certified { key, slot: None })
    }

    /// Reads a chain and its key from PEM.
    ///
    /// # Errors
    /// One cannot be read, or they do not belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Certified, ConfigError> {
        let chain = pem::certificates(chain)?;
        let key = pem::private_key(key, &pem::Passwords::none())?;
        Certified::new(chain, key.der())
    }

    /// The chain in DER, the end's own certificate first.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.key.cert.iter().map(|certificate| &certificate[..])
    }

    /// The strength of its key in bits, as OpenSSL's security levels count it.
    pub fn security_bits(&self) -> u32 {
        let own = self.chain().next().map(|der| Certificate::parse(der.to_vec().into()));
        own.and_then(Result::ok).map_or(0, |own| own.public_key().security_bits())
    }

    /// The same with an OCSP response to show.
    pub fn with_staple(&self, staple: Vec<u8>) -> Certified {
        Certified { key: self.stapled(staple), slot: None }
    }

    fn stapled(&self, staple: Vec<u8>) -> Arc<CertifiedKey> {
        let (cert, key) = (self.key.cert.clone(), Arc::clone(&self.key.key));
        Arc::new(CertifiedKey { cert, key, ocsp: Some(staple) })
    }

    /// The same with a place for OCSP responses, empty at first, that all clones share.
    pub fn with_staples(&self) -> Certified {
        Certified { key: Arc::clone(&self.key), slot: Some(StapleSlot::default()) }
    }

    /// Shows an OCSP response until the second `until` since 1970 has passed, if there is a place
    /// for one.
    pub fn staple(&self, response: &[u8], until: i64) {
        let Some(slot) = &self.slot else { return };
        let stapled = Stapled { key: self.stapled(response.to_vec()), until };
        *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stapled);
    }

    /// The chain and the key as they are shown at `now`, in seconds since 1970.
    pub(crate) fn shown(&self, now: impl FnOnce() -> i64) -> Arc<CertifiedKey> {
        if let Some(slot) = &self.slot
            && let Some(stapled) = &*slot.0.lock().unwrap_or_else(PoisonError::into_inner)
            && stapled.until >= now()
        {
            return Arc::clone(&stapled.key);
        }
        Arc::clone(&self.key)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_too_small_is_called_so() {
        let pem = include_bytes!("../tests/certificates/rsa1024.pem");
        let refused = Certified::from_pem(pem, pem).err();
        let wanted = "the RSA key has 1024 bits: 2048 to 8192 are supported";
        assert_eq!(refused.map(|e| e.to_string()).as_deref(), Some(wanted));
    }
}
