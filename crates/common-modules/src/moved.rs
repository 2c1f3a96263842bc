//! The client's connection of a session that moves to another process: its description, and the
//! address of the other configuration that it is for (`net::moves`).

use std::fmt::Write;
use std::net::IpAddr;
use std::rc::Rc;

use engine::addresses::{Address, Listen};
use net::Kind;
use os::SockAddr;
use os::sockaddr::UnixAddr;
use proto::handover::{Client, End, Handshake, Proxied, Refusal, Sealed};
use proto::proxy_protocol::{Endpoint, Header};

/// The texts of a description.
pub struct Texts {
    /// Of the listening address, of our own end, and of the client's end.
    addresses: [String; 3],
    real_peer: Option<String>,
    /// The addresses in the PROXY protocol header.
    proxy: [Option<String>; 2],
}

impl Texts {
    /// Those of a connection that was accepted at `listener`.
    pub fn new(
        (listener, local, peer): (&SockAddr, &SockAddr, &SockAddr),
        real_peer: Option<&SockAddr>,
        proxy: Option<&Header>,
    ) -> Texts {
        let text = |end: &Endpoint| end.ip.map(|ip| ip.to_string());
        Texts {
            addresses: [listener, local, peer].map(written),
            real_peer: real_peer.map(written),
            proxy: proxy.map_or_else(Default::default, |h| [text(&h.source), text(&h.destination)]),
        }
    }

    /// The description of the connection with this number, start, count of requests, and run in
    /// which it has moved ([`Client::moved_in`]); with its header, and its TLS.
    pub fn client<'a>(
        &'a self,
        (number, start_ms, requests, moved_in): (u64, u64, u64, u64),
        proxy: Option<&'a Header>,
        (tls, handshake): (Option<Sealed<'a>>, Option<Handshake<'a>>),
    ) -> Client<'a> {
        let [listener, local, peer] = self.addresses.each_ref().map(|text| text.as_bytes());
        let [source, destination] = &self.proxy;
        Client {
            listener,
            local,
            peer,
            real_peer: self.real_peer.as_ref().map(String::as_bytes),
            number,
            age_ms: base::time::now_ms().saturating_sub(start_ms),
            requests,
            moved_in,
            proxy: proxy.map(|header| Proxied {
                source: end(&header.source, source),
                destination: end(&header.destination, destination),
                tlvs: &header.tlvs,
            }),
            tls,
            handshake,
        }
    }
}

/// The text of an address, in memory that need not grow.
fn written(address: &SockAddr) -> String {
    let mut text = String::with_capacity(ADDRESS_MAX);
    let _ = write!(text, "{address}");
    text
}

/// The longest text of an IPv4 address with a port; other addresses are not common.
const ADDRESS_MAX: usize = "255.255.255.255:65535".len();

/// The addresses of a connection that was described.
pub struct Addresses {
    /// Our own end.
    pub local: SockAddr,
    /// The client's end.
    pub peer: SockAddr,
    /// The client's address, as a trusted proxy has reported it.
    pub real_peer: Option<SockAddr>,
}

/// The address among `listens` that a described connection is for, or the wildcard that stands for
/// it.
///
/// # Errors
/// There is none, or its clients speak TLS and this one does not, or the other way round.
pub fn place<T>(
    listens: &[Listen<T>],
    client: &Client<'_>,
) -> Result<(Rc<Address<T>>, Addresses), Refusal> {
    let (address, addresses) = address_of(listens, client)?;
    match address.ssl == client.tls.is_some() {
        true => Ok((address, addresses)),
        false => Err(Refusal::Configuration),
    }
}

/// The same, whether its clients speak TLS or not.
///
/// # Errors
/// There is none.
pub fn address_of<T>(
    listens: &[Listen<T>],
    client: &Client<'_>,
) -> Result<(Rc<Address<T>>, Addresses), Refusal> {
    let read = |text| address(text).ok_or(Refusal::Other);
    let (listener, local, peer) = (read(client.listener)?, read(client.local)?, read(client.peer)?);
    let real_peer = client.real_peer.map(read).transpose()?;
    let streams = || listens.iter().filter(|listen| listen.spec.kind == Kind::Stream);
    let same = streams().find(|l| l.addresses.iter().any(|a| a.addr == listener));
    let address = same.ok_or(Refusal::Configuration)?.address(|| Some(local.clone()));
    Ok((address, Addresses { local, peer, real_peer }))
}

/// An address as it was described. A client of a unix socket has most often no name.
fn address(text: &[u8]) -> Option<SockAddr> {
    match text {
        b"unix:" => Some(SockAddr::Unix(UnixAddr::default())),
        text => SockAddr::parse(text),
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

    fn addr(text: &str) -> SockAddr {
        SockAddr::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_client_without_a_name_keeps_its_address() {
        let (listener, peer) = (addr("unix:/a"), SockAddr::Unix(UnixAddr::default()));
        let texts = Texts::new((&listener, &listener, &peer), Some(&peer), None);
        let client = texts.client((1, 0, 1, 0), None, (None, None));
        assert_eq!(address(client.local), Some(listener));
        assert_eq!(address(client.peer), Some(peer.clone()));
        assert_eq!(client.real_peer.and_then(address), Some(peer));
        // All addresses are read: what is missing is the listener.
        assert!(matches!(place::<()>(&[], &client), Err(Refusal::Configuration)));
    }

    #[test]
    fn a_connection_is_the_same_behind_a_move() {
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        let end = |text: &str, port| Endpoint { text: text.to_owned(), ip: ip(text), port };
        for source in ["192.0.2.7", "2001:db8::7", "no address"] {
            let tlvs = b"\x04\x00\x01x".to_vec();
            let proxy = Header { source: end(source, 1), destination: end("::1", 2), tlvs };
            let (listener, local, peer) = (addr("0.0.0.0:80"), addr("[::1]:80"), addr("unix:/a"));
            let texts = Texts::new((&listener, &local, &peer), Some(&local), Some(&proxy));
            let client = texts.client((7, 0, 3, 5), Some(&proxy), (None, None));
            assert_eq!(header(client.proxy.as_ref().unwrap()).as_deref(), Some(&proxy));
            assert_eq!((client.number, client.requests, client.moved_in), (7, 3, 5));
            for (text, of) in
                [(client.listener, listener), (client.local, local), (client.peer, peer)]
            {
                assert_eq!(address(text), Some(of));
            }
            assert!(matches!(place::<()>(&[], &client), Err(Refusal::Configuration)));
        }
        let wrong = End { text: b"x", ip: Some(b"1.2.3"), port: 1 };
        let wrong = Proxied { source: wrong.clone(), destination: wrong, tlvs: b"" };
        assert!(header(&wrong).is_none());
    }
}
