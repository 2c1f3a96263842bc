//! The extensions of a certificate, read once.

use super::der::{self, Reader, tag};
use super::general_name::{DistributionPoint, GeneralName, NameConstraints};
use super::name::Name;
use super::{Malformed, oid};
use bytes::Bytes;

/// Bits of the key usage as OpenSSL keeps them.
pub(crate) mod key_usage {
    pub(crate) const DIGITAL_SIGNATURE: u16 = 0x80;
    pub(crate) const KEY_ENCIPHERMENT: u16 = 0x20;
    pub(crate) const KEY_AGREEMENT: u16 = 0x08;
    pub(crate) const KEY_CERT_SIGN: u16 = 0x04;
    pub(crate) const CRL_SIGN: u16 = 0x02;
}

/// Bits of the old type of Netscape.
pub(crate) mod netscape {
    pub(crate) const SSL_CLIENT: u16 = 0x80;
    pub(crate) const SSL_SERVER: u16 = 0x40;
    pub(crate) const SSL_CA: u16 = 0x04;
    pub(crate) const ANY_CA: u16 = 0x07;
}

/// The extended key usages that the checks ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtendedKeyUsage {
    pub client: bool,
    pub server: bool,
    /// The historic "server gated cryptography" of Netscape and Microsoft.
    pub gated: bool,
    pub ocsp: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BasicConstraints {
    pub ca: bool,
    pub path_length: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyInfo {
    pub path_length: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AuthorityKeyId {
    pub key_id: Option<Bytes>,
    pub issuer: Vec<GeneralName>,
    pub serial: Option<Bytes>,
}

/// One extension as it stands in the certificate.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub oid: Bytes,
    pub critical: bool,
    pub value: Bytes,
}

/// The contents of the extensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extensions {
    /// One that the checks use is malformed or stands twice. Such a certificate is nobody's
    /// issuer, and nobody issued it.
    pub invalid: bool,
    /// A critical one is unknown.
    pub unhandled_critical: bool,
    pub basic: Option<BasicConstraints>,
    /// It is a proxy certificate (RFC 3820), with the count of further ones that it allows.
    pub proxy: Option<ProxyInfo>,
    /// It has resources of RFC 3779, whose nesting is not checked.
    pub resources: bool,
    pub key_usage: Option<u16>,
    pub extended: Option<ExtendedKeyUsage>,
    pub netscape: Option<u16>,
    pub subject_key_id: Option<Bytes>,
    pub authority_key_id: Option<AuthorityKeyId>,
    pub alt_names: Option<Vec<GeneralName>>,
    pub name_constraints: Option<NameConstraints>,
    pub points: Vec<DistributionPoint>,
    /// Addresses of OCSP responders, in order.
    pub ocsp: Vec<Bytes>,
    /// The TLS feature status_request is demanded ("must staple").
    pub must_staple: bool,
}

impl Extensions {
    pub(crate) fn read(list: &[Raw], issuer: &Name) -> Extensions {
        let mut all = Extensions::default();
        // Only those that the checks use, which are few, whatever the certificate has.
        let mut used: Vec<&Bytes> = Vec::new();
        for raw in list {
            all.unhandled_critical |= raw.critical && !is_handled(&raw.oid);
            match all.read_one(raw, issuer) {
                Ok(true) if used.contains(&&raw.oid) => all.invalid = true,
                Ok(true) => used.push(&raw.oid),
                Ok(false) => {}
                Err(_) => all.invalid = true,
            }
        }
        // RFC 3820 section 3: a proxy certificate is no CA and has no names of its own.
        let named = list
            .iter()
            .any(|raw| raw.oid == oid::SUBJECT_ALT_NAME || raw.oid == oid::ISSUER_ALT_NAME);
        all.invalid |= all.proxy.is_some() && (named || all.basic.is_some_and(|b| b.ca));
        all
    }

