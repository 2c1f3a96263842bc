//! Whom a request came from, behind proxies: `X-Forwarded-For` and its like.

use std::net::{IpAddr, Ipv4Addr};

use os::SockAddr;

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

/// The client behind trusted proxies. `peer` sent the request; `fields` are the field's values in
/// the order of the request, each a list of addresses, the nearest last.
///
/// While the address at hand is trusted, the one before it in the lists takes its place; once only,
/// unless `recursive`. `None` where the peer itself is not trusted, or told nothing usable.
pub fn client<'a>(
    peer: &SockAddr,
    fields: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusted: impl Fn(&SockAddr) -> bool,
    recursive: bool,
) -> Option<SockAddr> {
    let mut found: Option<SockAddr> = None;
    for field in fields.rev() {
        let mut rest = field;
        loop {
            let at_hand = found.as_ref().unwrap_or(peer);
            if !trusted(at_hand) {
                return found;
            }
            let Some((ip, port)) = take_last(&mut rest) else { return found };
            found = Some(SockAddr::ip(ip, port));
            if !recursive {
                return found;
            }
            if rest.is_empty() {
                break;
            }
        }
    }
    found
}

/// Takes the last address off a list.
fn take_last(list: &mut &[u8]) -> Option<(IpAddr, u16)> {
    let separates = |b: &u8| matches!(b, b' ' | b',');
    let end = list.iter().rposition(|b| !separates(b))? + 1;
    let start = list[..end].iter().rposition(separates).map_or(0, |at| at + 1);
    let (before, last) = list[..end].split_at(start);
    *list = before;
    parse_ip_port(last)
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

    fn client_of(fields: &[&str], recursive: bool) -> Option<String> {
        let peer = SockAddr::parse(b"127.0.0.1:5000").unwrap();
        let trusted = |a: &SockAddr| a.ip_addr().is_some_and(|ip| ip.is_loopback());
        let fields = fields.iter().map(|f| f.as_bytes());
        client(&peer, fields, trusted, recursive).map(|a| a.host().to_string())
    }

    #[test]
    fn the_client_behind_proxies() {
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(client_of(&["192.0.2.1"], false), some("192.0.2.1"));
        assert_eq!(client_of(&["10.0.0.1, 192.0.2.1"], false), some("192.0.2.1"));
        assert_eq!(client_of(&["192.0.2.1, 127.0.0.1"], false), some("127.0.0.1"));
        assert_eq!(client_of(&["192.0.2.1, 127.0.0.1"], true), some("192.0.2.1"));
        assert_eq!(client_of(&["192.0.2.1 127.0.0.1 ,"], true), some("192.0.2.1"));
        assert_eq!(client_of(&["10.0.0.1, 192.0.2.1, 127.0.0.1"], true), some("192.0.2.1"));
        assert_eq!(client_of(&["192.0.2.1", "127.0.0.2"], true), some("192.0.2.1"));
        assert_eq!(client_of(&["192.0.2.1", "127.0.0.2"], false), some("127.0.0.2"));
        assert_eq!(client_of(&["nonsense, 127.0.0.2"], true), some("127.0.0.2"));
        assert_eq!(client_of(&["192.0.2.1, nonsense"], true), None);
        assert_eq!(client_of(&["127.0.0.3"], true), some("127.0.0.3"));
        assert_eq!(client_of(&[" , "], true), None);
        assert_eq!(client_of(&[""], false), None);
        assert_eq!(client_of(&[], true), None);
    }

    #[test]
    fn an_untrusted_peer_is_the_client() {
        let peer = SockAddr::parse(b"198.51.100.1:5000").unwrap();
        let fields = [&b"192.0.2.1"[..]];
        assert!(client(&peer, fields.into_iter(), |_| false, true).is_none());
    }
}
