//! Messages to servers.

use super::ber::{put, put_number, tag};
use super::{Filter, START_TLS};

/// The part of the directory that a search covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// The named entry alone.
    #[default]
    Base = 0,
    /// The entries directly below it.
    One = 1,
    /// The entry with all below it.
    Sub = 2,
}

/// The version of the protocol.
const VERSION: u32 = 3;

/// A search for the names of entries: none of their attributes are requested.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// The name of the entry to start from.
    pub base: &'a [u8],
    /// The part of the directory.
    pub scope: Scope,
    /// The entries that are found, at most; the server reports that there are more.
    pub size_max: u32,
    /// The server's limit on time, seconds; 0 is none.
    pub time_s: u32,
    /// Which entries are found.
    pub filter: &'a Filter,
}

fn message(id: u32, operation: u8, content: &[u8]) -> Vec<u8> {
    let (mut inner, mut out) = (Vec::new(), Vec::new());
    put_number(&mut inner, tag::INTEGER, id);
    put(&mut inner, operation, content);
    put(&mut out, tag::SEQUENCE, &inner);
    out
}

/// A simple bind (RFC 4511 section 4.2). Without a password it would succeed whoever the name
/// belongs to (RFC 4513 section 5.1.2), so that is no request: `None`, unless the name is empty,
/// too, which means an anonymous client.
pub fn bind(id: u32, dn: &[u8], password: &[u8]) -> Option<Vec<u8>> {
    if password.is_empty() && !dn.is_empty() {
        return None;
    }
    let mut content = Vec::new();
    put_number(&mut content, tag::INTEGER, VERSION);
    put(&mut content, tag::OCTETS, dn);
    put(&mut content, 0x80, password);
    Some(message(id, 0x60, &content))
}

/// A search (RFC 4511 section 4.5). Aliases are not followed.
pub fn search(id: u32, search: Search<'_>) -> Vec<u8> {
    let mut content = Vec::new();
    put(&mut content, tag::OCTETS, search.base);
    put_number(&mut content, tag::ENUMERATED, search.scope as u32);
    put_number(&mut content, tag::ENUMERATED, 0);
    put_number(&mut content, tag::INTEGER, search.size_max);
    put_number(&mut content, tag::INTEGER, search.time_s);
    put(&mut content, tag::BOOLEAN, &[0]);
    content.extend_from_slice(search.filter.bytes());
    // The name that means no attribute (RFC 4511 section 4.5.1.8).
    let mut attributes = Vec::new();
    put(&mut attributes, tag::OCTETS, b"1.1");
    put(&mut content, tag::SEQUENCE, &attributes);
    message(id, 0x63, &content)
}

/// The request to begin TLS (RFC 4511 section 4.14).
pub fn start_tls(id: u32) -> Vec<u8> {
    let mut content = Vec::new();
    put(&mut content, 0x80, START_TLS);
    message(id, 0x77, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_bytes_of_the_rfc() {
        assert_eq!(
            bind(1, b"cn=a", b"pw").unwrap(),
            b"\x30\x12\x02\x01\x01\x60\x0d\x02\x01\x03\x04\x04cn=a\x80\x02pw"
        );
        let tls = start_tls(1);
        assert_eq!(&tls[..9], b"\x30\x1d\x02\x01\x01\x77\x18\x80\x16");
        let filter = Filter::present(b"cn");
        let found = search(
            2,
            Search { base: b"dc=x", scope: Scope::Sub, size_max: 2, time_s: 10, filter: &filter },
        );
        assert_eq!(
            found,
            b"\x30\x25\x02\x01\x02\x63\x20\x04\x04dc=x\x0a\x01\x02\x0a\x01\x00\x02\x01\x02\x02\x01\
              \x0a\x01\x01\x00\x87\x02cn\x30\x05\x04\x031.1"
        );
    }

    #[test]
    fn names_are_not_bound_without_a_password() {
        assert!(bind(1, b"cn=a", b"").is_none());
        assert!(bind(1, b"", b"").is_some());
    }
}
