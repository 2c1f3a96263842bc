//! Distinguished names: comparison as RFC 5280 wants it, and the two printed forms that nginx has.

use crate::x509::der::{self, Reader, tag};
use crate::x509::{Malformed, oid};
use bytes::Bytes;

/// An issuer's or a subject's name.
#[derive(Clone, Debug)]
pub struct Name {
    der: Bytes,
    /// All attributes, those of one RDN behind each other.
    attributes: Vec<Attribute>,
    /// The form in which two names are compared: a SET for each RDN one after the other, with case
    /// and spaces of strings folded and their text in UTF-8. A NumericString and a value that is no
    /// string stand as they were encoded. A name within a subtree begins with the subtree's form.
    canonical: Vec<u8>,
}

/// One attribute of a name.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    /// The number of its RDN.
    rdn: usize,
    pub oid: Bytes,
    tag: u8,
    value: Bytes,
    /// The value with its tag and length.
    raw: Bytes,
}

/// Two names are equal if they are so after folding.
impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.canonical == other.canonical
    }
}

impl Name {
    /// A whole Name in `bytes`, which is a part of `owner`.
    pub(crate) fn parse(owner: &Bytes, bytes: &[u8]) -> Result<Name, Malformed> {
        let mut rdns = Reader::new(Reader::whole(bytes, tag::SEQUENCE)?);
        let mut name =
            Name { der: owner.slice_ref(bytes), attributes: Vec::new(), canonical: Vec::new() };
        let mut rdn = 0;
        while !rdns.is_empty() {
            let (attributes, canonical) = relative(owner, rdns.expect(tag::SET)?, rdn)?;
            name.attributes.extend(attributes);
            name.canonical.extend(canonical);
            rdn += 1;
        }
        Ok(name)
    }

    /// The name with its encoding, as it stands in the certificate.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub(crate) fn canonical(&self) -> &[u8] {
        &self.canonical
    }

    pub(crate) fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// The form of RFC 2253, as nginx's `$ssl_client_s_dn`: the last RDN first.
    pub fn rfc2253(&self) -> String {
        let mut out = String::new();
        let mut previous = None;
        for attribute in self.attributes.iter().rev() {
            match previous {
                Some(rdn) if rdn == attribute.rdn => out.push('+'),
                Some(_) => out.push(','),
                None => {}
            }
            previous = Some(attribute.rdn);
            let (name, known) = oid::attribute_name(&attribute.oid);
            out.push_str(&name);
            out.push('=');
            match attribute.text() {
                Some(text) if known => push_escaped(&mut out, text.as_bytes()),
                _ => {
                    out.push('#');
                    attribute.raw.iter().for_each(|b| out.push_str(&format!("{b:02X}")));
                }
            }
        }
        out
    }

    /// OpenSSL's one line, as nginx's `$ssl_client_s_dn_legacy`: `/C=RU/CN=a`.
    pub fn one_line(&self) -> String {
        let mut out = String::new();
        let mut previous = None;
        for attribute in &self.attributes {
            out.push(if previous == Some(attribute.rdn) { '+' } else { '/' });
            previous = Some(attribute.rdn);
            out.push_str(&oid::attribute_name(&attribute.oid).0);
            out.push('=');
            for b in attribute.octets() {
                match b {
                    b'/' | b'+' => out.extend(['\\', char::from(*b)]),
                    b' '..=b'~' => out.push(char::from(*b)),
                    _ => out.push_str(&format!("\\x{b:02X}")),
                }
            }
        }
        out
    }

    /// The common names, as text.
    pub fn common_names(&self) -> impl Iterator<Item = String> {
        self.values(super::oid::COMMON_NAME).filter_map(Attribute::text)
    }

    /// The values of an attribute, in order.
    pub(crate) fn values(&self, oid: &[u8]) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().filter(move |a| a.oid == oid)
    }
}

impl Attribute {
    /// The value as text; `None` for what is no string.
    pub(crate) fn text(&self) -> Option<String> {
        text(self.tag, &self.value).ok().flatten()
    }

    pub(crate) fn shares_rdn_with(&self, other: &Attribute) -> bool {
        self.rdn == other.rdn
    }

    /// The value of an IA5String.
    pub(crate) fn ia5(&self) -> Option<&Bytes> {
        (self.tag == tag::IA5_STRING).then_some(&self.value)
    }

    /// The bytes that OpenSSL keeps of the value.
    fn octets(&self) -> &[u8] {
        match self.tag {
            tag::SEQUENCE => &self.raw,
            tag::BIT_STRING => self.value.get(1..).unwrap_or_default(),
            _ => &self.value,
        }
    }
}

