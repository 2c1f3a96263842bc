//! Addresses as configuration writes them: `80`, `*:80`, `host:8000-8010`, `[::1]`, `unix:/path`,
//! and names that are resolved while loading. nginx uses one grammar for `listen`, syslog servers,
//! upstreams and resolvers; its switches are [`Options`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};

use os::SockAddr;

/// The forms that an address may have in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// An address to listen on: a port alone, `*` and ranges of ports are allowed.
    pub listen: bool,
    /// A path may follow the address (`proxy_pass host:80/path`, `unix:/socket:/path`).
    pub path: bool,
    /// Names are left unresolved: [`Address::addrs`] is empty then.
    pub keep_names: bool,
    /// The port when none is written.
    pub default_port: u16,
}

/// An address that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address<'a> {
    /// All of its addresses: a name can have several, a range of ports has one each.
    pub addrs: Vec<SockAddr>,
    /// The host as written, with the brackets of an IPv6 address; the path of a unix socket.
    pub host: &'a [u8],
    /// The (first) port.
    pub port: u16,
    /// No port was written.
    pub port_is_default: bool,
    /// The text behind the address, when [`Options::path`] allows it.
    pub path: &'a [u8],
}

/// The fault of an address, in nginx's words.
pub(crate) type BadAddress = &'static str;

/// Reads an address.
pub fn parse(text: &[u8], options: Options) -> Result<Address<'_>, BadAddress> {
    if text.get(..5).is_some_and(|p| p.eq_ignore_ascii_case(b"unix:")) {
        return unix(&text[5..], options);
    }
    if text.first() == Some(&b'[') { v6(text, options) } else { named(text, options) }
}

fn unix(text: &[u8], options: Options) -> Result<Address<'_>, BadAddress> {
    let (socket, path) = match text.iter().position(|&b| b == b':') {
        Some(i) if options.path => (&text[..i], &text[i + 1..]),
        _ => (text, &b""[..]),
    };
    if socket.is_empty() {
        return Err("no path in the unix domain socket");
    }
    if socket.len() > os::sockaddr::UNIX_PATH_MAX {
        return Err("too long path in the unix domain socket");
    }
    let addr = SockAddr::unix(socket).map_err(|_| "invalid path in the unix domain socket")?;
    Ok(Address { addrs: vec![addr], host: socket, port: 0, port_is_default: true, path })
}

/// Cuts off the text behind the address; it is an error where no path may follow.
fn split_path<'a>(
    text: &'a [u8],
    starts: &[u8],
    options: Options,
) -> Result<(&'a [u8], &'a [u8]), BadAddress> {
    match text.iter().position(|b| starts.contains(b)) {
        None => Ok((text, b"")),
        Some(_) if options.listen || !options.path => Err("invalid host"),
        Some(i) => Ok(text.split_at(i)),
    }
}

/// A port, or in `listen` a range of them, both ends included.
fn ports(text: &[u8], options: Options) -> Result<(u16, u16), BadAddress> {
    let port = |text: &[u8]| -> Result<u16, BadAddress> {
        match decimal(text) {
            Some(n @ 1..=65535) => Ok(n as u16),
            _ => Err("invalid port"),
        }
    };
    let dash = text.iter().position(|&b| b == b'-').filter(|_| options.listen);
    let Some(dash) = dash else {
        let one = port(text)?;
        return Ok((one, one));
    };
    let (last, first) = (port(&text[dash + 1..])?, port(&text[..dash])?);
    if first > last { Err("invalid port range") } else { Ok((first, last)) }
}

/// A number of digits alone; numbers too large to hold read as the largest.
fn decimal(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |n: u32, b: &u8| n.saturating_mul(10).saturating_add(u32::from(b - b'0'));
    Some(text.iter().fold(0, add))
}

fn each_port(ip: IpAddr, (first, last): (u16, u16)) -> Vec<SockAddr> {
    (first..=last).map(|port| SockAddr::ip(ip, port)).collect()
}

fn v6(text: &[u8], options: Options) -> Result<Address<'_>, BadAddress> {
    let close = text.iter().position(|&b| b == b']').ok_or("invalid host")?;
    let (port_text, path) = split_path(&text[close + 1..], b"/", options)?;
    let range = match port_text.split_first() {
        None => (options.default_port, options.default_port),
        Some((b':', digits)) => ports(digits, options)?,
        Some(_) => return Err("invalid host"),
    };
    let inner = &text[1..close];
    if inner.is_empty() {
        return Err("no host");
    }
    let ip = std::str::from_utf8(inner).ok().and_then(|s| s.parse::<Ipv6Addr>().ok());
    let ip = ip.ok_or("invalid IPv6 address")?;
    Ok(Address {
        addrs: each_port(IpAddr::V6(ip), range),
        host: &text[..close + 1],
        port: range.0,
        port_is_default: port_text.is_empty(),
        path,
    })
}

