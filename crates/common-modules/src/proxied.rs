//! The PROXY protocol header of a connection that moves to another process.

use std::net::IpAddr;

use proto::handover::{End, Proxied};
use proto::proxy_protocol::{Endpoint, Header};

/// The addresses of a header as text.
pub struct Texts {
    source: Option<String>,
    destination: Option<String>,
}

impl Texts {
    /// Those of `header`.
    pub fn of(header: &Header) -> Texts {
        let text = |end: &Endpoint| end.ip.map(|ip| ip.to_string());
        Texts { source: text(&header.source), destination: text(&header.destination) }
    }

    /// The header that these are of, as it travels.
    pub fn described<'a>(&'a self, header: &'a Header) -> Proxied<'a> {
        Proxied {
            source: end(&header.source, &self.source),
            destination: end(&header.destination, &self.destination),
            tlvs: &header.tlvs,
        }
    }
}

fn end<'a>(end: &'a Endpoint, ip: &'a Option<String>) -> End<'a> {
    let ip = ip.as_ref().map(String::as_bytes);
    End { text: end.text.as_bytes(), ip, port: end.port }
}

/// The header that was described; `None` if an address is none.
pub fn header(described: &Proxied<'_>) -> Option<Box<Header>> {
    Some(Box::new(Header {
        source: endpoint(&described.source)?,
        destination: endpoint(&described.destination)?,
        tlvs: described.tlvs.to_vec(),
    }))
}

fn endpoint(end: &End<'_>) -> Option<Endpoint> {
    let text = str::from_utf8(end.text).ok()?.to_owned();
    let ip = match end.ip {
        Some(ip) => Some(str::from_utf8(ip).ok()?.parse::<IpAddr>().ok()?),
        None => None,
    };
    Some(Endpoint { text, ip, port: end.port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_the_same_behind_a_move() {
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        let end = |text: &str, port| Endpoint { text: text.to_owned(), ip: ip(text), port };
        for source in ["192.0.2.7", "2001:db8::7", "no address"] {
            let tlvs = b"\x04\x00\x01x".to_vec();
            let header = Header { source: end(source, 1), destination: end("::1", 2), tlvs };
            let texts = Texts::of(&header);
            assert_eq!(super::header(&texts.described(&header)).as_deref(), Some(&header));
        }
        let wrong = End { text: b"x", ip: Some(b"1.2.3"), port: 1 };
        let wrong = Proxied { source: wrong.clone(), destination: wrong, tlvs: b"" };
        assert!(super::header(&wrong).is_none());
    }
}
