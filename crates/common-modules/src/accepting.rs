//! A connection that was just accepted, before an engine of sessions (`stream`, `mail`) makes one
//! of it: its address, its place among all clients, its PROXY protocol header.

use std::net::IpAddr;
use std::rc::Rc;

use engine::addresses::{Address, Listen};
use engine::stats::Field;
use engine::{Client, Stats, overload};
use event::{Gate, Sock};
use mem::Page;
use net::Transport;
use net::proxy_header::{self, NoHeader};
use os::SockAddr;
use proto::proxy_protocol::Header;

/// An accepted connection that is to be served.
pub struct Accepted<T> {
    /// The address that it came to.
    pub address: Rc<Address<T>>,
    /// Its byte stream; with TLS where the address has that.
    pub sock: Transport,
    /// The local address, where it had to be asked for.
    pub local: Option<SockAddr>,
}

/// Counts a connection, and finds the address that it came to. None where a shortage refuses the
/// client. Behind a balancer the client is known, and refused, only with [`proxy_header`].
pub fn accepted<T>(
    listen: &Listen<T>,
    stats: &Stats,
    sock: Sock,
    peer: &SockAddr,
) -> Option<Accepted<T>> {
    let mut local = None;
    let address = listen.address(|| {
        local = os::socket::local_addr(sock.fd()).ok();
        local.clone()
    });
    let sock = if address.ssl { Transport::awaiting_tls(sock) } else { sock.into() };
    stats.add(Field::Accepted, 1);
    if !address.proxy_protocol && is_refused(peer.ip_addr(), &sock) {
        return None;
    }
    stats.add(Field::Handled, 1);
    Some(Accepted { address, sock, local })
}

/// The beginning of a connection behind a balancer.
pub struct Headed {
    /// The header, with the addresses that it tells.
    pub header: Option<Box<Header>>,
    /// The bytes behind it that came with it.
    pub behind: Page,
}

/// The reason why a client behind a balancer is not served.
pub enum Unheaded {
    /// There is no header; the log was told why.
    NoHeader(NoHeader),
    /// A shortage refuses the client that it names.
    Refused,
}

/// Reads the PROXY protocol header of a session's connection within `timeout_ms`, `read` of which
/// came already.
///
/// # Errors
/// The connection is to be closed.
pub async fn proxy_header(
    s: &(impl Client + ?Sized),
    sock: &Transport,
    read: Page,
    gate: &Gate,
    timeout_ms: u64,
) -> Result<Headed, Unheaded> {
    match proxy_header::read(sock, read, gate, timeout_ms).await {
        Ok((behind, header)) => {
            let ip = match &header {
                Some(header) => header.source.ip,
                None => s.address().ip_addr(),
            };
            match is_refused(ip, sock) {
                true => Err(Unheaded::Refused),
                false => Ok(Headed { header, behind }),
            }
        }
        Err(none) => {
            if let Some((level, m)) = none.line() {
                s.log(level, format_args!("{m} while reading PROXY protocol"));
            }
            Err(Unheaded::NoHeader(none))
        }
    }
}

/// Whether a shortage refuses the client.
fn is_refused(ip: Option<IpAddr>, sock: &Transport) -> bool {
    let refused = overload::is_surplus(ip, |share| sock.standing(share));
    if refused {
        overload::refused();
    }
    refused
}