fn named(text: &[u8], options: Options) -> Result<Address<'_>, BadAddress> {
    let (text, path) = split_path(text, b"/?", options)?;
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let colon = text.iter().position(|&b| b == b':');
    let (host, range) = match colon {
        Some(i) => (&text[..i], ports(&text[i + 1..], options)?),
        None if options.listen && is_ports(text) => {
            let range = ports(text, options)?;
            let addrs = each_port(any, range);
            return Ok(Address { addrs, host: b"", port: range.0, port_is_default: false, path });
        }
        None => (text, (options.default_port, options.default_port)),
    };
    if host.is_empty() {
        return Err("no host");
    }
    let ip = std::str::from_utf8(host).ok().and_then(|s| s.parse::<Ipv4Addr>().ok());
    let addrs = match ip {
        _ if options.listen && host == b"*" => each_port(any, range),
        Some(ip) => each_port(IpAddr::V4(ip), range),
        None if options.keep_names => Vec::new(),
        None => resolve(host)?.into_iter().flat_map(|ip| each_port(ip, range)).collect(),
    };
    Ok(Address { addrs, host, port: range.0, port_is_default: colon.is_none(), path })
}

/// Whether a `listen` value without a colon is a port (or a range) and not a host.
fn is_ports(text: &[u8]) -> bool {
    let (first, last) = match text.iter().position(|&b| b == b'-') {
        Some(dash) => (&text[..dash], &text[dash + 1..]),
        None => (text, text),
    };
    decimal(first).is_some() && decimal(last).is_some()
}

/// Asks the system for a host's addresses, without repeats. Blocks: for loading only.
pub fn resolve(host: &[u8]) -> Result<Vec<IpAddr>, BadAddress> {
    const NOT_FOUND: BadAddress = "host not found";
    let host = std::str::from_utf8(host).map_err(|_| NOT_FOUND)?;
    let found = (host, 0u16).to_socket_addrs().map_err(|_| NOT_FOUND)?;
    let mut ips = Vec::new();
    for addr in found {
        if !ips.contains(&addr.ip()) {
            ips.push(addr.ip());
        }
    }
    if ips.is_empty() { Err(NOT_FOUND) } else { Ok(ips) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTEN: Options =
        Options { listen: true, path: false, keep_names: false, default_port: 80 };
    const PASS: Options = Options { listen: false, path: true, keep_names: true, default_port: 80 };

    fn list(text: &str) -> Vec<String> {
        let addrs = parse(text.as_bytes(), LISTEN).unwrap().addrs;
        addrs.iter().map(|a| a.to_string()).collect()
    }

    #[test]
    fn what_listen_takes() {
        assert_eq!(list("8080"), ["0.0.0.0:8080"]);
        assert_eq!(list("*:81"), ["0.0.0.0:81"]);
        assert_eq!(list("*"), ["0.0.0.0:80"]);
        assert_eq!(list("127.0.0.1"), ["127.0.0.1:80"]);
        assert_eq!(list("[::1]:8080"), ["[::1]:8080"]);
        assert_eq!(list("[::]"), ["[::]:80"]);
        assert_eq!(list("81-83"), ["0.0.0.0:81", "0.0.0.0:82", "0.0.0.0:83"]);
        assert_eq!(list("127.0.0.1:8-9"), ["127.0.0.1:8", "127.0.0.1:9"]);
        assert_eq!(list("[::1]:8-9"), ["[::1]:8", "[::1]:9"]);
        assert_eq!(list("unix:/run/a:b"), ["unix:/run/a:b"]);
        assert_eq!(list("UNIX:/run/a"), ["unix:/run/a"]);
    }

    #[test]
    fn what_is_wrong_with_it() {
        for (text, wrong) in [
            ("", "no host"),
            (":80", "no host"),
            ("0", "invalid port"),
            ("65536", "invalid port"),
            ("99999999999999999999", "invalid port"),
            ("9-8", "invalid port range"),
            ("127.0.0.1:", "invalid port"),
            ("127.0.0.1:9-8", "invalid port range"),
            ("127.0.0.1:8-x", "invalid port"),
            ("127.0.0.1/x", "invalid host"),
            ("[::1", "invalid host"),
            ("[::1]x", "invalid host"),
            ("[]", "no host"),
            ("[::g]", "invalid IPv6 address"),
            ("unix:", "no path in the unix domain socket"),
            ("host.invalid", "host not found"),
            ("a\u{0}b:80", "host not found"),
        ] {
            assert_eq!(parse(text.as_bytes(), LISTEN), Err(wrong), "{text}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        assert_eq!(parse(long.as_bytes(), LISTEN), Err("too long path in the unix domain socket"));
    }

    #[test]
    fn paths_after_the_address() {
        let a = parse(b"backend:81/x?y", PASS).unwrap();
        assert_eq!((a.host, a.port, a.path), (&b"backend"[..], 81, &b"/x?y"[..]));
        assert!(a.addrs.is_empty() && !a.port_is_default);
        let a = parse(b"backend?a:b", PASS).unwrap();
        assert_eq!((a.host, a.port, a.path), (&b"backend"[..], 80, &b"?a:b"[..]));
        let a = parse(b"unix:/s:/x", PASS).unwrap();
        assert_eq!((a.host, a.path), (&b"/s"[..], &b"/x"[..]));
        let a = parse(b"[::1]/x", PASS).unwrap();
        assert_eq!((a.host, a.path), (&b"[::1]"[..], &b"/x"[..]));
        assert!(a.port_is_default);
    }
}
