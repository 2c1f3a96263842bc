//! A socket that receives the datagrams of all clients, and the sessions that they belong to.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};

use base::log::{Level, os_error};
use bytes::Bytes;
use engine::stats::Field;
use event::{Deadline, Fd, TaskId};
use os::SockAddr;
use os::datagram::{self, Received};

use super::sessions::Sessions;
use super::{Client, Datagrams, Key};
use crate::accept;
use crate::server::{Address, StreamMain};
use crate::session::StreamSession;

/// The longest datagram, and the most that the kernel joins.
pub(crate) const DATAGRAM_MAX: usize = 65536;

/// The receives that may follow each other before others have their turn.
const ROUNDS: usize = 64;

/// A socket of clients.
pub(crate) struct Endpoint {
    main: Rc<StreamMain>,
    listen: usize,
    fd: Fd,
    /// The local address of a socket that has one alone.
    local: Option<SockAddr>,
    sessions: RefCell<HashMap<Key, Weak<Client>>>,
    /// The time of the last warning of too many sessions.
    warned_ms: Cell<u64>,
}

impl Endpoint {
    /// Begins to receive.
    ///
    /// # Errors
    /// The system's.
    pub fn start(
        main: &Rc<StreamMain>,
        listen: usize,
        fd: OwnedFd,
    ) -> io::Result<(Rc<Endpoint>, TaskId)> {
        let at = os::socket::local_addr(&fd)?;
        let several = at.is_wildcard();
        if several {
            datagram::set_packet_info(&fd, matches!(at, SockAddr::V6(_)))?;
        }
        // Kernels before 5.0 give each by itself.
        let _ = datagram::set_join(&fd);
        let endpoint = Rc::new(Endpoint {
            main: main.clone(),
            listen,
            fd: Fd::new(fd),
            local: (!several).then_some(at),
            sessions: RefCell::default(),
            warned_ms: Cell::new(0),
        });
        let own = endpoint.clone();
        Ok((endpoint, event::spawn(async move { own.receive().await })))
    }

    /// The socket, for sending.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.fd()
    }

    /// The client's next datagram begins another session.
    pub fn forget(&self, key: &Key) {
        self.sessions.borrow_mut().remove(key);
    }

    async fn receive(self: Rc<Endpoint>) {
        let mut buf = vec![0; DATAGRAM_MAX];
        loop {
            for _ in 0..ROUNDS {
                match datagram::recv(self.fd.fd(), &mut buf) {
                    Ok(received) => {
                        let bytes = Bytes::copy_from_slice(buf.get(..received.len).unwrap_or(&[]));
                        self.take(received, bytes).await;
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        if self.fd.readable(Deadline::NEVER).await.is_err() {
                            return;
                        }
                    }
                    // A client that is away is no fault of the socket's.
                    Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(e) => {
                        let log = base::log::default();
                        let e = os_error(&e);
                        base::log!(log, Level::Alert, None, "recvmsg() failed {e}");
                        event::sleep(100).await;
                    }
                }
            }
            event::task::yield_now().await;
        }
    }

    /// Gives a datagram to its session; the first of a client begins one.
    pub fn deliver(self: &Rc<Endpoint>, key: &Key, datagram: Bytes) -> bool {
        let known = self.sessions.borrow().get(key).and_then(Weak::upgrade);
        match &known {
            Some(client) => client.deliver(datagram),
            None => self.begin(key, datagram),
        }
        known.is_none()
    }

    async fn take(self: &Rc<Endpoint>, received: Received, bytes: Bytes) {
        let Some(peer) = received.from else { return };
        let key = Key { peer, local: received.to };
        let all = Datagrams { bytes, segment: received.segment.max(1) };
        for one in all.each() {
            if self.deliver(&key, one) {
                // The session begins before the client's next datagram, and says how many it takes.
                event::task::yield_now().await;
            }
        }
    }

    fn begin(self: &Rc<Endpoint>, key: &Key, first: Bytes) {
        if !self.make_room() {
            return;
        }
        let main = &self.main;
        let local = match (&self.local, key.local) {
            (Some(local), _) => Some(local.clone()),
            (None, Some(ip)) => Some(SockAddr::ip(ip, self.port())),
            (None, None) => None,
        };
        let address: Rc<Address> = main.listens[self.listen].address(|| local.clone());
        let client = Rc::new(Client::new(self, key.clone()));
        self.sessions.borrow_mut().insert(key.clone(), Rc::downgrade(&client));
        main.udp_sessions.begin(&client);
        let mut s = StreamSession::new(main, address, key.peer.clone(), local, None);
        s.received.set(first.len() as u64);
        s.preread.extend_from_slice(&first);
        s.datagrams = Some(client);
        main.stats.add(Field::Accepted, 1);
        main.stats.add(Field::Handled, 1);
        accept::spawn(s);
    }

    /// All sessions of the worker.
    pub fn sessions(&self) -> &Rc<Sessions> {
        &self.main.udp_sessions
    }

    /// Makes room for a session; false where those that are to end still have it.
    fn make_room(&self) -> bool {
        let (sessions, max) = (self.sessions(), event::connections_max());
        if !sessions.are_full(max) {
            return true;
        }
        self.warn_full();
        sessions.make_room(max)
    }

    fn port(&self) -> u16 {
        self.main.listens[self.listen].spec.addr.port()
    }

    #[cold]
    fn warn_full(&self) {
        let now = base::time::now_ms();
        if now.saturating_sub(self.warned_ms.get()) >= 1000 || self.warned_ms.get() == 0 {
            self.warned_ms.set(now.max(1));
            let log = base::log::default();
            let max = event::connections_max();
            base::log!(
                log,
                Level::Alert,
                None,
                "{max} worker_connections are not enough for sessions over UDP"
            );
        }
    }
}
