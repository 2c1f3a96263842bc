//! The signature schemes of the handshake under way. rustls does not tell them; a handshake runs on
//! one thread from each message to the answer, so that they can be noted here.

use std::cell::Cell;
use std::sync::Arc;

use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

thread_local! {
    static MADE: Cell<(u16, u16)> = const { Cell::new((0, 0)) };
}

/// Forgets what was noted before.
pub(crate) fn forget() {
    MADE.set((0, 0));
}

/// The schemes of our own signature and of the peer's since then; 0 for none.
pub(crate) fn made() -> (u16, u16) {
    MADE.get()
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
