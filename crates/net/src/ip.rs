//! Addresses of the internet as text.

use std::net::{IpAddr, Ipv4Addr};

/// An IPv4 address as nginx reads it: four numbers up to 255, of which zeros at the front do not
/// count.
pub fn parse_ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split(|b| *b == b'.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 8 {
            return None;
        }
        *octet = u8::try_from(base::ascii::parse_u64(part)?).ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

/// An address of either kind, without brackets and port.
pub fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    if let Some(v4) = parse_ipv4(text) {
        return Some(IpAddr::V4(v4));
    }
    std::str::from_utf8(text).ok()?.parse().ok().map(IpAddr::V6)
}

/// An address with or without a port: `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. The port
/// is 0 where none is written.
pub fn parse_ip_port(text: &[u8]) -> Option<(IpAddr, u16)> {
    if let Some(ip) = parse_ip(text) {
        return Some((ip, 0));
    }
    let (ip, rest) = match text.strip_prefix(b"[") {
        Some(inside) => {
            let end = memchr::memchr(b']', inside)?;
            (&inside[..end], &inside[end + 1..])
        }
        None => text.split_at(memchr::memchr(b':', text)?),
    };
    let ip = parse_ip(ip)?;
    match rest {
        [] => Some((ip, 0)),
        [b':', port @ ..] => {
            let port = u16::try_from(base::ascii::parse_u64(port)?).ok()?;
            (port > 0).then_some((ip, port))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, want) in [
            ("1.2.3.4", Some(("1.2.3.4", 0))),
            ("010.002.3.4", Some(("10.2.3.4", 0))),
            ("1.2.3.4:80", Some(("1.2.3.4", 80))),
            ("::1", Some(("::1", 0))),
            ("[::1]", Some(("::1", 0))),
            ("[::1]:65535", Some(("::1", 65535))),
            ("1.2.3", None),
            ("1.2.3.256", None),
            ("1.2.3.4.5", None),
            ("1..3.4", None),
            ("1.2.3.4:0", None),
            ("1.2.3.4:65536", None),
            ("1.2.3.4:", None),
            ("[::1", None),
            ("[::1]80", None),
            ("unknown", None),
            ("", None),
        ] {
            let want = want.map(|(ip, port)| (ip.parse().unwrap(), port));
            assert_eq!(parse_ip_port(text.as_bytes()), want, "{text}");
        }
    }
}