    /// Whether it is one of those that the checks use.
    fn read_one(&mut self, raw: &Raw, issuer: &Name) -> Result<bool, Malformed> {
        let owner = &raw.value;
        match &*raw.oid {
            oid::BASIC_CONSTRAINTS => self.basic = Some(basic_constraints(owner)?),
            oid::PROXY_CERT_INFO => self.proxy = Some(proxy_info(owner)?),
            oid::IP_RESOURCES | oid::AS_RESOURCES => self.resources = true,
            oid::KEY_USAGE => {
                let bits = der::named_bits(Reader::whole(owner, tag::BIT_STRING)?)?;
                if bits == 0 {
                    return Err(Malformed("empty key usage"));
                }
                self.key_usage = Some(bits);
            }
            oid::EXTENDED_KEY_USAGE => self.extended = Some(extended_key_usage(owner)?),
            oid::NETSCAPE_CERT_TYPE => {
                self.netscape =
                    Some(der::named_bits(Reader::whole(owner, tag::BIT_STRING)?)? & 0xff);
            }
            oid::SUBJECT_KEY_ID => {
                self.subject_key_id =
                    Some(owner.slice_ref(Reader::whole(owner, tag::OCTET_STRING)?));
            }
            oid::AUTHORITY_KEY_ID => {
                self.authority_key_id = Some(AuthorityKeyId::parse(owner)?);
            }
            oid::SUBJECT_ALT_NAME => {
                let names = GeneralName::list(owner, Reader::whole(owner, tag::SEQUENCE)?)?;
                self.alt_names = Some(names);
            }
            oid::NAME_CONSTRAINTS => {
                self.name_constraints = Some(NameConstraints::parse(owner, owner)?);
            }
            oid::CRL_DISTRIBUTION_POINTS => {
                self.points = DistributionPoint::list(owner, owner, issuer)?;
            }
            // The chain's checks do not use these: a malformed one is as one that is not there.
            oid::AUTHORITY_INFO_ACCESS => {
                self.ocsp = responders(owner).unwrap_or_default();
                return Ok(false);
            }
            oid::TLS_FEATURE => {
                self.must_staple = demands_status(owner).unwrap_or_default();
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl AuthorityKeyId {
    pub(crate) fn parse(owner: &Bytes) -> Result<AuthorityKeyId, Malformed> {
        let mut reader = Reader::new(Reader::whole(owner, tag::SEQUENCE)?);
        let key_id = reader.optional(tag::context(0))?.map(|c| owner.slice_ref(c));
        let issuer = reader.optional(tag::constructed(1))?;
        let serial = reader.optional(tag::context(2))?.map(der::integer).transpose()?;
        reader.finish()?;
        Ok(AuthorityKeyId {
            key_id,
            issuer: GeneralName::list(owner, issuer.unwrap_or_default())?,
            serial: serial.map(|c| owner.slice_ref(c)),
        })
    }
}

/// The extensions that the checks understand, so that they may be critical. Policies are not
/// evaluated unless somebody asks for it, which nginx does not.
fn is_handled(oid: &[u8]) -> bool {
    matches!(
        oid,
        oid::NETSCAPE_CERT_TYPE
            | oid::KEY_USAGE
            | oid::SUBJECT_ALT_NAME
            | oid::BASIC_CONSTRAINTS
            | oid::CERTIFICATE_POLICIES
            | oid::CRL_DISTRIBUTION_POINTS
            | oid::EXTENDED_KEY_USAGE
            | oid::IP_RESOURCES
            | oid::AS_RESOURCES
            | oid::OCSP_NO_CHECK
            | oid::POLICY_CONSTRAINTS
            | oid::PROXY_CERT_INFO
            | oid::NAME_CONSTRAINTS
            | oid::POLICY_MAPPINGS
            | oid::INHIBIT_ANY_POLICY
    )
}

fn basic_constraints(value: &[u8]) -> Result<BasicConstraints, Malformed> {
    let mut reader = Reader::new(Reader::whole(value, tag::SEQUENCE)?);
    let ca = reader.optional(tag::BOOLEAN)?.map(der::boolean).transpose()?.unwrap_or(false);
    let length = reader.optional(tag::INTEGER)?.map(der::integer).transpose()?;
    reader.finish()?;
    let path_length = length.map(path_length).transpose()?;
    Ok(BasicConstraints { ca, path_length })
}

/// One of 31 bits at most: a longer one is a mistake, and no limit to OpenSSL.
fn path_length(bytes: &[u8]) -> Result<u32, Malformed> {
    if bytes.len() > 4 || bytes[0] >= 0x80 {
        return Err(Malformed("bad path length"));
    }
    Ok(bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
}

fn proxy_info(value: &[u8]) -> Result<ProxyInfo, Malformed> {
    let mut reader = Reader::new(Reader::whole(value, tag::SEQUENCE)?);
    let length = reader.optional(tag::INTEGER)?.map(der::integer).transpose()?;
    let mut policy = reader.sequence()?;
    reader.finish()?;
    der::oid(policy.expect(tag::OID)?)?;
    policy.optional(tag::OCTET_STRING)?;
    policy.finish()?;
    Ok(ProxyInfo { path_length: length.map(path_length).transpose()? })
}

fn extended_key_usage(value: &[u8]) -> Result<ExtendedKeyUsage, Malformed> {
    let mut reader = Reader::new(Reader::whole(value, tag::SEQUENCE)?);
    let mut usage = ExtendedKeyUsage::default();
    while !reader.is_empty() {
        match der::oid(reader.expect(tag::OID)?)? {
            oid::SERVER_AUTH => usage.server = true,
            oid::CLIENT_AUTH => usage.client = true,
            oid::MS_SGC | oid::NS_SGC => usage.gated = true,
            oid::OCSP_SIGNING => usage.ocsp = true,
            // anyExtendedKeyUsage does not stand for the others, as in OpenSSL.
            _ => {}
        }
    }
    Ok(usage)
}

fn responders(owner: &Bytes) -> Result<Vec<Bytes>, Malformed> {
    let mut reader = Reader::new(Reader::whole(owner, tag::SEQUENCE)?);
    let mut addresses = Vec::new();
    while !reader.is_empty() {
        let mut fields = reader.sequence()?;
        let method = fields.expect(tag::OID)?;
        let location = fields.next()?;
        fields.finish()?;
        // accessLocation of the kind uniformResourceIdentifier
        if method == oid::OCSP && location.tag == tag::context(6) {
            addresses.push(owner.slice_ref(location.content));
        }
    }
    Ok(addresses)
}

fn demands_status(value: &[u8]) -> Result<bool, Malformed> {
    let mut reader = Reader::new(Reader::whole(value, tag::SEQUENCE)?);
    let mut demanded = false;
    while !reader.is_empty() {
        // The number of the extension status_request.
        demanded |= reader.expect(tag::INTEGER)? == [5];
    }
    Ok(demanded)
}
