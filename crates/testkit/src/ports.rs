//! Ports that stay reserved while a test runs.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range that the kernel hands out to outgoing connections, which would otherwise take
/// a port between our finding it free and the server's binding it.
const FIRST: u16 = 12_000;
const COUNT: u16 = 18_000;

/// A port of the loopback, reserved among all tests on the machine until this is dropped.
///
/// The reservation is an abstract unix socket: it needs no file and dies with its process.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: UnixListener,
}

impl Port {
    /// Reserves a port that is free on 127.0.0.1 now, for streams and for datagrams.
    pub fn reserve() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Test processes start apart, so that they rarely try the same ports.
        let start = (std::process::id() as u16).wrapping_mul(97);
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + start.wrapping_add(step) % COUNT;
            let name = format!("weir-testkit-port-{number}");
            let Ok(address) = SocketAddr::from_abstract_name(name) else { continue };
            let Ok(reservation) = UnixListener::bind_addr(&address) else { continue };
            let at = ("127.0.0.1", number);
            // Of datagrams, too: another server of the same user may have the port with
            // SO_REUSEPORT, and the kernel would let ours share its clients.
            if TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok() {
                return Self { number, _reservation: reservation };
            }
        }
        panic!("no free port between {FIRST} and {}", FIRST + COUNT);
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Listens on a port of the loopback that is reserved.
///
/// Whether a port is free is found out by taking it, and a child that another test starts just then
/// has a copy of that descriptor until it runs its program: the port is waited for.
#[track_caller]
pub fn listen(port: u16) -> TcpListener {
    waited_for(|| TcpListener::bind(("127.0.0.1", port)))
}

/// The same for datagrams.
#[track_caller]
pub fn bind_datagrams(port: u16) -> UdpSocket {
    waited_for(|| UdpSocket::bind(("127.0.0.1", port)))
}

#[track_caller]
fn waited_for<T>(bind: impl Fn() -> io::Result<T>) -> T {
    crate::wait_for("a reserved port", || match bind() {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => None,
        bound => Some(bound.unwrap_or_else(|e| panic!("a reserved port cannot be had: {e}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::Port;

    #[test]
    fn two_reservations_differ_and_are_free() {
        let (a, b) = (Port::reserve(), Port::reserve());
        assert_ne!(a.number(), b.number());
        super::listen(a.number());
    }
}
