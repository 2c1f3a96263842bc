//! A certificate with its key.

use crate::Site;
use crate::certificates::{Draft, Extension, Key, KeyKind, der};

/// A certificate and its key.
pub struct Pair {
    /// DER.
    pub certificate: Vec<u8>,
    /// The certificate's own.
    pub key: Key,
}

impl Pair {
    /// One that has signed itself, for a server of this name.
    pub fn own(kind: KeyKind, name: &str) -> Pair {
        Pair::own_of(kind, &[name])
    }

    /// The same for a server of several names; the first is its subject's.
    pub fn own_of(kind: KeyKind, names: &[&str]) -> Pair {
        let key = Key::generate(kind);
        let cn = format!("CN={}", names[0]);
        let alt: Vec<_> = names.iter().map(|name| (0x82, name.as_bytes())).collect();
        let draft = Draft::new(&cn, &cn, &key).with(Extension::alt_names(&alt));
        Pair { certificate: draft.sign(&key), key }
    }

    /// An authority.
    pub fn authority(name: &str) -> Pair {
        let key = Key::generate(KeyKind::P256);
        let draft = Draft::new(name, name, &key).with(Extension::basic(true, None).critical());
        Pair { certificate: draft.sign(&key), key }
    }

    /// A certificate that `draft` changes before this authority of the name `issuer` signs it.
    pub fn issue(
        &self,
        issuer: &str,
        subject: &str,
        serial: u8,
        draft: impl FnOnce(Draft) -> Draft,
    ) -> Pair {
        let key = Key::generate(KeyKind::P256);
        let mut plain = Draft::new(subject, issuer, &key);
        plain.serial = vec![serial];
        Pair { certificate: draft(plain).sign(&self.key), key }
    }

    /// The certificate.
    pub fn pem(&self) -> String {
        der::pem("CERTIFICATE", &self.certificate)
    }

    /// Writes `conf/NAME.pem` and `conf/NAME.key`.
    pub fn on(&self, site: Site, name: &str) -> Site {
        let site = site.file(&format!("conf/{name}.pem"), self.pem());
        site.file(&format!("conf/{name}.key"), self.key.pem())
    }
}
