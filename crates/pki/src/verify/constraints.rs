//! Name constraints (RFC 5280 section 4.2.1.10), with OpenSSL's reading of each kind of name.

use super::{Error, Run};
use crate::x509::der::{Reader, tag};
use crate::x509::general_name::{GeneralName, Kind, NameConstraints, Subtree};
use crate::x509::{Certificate, Name, oid};

/// Comparisons of a name with a subtree in a whole verification. OpenSSL allows as many for each
/// pair of certificates.
const WORK_MAX: usize = 1 << 20;

/// The outcome of a name's comparison with constraints: fine, or the error.
type Outcome = Result<(), Error>;

impl Run<'_> {
    /// Each certificate keeps to the constraints of all above it.
    pub(super) fn check_constraints(&mut self) {
        let mut work = WORK_MAX;
        for i in (0..self.chain.len()).rev() {
            let certificate = self.chain[i].clone();
            if i != 0 && certificate.is_self_issued() {
                continue;
            }
            if certificate.extensions().proxy.is_some() && !is_proxy_name(&certificate) {
                self.fail(Error::ProxySubject, i);
            }
            for j in (i + 1..self.chain.len()).rev() {
                let issuer = self.chain[j].clone();
                let Some(constraints) = &issuer.extensions().name_constraints else { continue };
                if let Err(error) = check(&certificate, i == 0, constraints, &mut work) {
                    self.fail(error, i);
                }
            }
        }
        // The nesting of these is not checked; so they must not be there at all.
        for i in 0..self.chain.len() {
            if self.chain[i].extensions().resources {
                self.fail(Error::UnnestedResource, i);
            }
        }
    }
}

/// A proxy's name is its issuer's with one more common name (RFC 3820 section 3.4).
fn is_proxy_name(certificate: &Certificate) -> bool {
    let (subject, issuer) = (certificate.subject(), certificate.issuer());
    let [.., before, last] = subject.attributes() else { return false };
    subject.attributes().len() == issuer.attributes().len() + 1
        && !last.shares_rdn_with(before)
        && last.oid == oid::COMMON_NAME
        && subject.canonical().starts_with(issuer.canonical())
}

fn check(
    certificate: &Certificate,
    leaf: bool,
    constraints: &NameConstraints,
    work: &mut usize,
) -> Outcome {
    let subject = certificate.subject();
    let names = subject.attributes().len() + certificate.alt_names().len();
    let subtrees = constraints.permitted.len() + constraints.excluded.len();
    *work = names
        .checked_mul(subtrees)
        .and_then(|product| work.checked_sub(product))
        .ok_or(Error::Unspecified)?;

    if !subject.attributes().is_empty() {
        test(&Subject::Directory(subject), constraints)?;
        for email in subject.values(oid::EMAIL_ADDRESS) {
            test(&Subject::Email(email.ia5().ok_or(Error::NameSyntax)?), constraints)?;
        }
    }
    for name in certificate.alt_names() {
        test(&Subject::of(name), constraints)?;
    }
    // Without a DNS name, the common name is one if it looks like one.
    if leaf && certificate.dns_names().next().is_none() {
        for attribute in subject.values(oid::COMMON_NAME) {
            let text = attribute.text().ok_or(Error::Unspecified)?;
            if let Some(host) = host_in(text.as_bytes())? {
                test(&Subject::Dns(host), constraints)?;
            }
        }
    }
    Ok(())
}

