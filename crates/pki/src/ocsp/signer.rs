//! The signers of a response: who may, and who did.

use super::Error;
use super::cert_id::sha1;
use super::response::{Basic, ResponderId};
use crate::x509::der::{Reader, tag};
use crate::x509::signature::{self, Scheme};
use crate::x509::{Certificate, Name, PublicKey};

/// Certificates in a response that are tried at most: real ones have one or two, and each that is
/// named like the signer costs a signature.
const CERTIFICATES_MAX: usize = 8;

/// The least strength of keys and hashes, in bits: OpenSSL's first level, which lets RSA of 1024
/// bits through, and no SHA-1.
const STRENGTH_MIN: u32 = 80;

/// The certificates that may sign a response.
#[derive(Clone, Copy, Debug)]
pub enum Signers<'a> {
    /// The issuer of the certificate in question, and those that it has issued for this purpose.
    Authorized,
    /// Also any certificate of the chain that is sent to clients and any in the response, as with
    /// `ssl_stapling_verify off`: the response must be signed by the one it names, and clients
    /// check for themselves whether that one may.
    Any(&'a [Certificate]),
}

impl Signers<'_> {
    /// Checks the signature and its author.
    pub(super) fn verify(
        self,
        response: &Basic,
        issuer: &Certificate,
        now: i64,
    ) -> Result<(), Error> {
        let named = Named::of(&response.responder)?;
        let mut fault = Error::SignerNotFound;
        if named.is(issuer) {
            match signed_by(response, issuer.public_key()) {
                true => return Ok(()),
                // Another one may have the same name.
                false => fault = Error::Signature,
            }
        }
        if let Signers::Any(chain) = self {
            for certificate in chain.iter().filter(|c| named.is(c)) {
                match signed_by(response, certificate.public_key()) {
                    true => return Ok(()),
                    false => fault = Error::Signature,
                }
            }
        }
        let mut certificates = Reader::new(&response.certificates);
        for _ in 0..CERTIFICATES_MAX {
            if certificates.is_empty() {
                break;
            }
            let der =
                response.certificates.slice_ref(certificates.expect_element(tag::SEQUENCE)?.raw);
            // One that cannot be read has signed nothing.
            let Ok(certificate) = Certificate::parse(der) else { continue };
            if !named.is(&certificate) {
                continue;
            }
            if matches!(self, Signers::Authorized) && !is_delegate(&certificate, issuer, now) {
                if fault == Error::SignerNotFound {
                    fault = Error::NotAuthorized;
                }
                continue;
            }
            match signed_by(response, certificate.public_key()) {
                true => return Ok(()),
                false => fault = Error::Signature,
            }
        }
        Err(fault)
    }
}

/// The signer as the response names it.
enum Named<'a> {
    Name(Name),
    Key(&'a [u8]),
}

impl Named<'_> {
    fn of(responder: &ResponderId) -> Result<Named<'_>, Error> {
        Ok(match responder {
            ResponderId::Name(name) => Named::Name(Name::parse(name, name)?),
            ResponderId::Key(hash) => Named::Key(hash),
        })
    }

    fn is(&self, certificate: &Certificate) -> bool {
        match self {
            Named::Name(name) => certificate.subject() == name,
            Named::Key(hash) => sha1(certificate.public_key().bits()) == *hash,
        }
    }
}

/// RFC 6960 section 4.2.2.2: issued by the issuer itself, and for this purpose.
fn is_delegate(certificate: &Certificate, issuer: &Certificate, now: i64) -> bool {
    let begun = certificate.not_before().unix().is_some_and(|from| from <= now);
    let ended = certificate.not_after().unix().is_none_or(|to| to < now);
    certificate.issuer() == issuer.subject()
        && issuer.is_meant_by(certificate.extensions().authority_key_id.as_ref())
        && certificate.may_sign_ocsp()
        && !certificate.extensions().unhandled_critical
        && begun
        && !ended
        && is_strong(certificate.inner_algorithm().scheme(), issuer.public_key())
        && certificate.is_signed_by(issuer.public_key())
}

fn signed_by(response: &Basic, key: &PublicKey) -> bool {
    let scheme = response.algorithm.scheme();
    is_strong(scheme, key) && signature::verify(scheme, key, &response.signed, &response.signature)
}

fn is_strong(scheme: Scheme, key: &PublicKey) -> bool {
    scheme.security_bits() >= STRENGTH_MIN && key.security_bits() >= STRENGTH_MIN
}
