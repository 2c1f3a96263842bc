//! Reading responses.

use bytes::Bytes;

use super::cert_id::CertId;
use super::{CertStatus, Error};
use crate::x509::der::{self, Reader, tag};
use crate::x509::signature::Algorithm;
use crate::x509::{Malformed, Time};

/// 1.3.6.1.5.5.7.48.1.1, the one type of response.
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 48, 1, 1];

/// A response that a responder has signed, its signature not checked yet.
pub(super) struct Basic {
    bytes: Bytes,
    /// The bytes that are signed.
    pub(super) signed: Bytes,
    pub(super) responder: ResponderId,
    /// The content of the sequence of single responses.
    singles: Bytes,
    pub(super) algorithm: Algorithm,
    pub(super) signature: Bytes,
    /// The content of the sequence of certificates.
    pub(super) certificates: Bytes,
}

/// Names the certificate of the signer.
pub(super) enum ResponderId {
    /// Its subject in DER.
    Name(Bytes),
    /// SHA-1 of its key.
    Key(Bytes),
}

/// The part of a response about one certificate.
pub(super) struct Single {
    pub(super) status: CertStatus,
    pub(super) this_update: i64,
    pub(super) next_update: Option<i64>,
}

/// OpenSSL's text for the number of an OCSPResponseStatus.
pub(super) fn reason(code: u8) -> &'static str {
    match code {
        1 => "malformedrequest",
        2 => "internalerror",
        3 => "trylater",
        5 => "sigrequired",
        6 => "unauthorized",
        _ => "(UNKNOWN)",
    }
}

/// The OCSPResponse at the beginning of `bytes`, taken apart no further than its status.
pub(super) fn first(bytes: &Bytes) -> Result<Bytes, Malformed> {
    let mut reader = Reader::new(bytes);
    let outer = reader.expect_element(tag::SEQUENCE)?;
    let mut fields = Reader::new(outer.content);
    der::integer(fields.expect(tag::ENUMERATED)?)?;
    fields.optional(tag::constructed(0))?;
    fields.finish()?;
    Ok(bytes.slice_ref(outer.raw))
}

impl Basic {
    /// Takes an OCSPResponse apart.
    pub(super) fn of_response(bytes: &Bytes) -> Result<Basic, Error> {
        let mut fields = Reader::new(Reader::whole(bytes, tag::SEQUENCE)?);
        let status = der::integer(fields.expect(tag::ENUMERATED)?)?;
        let body = fields.optional(tag::constructed(0))?;
        fields.finish()?;
        match status {
            [0] => {}
            [code @ 1..=0x7f] => return Err(Error::NotSuccessful(*code)),
            _ => return Err(Malformed("unknown status").into()),
        }
        let body = body.ok_or(Malformed("no response in it"))?;
        let mut fields = Reader::new(Reader::whole(body, tag::SEQUENCE)?);
        let kind = der::oid(fields.expect(tag::OID)?)?;
        let response = fields.expect(tag::OCTET_STRING)?;
        fields.finish()?;
        if kind != BASIC {
            return Err(Error::UnknownType);
        }
        Basic::parse(bytes, response)
    }

    /// A whole BasicOCSPResponse, which is a part of `owner`.
    fn parse(owner: &Bytes, response: &[u8]) -> Result<Basic, Error> {
        let mut fields = Reader::new(Reader::whole(response, tag::SEQUENCE)?);
        let signed = fields.expect_element(tag::SEQUENCE)?;
        let algorithm = Algorithm::parse(owner, fields.expect_element(tag::SEQUENCE)?.raw)?;
        let (signature, unused) = der::bit_string(fields.expect(tag::BIT_STRING)?)?;
        if unused != 0 {
            return Err(Malformed("signature with unused bits").into());
        }
        let certificates = match fields.optional(tag::constructed(0))? {
            Some(content) => Reader::whole(content, tag::SEQUENCE)?,
            None => &[],
        };
        fields.finish()?;
        let mut data = Reader::new(signed.content);
        if let Some(version) = data.optional(tag::constructed(0))?
            && Reader::whole(version, tag::INTEGER)? != [0]
        {
            return Err(Malformed("unknown version").into());
        }
        let responder = data.next()?;
        let responder = match responder.tag {
            NAME => {
                Reader::whole(responder.content, tag::SEQUENCE)?;
                ResponderId::Name(owner.slice_ref(responder.content))
            }
            KEY => {
                let hash = Reader::whole(responder.content, tag::OCTET_STRING)?;
                ResponderId::Key(owner.slice_ref(hash))
            }
            _ => return Err(Malformed("unexpected tag").into()),
        };
        time(&mut data)?;
        let singles = data.expect(tag::SEQUENCE)?;
        extensions(data.optional(tag::constructed(1))?)?;
        data.finish()?;
        Ok(Basic {
            bytes: owner.clone(),
            signed: owner.slice_ref(signed.raw),
            responder,
            singles: slice(owner, singles),
            algorithm,
            signature: slice(owner, signature),
            certificates: slice(owner, certificates),
        })
    }

