//! PEM: certificates and revocation lists read from files, a certificate written for variables.

use super::{Certificate, Malformed};
use crate::x509::crl::RevocationList;
use bytes::Bytes;

const LINE: usize = 64;

/// The contents of a file for verification, in the file's order.
#[derive(Debug, Default)]
pub struct Bundle {
    /// The certificates.
    pub certificates: Vec<Certificate>,
    /// The revocation lists.
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
    let mut lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    let mut block = 0;
    while let Some(line) = lines.next() {
        let Some(label) = label(line, b"-----BEGIN ") else { continue };
        block += 1;
        let bad = |reason| BadFile { block, reason };
        let mut base64 = Vec::new();
        loop {
            let line = lines.next().ok_or(bad("no END line"))?;
            match self::label(line, b"-----END ") {
                Some(end) if end == label => break,
                Some(_) => return Err(bad("END of another kind than BEGIN")),
                None => base64.extend_from_slice(line),
            }
        }
        let decode = || decode(&base64).ok_or(bad("not base64"));
        let malformed = |Malformed(reason)| bad(reason);
        match label {
            b"CERTIFICATE" | b"X509 CERTIFICATE" => {
                bundle.certificates.push(Certificate::parse(decode()?).map_err(malformed)?);
            }
            b"X509 CRL" => {
                bundle.lists.push(RevocationList::parse(decode()?).map_err(malformed)?);
            }
            // It carries OpenSSL's own restrictions of trust; to pass over them would be wrong.
            b"TRUSTED CERTIFICATE" => return Err(bad("TRUSTED CERTIFICATE is not supported")),
            _ => {}
        }
    }
    Ok(bundle)
}

fn label<'a>(line: &'a [u8], begin: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(begin)?.strip_suffix(b"-----")
}

/// Stricter than `base::base64::decode`: padding ends the text and is complete.
fn decode(text: &[u8]) -> Option<Bytes> {
    let padding = text.iter().rev().take_while(|b| **b == b'=').count();
    if !text.len().is_multiple_of(4) || padding > 2 || text[..text.len() - padding].contains(&b'=')
    {
        return None;
    }
    let mut out = Vec::new();
    base::base64::decode(text, &mut out).then(|| Bytes::from(out))
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
