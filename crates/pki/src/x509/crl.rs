//! Certificate revocation lists.

use super::der::{self, Element, Reader, tag};
use super::extensions::{AuthorityKeyId, Raw};
use super::general_name::PointName;
use super::key::PublicKey;
use super::name::Name;
use super::signature::{self, Algorithm};
use super::time::Time;
use super::{Malformed, oid, raw_extensions, whole_bytes};
use bytes::Bytes;
use std::sync::OnceLock;

/// A list of revoked certificates.
#[derive(Debug)]
pub struct RevocationList {
    der: Bytes,
    signed: Bytes,
    issuer: Name,
    this_update: Time,
    next_update: Option<Time>,
    /// Serial numbers, sorted. Entries that only take a revocation back are not among them.
    revoked: Vec<Bytes>,
    authority_key_id: Option<AuthorityKeyId>,
    scope: Scope,
    /// A critical extension of the list or of an entry is unknown, so that the entries may mean
    /// something else.
    unhandled_critical: bool,
    algorithm: Algorithm,
    inner_algorithm: Algorithm,
    signature: Bytes,
    /// The first key that was held against the signature, and the answer: hashing a long list for
    /// each handshake would be dear, and its issuer's key is always the same.
    checked: OnceLock<(Bytes, bool)>,
}

/// The subject of a list.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// The place where it was published.
    pub point: Option<PointName>,
    pub only_users: bool,
    pub only_authorities: bool,
    pub only_attributes: bool,
    /// It is for some reasons only or for other issuers' certificates. Lists of these kinds are not
    /// used, as they are not by nginx.
    pub partial: bool,
}

/// The reason code that takes a revocation back.
const REMOVE_FROM_CRL: &[u8] = &[8];

impl RevocationList {
    /// Reads a list in DER.
    pub fn parse(der: Bytes) -> Result<RevocationList, Malformed> {
        let bytes = der.clone();
        let mut outer = Reader::new(Reader::whole(&bytes, tag::SEQUENCE)?);
        let signed = outer.expect_element(tag::SEQUENCE)?;
        let algorithm = Algorithm::parse(&der, outer.expect_element(tag::SEQUENCE)?.raw)?;
        let signature = whole_bytes(outer.expect(tag::BIT_STRING)?)?;
        outer.finish()?;

        let mut fields = Reader::new(signed.content);
        // Version 2, or none for 1.
        if let Some(version) = fields.optional(tag::INTEGER)?
            && !matches!(version, [0 | 1])
        {
            return Err(Malformed("unknown version"));
        }
        let inner_algorithm = Algorithm::parse(&der, fields.expect_element(tag::SEQUENCE)?.raw)?;
        let issuer = Name::parse(&der, fields.expect_element(tag::SEQUENCE)?.raw)?;
        let this_update = Time::parse(&fields.next()?)?;
        let mut list = RevocationList {
            signed: der.slice_ref(signed.raw),
            issuer,
            this_update,
            next_update: None,
            revoked: Vec::new(),
            authority_key_id: None,
            scope: Scope::default(),
            unhandled_critical: false,
            algorithm,
            inner_algorithm,
            signature: der.slice_ref(signature),
            checked: OnceLock::new(),
            der,
        };
        let mut entries = None;
        let mut next = next(&mut fields)?;
        if let Some(element) = next
            && matches!(element.tag, tag::UTC_TIME | tag::GENERALIZED_TIME)
        {
            list.next_update = Some(Time::parse(&element)?);
            next = self::next(&mut fields)?;
        }
        if let Some(element) = next
            && element.tag == tag::SEQUENCE
        {
            entries = Some(element.content);
            next = self::next(&mut fields)?;
        }
        if let Some(element) = next {
            if element.tag != tag::constructed(0) {
                return Err(Malformed("unexpected tag"));
            }
            let extensions = raw_extensions(&list.der, element.content)?;
            list.read_extensions(&extensions)?;
        }
        fields.finish()?;
        list.read_entries(entries.unwrap_or_default())?;
        Ok(list)
    }

    fn read_entries(&mut self, content: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(content);
        while !reader.is_empty() {
            let mut fields = reader.sequence()?;
            let serial = der::integer(fields.expect(tag::INTEGER)?)?;
            Time::parse(&fields.next()?)?;
            let mut removed = false;
            if !fields.is_empty() {
                let extensions = fields.expect_element(tag::SEQUENCE)?;
                for raw in raw_extensions(&self.der, extensions.raw)? {
                    let is_reason = raw.oid == oid::REASON_CODE;
                    if is_reason {
                        removed = Reader::whole(&raw.value, tag::ENUMERATED)? == REMOVE_FROM_CRL;
                    }
                    // In a list that is not for other issuers, an entry of another one counts as
                    // one of the list's own.
                    let handled = raw.oid == oid::CERTIFICATE_ISSUER;
                    self.unhandled_critical |= raw.critical && !handled;
                }
            }
            fields.finish()?;
            if !removed {
                self.revoked.push(self.der.slice_ref(serial));
            }
        }
        self.revoked.sort_unstable();
        Ok(())
    }

