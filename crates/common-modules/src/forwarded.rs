//! The client of a session behind proxies: `X-Forwarded-For` and its like.

use std::net::IpAddr;

use net::ip::parse_ip_port;
use os::SockAddr;

/// The client behind trusted proxies. `peer` sent the request; `fields` are the field's values in
/// the order of the request, each a list of addresses, the nearest last.
///
/// While the address at hand is trusted, the one before it in the lists takes its place; once only,
/// unless `recursive`. `None` where the peer itself is not trusted, or
/// names no address.
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
