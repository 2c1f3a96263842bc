//! Headers for upstreams.

use super::SIGNATURE;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A TLV to send: type and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tlv<'a> {
    /// The type.
    pub kind: u8,
    /// The value, at most 65535 bytes.
    pub value: &'a [u8],
}

/// Type of the checksum TLV.
const CRC32C: u8 = 0x03;

/// Appends a header of version 1, `UNKNOWN` unless both ends are IP addresses.
pub fn write_v1(source: Option<SocketAddr>, destination: Option<SocketAddr>, out: &mut Vec<u8>) {
    let line = match (source, destination) {
        (Some(source), Some(destination)) => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            format!(
                "PROXY {family} {} {} {} {}\r\n",
                source.ip(),
                destination.ip(),
                source.port(),
                destination.port()
            )
        }
        _ => "PROXY UNKNOWN\r\n".to_owned(),
    };
    out.extend_from_slice(line.as_bytes());
}

/// Appends a header of version 2 with a CRC32c TLV last, `LOCAL` unless both ends are IP addresses.
/// Ends of different families are both written as IPv6, two mapped IPv4 addresses as IPv4.
///
/// Returns false, and appends nothing, when the TLVs do not fit the length field.
pub fn write_v2(
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    datagram: bool,
    tlvs: &[Tlv<'_>],
    out: &mut Vec<u8>,
) -> bool {
    let base = out.len();
    out.extend_from_slice(SIGNATURE);
    match (source, destination) {
        (Some(source), Some(destination)) => {
            write_addresses(source, destination, datagram, out);
        }
        _ => out.extend_from_slice(&[0x20, 0x00, 0, 0]),
    }
    let mut fits = tlvs.iter().all(|tlv| write_tlv(*tlv, out));
    let crc_at = out.len() + 3;
    fits &= write_tlv(Tlv { kind: CRC32C, value: &[0; 4] }, out);
    let body = u16::try_from(out.len() - base - super::V2_FIXED).ok().filter(|_| fits);
    let Some(body) = body else {
        out.truncate(base);
        return false;
    };
    put(out, base + SIGNATURE.len() + 2, &body.to_be_bytes());
    // The sum covers the whole header, its own value counted as zero.
    let sum = crc32c(out.get(base..).unwrap_or(&[]));
    put(out, crc_at, &sum.to_be_bytes());
    true
}

fn write_addresses(source: SocketAddr, destination: SocketAddr, datagram: bool, out: &mut Vec<u8>) {
    let transport = if datagram { 2 } else { 1 };
    let mapped = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(v6) => v6.to_ipv4_mapped(),
    };
    match (mapped(source.ip()), mapped(destination.ip())) {
        (Some(from), Some(to)) if source.is_ipv4() == destination.is_ipv4() => {
            out.extend_from_slice(&[0x21, 0x10 | transport, 0, 0]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        _ => {
            let v6 = |ip: IpAddr| -> Ipv6Addr {
                match ip {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                }
            };
            out.extend_from_slice(&[0x21, 0x20 | transport, 0, 0]);
            out.extend_from_slice(&v6(source.ip()).octets());
            out.extend_from_slice(&v6(destination.ip()).octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

fn write_tlv(tlv: Tlv<'_>, out: &mut Vec<u8>) -> bool {
    let Ok(len) = u16::try_from(tlv.value.len()) else { return false };
    out.push(tlv.kind);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(tlv.value);
    true
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// CRC-32C (Castagnoli), bit by bit: a header has some 30 bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}