    fn read_extensions(&mut self, list: &[Raw]) -> Result<(), Malformed> {
        for (i, raw) in list.iter().enumerate() {
            let twice = list[..i].iter().any(|other| other.oid == raw.oid);
            let handled = match &*raw.oid {
                oid::AUTHORITY_KEY_ID => {
                    self.authority_key_id = Some(AuthorityKeyId::parse(&raw.value)?);
                    true
                }
                oid::ISSUING_DISTRIBUTION_POINT => {
                    self.scope = Scope::parse(&raw.value, &self.issuer)?;
                    true
                }
                // OpenSSL takes the changes for the whole list, so that what the whole list revokes
                // is valid again.
                oid::DELTA_CRL => return Err(Malformed("delta lists are not supported")),
                oid::CRL_NUMBER => {
                    der::integer(Reader::whole(&raw.value, tag::INTEGER)?)?;
                    // Known, and refused as critical nevertheless, as OpenSSL does.
                    false
                }
                _ => false,
            };
            if handled && twice {
                return Err(Malformed("extension that stands twice"));
            }
            self.unhandled_critical |= raw.critical && !handled;
        }
        Ok(())
    }

    /// Its encoding.
    pub fn der(&self) -> &Bytes {
        &self.der
    }

    /// The name of the authority whose certificates it is about.
    pub fn issuer(&self) -> &Name {
        &self.issuer
    }

    /// When it was made.
    pub fn this_update(&self) -> Time {
        self.this_update
    }

    /// When the next one comes; it is out of date then.
    pub fn next_update(&self) -> Option<Time> {
        self.next_update
    }

    /// Whether the certificate with this serial number (the INTEGER's content) is revoked.
    pub fn revokes(&self, serial: &[u8]) -> bool {
        self.revoked.binary_search_by(|one| (**one).cmp(serial)).is_ok()
    }

    /// Whether the key of `issuer` signed this list.
    pub fn is_signed_by(&self, issuer: &PublicKey) -> bool {
        let check = || {
            self.algorithm == self.inner_algorithm
                && signature::verify(self.algorithm.scheme(), issuer, &self.signed, &self.signature)
        };
        let (key, answer) =
            self.checked.get_or_init(|| (Bytes::copy_from_slice(issuer.der()), check()));
        if key == issuer.der() { *answer } else { check() }
    }

    pub(crate) fn authority_key_id(&self) -> Option<&AuthorityKeyId> {
        self.authority_key_id.as_ref()
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn has_unhandled_critical(&self) -> bool {
        self.unhandled_critical
    }
}

impl Scope {
    fn parse(owner: &Bytes, issuer: &Name) -> Result<Scope, Malformed> {
        let mut reader = Reader::new(Reader::whole(owner, tag::SEQUENCE)?);
        let point = reader.optional(tag::constructed(0))?;
        let mut flag = |number| -> Result<bool, Malformed> {
            let content = reader.optional(tag::context(number))?;
            Ok(content.map(der::boolean).transpose()?.unwrap_or(false))
        };
        let only_users = flag(1)?;
        let only_authorities = flag(2)?;
        let reasons = reader.optional(tag::context(3))?.map(der::named_bits).transpose()?;
        let mut flag = |number| -> Result<bool, Malformed> {
            let content = reader.optional(tag::context(number))?;
            Ok(content.map(der::boolean).transpose()?.unwrap_or(false))
        };
        let indirect = flag(4)?;
        let only_attributes = flag(5)?;
        reader.finish()?;
        let count = [only_users, only_authorities, only_attributes].iter().filter(|f| **f).count();
        if count > 1 {
            return Err(Malformed("distribution point with opposite limits"));
        }
        Ok(Scope {
            point: point.map(|c| PointName::parse(owner, c, issuer)).transpose()?,
            only_users,
            only_authorities,
            only_attributes,
            partial: indirect || reasons.is_some(),
        })
    }
}

fn next<'a>(fields: &mut Reader<'a>) -> Result<Option<Element<'a>>, Malformed> {
    if fields.is_empty() { Ok(None) } else { fields.next().map(Some) }
}
