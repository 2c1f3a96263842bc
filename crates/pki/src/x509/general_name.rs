//! GeneralName and the structures made of it: name constraints and distribution points.

use super::Malformed;
use super::der::{self, Reader, tag};
use super::name::{self, Name};
use bytes::Bytes;

/// One of the kinds of names in alternative names and constraints.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GeneralName {
    /// A kind named by an identifier, with its tagged value.
    Other {
        oid: Bytes,
        value: Bytes,
    },
    Email(Bytes),
    Dns(Bytes),
    X400(Bytes),
    Directory(Name),
    Edi(Bytes),
    Uri(Bytes),
    /// An address of 4 or 16 bytes; in a constraint with its mask behind it. The length is not
    /// checked here.
    Ip(Bytes),
    Registered(Bytes),
}

/// A GeneralName without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Other,
    Email,
    Dns,
    X400,
    Directory,
    Edi,
    Uri,
    Ip,
    Registered,
}

impl GeneralName {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            GeneralName::Other { .. } => Kind::Other,
            GeneralName::Email(_) => Kind::Email,
            GeneralName::Dns(_) => Kind::Dns,
            GeneralName::X400(_) => Kind::X400,
            GeneralName::Directory(_) => Kind::Directory,
            GeneralName::Edi(_) => Kind::Edi,
            GeneralName::Uri(_) => Kind::Uri,
            GeneralName::Ip(_) => Kind::Ip,
            GeneralName::Registered(_) => Kind::Registered,
        }
    }

    fn parse(owner: &Bytes, reader: &mut Reader<'_>) -> Result<GeneralName, Malformed> {
        let element = reader.next()?;
        let content = owner.slice_ref(element.content);
        const CONTEXT: u8 = 0x80;
        const FORM: u8 = 0x20;
        Ok(match (element.tag & !FORM ^ CONTEXT, element.tag & FORM != 0) {
            (0, true) => {
                let mut fields = Reader::new(element.content);
                let oid = owner.slice_ref(der::oid(fields.expect(tag::OID)?)?);
                let value = owner.slice_ref(fields.expect(tag::constructed(0))?);
                fields.finish()?;
                GeneralName::Other { oid, value }
            }
            (1, false) => GeneralName::Email(content),
            (2, false) => GeneralName::Dns(content),
            (3, true) => GeneralName::X400(content),
            (4, true) => GeneralName::Directory(Name::parse(owner, element.content)?),
            (5, true) => GeneralName::Edi(content),
            (6, false) => GeneralName::Uri(content),
            (7, false) => GeneralName::Ip(content),
            (8, false) => GeneralName::Registered(owner.slice_ref(der::oid(element.content)?)),
            _ => return Err(Malformed("unknown kind of general name")),
        })
    }

    /// The names of a GeneralNames, whose content this is.
    pub(crate) fn list(owner: &Bytes, content: &[u8]) -> Result<Vec<GeneralName>, Malformed> {
        let mut reader = Reader::new(content);
        let mut names = Vec::new();
        while !reader.is_empty() {
            names.push(GeneralName::parse(owner, &mut reader)?);
        }
        Ok(names)
    }
}

/// The name constraints extension.
#[derive(Clone, Debug)]
pub(crate) struct NameConstraints {
    pub permitted: Vec<Subtree>,
    pub excluded: Vec<Subtree>,
}

#[derive(Clone, Debug)]
pub(crate) struct Subtree {
    pub base: GeneralName,
    /// Neither a maximum nor a minimum above zero, which RFC 5280 forbids, is given.
    pub unbounded: bool,
}

impl NameConstraints {
    pub(crate) fn parse(owner: &Bytes, value: &[u8]) -> Result<NameConstraints, Malformed> {
        let mut reader = Reader::new(Reader::whole(value, tag::SEQUENCE)?);
        let permitted = reader.optional(tag::constructed(0))?;
        let excluded = reader.optional(tag::constructed(1))?;
        reader.finish()?;
        Ok(NameConstraints {
            permitted: Subtree::list(owner, permitted.unwrap_or_default())?,
            excluded: Subtree::list(owner, excluded.unwrap_or_default())?,
        })
    }
}

