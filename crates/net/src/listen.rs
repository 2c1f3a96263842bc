//! The `listen` directive: addresses and socket options, for every engine the same.

use conf::value::{parse_sec, parse_size};
use conf::{ConfError, Node, Word};

use crate::addr;
use crate::spec::{Deferral, Keepalive, ListenSpec};

/// A `listen` directive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listen {
    /// One for each address that the first argument stands for, options filled in, in order and
    /// without repeats.
    pub specs: Vec<ListenSpec>,
    /// Some socket option was given. Of several `listen` for one address only one may do so.
    pub has_options: bool,
}

/// Reads a `listen` directive. Parameters that are no socket options go to `other`
/// (`default_server`, `ssl`, `proxy_protocol`, …), which returns whether it knows the word.
pub fn parse(
    node: &Node,
    default_port: Option<u16>,
    other: &mut dyn FnMut(&Word) -> Result<bool, ConfError>,
) -> Result<Listen, ConfError> {
    let word = node.arg(0)?;
    let wrong = |what: &str| {
        let message = format!("{what} in \"{}\" of the \"listen\" directive", word.lossy());
        ConfError::at(word, message)
    };
    let options = addr::Options {
        listen: true,
        default_port: default_port.unwrap_or(0),
        ..addr::Options::default()
    };
    let address = addr::parse(word.bytes(), options).map_err(wrong)?;
    let unix = address.addrs.iter().any(|a| a.is_unix());
    if default_port.is_none() && address.port_is_default && !unix {
        return Err(wrong("no port"));
    }
    let mut listen = Listen { specs: Vec::new(), has_options: false };
    let Some(first) = address.addrs.first() else { return Err(wrong("no host")) };
    let mut spec = ListenSpec::new(first.clone());
    for word in node.args.iter().skip(1) {
        if word.bytes() == b"bind" || option(&mut spec, word)? {
            listen.has_options = true;
            spec.bind = true;
        } else if !other(word)? {
            let message = format!("invalid parameter \"{}\"", word.lossy());
            return Err(ConfError::at(word, message));
        }
    }
    for addr in address.addrs {
        if listen.specs.iter().all(|s| s.addr != addr) {
            listen.specs.push(ListenSpec { addr, ..spec.clone() });
        }
    }
    Ok(listen)
}

