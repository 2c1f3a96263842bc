//! OpenSSL's own settings of trust behind a certificate, in a `TRUSTED CERTIFICATE` block:
//! `openssl x509 -addtrust clientAuth -trustout` writes them.
//!
//! ```text
//! SEQUENCE {
//!     SEQUENCE OF OBJECT IDENTIFIER OPTIONAL      usages that it is trusted for
//!     [0] SEQUENCE OF OBJECT IDENTIFIER OPTIONAL  usages that it is rejected for
//!     …                                           a name, a key identifier, others
//! }
//! ```

use super::Malformed;
use super::der::{self, Reader, tag};
use super::oid::{ANY_USAGE, Oid};

/// The usages of keys for which a certificate is trusted, and those for which it is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustSettings {
    trusted: Option<Vec<Vec<u8>>>,
    rejected: Vec<Vec<u8>>,
}

impl TrustSettings {
    /// Reads what follows the certificate. Nothing, or settings without usages, restrict nothing.
    pub(super) fn parse(text: &[u8]) -> Result<TrustSettings, Malformed> {
        let mut outer = Reader::new(text);
        if outer.is_empty() {
            return Ok(TrustSettings::default());
        }
        let mut parts = outer.sequence()?;
        let trusted = parts.optional(tag::SEQUENCE)?.map(usages).transpose()?;
        let rejected = parts.optional(tag::constructed(0))?.map(usages).transpose()?;
        Ok(TrustSettings { trusted, rejected: rejected.unwrap_or_default() })
    }

    /// Whether it is trusted for a usage, as a root is, or rejected; `None` if the settings do not
    /// say. A list of trusted usages rejects all others.
    pub(crate) fn verdict(&self, usage: Oid) -> Option<bool> {
        let has = |list: &[Vec<u8>]| list.iter().any(|one| *one == usage || *one == ANY_USAGE);
        if has(&self.rejected) {
            return Some(false);
        }
        self.trusted.as_deref().map(has)
    }
}

fn usages(content: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut list = Reader::new(content);
    let mut usages = Vec::new();
    while !list.is_empty() {
        usages.push(der::oid(list.expect(tag::OID)?)?.to_vec());
    }
    Ok(usages)
}
