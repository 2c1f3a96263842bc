//! The PROXY protocol, versions 1 and 2: the client's address, from the proxy in front.
//!
//! Source: <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>.

mod tlv;
mod write;

pub use tlv::{BrokenTlv, TlvName, find_tlv};
pub use write::{Tlv, write_v1, write_v2};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use base::ascii::parse_u64;

/// The longest header that is read, bytes.
pub const HEADER_MAX: usize = 4096;

/// The longest header of version 1, line end included.
const V1_MAX: usize = 107;

/// The start of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of a version 2 header before the addresses.
const V2_FIXED: usize = 16;

/// One end of the connection that the proxy accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The address for variables: as sent in version 1, in canonical form in version 2.
    pub text: String,
    /// The address; none when a version 1 text is no address.
    pub ip: Option<IpAddr>,
    /// The port in host order; 0 for unix sockets.
    pub port: u16,
}

/// The content of a header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The client.
    pub source: Endpoint,
    /// The address the client connected to.
    pub destination: Endpoint,
    /// The TLVs of version 2, as they are; see [`find_tlv`].
    pub tlvs: Vec<u8>,
}

/// The result of [`parse`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// The header is not complete.
    More,
    /// The header took the first `len` bytes. It is `None` without addresses: `UNKNOWN` and
    /// `LOCAL`, and those that nginx ignores (datagrams, Unix sockets).
    Done {
        /// Bytes of the header.
        len: usize,
        /// Its content.
        header: Option<Box<Header>>,
    },
}

/// Why a header was refused; the connection is closed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyError {
    /// Not a header, or a broken one.
    Broken,
    /// A version other than 2 behind the signature of version 2.
    Version(u8),
    /// Longer than [`HEADER_MAX`].
    TooLarge,
}

impl ProxyError {
    /// The text nginx logs at level error, for a refused `buf`.
    pub fn message(&self, buf: &[u8]) -> String {
        match self {
            ProxyError::Broken => {
                let len = memchr::memchr2(b'\r', b'\n', buf).unwrap_or(buf.len()).min(V1_MAX);
                let shown = String::from_utf8_lossy(buf.get(..len).unwrap_or(buf));
                let shown: String =
                    shown.chars().map(|c| if c.is_control() { '.' } else { c }).collect();
                format!("broken header: \"{shown}\"")
            }
            ProxyError::Version(version) => format!("unknown PROXY protocol version: {version}"),
            ProxyError::TooLarge => "header is too large".to_owned(),
        }
    }
}

/// Reads a header at the start of `buf`. After `More`, call again with more bytes behind the same.
pub fn parse(buf: &[u8]) -> Result<Parsed, ProxyError> {
    let probe = buf.len().min(SIGNATURE.len());
    if buf.get(..probe) == SIGNATURE.get(..probe) {
        return if buf.len() < V2_FIXED { Ok(Parsed::More) } else { parse_v2(buf) };
    }
    parse_v1(buf)
}

fn parse_v1(buf: &[u8]) -> Result<Parsed, ProxyError> {
    const NAME: &[u8] = b"PROXY ";
    let probe = buf.len().min(NAME.len());
    if buf.get(..probe) != NAME.get(..probe) {
        return Err(ProxyError::Broken);
    }
    let rest = buf.get(NAME.len()..).unwrap_or_default();
    let begins = |family: &[u8]| rest.iter().zip(family).all(|(byte, known)| byte == known);
    if ![&b"TCP4 "[..], b"TCP6 ", b"UNKNOWN"].iter().any(|family| begins(family)) {
        return Err(ProxyError::Broken);
    }
    let window = buf.get(..V1_MAX).unwrap_or(buf);
    let Some(lf) = memchr::memchr(b'\n', window) else {
        return if buf.len() < V1_MAX { Ok(Parsed::More) } else { Err(ProxyError::Broken) };
    };
    let line = buf.get(NAME.len()..lf).and_then(|line| line.strip_suffix(b"\r"));
    let line = line.ok_or(ProxyError::Broken)?;
    let header = if line.starts_with(b"UNKNOWN") {
        None
    } else {
        Some(Box::new(v1_addresses(line).ok_or(ProxyError::Broken)?))
    };
    Ok(Parsed::Done { len: lf + 1, header })
}

/// `TCP4 source destination port port`, or `TCP6`.
fn v1_addresses(line: &[u8]) -> Option<Header> {
    let rest = line.strip_prefix(b"TCP4 ").or_else(|| line.strip_prefix(b"TCP6 "))?;
    let mut words = rest.split(|byte| *byte == b' ');
    let (source, destination) = (v1_address(words.next()?)?, v1_address(words.next()?)?);
    let (source_port, destination_port) = (v1_port(words.next()?)?, v1_port(words.next()?)?);
    if words.next().is_some() {
        return None;
    }
    let endpoint =
        |text: &str, port| Endpoint { text: text.to_owned(), ip: text.parse().ok(), port };
    Some(Header {
        source: endpoint(source, source_port),
        destination: endpoint(destination, destination_port),
        tlvs: Vec::new(),
    })
}

/// An address is checked by its characters alone, as in nginx.
fn v1_address(word: &[u8]) -> Option<&str> {
    let valid = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    if word.iter().all(valid) { std::str::from_utf8(word).ok() } else { None }
}

fn v1_port(word: &[u8]) -> Option<u16> {
    u16::try_from(parse_u64(word)?).ok()
}

fn parse_v2(buf: &[u8]) -> Result<Parsed, ProxyError> {
    let Some(&[version_command, family_transport, len_high, len_low]) =
        buf.get(SIGNATURE.len()..).and_then(|rest| rest.first_chunk::<4>())
    else {
        return Ok(Parsed::More);
    };
    if version_command >> 4 != 2 {
        return Err(ProxyError::Version(version_command >> 4));
    }
    let len = V2_FIXED + usize::from(u16::from_be_bytes([len_high, len_low]));
    if len > HEADER_MAX {
        return Err(ProxyError::TooLarge);
    }
    let Some(body) = buf.get(V2_FIXED..len) else { return Ok(Parsed::More) };
    // Only PROXY (not LOCAL) of stream connections is used; everything else passes unused.
    let used = version_command & 15 == 1 && family_transport & 15 == 1;
    let header = match family_transport >> 4 {
        1 if used => Some(v2_addresses::<4>(body)?),
        2 if used => Some(v2_addresses::<16>(body)?),
        _ => None,
    };
    Ok(Parsed::Done { len, header: header.map(Box::new) })
}

/// Two addresses of `N` bytes, two ports, and the TLVs.
fn v2_addresses<const N: usize>(body: &[u8]) -> Result<Header, ProxyError> {
    let part = |range: Range<usize>| body.get(range).ok_or(ProxyError::Broken);
    let endpoint = |address: &[u8], port: &[u8]| {
        let ip = if let Ok(v4) = <[u8; 4]>::try_from(address) {
            IpAddr::V4(Ipv4Addr::from(v4))
        } else {
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?))
        };
        let port = u16::from_be_bytes(port.try_into().ok()?);
        Some(Endpoint { text: ip.to_string(), ip: Some(ip), port })
    };
    let source = endpoint(part(0..N)?, part(2 * N..2 * N + 2)?);
    let destination = endpoint(part(N..2 * N)?, part(2 * N + 2..2 * N + 4)?);
    Ok(Header {
        source: source.ok_or(ProxyError::Broken)?,
        destination: destination.ok_or(ProxyError::Broken)?,
        tlvs: part(2 * N + 4..body.len())?.to_vec(),
    })
}

#[cfg(test)]
mod tests;
