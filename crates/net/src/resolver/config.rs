//! The words of `resolver`, and the system's own name servers.

use std::net::{IpAddr, ToSocketAddrs};

use os::SockAddr;

use super::Config;

/// The fault of a word of the directive, in nginx's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError(pub String);

impl Config {
    /// Reads the parameters of `resolver`, but for `status_zone=`.
    ///
    /// # Errors
    /// The number of the word that is wrong, and why.
    pub fn parse<'a>(
        words: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Config, (usize, ConfigError)> {
        let mut c = Config { servers: Vec::new(), valid: None, ipv4: true, ipv6: true };
        let mut last = 0;
        for (i, word) in words.enumerate() {
            last = i;
            c.word(word).map_err(|e| (i, e))?;
        }
        let wrong = |m: &str| Err((last, ConfigError(m.to_owned())));
        if !c.ipv4 && !c.ipv6 {
            return wrong("\"ipv4\" and \"ipv6\" cannot both be \"off\"");
        }
        if c.servers.is_empty() {
            return wrong("no name servers defined");
        }
        Ok(c)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), ConfigError> {
        let shown = || String::from_utf8_lossy(word).into_owned();
        let invalid = || ConfigError(format!("invalid parameter: {}", shown()));
        let flag = |v: &[u8]| match v {
            b"on" => Ok(true),
            b"off" => Ok(false),
            _ => Err(invalid()),
        };
        if let Some(v) = word.strip_prefix(b"valid=") {
            self.valid = Some(conf::value::parse_sec(v).ok_or_else(invalid)?);
        } else if let Some(v) = word.strip_prefix(b"ipv4=") {
            self.ipv4 = flag(v)?;
        } else if let Some(v) = word.strip_prefix(b"ipv6=") {
            self.ipv6 = flag(v)?;
        } else {
            let found = servers(word)
                .map_err(|e| ConfigError(format!("{e} in resolver \"{}\"", shown())))?;
            self.servers.extend(found);
        }
        Ok(())
    }
}

/// The addresses of a name server, given by address or name, with a port or without.
fn servers(word: &[u8]) -> Result<Vec<SockAddr>, &'static str> {
    let text = std::str::from_utf8(word).map_err(|_| "invalid host")?;
    if let Some(addr) = SockAddr::parse(word) {
        return if addr.is_unix() || addr.port() == 0 {
            Err("invalid port")
        } else {
            Ok(vec![addr])
        };
    }
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
        return match (ip, bare) {
            (IpAddr::V6(_), None) | (IpAddr::V4(_), Some(_)) => Err("invalid host"),
            _ => Ok(vec![SockAddr::ip(ip, 53)]),
        };
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|p| *p > 0).ok_or("invalid port")?),
        None => (text, 53),
    };
    if host.is_empty() {
        return Err("no host");
    }
    let found = (host, port).to_socket_addrs().map_err(|_| "host not found")?;
    let found: Vec<SockAddr> = found.map(|a| SockAddr::ip(a.ip(), port)).collect();
    if found.is_empty() { Err("host not found") } else { Ok(found) }
}

/// The name servers that the system itself uses, by the text of `/etc/resolv.conf`.
pub fn system_servers(text: &str) -> Vec<SockAddr> {
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let is = words.next() == Some("nameserver");
        let address = words.next().filter(|_| is)?;
        address.parse::<IpAddr>().ok().map(|ip| SockAddr::ip(ip, 53))
    };
    text.lines().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text.split(' ').map(str::as_bytes)).map_err(|(_, e)| e.0)
    }

    #[test]
    fn words() {
        let c = parse("127.0.0.1 [::1]:5353 valid=30s ipv6=off").unwrap();
        let text: Vec<String> = c.servers.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["127.0.0.1:53", "[::1]:5353"]);
        assert_eq!((c.valid, c.ipv4, c.ipv6), (Some(30), true, false));
        for (text, message) in [
            ("valid=30s", "no name servers defined"),
            ("1.1.1.1 ipv4=off ipv6=off", "\"ipv4\" and \"ipv6\" cannot both be \"off\""),
            ("1.1.1.1 valid=x", "invalid parameter: valid=x"),
            ("1.1.1.1 ipv4=yes", "invalid parameter: ipv4=yes"),
            ("1.1.1.1:0", "invalid port in resolver \"1.1.1.1:0\""),
            ("1.1.1.1:x", "invalid port in resolver \"1.1.1.1:x\""),
            ("nobody.invalid", "host not found in resolver \"nobody.invalid\""),
        ] {
            assert_eq!(parse(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_system_s_own() {
        let text = "# comment\nsearch a.b\nnameserver 10.0.0.1\n nameserver\t::1 \nnameserver x\n";
        let found: Vec<String> = system_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.1:53", "[::1]:53"]);
    }
}
