//! Chains of certificates: built and checked as OpenSSL 3.0 does it for nginx.
//!
//! The order of the checks, what each of them looks at, and the errors are OpenSSL's. A check that
//! fails does not end the verification, since nginx's callback goes on: all errors are found, and
//! the last one is the result, as in nginx's log and in `$ssl_client_verify`. What is not
//! understood is refused. The chain is built by OpenSSL's rule without alternatives: for each
//! certificate the first issuer that fits by name, key identifier and kind of key, from the trusted
//! ones, else from those that the peer sent; if that one does not verify the signature, the chain
//! fails. So the work is bounded by the depth.

mod build;
mod constraints;
mod error;
mod extensions;
mod host;
mod revocation;

pub use error::Error;
pub use host::{check_address, check_host};

use crate::x509::{Certificate, Kind, RevocationList, TrustSettings, oid};
use std::collections::HashMap;
use std::sync::Arc;

/// Bits that OpenSSL's security levels ask of keys and hashes, from level one on.
const SECURITY_BITS: [u32; 5] = [80, 112, 128, 192, 256];

/// The strength in bits that a security level wants.
pub fn security_bits(level: u8) -> u32 {
    let at = usize::from(level).checked_sub(1);
    at.map_or(0, |at| SECURITY_BITS[at.min(SECURITY_BITS.len() - 1)])
}

/// The level of Debian and most other systems: RSA of 2048 bits and SHA-224 just pass.
const USUAL_LEVEL: u8 = 2;

/// The longest chain looked at, whatever depth is set. OpenSSL's own default.
const DEPTH_MAX: u32 = 100;

/// The part of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client that identifies itself to us.
    Client,
    /// A server that we are the client of.
    Server,
}

/// The terms of a chain's check.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The role of the peer.
    pub purpose: Purpose,
    /// `ssl_verify_depth`: how many certificates may stand between the peer's own and the trusted
    /// root. Zero allows the root to be the issuer.
    pub depth: u32,
    /// Seconds since 1970.
    pub now: i64,
}

/// The outcome of a verification.
#[derive(Debug)]
pub struct Verdict {
    errors: Vec<(Error, usize)>,
    /// The chain as far as it could be built: the peer's certificate first, each next one the
    /// issuer of that before it.
    pub chain: Vec<Arc<Certificate>>,
}

impl Verdict {
    /// The result as nginx reports it: the last error that was found.
    pub fn error(&self) -> Option<Error> {
        self.errors.last().map(|(error, _)| *error)
    }

    /// All errors in the order in which OpenSSL finds them, each with the place in the chain.
    pub fn errors(&self) -> &[(Error, usize)] {
        &self.errors
    }
}

/// Trusted certificates and revocation lists.
#[derive(Debug, Default)]
pub struct Store {
    certificates: Vec<Arc<Certificate>>,
    /// OpenSSL's settings of trust of some.
    settings: Vec<(Arc<Certificate>, TrustSettings)>,
    /// Places in `certificates` by the subject's canonical name.
    by_subject: HashMap<Vec<u8>, Vec<usize>>,
    /// By the issuer's canonical name.
    lists: HashMap<Vec<u8>, Vec<RevocationList>>,
    check_lists: bool,
    security_level: Option<u8>,
}

impl Store {
    /// Trusts a certificate. A chain still has to end in one that is self-signed, as in nginx.
    pub fn add(&mut self, certificate: Certificate) {
        let place = self.certificates.len();
        let places = self.by_subject.entry(certificate.subject().canonical().to_vec());
        let places = places.or_default();
        if places.iter().all(|i| *self.certificates[*i] != certificate) {
            places.push(place);
            self.certificates.push(Arc::new(certificate));
        }
    }

    /// Trusts a certificate for some usages alone, as OpenSSL's settings behind it tell. One that
    /// they name is the end of a chain, whether it is self-signed or not.
    pub fn add_with(&mut self, certificate: Certificate, settings: TrustSettings) {
        let count = self.certificates.len();
        self.add(certificate);
        if let Some(added) = self.certificates.get(count) {
            self.settings.push((added.clone(), settings));
        }
    }

    /// The settings' verdict on a trusted certificate.
    fn verdict(&self, certificate: &Arc<Certificate>, purpose: Purpose) -> Option<bool> {
        let usage = match purpose {
            Purpose::Client => oid::CLIENT_AUTH,
            Purpose::Server => oid::SERVER_AUTH,
        };
        let mut settings = self.settings.iter();
        settings.find(|(of, _)| Arc::ptr_eq(of, certificate))?.1.verdict(usage)
    }

    /// Adds a revocation list; it is used once [`Store::check_revocation`] was called.
    pub fn add_list(&mut self, list: RevocationList) {
        self.lists.entry(list.issuer().canonical().to_vec()).or_default().push(list);
    }