impl Subtree {
    fn list(owner: &Bytes, content: &[u8]) -> Result<Vec<Subtree>, Malformed> {
        let mut reader = Reader::new(content);
        let mut subtrees = Vec::new();
        while !reader.is_empty() {
            let mut fields = reader.sequence()?;
            let base = GeneralName::parse(owner, &mut fields)?;
            let minimum = fields.optional(tag::context(0))?.map(der::integer).transpose()?;
            let maximum = fields.optional(tag::context(1))?.map(der::integer).transpose()?;
            fields.finish()?;
            let unbounded = minimum.is_none_or(|m| m == [0]) && maximum.is_none();
            subtrees.push(Subtree { base, unbounded });
        }
        Ok(subtrees)
    }
}

/// The place where a revocation list is published.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PointName {
    Full(Vec<GeneralName>),
    /// The canonical form of a name relative to the issuer's.
    Relative(Vec<u8>),
}

impl PointName {
    /// `issuer` is the name to which a relative one is appended.
    pub(crate) fn parse(
        owner: &Bytes,
        content: &[u8],
        issuer: &Name,
    ) -> Result<PointName, Malformed> {
        let mut reader = Reader::new(content);
        let element = reader.next()?;
        reader.finish()?;
        if element.tag == tag::constructed(0) {
            Ok(PointName::Full(GeneralName::list(owner, element.content)?))
        } else if element.tag == tag::constructed(1) {
            Ok(PointName::Relative(name::canonical_with(issuer, element.content)?))
        } else {
            Err(Malformed("unknown kind of distribution point"))
        }
    }

    /// Whether both may name the same list.
    pub(crate) fn meets(&self, other: &PointName) -> bool {
        match (self, other) {
            (PointName::Relative(a), PointName::Relative(b)) => a == b,
            (PointName::Full(a), PointName::Full(b)) => a.iter().any(|name| b.contains(name)),
            (PointName::Relative(one), PointName::Full(names))
            | (PointName::Full(names), PointName::Relative(one)) => names
                .iter()
                .any(|name| matches!(name, GeneralName::Directory(d) if d.canonical() == one)),
        }
    }
}

/// An entry of a certificate's list of distribution points.
#[derive(Clone, Debug)]
pub(crate) struct DistributionPoint {
    pub name: Option<PointName>,
    pub reasons: u16,
    pub crl_issuer: Option<Vec<GeneralName>>,
}

/// Each point may hold a copy of the issuer's name.
const POINTS_MAX: usize = 64;

/// Every reason that a list can be limited to.
pub(crate) const ALL_REASONS: u16 = 0x807f;

impl DistributionPoint {
    /// The points of a certificate whose issuer is `issuer`.
    pub(crate) fn list(
        owner: &Bytes,
        value: &[u8],
        issuer: &Name,
    ) -> Result<Vec<DistributionPoint>, Malformed> {
        let mut reader = Reader::new(Reader::whole(value, tag::SEQUENCE)?);
        let mut points = Vec::new();
        while !reader.is_empty() {
            if points.len() == POINTS_MAX {
                return Err(Malformed("too many distribution points"));
            }
            let mut fields = reader.sequence()?;
            let name = fields.optional(tag::constructed(0))?;
            let reasons = fields.optional(tag::context(1))?;
            let crl_issuer = fields.optional(tag::constructed(2))?;
            fields.finish()?;
            let crl_issuer = crl_issuer.map(|c| GeneralName::list(owner, c)).transpose()?;
            if name.is_none() && crl_issuer.as_ref().is_none_or(Vec::is_empty) {
                return Err(Malformed("distribution point without a name"));
            }
            let base = crl_issuer.iter().flatten().find_map(|name| match name {
                GeneralName::Directory(name) => Some(name),
                _ => None,
            });
            let name = name
                .map(|content| PointName::parse(owner, content, base.unwrap_or(issuer)))
                .transpose()?;
            let reasons = match reasons {
                Some(bits) => der::named_bits(bits)? & ALL_REASONS,
                None => ALL_REASONS,
            };
            points.push(DistributionPoint { name, reasons, crl_issuer });
        }
        Ok(points)
    }
}
