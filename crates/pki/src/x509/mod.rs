//! Certificates and revocation lists: read once, strictly, and printed as nginx prints them.
//!
//! The reader is an own one, of DER alone, because the chain's checks must not accept what OpenSSL
//! refuses: the crates at hand pass over bytes left at the end of a SEQUENCE, over a flag that
//! stands twice and over the text of a time. x509-parser is the second opinion of the tests and of
//! the fuzz targets.

mod crl;
pub(crate) mod der;
pub(crate) mod extensions;
pub(crate) mod general_name;
mod handshake;
mod key;
mod name;
pub(crate) mod oid;
pub mod pem;
pub(crate) mod signature;
mod time;
mod trust;

pub use crl::RevocationList;
pub use handshake::{SCHEMES, Version, is_scheme_for, scheme_bits, verify_handshake_signature};
pub use key::{Hash, Kind, PublicKey, private_rsa_bits};
pub use name::Name;
pub use time::Time;
pub use trust::TrustSettings;

use base::ascii::write_hex;
use bytes::Bytes;
use der::{Reader, tag};
use extensions::{Extensions, Raw};
use general_name::GeneralName;
use signature::Algorithm;

/// Why bytes are no certificate or no revocation list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.0)
    }
}

/// A certificate. Its parts are slices of its encoding.
#[derive(Clone, Debug)]
pub struct Certificate {
    der: Bytes,
    /// The bytes that are signed.
    signed: Bytes,
    version: u8,
    serial: Bytes,
    issuer: Name,
    subject: Name,
    not_before: Time,
    not_after: Time,
    key: PublicKey,
    extensions: Extensions,
    inner_algorithm: Algorithm,
    algorithm: Algorithm,
    signature: Bytes,
    self_issued: bool,
}

/// Equal if every byte is.
impl PartialEq for Certificate {
    fn eq(&self, other: &Certificate) -> bool {
        self.der == other.der
    }
}

impl Certificate {
    /// Reads a certificate in DER.
    pub fn parse(der: Bytes) -> Result<Certificate, Malformed> {
        let mut outer = Reader::new(Reader::whole(&der, tag::SEQUENCE)?);
        let signed = outer.expect_element(tag::SEQUENCE)?;
        let algorithm = Algorithm::parse(&der, outer.expect_element(tag::SEQUENCE)?.raw)?;
        let signature = whole_bytes(outer.expect(tag::BIT_STRING)?)?;
        outer.finish()?;

        let mut fields = Reader::new(signed.content);
        let version = match fields.optional(tag::constructed(0))? {
            None => 1,
            Some(content) => match Reader::whole(content, tag::INTEGER)? {
                [n @ 0..=2] => n + 1,
                _ => return Err(Malformed("unknown version")),
            },
        };
        let serial = der::integer(fields.expect(tag::INTEGER)?)?;
        let inner_algorithm = Algorithm::parse(&der, fields.expect_element(tag::SEQUENCE)?.raw)?;
        let issuer = Name::parse(&der, fields.expect_element(tag::SEQUENCE)?.raw)?;
        let mut validity = fields.sequence()?;
        let not_before = Time::parse(&validity.next()?)?;
        let not_after = Time::parse(&validity.next()?)?;
        validity.finish()?;
        let subject = Name::parse(&der, fields.expect_element(tag::SEQUENCE)?.raw)?;
        let key = PublicKey::parse(&der, fields.expect_element(tag::SEQUENCE)?.raw)?;
        // The unique identifiers of version 2, which nothing uses.
        for number in [1, 2] {
            fields.optional(tag::context(number))?.map(der::bit_string).transpose()?;
        }
        let extensions = fields.optional(tag::constructed(3))?;
        let extensions = extensions.map(|c| raw_extensions(&der, c)).transpose()?;
        fields.finish()?;
        let extensions = Extensions::read(&extensions.unwrap_or_default(), &issuer);

        Ok(Certificate {
            signed: der.slice_ref(signed.raw),
            version,
            serial: der.slice_ref(serial),
            self_issued: issuer == subject,
            issuer,
            subject,
            not_before,
            not_after,
            key,
            extensions,
            inner_algorithm,
            algorithm,
            signature: der.slice_ref(signature),
            der,
        })
    }