    /// From here on every certificate of a chain, the root too, has to have a valid list, as
    /// nginx's `ssl_crl` wants it.
    pub fn check_revocation(&mut self) {
        self.check_lists = true;
    }

    /// OpenSSL's security level for keys and signatures of certificates, as `@SECLEVEL` among the
    /// ciphers sets it; two without a call. Zero asks for nothing.
    pub fn set_security_level(&mut self, level: u8) {
        self.security_level = Some(level);
    }

    fn security_bits(&self) -> u32 {
        security_bits(self.security_level.unwrap_or(USUAL_LEVEL))
    }

    /// The trusted certificates in the order in which they were added.
    pub fn certificates(&self) -> &[Arc<Certificate>] {
        &self.certificates
    }

    /// Verifies what a peer sent, its own certificate first. An empty list is an error.
    pub fn verify(&self, peer: &[Arc<Certificate>], rules: &Rules) -> Verdict {
        let Some(leaf) = peer.first() else {
            return Verdict { errors: vec![(Error::Unspecified, 0)], chain: Vec::new() };
        };
        let rules = Rules { depth: rules.depth.min(DEPTH_MAX), ..*rules };
        let mut run = Run {
            store: self,
            rules,
            peer,
            chain: vec![leaf.clone()],
            untrusted: 1,
            errors: Vec::new(),
        };
        run.all();
        Verdict { errors: run.errors, chain: run.chain }
    }

    /// The trusted certificates with this subject.
    fn with_subject<'a>(
        &'a self,
        canonical: &[u8],
    ) -> impl Iterator<Item = &'a Arc<Certificate>> + use<'a> {
        let places = self.by_subject.get(canonical).map(Vec::as_slice).unwrap_or_default();
        places.iter().map(|i| &self.certificates[*i])
    }
}

/// One verification.
struct Run<'a> {
    store: &'a Store,
    rules: Rules,
    peer: &'a [Arc<Certificate>],
    chain: Vec<Arc<Certificate>>,
    /// So many of the chain, from its begin, come from the peer.
    untrusted: usize,
    errors: Vec<(Error, usize)>,
}

impl Run<'_> {
    fn all(&mut self) {
        if self.chain[0].public_key().security_bits() < self.store.security_bits() {
            self.fail(Error::LeafKeyTooSmall, 0);
        }
        if !self.build() {
            // OpenSSL gives up here; so that no later error can hide it, this is the last one.
            self.fail(Error::Unspecified, 0);
            return;
        }
        self.check_extensions();
        self.check_strength();
        if self.chain[0].public_key().kind() == Kind::Unknown {
            // Here, too.
            self.fail(Error::Unspecified, 0);
            return;
        }
        if self.store.check_lists {
            self.check_revocation();
        }
        self.check_signatures();
        self.check_constraints();
    }

    fn fail(&mut self, error: Error, depth: usize) {
        self.errors.push((error, depth));
    }

    /// Keys of issuers, and the hashes of all signatures but the root's.
    fn check_strength(&mut self) {
        let wanted = self.store.security_bits();
        for i in 0..self.chain.len() {
            let certificate = self.chain[i].clone();
            if i > 0 && certificate.public_key().security_bits() < wanted {
                self.fail(Error::IssuerKeyTooSmall, i);
            }
            let scheme = certificate.algorithm().scheme();
            if i + 1 < self.chain.len() && scheme.security_bits() < wanted {
                self.fail(Error::WeakSignature, i);
            }
        }
    }

    /// Signatures and times, from the root down.
    fn check_signatures(&mut self) {
        let last = self.chain.len() - 1;
        let mut issuer = self.chain[last].clone();
        let mut i = last;
        if !build::is_likely_issuer(&issuer, &issuer) {
            // The chain has no root: its last certificate can only be an issuer.
            match last.checked_sub(1) {
                Some(below) => i = below,
                None => self.fail(Error::LeafSignature, 0),
            }
        }
        loop {
            let certificate = self.chain[i].clone();
            if !Arc::ptr_eq(&certificate, &issuer) {
                if let Some(error) = extensions::refuses_to_sign(&issuer, &certificate) {
                    self.fail(error, i + 1);
                }
                if !certificate.is_signed_by(issuer.public_key()) {
                    self.fail(Error::Signature, i);
                }
            }
            self.check_times(&certificate, i);
            if i == 0 {
                return;
            }
            issuer = certificate;
            i -= 1;
        }
    }

    fn check_times(&mut self, certificate: &Certificate, depth: usize) {
        match certificate.not_before().unix() {
            None => self.fail(Error::NotBeforeField, depth),
            Some(begin) if begin > self.rules.now => self.fail(Error::NotYetValid, depth),
            Some(_) => {}
        }
        match certificate.not_after().unix() {
            None => self.fail(Error::NotAfterField, depth),
            Some(end) if end <= self.rules.now => self.fail(Error::Expired, depth),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