/// Takes one socket option; false when the word is none.
fn option(spec: &mut ListenSpec, word: &Word) -> Result<bool, ConfError> {
    let text = word.bytes();
    let (name, value) = match text.iter().position(|&b| b == b'=') {
        Some(i) => (&text[..i], Some(&text[i + 1..])),
        None => (text, None),
    };
    let invalid = |what: &str| ConfError::at(word, format!("invalid {what} \"{}\"", word.lossy()));
    match (name, value) {
        (b"reuseport", None) => spec.reuseport = true,
        (b"reuseport", Some(b"steered")) => (spec.reuseport, spec.steered) = (true, true),
        (b"deferred", None) => spec.deferred = Some(Deferral::Always),
        (b"deferred", Some(b"off")) => spec.deferred = Some(Deferral::Never),
        (b"multipath", None) => spec.multipath = true,
        (b"backlog", Some(value)) => {
            let backlog = integer(value).filter(|n| *n > 0);
            spec.backlog = Some(backlog.ok_or_else(|| invalid("backlog"))?);
        }
        (b"fastopen", Some(value)) => {
            spec.fastopen = Some(integer(value).ok_or_else(|| invalid("fastopen"))?);
        }
        (b"rcvbuf", Some(value)) => {
            spec.rcvbuf = Some(parse_size(value).ok_or_else(|| invalid("rcvbuf"))?);
        }
        (b"sndbuf", Some(value)) => {
            spec.sndbuf = Some(parse_size(value).ok_or_else(|| invalid("sndbuf"))?);
        }
        (b"ipv6only", Some(value)) => {
            spec.ipv6only = match value {
                b"on" => Some(true),
                b"off" => Some(false),
                _ => {
                    let flag = String::from_utf8_lossy(value);
                    let message = format!("invalid ipv6only flags \"{flag}\"");
                    return Err(ConfError::at(word, message));
                }
            };
        }
        (b"so_keepalive", Some(value)) => {
            spec.keepalive = Some(keepalive(value).ok_or_else(|| {
                let value = String::from_utf8_lossy(value);
                ConfError::at(word, format!("invalid so_keepalive value: \"{value}\""))
            })?);
        }
        (b"accept_filter", Some(_)) => {
            let filter = word.lossy();
            let message =
                format!("accept filters \"{filter}\" are not supported on this platform, ignored");
            conf::warn(word, message);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A number of digits alone, as far as an `int` of the kernel goes.
fn integer(text: &[u8]) -> Option<i32> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// `on`, `off` or `idle:interval:count`, parts of which may be left out but not all.
fn keepalive(text: &[u8]) -> Option<Keepalive> {
    match text {
        b"on" => return Some(Keepalive { on: true, ..Keepalive::default() }),
        b"off" => return Some(Keepalive::default()),
        _ => {}
    }
    // The outer `Option` is whether the part can be read, the inner one whether it is there: zero
    // counts as absent, as in nginx.
    let positive = |n: u32| Some(n).filter(|n| *n > 0);
    let seconds = |part: &[u8]| match part {
        b"" => Some(None),
        part => Some(positive(parse_sec(part)?.try_into().ok()?)),
    };
    let mut parts = text.splitn(3, |&b| b == b':');
    let idle = seconds(parts.next()?)?;
    let interval = seconds(parts.next().unwrap_or_default())?;
    let count = match parts.next().unwrap_or_default() {
        b"" => None,
        part => positive(integer(part)?.try_into().ok()?),
    };
    let any = idle.is_some() || interval.is_some() || count.is_some();
    any.then_some(Keepalive { on: true, idle, interval, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use conf::Pos;
    use std::path::Path;

    fn word(text: &str) -> Word {
        let pos = Pos { file: Path::new("f").into(), line: 1, column: 1 };
        Word { text: Bytes::copy_from_slice(text.as_bytes()), pos, quoted: false }
    }

    fn read(text: &str) -> Result<Listen, String> {
        let mut words = text.split(' ').map(word);
        let name = words.next().unwrap();
        let node = Node { name, args: words.collect(), block: None, broken: None };
        parse(&node, Some(80), &mut |w| Ok(w.bytes() == b"ssl")).map_err(|e| e.to_string())
    }

    #[test]
    fn options() {
        let l = read("listen 127.0.0.1:81 ssl").unwrap();
        assert!(!l.has_options && l.specs.len() == 1 && !l.specs[0].bind);
        let l = read(
            "listen 81-82 reuseport backlog=5 rcvbuf=8k sndbuf=4k deferred fastopen=3 ipv6only=off \
             so_keepalive=30m::10 multipath",
        )
        .unwrap();
        assert!(l.has_options && l.specs[0].bind);
        let [a, b] = &l.specs[..] else { panic!("{l:?}") };
        assert_eq!((a.addr.port(), b.addr.port()), (81, 82));
        assert!(
            b.reuseport
                && b.deferred == Some(Deferral::Always)
                && b.multipath
                && b.ipv6only == Some(false)
        );
        assert_eq!((b.backlog, b.rcvbuf, b.sndbuf), (Some(5), Some(8192), Some(4096)));
        assert_eq!(b.fastopen, Some(3));
        let k = Keepalive { on: true, idle: Some(1800), interval: None, count: Some(10) };
        assert_eq!(b.keepalive, Some(k));
        let never = Some(Deferral::Never);
        assert_eq!(read("listen 80 deferred=off").unwrap().specs[0].deferred, never);
        assert_eq!(read("listen 80").unwrap().specs[0].deferred, None);
        assert!(read("listen 80 bind").unwrap().specs[0].bind);
    }

    #[test]
    fn errors_in_nginx_s_words() {
        for (text, message) in [
            ("listen :80", "no host in \":80\" of the \"listen\" directive in f:1"),
            ("listen 80 x", "invalid parameter \"x\" in f:1"),
            ("listen 80 backlog=0", "invalid backlog \"backlog=0\" in f:1"),
            ("listen 80 backlog=-1", "invalid backlog \"backlog=-1\" in f:1"),
            ("listen 80 rcvbuf=x", "invalid rcvbuf \"rcvbuf=x\" in f:1"),
            ("listen 80 ipv6only=oN", "invalid ipv6only flags \"oN\" in f:1"),
            ("listen 80 so_keepalive=::", "invalid so_keepalive value: \"::\" in f:1"),
            ("listen 80 so_keepalive=1:2:x", "invalid so_keepalive value: \"1:2:x\" in f:1"),
            ("listen 80 deferred=1", "invalid parameter \"deferred=1\" in f:1"),
            ("listen 80 reuseport=1", "invalid parameter \"reuseport=1\" in f:1"),
        ] {
            assert_eq!(read(text).unwrap_err(), message);
        }
    }

    #[test]
    fn engines_without_a_default_port_want_one() {
        let node = Node { name: word("listen"), args: vec![word("*")], block: None, broken: None };
        let error = parse(&node, None, &mut |_| Ok(false)).unwrap_err().to_string();
        assert_eq!(error, "no port in \"*\" of the \"listen\" directive in f:1");
    }
}
