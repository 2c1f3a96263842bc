//! The static table (appendix A). Entries count from 0.

use crate::compression::name::Name;
use crate::compression::static_names::{Entry, StaticNames};

/// Entries of the table.
const LEN: usize = TEXTS.len();

#[rustfmt::skip]
const TEXTS: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

static ENTRIES: [Entry; LEN] = {
    let mut entries: [Entry; LEN] = [(b"", b""); LEN];
    let mut at = 0;
    while at < LEN {
        entries[at] = (TEXTS[at].0.as_bytes(), TEXTS[at].1.as_bytes());
        at += 1;
    }
    entries
};

static NAMES: StaticNames<LEN> = StaticNames::new(&ENTRIES);

#[inline]
pub(super) fn get(index: u64) -> Option<Entry> {
    ENTRIES.get(usize::try_from(index).ok()?).copied()
}

/// A field of the table, or one of its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The index of the entry that has name and value.
    Field(usize),
    /// The index of the first entry that has the name.
    Name(usize),
}

/// Finds a field.
#[inline]
pub(super) fn find(name: &[u8], value: &[u8]) -> Option<Found> {
    let at = NAMES.find(&ENTRIES, &Name::new(name))?;
    Some(NAMES.with_value(&ENTRIES, at, value).map_or(Found::Name(at), Found::Field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found() {
        for (at, (name, value)) in TEXTS.iter().enumerate() {
            assert_eq!(get(at as u64), Some((name.as_bytes(), value.as_bytes())));
            let upper = name.to_ascii_uppercase();
            assert_eq!(find(upper.as_bytes(), value.as_bytes()), Some(Found::Field(at)));
            let first = TEXTS.iter().position(|(other, _)| other == name).unwrap();
            assert_eq!(find(name.as_bytes(), b"other"), Some(Found::Name(first)));
        }
        assert_eq!(get(99), None);
        assert_eq!(get(u64::MAX), None);
        for name in ["", "x", ":statu", ":status2", "via"] {
            assert_eq!(find(name.as_bytes(), b""), None);
        }
    }
}
