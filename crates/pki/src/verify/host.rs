//! Whether a server's certificate is for a host: OpenSSL's `X509_check_host` without flags, which
//! nginx asks for `proxy_ssl_verify`.

use std::net::IpAddr;

use crate::x509::{Certificate, oid};

/// Whether the certificate names this host. DNS names count, with one wildcard in the first label;
/// without any, the common names. Addresses are compared as text: [`check_address`] compares those
/// of the certificate.
pub fn check_host(certificate: &Certificate, host: &[u8]) -> bool {
    if host.is_empty() || host.contains(&0) {
        return false;
    }
    if certificate.dns_names().next().is_some() {
        return certificate.dns_names().any(|name| matches(name, host));
    }
    for attribute in certificate.subject().values(oid::COMMON_NAME) {
        // OpenSSL ends with an error at a value that is no text.
        let Some(name) = attribute.text() else { return false };
        if matches(name.as_bytes(), host) {
            return true;
        }
    }
    false
}

/// Whether the certificate names this address, among its alternative names. An address of IPv6 may
/// stand in brackets.
pub fn check_address(certificate: &Certificate, host: &[u8]) -> bool {
    let host = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    match std::str::from_utf8(host).ok().and_then(|host| host.parse().ok()) {
        Some(IpAddr::V4(v4)) => certificate.ip_addresses().any(|of| of == v4.octets()),
        Some(IpAddr::V6(v6)) => certificate.ip_addresses().any(|of| of == v6.octets()),
        None => false,
    }
}

fn matches(pattern: &[u8], host: &[u8]) -> bool {
    if pattern.is_empty() {
        return false;
    }
    // A host of the form `.example.com` stands for all names below.
    let below = host.len() > 1 && host[0] == b'.';
    match star(pattern).filter(|_| !below) {
        Some(star) => wildcard(&pattern[..star], &pattern[star + 1..], host),
        None => equal(if below { suffix(pattern, host.len()) } else { pattern }, host),
    }
}

/// The end of a longer pattern, if no zero byte stands before it.
fn suffix(pattern: &[u8], length: usize) -> &[u8] {
    match pattern.len().checked_sub(length) {
        Some(more) if !pattern[..more].contains(&0) => &pattern[more..],
        _ => pattern,
    }
}

fn equal(pattern: &[u8], host: &[u8]) -> bool {
    !pattern.contains(&0) && pattern.eq_ignore_ascii_case(host)
}

/// The place of the wildcard if the pattern has a valid one: at an end of the first label, which
/// is no internationalized one, and with two labels behind.
fn star(pattern: &[u8]) -> Option<usize> {
    let mut labels = pattern.split(|b| *b == b'.');
    let first = labels.next()?;
    let plain = |label: &[u8]| {
        let inner = label.first() != Some(&b'-') && label.last() != Some(&b'-');
        let ascii = label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
        !label.is_empty() && inner && ascii
    };
    let mut behind = 0;
    for label in labels {
        if !plain(label) {
            return None;
        }
        behind += 1;
    }
    let star = first.iter().position(|b| *b == b'*')?;
    let (before, after) = (&first[..star], &first[star + 1..]);
    let rest = [before, after].concat();
    let at_end = before.is_empty() || after.is_empty();
    let valid = rest.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
        && before.first() != Some(&b'-')
        && rest.last() != Some(&b'-');
    (at_end && valid && behind >= 2 && !is_international(first)).then_some(star)
}

fn is_international(text: &[u8]) -> bool {
    text.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case(b"xn--"))
}

fn wildcard(before: &[u8], after: &[u8], host: &[u8]) -> bool {
    let Some(length) = host.len().checked_sub(before.len() + after.len()) else { return false };
    let (begin, rest) = host.split_at(before.len());
    let (middle, end) = rest.split_at(length);
    if !begin.eq_ignore_ascii_case(before) || !end.eq_ignore_ascii_case(after) {
        return false;
    }
    let whole_label = before.is_empty() && after.first() == Some(&b'.');
    if whole_label && middle.is_empty() || !whole_label && is_international(host) {
        return false;
    }
    middle == b"*" || middle.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
}