    /// The first single response about `id`. All of them are read: one that is malformed spoils the
    /// response.
    pub(super) fn find(&self, id: &CertId) -> Result<Option<Single>, Error> {
        let mut found = None;
        let mut singles = Reader::new(&self.singles);
        while !singles.is_empty() {
            let (of, single) = self.single(singles.sequence()?)?;
            if found.is_none() && of.as_ref() == Some(id) {
                found = Some(single);
            }
        }
        Ok(found)
    }

    fn single(&self, mut fields: Reader<'_>) -> Result<(Option<CertId>, Single), Error> {
        let id = CertId::parse(&self.bytes, fields.expect(tag::SEQUENCE)?)?;
        let status = fields.next()?;
        let status = match (status.tag, status.content) {
            (GOOD, []) => CertStatus::Good,
            (UNKNOWN, []) => CertStatus::Unknown,
            (REVOKED, content) => {
                let mut info = Reader::new(content);
                time(&mut info)?;
                if let Some(reason) = info.optional(tag::constructed(0))? {
                    der::integer(Reader::whole(reason, tag::ENUMERATED)?)?;
                }
                info.finish()?;
                CertStatus::Revoked
            }
            _ => return Err(Malformed("unknown certificate status").into()),
        };
        let this_update = time(&mut fields)?;
        let next_update = match fields.optional(tag::constructed(0))? {
            Some(content) => {
                let mut content = Reader::new(content);
                let next = time(&mut content)?;
                content.finish()?;
                Some(next)
            }
            None => None,
        };
        extensions(fields.optional(tag::constructed(1))?)?;
        fields.finish()?;
        Ok((id, Single { status, this_update, next_update }))
    }
}

const NAME: u8 = tag::constructed(1);
const KEY: u8 = tag::constructed(2);
const GOOD: u8 = tag::context(0);
const REVOKED: u8 = tag::constructed(1);
const UNKNOWN: u8 = tag::context(2);

/// A part of `owner`, which may be empty.
fn slice(owner: &Bytes, part: &[u8]) -> Bytes {
    if part.is_empty() { Bytes::new() } else { owner.slice_ref(part) }
}

/// A GeneralizedTime in the one form of RFC 5280, which RFC 6960 demands, seconds since 1970.
fn time(fields: &mut Reader<'_>) -> Result<i64, Malformed> {
    let time = Time::parse(&fields.expect_element(tag::GENERALIZED_TIME)?)?;
    time.unix().ok_or(Malformed("bad time"))
}

/// The extensions under a context tag. None is known, so none may be critical; the nonce never is.
fn extensions(content: Option<&[u8]>) -> Result<(), Error> {
    let Some(content) = content else { return Ok(()) };
    let mut list = Reader::new(Reader::whole(content, tag::SEQUENCE)?);
    while !list.is_empty() {
        let mut extension = list.sequence()?;
        der::oid(extension.expect(tag::OID)?)?;
        let critical = extension.optional(tag::BOOLEAN)?.map(der::boolean).transpose()?;
        extension.expect(tag::OCTET_STRING)?;
        extension.finish()?;
        if critical == Some(true) {
            return Err(Error::CriticalExtension);
        }
    }
    Ok(())
}
