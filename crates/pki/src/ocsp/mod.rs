//! OCSP (RFC 6960): whether a certificate has been revoked, asked of its issuer's responder. No
//! I/O: a [`Query`] writes the request and judges the response, with the time as an argument.
//!
//! ```text
//!  certificate, issuer ─▶ Query ─▶ target of a GET
//!             bytes of the body ─▶ Query::check ─▶ Answer: status, times
//!                                       │
//!                     response ─▶ signer ─▶ CertID ─▶ times
//! ```
//!
//! As in nginx, the request has one CertID of SHA-1, which is a name and no protection, and no
//! nonce: responders answer from stock. The response is read strictly as DER.
//!
//! Stricter than OpenSSL: a signature over SHA-1 is refused, and so is a critical extension, as
//! none is known; a delegate is one of the very issuer, never of a CA above it. Like OpenSSL, the
//! revocation of a delegate's own certificate is not looked up.

mod cache;
mod cert_id;
mod response;
mod signer;

use std::fmt;

use bytes::Bytes;

use crate::x509::der::{self, tag};
use crate::x509::{Certificate, Malformed};

pub use cache::StatusCache;
pub use signer::Signers;

use cert_id::CertId;
use response::{Basic, Single};

/// The clocks of a responder and of this machine may differ by so much, seconds. nginx's value.
const SKEW: i64 = 300;

/// A responder's word on a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertStatus {
    /// Not revoked.
    Good,
    /// Revoked for good, or on hold.
    Revoked,
    /// The responder does not know it.
    Unknown,
}

/// OpenSSL's words, for logs.
impl fmt::Display for CertStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CertStatus::Good => "good",
            CertStatus::Revoked => "revoked",
            CertStatus::Unknown => "unknown",
        })
    }
}

/// A response that was found to be right and of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What the responder says about the certificate.
    pub status: CertStatus,
    /// When there will be a newer answer, seconds since 1970. `None`: at any time.
    pub next_update: Option<i64>,
}

/// Why there is no answer in a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// No response at all.
    Malformed(Malformed),
    /// The responder refused; the number of its reason.
    NotSuccessful(u8),
    /// A response, but not of the one type that there is.
    UnknownType,
    /// Something that is critical is unknown.
    CriticalExtension,
    /// No certificate at hand is the one that the response names.
    SignerNotFound,
    /// The signer is neither the issuer nor its delegate, or the delegate is not valid now.
    NotAuthorized,
    /// The signature is wrong, or of an algorithm that is not taken.
    Signature,
    /// The response is about other certificates.
    StatusNotFound,
    /// `nextUpdate` is before `thisUpdate`.
    TimesReversed,
    /// `thisUpdate` is in the future.
    NotYetValid,
    /// `nextUpdate` is over.
    Expired,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Malformed(what) => return write!(f, "malformed OCSP response: {what}"),
            Error::NotSuccessful(code) => {
                let reason = response::reason(*code);
                return write!(f, "OCSP response not successful ({code}: {reason})");
            }
            Error::UnknownType => "OCSP response of an unknown type",
            Error::CriticalExtension => "unknown critical extension in the OCSP response",
            Error::SignerNotFound => "signer certificate of the OCSP response not found",
            Error::NotAuthorized => "signer of the OCSP response is not authorized by the issuer",
            Error::Signature => "bad signature of the OCSP response",
            Error::StatusNotFound => "certificate status not found in the OCSP response",
            Error::TimesReversed => "nextUpdate before thisUpdate in the OCSP response",
            Error::NotYetValid => "OCSP response is not yet valid",
            Error::Expired => "OCSP response has expired",
        })
    }
}

impl std::error::Error for Error {}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Error {
        Error::Malformed(malformed)
    }
}

/// The question for the status of one certificate.
#[derive(Clone, Debug)]
pub struct Query {
    id: CertId,
    issuer: Certificate,
}

impl Query {
    /// Asks for `certificate`, which `issuer` has issued.
    pub fn new(certificate: &Certificate, issuer: &Certificate) -> Query {
        Query { id: CertId::new(certificate, issuer), issuer: issuer.clone() }
    }

    /// The OCSPRequest in DER.
    pub fn to_der(&self) -> Vec<u8> {
        let mut der = self.id.to_der();
        // Request, requestList, TBSRequest, OCSPRequest.
        for _ in 0..4 {
            let mut outer = Vec::with_capacity(der.len() + 4);
            der::push(&mut outer, tag::SEQUENCE, &der);
            der = outer;
        }
        der
    }

    /// The target of a GET (RFC 6960 appendix A.1) below `uri`, the responder's own path.
    pub fn target(&self, uri: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        base::base64::encode(&self.to_der(), &mut text);
        let mut target = if uri.is_empty() { b"/".to_vec() } else { uri.to_vec() };
        if target.last() != Some(&b'/') {
            target.push(b'/');
        }
        // The characters of base64 that a URI has other uses for.
        for byte in text {
            match byte {
                b'+' => target.extend_from_slice(b"%2B"),
                b'/' => target.extend_from_slice(b"%2F"),
                b'=' => target.extend_from_slice(b"%3D"),
                other => target.push(other),
            }
        }
        target
    }

    /// The key under which [`StatusCache`] keeps the status. `None` if the certificate's serial
    /// number is longer than RFC 5280 allows.
    pub fn cache_key(&self) -> Option<CacheKey> {
        self.id.cache_key()
    }

    /// Reads a response, checks that it is right and of now, and finds the certificate's status.
    /// `now` is in seconds since 1970.
    ///
    /// # Errors
    /// There is no answer that can be relied on.
    pub fn check(&self, response: &Bytes, signers: Signers<'_>, now: i64) -> Result<Answer, Error> {
        let basic = Basic::of_response(response)?;
        signers.verify(&basic, &self.issuer, now)?;
        let single = basic.find(&self.id)?.ok_or(Error::StatusNotFound)?;
        check_times(&single, now)?;
        Ok(Answer { status: single.status, next_update: single.next_update })
    }
}

/// Whether `issuer` is the one that signed `certificate`: of certificates with one name, the one
/// that responders are asked by.
pub fn has_issued(issuer: &Certificate, certificate: &Certificate) -> bool {
    certificate.issuer() == issuer.subject() && certificate.is_signed_by(issuer.public_key())
}

/// Key of a status in a cache: hashes of the issuer's name and key, and the serial number.
pub(crate) type CacheKey = [u8; 60];

fn check_times(single: &Single, now: i64) -> Result<(), Error> {
    if single.this_update > now.saturating_add(SKEW) {
        return Err(Error::NotYetValid);
    }
    match single.next_update {
        Some(next) if next < now.saturating_sub(SKEW) => Err(Error::Expired),
        Some(next) if next < single.this_update => Err(Error::TimesReversed),
        _ => Ok(()),
    }
}

/// The bytes of the response that a file (`ssl_stapling_file`) begins with. Whatever it says, it
/// is sent as it is: the file is made by others, who know when it is to be replaced.
///
/// # Errors
/// The file begins with no OCSPResponse.
pub fn response_of_file(file: &Bytes) -> Result<Bytes, Malformed> {
    response::first(file)
}

#[cfg(test)]
mod tests;