    /// Its encoding.
    pub fn der(&self) -> &Bytes {
        &self.der
    }

    /// 1, 2 or 3.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The content of the INTEGER.
    pub fn serial(&self) -> &Bytes {
        &self.serial
    }

    /// nginx's `$ssl_client_serial`.
    pub fn serial_text(&self) -> String {
        let negative = self.serial.first().is_some_and(|b| b & 0x80 != 0);
        let mut digits = self.serial.to_vec();
        if negative {
            // The two's complement.
            let mut carry = true;
            for b in digits.iter_mut().rev() {
                (*b, carry) = (!*b).overflowing_add(u8::from(carry));
            }
        }
        let significant = digits.iter().position(|b| *b != 0).unwrap_or(digits.len() - 1);
        let mut out = Vec::new();
        digits[significant..].iter().for_each(|b| base::ascii::push_upper_hex(&mut out, *b));
        let digits = String::from_utf8_lossy(&out);
        format!("{}{digits}", if negative { "-" } else { "" })
    }

    /// nginx's `$ssl_client_fingerprint`: SHA-1 of the encoding.
    pub fn fingerprint(&self) -> String {
        use aws_lc_rs::digest;
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &self.der);
        let mut out = Vec::new();
        write_hex(&mut out, hash.as_ref());
        String::from_utf8(out).unwrap_or_default()
    }

    /// The issuer's name.
    pub fn issuer(&self) -> &Name {
        &self.issuer
    }

    /// The subject's name.
    pub fn subject(&self) -> &Name {
        &self.subject
    }

    /// Valid from here on; printed it is nginx's `$ssl_client_v_start`.
    pub fn not_before(&self) -> Time {
        self.not_before
    }

    /// Valid up to here; printed it is nginx's `$ssl_client_v_end`.
    pub fn not_after(&self) -> Time {
        self.not_after
    }

    /// nginx's `$ssl_client_v_remain`: whole days left, none when it is over. `now` is in seconds
    /// since 1970. `None` if the time is malformed.
    pub fn days_left(&self, now: i64) -> Option<i64> {
        self.not_after.unix().map(|end| end.saturating_sub(now).max(0) / 86_400)
    }

    /// The key that the certificate is for.
    pub fn public_key(&self) -> &PublicKey {
        &self.key
    }

    /// The DNS names among the subject's alternative names, as they stand there.
    pub fn dns_names(&self) -> impl Iterator<Item = &[u8]> {
        self.alt_names().iter().filter_map(|name| match name {
            GeneralName::Dns(name) => Some(&name[..]),
            _ => None,
        })
    }

    /// The addresses of OCSP responders, as they stand there.
    pub fn ocsp_responders(&self) -> impl Iterator<Item = &[u8]> {
        self.extensions.ocsp.iter().map(|uri| &uri[..])
    }

    /// The extension of RFC 7633 demands a stapled status.
    pub fn must_staple(&self) -> bool {
        self.extensions.must_staple
    }

    /// The certificate may sign OCSP responses for its issuer.
    pub(crate) fn may_sign_ocsp(&self) -> bool {
        !self.extensions.invalid && self.extensions.extended.is_some_and(|e| e.ocsp)
    }

    /// The IP addresses of its alternative names, four or sixteen bytes each.
    pub(crate) fn ip_addresses(&self) -> impl Iterator<Item = &[u8]> {
        self.alt_names().iter().filter_map(|name| match name {
            GeneralName::Ip(address) => Some(&address[..]),
            _ => None,
        })
    }

    /// The key identifier of its issuer.
    pub fn authority_key_id(&self) -> Option<&Bytes> {
        self.extensions.authority_key_id.as_ref()?.key_id.as_ref()
    }

    /// The subject key identifier.
    pub fn subject_key_id(&self) -> Option<&Bytes> {
        self.extensions.subject_key_id.as_ref()
    }

    /// nginx's `$ssl_client_raw_cert`.
    pub fn pem(&self) -> Vec<u8> {
        pem::write(&self.der)
    }

    /// nginx's `$ssl_client_cert`: each line but the first begins with a tab, the last has no line
    /// feed.
    pub fn pem_for_header(&self) -> Vec<u8> {
        let pem = self.pem();
        let pem = pem.strip_suffix(b"\n").unwrap_or(&pem);
        let lines: Vec<&[u8]> = pem.split(|b| *b == b'\n').collect();
        lines.join(&b"\n\t"[..])
    }

    /// nginx's `$ssl_client_escaped_cert`: percent-encoded but for unreserved characters.
    pub fn pem_escaped(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for b in self.pem() {
            if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') {
                out.push(b);
            } else {
                out.push(b'%');
                base::ascii::push_upper_hex(&mut out, b);
            }
        }
        out
    }

    /// Whether the key of `issuer` signed this certificate.
    pub fn is_signed_by(&self, issuer: &PublicKey) -> bool {
        self.algorithm == self.inner_algorithm
            && signature::verify(self.algorithm.scheme(), issuer, &self.signed, &self.signature)
    }

    pub(crate) fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    pub(crate) fn alt_names(&self) -> &[GeneralName] {
        self.extensions.alt_names.as_deref().unwrap_or_default()
    }

    /// The algorithm inside of what is signed.
    pub(crate) fn inner_algorithm(&self) -> &Algorithm {
        &self.inner_algorithm
    }

    pub(crate) fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Issuer and subject have one name.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.self_issued
    }

    /// It names itself as its issuer, and nothing in it speaks against it. The signature is not
    /// looked at.
    pub(crate) fn is_self_signed(&self) -> bool {
        self.self_issued
            && !self.extensions.invalid
            && self.is_meant_by(self.extensions.authority_key_id.as_ref())
            && self.inner_algorithm.scheme().is_of(self.key.kind())
    }

    /// Whether an authority key identifier can mean this certificate.
    pub(crate) fn is_meant_by(&self, id: Option<&extensions::AuthorityKeyId>) -> bool {
        let Some(id) = id else { return true };
        let same_key = match (&id.key_id, &self.extensions.subject_key_id) {
            (Some(wanted), Some(own)) => wanted == own,
            _ => true,
        };
        let same_serial = id.serial.as_ref().is_none_or(|serial| *serial == self.serial);
        // Of several names only the first directory name counts.
        let issuer = id.issuer.iter().find_map(|name| match name {
            GeneralName::Directory(name) => Some(name),
            _ => None,
        });
        same_key && same_serial && issuer.is_none_or(|issuer| *issuer == self.issuer)
    }
}

/// A BIT STRING of whole bytes.
fn whole_bytes(content: &[u8]) -> Result<&[u8], Malformed> {
    match der::bit_string(content)? {
        (bits, 0) => Ok(bits),
        _ => Err(Malformed("signature with unused bits")),
    }
}

/// The extensions in the content of their context tag.
fn raw_extensions(owner: &Bytes, content: &[u8]) -> Result<Vec<Raw>, Malformed> {
    let mut reader = Reader::new(Reader::whole(content, tag::SEQUENCE)?);
    let mut list = Vec::new();
    while !reader.is_empty() {
        let mut fields = reader.sequence()?;
        let oid = der::oid(fields.expect(tag::OID)?)?;
        let critical = fields.optional(tag::BOOLEAN)?.map(der::boolean).transpose()?;
        let value = fields.expect(tag::OCTET_STRING)?;
        fields.finish()?;
        list.push(Raw {
            oid: owner.slice_ref(oid),
            critical: critical.unwrap_or(false),
            value: owner.slice_ref(value),
        });
    }
    Ok(list)
}

#[cfg(test)]
mod tests;
