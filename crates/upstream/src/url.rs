//! Addresses of upstreams as configurations and variables write them: `host:port/uri`,
//! `[::1]:port/uri`, `unix:/path:/uri`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};

use bytes::Bytes;
use os::SockAddr;

/// An address taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The host as written, without brackets taken off; `unix:/path` for unix sockets.
    pub host: Bytes,
    /// The port; the default one where none was written, 0 for unix sockets.
    pub port: u16,
    /// No port was written.
    pub no_port: bool,
    /// The port as written; empty if none was.
    pub port_text: Bytes,
    /// The rest: begins with `/` or `?`; may be empty.
    pub uri: Bytes,
    /// The socket's address, where the host is no name.
    pub addr: Option<SockAddr>,
}

/// Takes `text` apart. `with_uri`: something may follow the host and port.
///
/// # Errors
/// nginx's words for what is wrong, without the address.
pub fn parse(text: &Bytes, default_port: u16, with_uri: bool) -> Result<Url, &'static str> {
    if text.len() >= 5 && text[..5].eq_ignore_ascii_case(b"unix:") {
        return unix(text, with_uri);
    }
    let bracket = text.first() == Some(&b'[');
    let host_end = match (bracket, memchr::memchr(b']', text)) {
        (true, Some(end)) => end + 1,
        (true, None) => return Err("invalid host"),
        (false, _) => 0,
    };
    let uri_at = text[host_end..].iter().position(|b| matches!(b, b'/' | b'?'));
    let uri_at = uri_at.map_or(text.len(), |i| host_end + i);
    if uri_at < text.len() && !with_uri {
        return Err("invalid host");
    }
    let authority = text.slice(..uri_at);
    let mut url = Url {
        host: authority.clone(),
        port: default_port,
        no_port: true,
        port_text: Bytes::new(),
        uri: text.slice(uri_at..),
        addr: None,
    };
    match memchr::memchr(b':', &authority[host_end..]).map(|i| host_end + i) {
        Some(colon) if !bracket || colon == host_end => {
            url.port_text = authority.slice(colon + 1..);
            url.port = port(&url.port_text).ok_or("invalid port")?;
            url.no_port = false;
            url.host = authority.slice(..colon);
        }
        None if bracket && host_end < authority.len() => return Err("invalid host"),
        Some(_) => return Err("invalid host"),
        None => {}
    }
    if url.host.is_empty() || &url.host[..] == b"[]" {
        return Err("no host");
    }
    url.addr = numeric(&url.host, bracket)?.map(|ip| SockAddr::ip(ip, url.port));
    Ok(url)
}

fn port(text: &[u8]) -> Option<u16> {
    base::ascii::parse_u64(text).filter(|n| (1..=65535).contains(n)).map(|n| n as u16)
}

fn numeric(host: &[u8], bracket: bool) -> Result<Option<IpAddr>, &'static str> {
    let text = std::str::from_utf8(host).unwrap_or_default();
    if !bracket {
        return Ok(text.parse::<Ipv4Addr>().ok().map(IpAddr::V4));
    }
    match text.trim_matches(['[', ']']).parse::<Ipv6Addr>() {
        Ok(ip) => Ok(Some(IpAddr::V6(ip))),
        Err(_) => Err("invalid IPv6 address"),
    }
}

fn unix(text: &Bytes, with_uri: bool) -> Result<Url, &'static str> {
    let colon = if with_uri { memchr::memchr(b':', &text[5..]).map(|i| i + 5) } else { None };
    let end = colon.unwrap_or(text.len());
    let path = &text[5..end];
    if path.is_empty() {
        return Err("no path in the unix domain socket");
    }
    let addr = SockAddr::unix(path).map_err(|_| "too long path in the unix domain socket")?;
    Ok(Url {
        host: text.slice(..end),
        port: 0,
        no_port: true,
        port_text: Bytes::new(),
        uri: colon.map_or(Bytes::new(), |c| text.slice(c + 1..)),
        addr: Some(addr),
    })
}

/// Asks the system for the addresses of a host name: IPv4 first. Waits: for loading, and for
/// threads of a pool.
pub fn resolve(host: &[u8], port: u16) -> Vec<SockAddr> {
    let Ok(name) = std::str::from_utf8(host) else { return Vec::new() };
    let Ok(found) = (name, port).to_socket_addrs() else { return Vec::new() };
    let mut addrs: Vec<SockAddr> = Vec::new();
    for a in found.map(|a| SockAddr::ip(a.ip(), port)) {
        if !addrs.contains(&a) {
            addrs.push(a);
        }
    }
    addrs.sort_by_key(|a| matches!(a, SockAddr::V6(_)));
    addrs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &'static str) -> Result<Url, &'static str> {
        parse(&Bytes::from_static(text.as_bytes()), 80, true)
    }

    fn parts(text: &'static str) -> (String, u16, String, bool) {
        let u = url(text).expect(text);
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (text(&u.host), u.port, text(&u.uri), u.addr.is_some())
    }

    #[test]
    fn hosts_ports_and_uris() {
        let t = |h: &str, p, u: &str, a| (h.to_owned(), p, u.to_owned(), a);
        assert_eq!(parts("backend"), t("backend", 80, "", false));
        assert_eq!(parts("backend:8080/a:b"), t("backend", 8080, "/a:b", false));
        assert_eq!(parts("127.0.0.1/x?y"), t("127.0.0.1", 80, "/x?y", true));
        assert_eq!(parts("a?/x"), t("a", 80, "?/x", false));
        assert_eq!(parts("[::1]:81/"), t("[::1]", 81, "/", true));
        assert_eq!(parts("[::1]"), t("[::1]", 80, "", true));
        assert_eq!(parts("unix:/tmp/s:/u"), t("unix:/tmp/s", 0, "/u", true));
        assert_eq!(parts("unix:/tmp/s"), t("unix:/tmp/s", 0, "", true));
        assert_eq!(url("127.0.0.1:8").unwrap().addr, SockAddr::parse(b"127.0.0.1:8"));
    }

    #[test]
    fn what_is_refused() {
        for (text, error) in [
            ("", "no host"),
            (":80", "no host"),
            ("/x", "no host"),
            ("a:", "invalid port"),
            ("a:0", "invalid port"),
            ("a:65536", "invalid port"),
            ("a:8x/", "invalid port"),
            ("[::1", "invalid host"),
            ("[::1]x", "invalid host"),
            ("[]", "no host"),
            ("[zz]:1", "invalid IPv6 address"),
            ("unix:", "no path in the unix domain socket"),
        ] {
            assert_eq!(url(text), Err(error), "{text}");
        }
        let no_uri = parse(&Bytes::from_static(b"a/b"), 80, false);
        assert_eq!(no_uri, Err("invalid host"));
    }
}