/// The attributes of one RDN, and its canonical form.
fn relative(
    owner: &Bytes,
    content: &[u8],
    rdn: usize,
) -> Result<(Vec<Attribute>, Vec<u8>), Malformed> {
    let mut reader = Reader::new(content);
    let mut attributes = Vec::new();
    let mut members = Vec::new();
    while !reader.is_empty() {
        let mut pair = reader.sequence()?;
        let oid = der::oid(pair.expect(tag::OID)?)?;
        let value = pair.next()?;
        pair.finish()?;
        let mut member = Vec::new();
        der::push(&mut member, tag::OID, oid);
        match text(value.tag, value.content)? {
            Some(text) if value.tag != tag::NUMERIC_STRING => {
                der::push(&mut member, tag::UTF8_STRING, &fold(&text));
            }
            _ => member.extend_from_slice(value.raw),
        }
        let mut whole = Vec::new();
        der::push(&mut whole, tag::SEQUENCE, &member);
        members.push(whole);
        attributes.push(Attribute {
            rdn,
            oid: owner.slice_ref(oid),
            tag: value.tag,
            value: owner.slice_ref(value.content),
            raw: owner.slice_ref(value.raw),
        });
    }
    if attributes.is_empty() {
        return Err(Malformed("empty RDN"));
    }
    members.sort();
    let mut canonical = Vec::new();
    der::push(&mut canonical, tag::SET, &members.concat());
    Ok((attributes, canonical))
}

/// The canonical form of a name that ends with one more RDN, given as the content of its SET.
pub(crate) fn canonical_with(name: &Name, rdn: &[u8]) -> Result<Vec<u8>, Malformed> {
    let owner = Bytes::copy_from_slice(rdn);
    let mut canonical = name.canonical.clone();
    canonical.extend(relative(&owner, &owner, 0)?.1);
    Ok(canonical)
}

/// The text of a string type; `None` for BIT STRING and SEQUENCE, which are allowed in a name
/// although they are no strings.
fn text(tag: u8, value: &[u8]) -> Result<Option<String>, Malformed> {
    let bad = || Malformed("string in a name is not of its type");
    let text = match tag {
        tag::UTF8_STRING => std::str::from_utf8(value).map_err(|_| bad())?.to_owned(),
        tag::NUMERIC_STRING | tag::PRINTABLE_STRING | tag::T61_STRING | tag::IA5_STRING => {
            value.iter().map(|b| char::from(*b)).collect()
        }
        tag::BMP_STRING => {
            let (units, []) = value.as_chunks::<2>() else { return Err(bad()) };
            let chars = units.iter().map(|u| char::from_u32(u32::from(u16::from_be_bytes(*u))));
            chars.collect::<Option<String>>().ok_or_else(bad)?
        }
        tag::UNIVERSAL_STRING => {
            let (units, []) = value.as_chunks::<4>() else { return Err(bad()) };
            let chars = units.iter().map(|u| char::from_u32(u32::from_be_bytes(*u)));
            chars.collect::<Option<String>>().ok_or_else(bad)?
        }
        tag::BIT_STRING => {
            der::bit_string(value)?;
            return Ok(None);
        }
        tag::SEQUENCE => return Ok(None),
        _ => return Err(Malformed("type of a value in a name")),
    };
    Ok(Some(text))
}

/// ASCII letters become small, runs of white space one space, those at the ends none.
fn fold(text: &str) -> Vec<u8> {
    let space = |b: &u8| b.is_ascii_whitespace() || *b == 0x0b;
    let mut out = Vec::with_capacity(text.len());
    for word in text.as_bytes().split(space).filter(|w| !w.is_empty()) {
        if !out.is_empty() {
            out.push(b' ');
        }
        out.extend(word.iter().map(u8::to_ascii_lowercase));
    }
    out
}

fn push_escaped(out: &mut String, text: &[u8]) {
    for (i, b) in text.iter().enumerate() {
        let last = i + 1 == text.len();
        // As in OpenSSL, a `#` that is the only character counts as the last one: no escape.
        let at_edge = match b {
            b' ' => i == 0 || last,
            b'#' => i == 0 && !last,
            _ => false,
        };
        match b {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                out.extend(['\\', char::from(*b)]);
            }
            _ if at_edge => out.extend(['\\', char::from(*b)]),
            b' '..=b'~' => out.push(char::from(*b)),
            _ => out.push_str(&format!("\\{b:02X}")),
        }
    }
}

#[cfg(test)]
mod tests;
