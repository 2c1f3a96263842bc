//! Connections that one engine accepted and another serves: `pass` of `stream`.
//!
//! Each engine of a worker registers the sockets that it serves when it starts ([`register`]). A
//! connection goes to the engine that a client would have reached at the address ([`to`]), with the
//! bytes read so far, the PROXY protocol header, the facts of TLS, and the limits that apply to it.
//! The next engine serves it from there, and it alone logs it.

use std::any::Any;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

use mem::Page;
use net::{Kind, ListenSpec, Transport};
use os::SockAddr;
use proto::proxy_protocol::Header;

use crate::ssl::Established;

/// The times that a connection may be passed on; more is a cycle.
pub const PASSES_MAX: u8 = 10;

/// A connection that is passed on.
pub struct Passed {
    /// Its byte stream.
    pub sock: Transport,
    /// Bytes of the client's that were read already.
    pub read: Page,
    /// The client's address.
    pub peer: SockAddr,
    /// The address that it is passed to, which stands for the local one.
    pub local: SockAddr,
    /// Its number in logs.
    pub number: u64,
    /// The time of its acceptance, on the monotonic clock.
    pub start_ms: u64,
    /// The PROXY protocol header that it began with.
    pub proxy: Option<Box<Header>>,
    /// The facts of TLS with the client, if that was spoken already.
    pub tls: Option<Box<Established>>,
    /// The times that it was passed on.
    pub passes: u8,
    /// The holds of the engines before, until it ends: their limits count it as long.
    pub kept: Vec<Rc<dyn Any>>,
}

/// Serves connections that are passed on.
pub trait Receiver {
    /// The worker leaves, or the configuration does.
    fn is_leaving(&self) -> bool;

    /// Whether clients of this socket speak TLS to us.
    fn wants_tls(&self, listen: usize, local: &SockAddr) -> bool;

    /// Serves a connection as one of this socket, by its number among the engine's.
    fn take(self: Rc<Self>, listen: usize, passed: Passed);
}

/// A socket and who serves it.
struct Place {
    addr: SockAddr,
    listen: usize,
    receiver: Weak<dyn Receiver>,
}

thread_local! {
    static PLACES: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// Notes the sockets of an engine in this worker, in their order.
pub fn register<'a>(
    receiver: &Rc<impl Receiver + 'static>,
    sockets: impl Iterator<Item = &'a ListenSpec>,
) {
    PLACES.with_borrow_mut(|places| {
        places.retain(|place| place.receiver.strong_count() > 0);
        for (listen, spec) in sockets.enumerate().filter(|(_, spec)| spec.kind == Kind::Stream) {
            let receiver: Rc<dyn Receiver> = receiver.clone();
            let receiver = Rc::downgrade(&receiver);
            places.push(Place { addr: spec.addr.clone(), listen, receiver });
        }
    });
}

/// The one who serves connections to an address.
pub struct Recipient {
    receiver: Rc<dyn Receiver>,
    listen: usize,
    addr: SockAddr,
}

impl Recipient {
    /// Whether its clients speak TLS to us.
    pub fn wants_tls(&self) -> bool {
        self.receiver.wants_tls(self.listen, &self.addr)
    }

    /// Serves a connection.
    pub fn take(self, passed: Passed) {
        self.receiver.take(self.listen, passed);
    }
}

/// Finds the one who serves connections to `addr`. One of a configuration that leaves serves them
/// where no other does.
pub fn to(addr: &SockAddr) -> Option<Recipient> {
    PLACES.with_borrow(|places| {
        let found = places.iter().filter(|place| serves(&place.addr, addr)).filter_map(|place| {
            let receiver = place.receiver.upgrade()?;
            Some(Recipient { receiver, listen: place.listen, addr: addr.clone() })
        });
        let mut leaving = None;
        for recipient in found {
            match recipient.receiver.is_leaving() {
                false => return Some(recipient),
                true => leaving = leaving.or(Some(recipient)),
            }
        }
        leaving
    })
}

/// Whether a socket bound to `bound` gets connections to `addr`.
fn serves(bound: &SockAddr, addr: &SockAddr) -> bool {
    bound == addr
        || (bound.is_wildcard()
            && !bound.is_unix()
            && bound.family() == addr.family()
            && bound.port() == addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Engine {
        leaving: Cell<bool>,
    }

    impl Receiver for Engine {
        fn is_leaving(&self) -> bool {
            self.leaving.get()
        }

        fn wants_tls(&self, listen: usize, _: &SockAddr) -> bool {
            listen == 1
        }

        fn take(self: Rc<Self>, _: usize, _: Passed) {}
    }

    fn addr(text: &str) -> SockAddr {
        SockAddr::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_socket_is_found_by_its_address_or_by_its_port_where_it_has_all() {
        let found = |addrs: &[&str], wanted: &str| {
            let engine = Rc::new(Engine { leaving: Cell::new(false) });
            let mut specs: Vec<_> = addrs.iter().map(|a| ListenSpec::new(addr(a))).collect();
            specs[0].kind = Kind::Datagram;
            register(&engine, specs.iter());
            to(&addr(wanted)).map(|recipient| recipient.listen)
        };
        let all = ["127.0.0.1:80", "127.0.0.1:80", "0.0.0.0:90", "[::]:100", "unix:/a"];
        assert_eq!(found(&all, "127.0.0.1:80"), Some(1), "not the one of datagrams");
        assert_eq!(found(&all, "127.0.0.2:80"), None);
        assert_eq!(found(&all, "127.0.0.2:90"), Some(2));
        assert_eq!(found(&all, "[::1]:90"), None);
        assert_eq!(found(&all, "[::1]:100"), Some(3));
        assert_eq!(found(&all, "unix:/a"), Some(4));
        assert_eq!(found(&all, "unix:/b"), None);
    }

    #[test]
    fn an_engine_that_leaves_serves_where_no_other_does() {
        let spec = [ListenSpec::new(addr("127.0.0.1:80"))];
        let old = Rc::new(Engine { leaving: Cell::new(true) });
        register(&old, spec.iter());
        assert!(to(&spec[0].addr).unwrap().receiver.is_leaving());
        let new = Rc::new(Engine { leaving: Cell::new(false) });
        register(&new, spec.iter());
        assert!(!to(&spec[0].addr).unwrap().receiver.is_leaving());
        drop((old, new));
        assert!(to(&spec[0].addr).is_none());
    }
}
