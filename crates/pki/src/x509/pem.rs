//! PEM: certificates and revocation lists read from files, a certificate written for variables.

use super::der::{Reader, tag};
use super::{Certificate, Malformed, TrustSettings};
use crate::pem::{Block, Blocks};
use crate::x509::crl::RevocationList;
use bytes::Bytes;

const LINE: usize = 64;

/// The contents of a file for verification, in the file's order.
#[derive(Debug, Default)]
pub struct Bundle {
    /// The certificates, in the order of the file.
    pub certificates: Vec<Certificate>,
    /// OpenSSL's settings of trust, each with the place of its certificate.
    pub settings: Vec<(usize, TrustSettings)>,
    /// The revocation lists, in the order of the file.
    pub lists: Vec<RevocationList>,
}

/// Why a file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFile {
    /// The number of the block, from one on.
    pub block: usize,
    /// The fault.
    pub reason: &'static str,
}

impl std::fmt::Display for BadFile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "PEM block {}: {}", self.block, self.reason)
    }
}

/// Reads all certificates and revocation lists of a file. Blocks of other kinds and text between
/// blocks are passed over; a block that cannot be read is an error.
pub fn read(text: &[u8]) -> Result<Bundle, BadFile> {
    let mut bundle = Bundle::default();
    for (block, at) in Blocks::new(text).zip(1..) {
        let bad = |reason| BadFile { block: at, reason };
        let malformed = |Malformed(reason)| bad(reason);
        let Block { label, data, .. } = block.map_err(bad)?;
        let der = || Bytes::copy_from_slice(&data);
        match label {
            b"CERTIFICATE" | b"X509 CERTIFICATE" => {
                bundle.certificates.push(Certificate::parse(der()).map_err(malformed)?);
            }
            b"X509 CRL" => {
                bundle.lists.push(RevocationList::parse(der()).map_err(malformed)?);
            }
            b"TRUSTED CERTIFICATE" => {
                let mut reader = Reader::new(&data);
                let own = reader.expect_element(tag::SEQUENCE).map_err(malformed)?.raw;
                let settings = TrustSettings::parse(&data[own.len()..]).map_err(malformed)?;
                bundle.settings.push((bundle.certificates.len(), settings));
                let own = Certificate::parse(Bytes::copy_from_slice(own)).map_err(malformed)?;
                bundle.certificates.push(own);
            }
            _ => {}
        }
    }
    Ok(bundle)
}

/// The certificate in PEM with its final line feed, as nginx's `$ssl_client_raw_cert`.
pub(crate) fn write(der: &[u8]) -> Vec<u8> {
    let mut base64 = Vec::new();
    base::base64::encode(der, &mut base64);
    let mut out = b"-----BEGIN CERTIFICATE-----\n".to_vec();
    for line in base64.chunks(LINE) {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.extend_from_slice(b"-----END CERTIFICATE-----\n");
    out
}
