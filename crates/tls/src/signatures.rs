//! The signature schemes and our certificate in the handshake under way. rustls does not tell them;
//! a handshake runs on one thread from each message to the answer, so that they can be noted here.

use std::cell::Cell;
use std::sync::Arc;

use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use pki::x509::SCHEMES;

thread_local! {
    static MADE: Cell<(u16, u16)> = const { Cell::new((0, 0)) };
    static OWN: Cell<Option<Arc<CertifiedKey>>> = const { Cell::new(None) };
}

/// Forgets what was noted before.
pub(crate) fn forget() {
    MADE.set((0, 0));
    OWN.set(None);
}

/// The schemes of our own signature and of the peer's since then; 0 for none.
pub(crate) fn made() -> (u16, u16) {
    MADE.get()
}

/// Our certificate, if it was chosen since then.
pub(crate) fn own() -> Option<Arc<CertifiedKey>> {
    OWN.take()
}

/// Notes our certificate.
pub(crate) fn note_own(key: &Arc<CertifiedKey>) {
    OWN.set(Some(Arc::clone(key)));
}

/// Notes the scheme of the peer's signature.
pub(crate) fn note_peer(scheme: u16) {
    MADE.set((MADE.get().0, scheme));
}

/// A key that notes the schemes that it signs with.
#[derive(Debug)]
pub(crate) struct Noting(pub Arc<dyn SigningKey>);

impl SigningKey for Noting {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let signer = self.0.choose_scheme(offered)?;
        MADE.set((u16::from(signer.scheme()), MADE.get().1));
        Some(signer)
    }

    fn public_key(&self) -> Option<rustls::pki_types::SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

/// A key that signs with some schemes alone, the first ones rather than the others.
#[derive(Debug)]
struct Limited {
    key: Arc<dyn SigningKey>,
    schemes: Schemes,
}

impl SigningKey for Limited {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut both = self.schemes.0.iter().filter(|scheme| offered.contains(scheme));
        both.find_map(|scheme| self.key.choose_scheme(&[*scheme]))
    }

    fn public_key(&self) -> Option<rustls::pki_types::SubjectPublicKeyInfoDer<'_>> {
        self.key.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

/// The signature schemes of a configuration, best first; none stands for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schemes(Arc<[SignatureScheme]>);

impl Schemes {
    /// Those of these numbers.
    pub fn new(numbers: &[u16]) -> Schemes {
        Schemes(numbers.iter().map(|&number| SignatureScheme::from(number)).collect())
    }

    /// Whether the peer may sign with a scheme.
    pub fn allows(&self, scheme: SignatureScheme) -> bool {
        self.0.is_empty() || self.0.contains(&scheme)
    }

    /// The ones that peers are told.
    pub fn told(&self) -> Vec<SignatureScheme> {
        match self.0.is_empty() {
            true => SCHEMES.iter().map(|&scheme| SignatureScheme::from(scheme)).collect(),
            false => self.0.to_vec(),
        }
    }

    /// The certificate with a key that signs with these schemes alone.
    pub fn limit(&self, shown: &Arc<CertifiedKey>) -> Arc<CertifiedKey> {
        if self.0.is_empty() {
            return Arc::clone(shown);
        }
        let CertifiedKey { cert, key, ocsp } = &**shown;
        let key = Arc::new(Limited { key: Arc::clone(key), schemes: self.clone() });
        Arc::new(CertifiedKey { cert: cert.clone(), key, ocsp: ocsp.clone() })
    }
}