/// A name that is held against constraints.
enum Subject<'a> {
    Directory(&'a Name),
    Email(&'a [u8]),
    Dns(&'a [u8]),
    Uri(&'a [u8]),
    Ip(&'a [u8]),
    /// The value of an otherName.
    Utf8Mailbox(&'a [u8]),
    Other(&'a [u8]),
    /// A kind that no constraint can be compared with.
    Opaque(Kind),
}

impl<'a> Subject<'a> {
    fn of(name: &'a GeneralName) -> Subject<'a> {
        match name {
            GeneralName::Directory(name) => Subject::Directory(name),
            GeneralName::Email(text) => Subject::Email(text),
            GeneralName::Dns(text) => Subject::Dns(text),
            GeneralName::Uri(text) => Subject::Uri(text),
            GeneralName::Ip(bytes) => Subject::Ip(bytes),
            GeneralName::Other { oid, value } if oid == oid::SMTP_UTF8_MAILBOX => {
                Subject::Utf8Mailbox(value)
            }
            GeneralName::Other { oid, .. } => Subject::Other(oid),
            other => Subject::Opaque(other.kind()),
        }
    }

    /// A constraint of the name's kind. A mailbox in UTF-8 is subject to those of e-mail addresses.
    fn is_subject_to(&self, base: &GeneralName) -> bool {
        let kind = match self {
            Subject::Directory(_) => Kind::Directory,
            Subject::Email(_) | Subject::Utf8Mailbox(_) => Kind::Email,
            Subject::Dns(_) => Kind::Dns,
            Subject::Uri(_) => Kind::Uri,
            Subject::Ip(_) => Kind::Ip,
            Subject::Other(id) => {
                return matches!(base, GeneralName::Other { oid, .. } if oid == id);
            }
            Subject::Opaque(kind) => *kind,
        };
        kind == base.kind()
    }

    /// Whether the name is within the subtree.
    fn is_within(&self, base: &GeneralName) -> Result<bool, Error> {
        match (self, base) {
            (Subject::Directory(name), GeneralName::Directory(base)) => {
                Ok(name.canonical().starts_with(base.canonical()))
            }
            (Subject::Email(name), GeneralName::Email(base)) => email(name, base),
            (Subject::Dns(name), GeneralName::Dns(base)) => Ok(dns(name, base)),
            (Subject::Uri(name), GeneralName::Uri(base)) => uri(name, base),
            (Subject::Ip(name), GeneralName::Ip(base)) => ip(name, base),
            (Subject::Utf8Mailbox(value), GeneralName::Email(base)) => utf8_mailbox(value, base),
            _ => Err(Error::ConstraintType),
        }
    }
}

/// If there are permitted subtrees of the name's kind, it is within one of them; and it is within
/// none of the excluded ones.
fn test(name: &Subject<'_>, constraints: &NameConstraints) -> Outcome {
    let mut permitted = None;
    for subtree in of_kind(name, &constraints.permitted) {
        let base = bounded(subtree)?;
        if permitted != Some(true) {
            permitted = Some(name.is_within(base)?);
        }
    }
    if permitted == Some(false) {
        return Err(Error::PermittedSubtree);
    }
    for subtree in of_kind(name, &constraints.excluded) {
        if name.is_within(bounded(subtree)?)? {
            return Err(Error::ExcludedSubtree);
        }
    }
    Ok(())
}

fn of_kind<'a>(name: &Subject<'_>, list: &'a [Subtree]) -> impl Iterator<Item = &'a Subtree> {
    list.iter().filter(|subtree| name.is_subject_to(&subtree.base))
}

fn bounded(subtree: &Subtree) -> Result<&GeneralName, Error> {
    if subtree.unbounded { Ok(&subtree.base) } else { Err(Error::SubtreeBounds) }
}

fn ends_with(text: &[u8], end: &[u8]) -> bool {
    text.len() >= end.len() && text[text.len() - end.len()..].eq_ignore_ascii_case(end)
}

fn dns(name: &[u8], base: &[u8]) -> bool {
    let Some(more) = name.len().checked_sub(base.len()) else { return false };
    let whole_label =
        base.first() == Some(&b'.') || more == 0 || name[more - 1] == b'.' || base.is_empty();
    whole_label && ends_with(name, base)
}

fn email(name: &[u8], base: &[u8]) -> Result<bool, Error> {
    let at = |text: &[u8]| text.iter().rposition(|b| *b == b'@');
    let name_at = at(name).ok_or(Error::NameSyntax)?;
    let base_at = at(base);
    if base_at.is_none() && base.first() == Some(&b'.') {
        return Ok(name.len() > base.len() && ends_with(name, base));
    }
    if let Some(base_at) = base_at
        && base_at > 0
    {
        let (name_local, base_local) = (&name[..name_at], &base[..base_at]);
        if name_local.len() != base_local.len() {
            return Ok(false);
        }
        if name_local.contains(&0) || base_local.contains(&0) {
            return Err(Error::NameSyntax);
        }
        if name_local != base_local {
            return Ok(false);
        }
    }
    let base_host = base_at.map_or(base, |at| &base[at + 1..]);
    Ok(name[name_at + 1..].eq_ignore_ascii_case(base_host))
}

/// An address in UTF-8 against a host or a domain (RFC 8398 section 6).
fn utf8_mailbox(value: &[u8], base: &[u8]) -> Result<bool, Error> {
    // An internationalized host would have to be decoded, which nobody needs; OpenSSL's buffer for
    // that is as long.
    let international = base.split(|b| *b == b'.').any(|label| label.starts_with(b"xn--"));
    if international || base.len() > 250 || base.contains(&0) {
        return Err(Error::NameSyntax);
    }
    let name = Reader::whole(value, tag::UTF8_STRING).map_err(|_| Error::NameSyntax)?;
    let at = name.iter().rposition(|b| *b == b'@').ok_or(Error::NameSyntax)?;
    if base.first() == Some(&b'.') {
        return Ok(name.len() > base.len() && ends_with(name, base));
    }
    Ok(name[at + 1..].eq_ignore_ascii_case(base))
}

fn uri(name: &[u8], base: &[u8]) -> Result<bool, Error> {
    let colon = name.iter().position(|b| *b == b':').ok_or(Error::NameSyntax)?;
    let rest = name[colon..].strip_prefix(b"://").ok_or(Error::NameSyntax)?;
    // As OpenSSL: up to a colon wherever it is, else up to the path.
    let end = rest.iter().position(|b| *b == b':');
    let end = end.or_else(|| rest.iter().position(|b| *b == b'/')).unwrap_or(rest.len());
    let host = &rest[..end];
    if host.is_empty() {
        return Err(Error::NameSyntax);
    }
    if base.first() == Some(&b'.') {
        return Ok(host.len() > base.len() && ends_with(host, base));
    }
    Ok(host.eq_ignore_ascii_case(base))
}

fn ip(name: &[u8], base: &[u8]) -> Result<bool, Error> {
    if !matches!(name.len(), 4 | 16) || !matches!(base.len(), 8 | 32) {
        return Err(Error::NameSyntax);
    }
    if base.len() != 2 * name.len() {
        return Ok(false);
    }
    let (address, mask) = base.split_at(name.len());
    let mut bytes = name.iter().zip(address).zip(mask);
    Ok(bytes.all(|((name, address), mask)| name & mask == address & mask))
}

/// The common name if it is a host name of several labels.
fn host_in(text: &[u8]) -> Result<Option<&[u8]>, Error> {
    let zeros = text.iter().rev().take_while(|b| **b == 0).count();
    let text = &text[..text.len() - zeros];
    if text.contains(&0) {
        return Err(Error::NameSyntax);
    }
    let mut labels = 1;
    for (i, b) in text.iter().enumerate() {
        let inner = i > 0 && i + 1 < text.len();
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => {}
            b'-' if inner => {}
            b'.' if inner && !matches!(text[i + 1], b'.' | b'-') && text[i - 1] != b'-' => {
                labels += 1;
            }
            _ => return Ok(None),
        }
    }
    Ok((labels > 1).then_some(text))
}
