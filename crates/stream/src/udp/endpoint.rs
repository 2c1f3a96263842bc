//! A UDP socket of all clients, and the sessions to which datagrams belong.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::Waker;

use base::log::{Level, os_error};
use bytes::Bytes;
use engine::stats::Field;
use event::{Deadline, Fd, Gate, Member, TaskId};
use os::SockAddr;
use os::datagram;

use super::client::{Client, Held, Home};
use super::datagrams::{Datagrams, Key, receive_batch};
use super::own_socket::OwnSocket;
use super::relay::Relay;
use super::sessions::Sessions;
use super::table::Table;
use crate::accept;
use crate::server::{Address, StreamMain};
use crate::session::StreamSession;

/// The maximum number of batch receives in a row before other tasks get their turn.
const ROUNDS: usize = 2;

/// A UDP socket of clients.
pub(crate) struct Endpoint {
    main: Rc<StreamMain>,
    table: Rc<Table>,
    listen: usize,
    fd: Fd,
    /// The local address, unless the socket is bound to a wildcard.
    local: Option<SockAddr>,
    sessions: RefCell<HashSet<Known>>,
    /// The time of the last warning about too many sessions, in milliseconds.
    warned_ms: Cell<u64>,
    /// Another process reads the socket now.
    leaving: Cell<bool>,
}

/// A client with a session, hashed by its key; stores only a pointer, because the client contains
/// the key.
struct Known(Rc<Client>);

impl Borrow<Key> for Known {
    fn borrow(&self) -> &Key {
        self.0.key()
    }
}

impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl PartialEq for Known {
    fn eq(&self, other: &Known) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for Known {}

impl Endpoint {
    /// Starts receiving once `alone` is closed.
    ///
    /// # Errors
    /// The system's.
    pub fn start(
        main: &Rc<StreamMain>,
        table: &Rc<Table>,
        listen: usize,
        fd: OwnedFd,
        alone: Gate,
    ) -> io::Result<(Rc<Endpoint>, TaskId)> {
        let at = os::socket::local_addr(&fd)?;
        let several = at.is_wildcard();
        if several {
            datagram::set_packet_info(&fd, matches!(at, SockAddr::V6(_)))?;
        }
        // UDP_GRO; kernels before 5.0 deliver each datagram separately.
        let _ = datagram::set_join(&fd);
        let endpoint = Rc::new(Endpoint {
            main: main.clone(),
            table: table.clone(),
            listen,
            fd: Fd::new(fd),
            local: (!several).then_some(at),
            sessions: RefCell::default(),
            warned_ms: Cell::new(0),
            leaving: Cell::new(false),
        });
        // An earlier worker may have made the socket deaf when its address was removed. Undone at
        // once, so that datagrams of new clients are queued in the socket when the server reports
        // readiness.
        endpoint.hear();
        let own = endpoint.clone();
        Ok((
            endpoint,
            event::spawn(async move {
                if !alone.is_closed() {
                    alone.closed().await;
                    // A slow earlier worker may have done so in the meantime.
                    own.hear();
                }
                own.receive().await;
            }),
        ))
    }

    fn hear(&self) {
        if let Err(e) = datagram::hear(self.fd.fd()) {
            self.complain("connect() failed", &e);
        }
    }

    /// Stops using the socket after reading its queue: sessions continue over their clients' own
    /// sockets. The receiving task must have ended.
    pub fn leave(self: &Rc<Endpoint>) {
        self.leaving.set(true);
        let clients: Vec<_> = self.sessions.borrow().iter().map(|known| known.0.clone()).collect();
        let mut failed = None;
        for client in &clients {
            failed = self.keep(client).err().or(failed);
        }
        let log = base::log::default();
        let at = &self.main.listens[self.listen].spec.addr;
        match failed {
            Some(e) => {
                let e = os_error(&e);
                let m = format_args!("sessions over UDP at {at} end with this worker: {e}");
                base::log!(log, Level::Notice, None, "{m}");
            }
            None if !clients.is_empty() => {
                let m = format_args!("{} sessions over UDP at {at} go on here", clients.len());
                base::log!(log, Level::Notice, None, "{m}");
            }
            None => {}
        }
        let removals = self.main.seat.get().map(|seat| &seat.removals);
        // The address was removed, so nobody reads new clients' datagrams. All sessions have their
        // own sockets now.
        if removals.is_some_and(|removals| removals.has(at))
            && let Err(e) = datagram::deafen(self.fd.fd())
        {
            self.complain("connect() failed", &e);
        }
        let mut came = Vec::new();
        while receive_batch(self.fd.fd(), &mut came).is_ok() && !came.is_empty() {
            self.deliver_all(&mut came);
        }
    }

    fn keep(self: &Rc<Endpoint>, client: &Rc<Client>) -> io::Result<()> {
        match self.local_of(client.key()) {
            Some(local) => {
                let endpoint = Rc::downgrade(self);
                let own = OwnSocket::start(client.key(), &local, move |key, datagrams| {
                    let Some(endpoint) = endpoint.upgrade() else { return false };
                    datagrams.each().for_each(|datagram| endpoint.deliver_one(key, datagram));
                    true
                })?;
                client.keep(own);
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn receive(self: Rc<Endpoint>) {
        let mut came = Vec::new();
        loop {
            for _ in 0..ROUNDS {
                match receive_batch(self.fd.fd(), &mut came) {
                    Ok(may_have_more) => {
                        self.deliver_all(&mut came);
                        if !may_have_more && self.fd.readable(Deadline::NEVER).await.is_err() {
                            return;
                        }
                    }
                    // An ICMP error: some client is gone. The socket is fine.
                    Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(e) => {
                        self.complain("recvmsg() failed", &e);
                        event::sleep(100).await;
                    }
                }
            }
            event::task::yield_now().await;
        }
    }

    /// Delivers a datagram to its session and runs its turn; a client's first datagram starts a
    /// session.
    fn deliver_one(self: &Rc<Endpoint>, key: &Key, datagram: Bytes) {
        if let Some(client) = self.place(key, datagram) {
            self.table.turn(&client, false);
        }
    }

    /// Delivers many datagrams in order; each session gets one turn after all of its datagrams.
    fn deliver_all(self: &Rc<Endpoint>, came: &mut Vec<(Key, Datagrams)>) {
        let mut asked = Vec::new();
        for (key, datagrams) in came.drain(..) {
            for one in datagrams.each() {
                let Some(client) = self.place(&key, one) else { continue };
                // A full or closed session gets its turn first, because the rest may start another
                // session.
                if client.has_many() || !client.is_open() {
                    self.table.turn(&client, false);
                } else if !client.is_queued.replace(true) {
                    asked.push(client);
                }
            }
        }
        for client in asked {
            client.is_queued.set(false);
            self.table.turn(&client, false);
        }
    }

    /// Queues a datagram for its session; starts a session if there is none.
    fn place(self: &Rc<Endpoint>, key: &Key, datagram: Bytes) -> Option<Rc<Client>> {
        let known = self.sessions.borrow().get(key).map(|known| known.0.clone());
        match &known {
            Some(client) => client.deliver(datagram),
            None => self.begin(key, datagram),
        }
        known
    }

    fn begin(self: &Rc<Endpoint>, key: &Key, first: Bytes) {
        if !self.make_room() {
            return;
        }
        let main = &self.main;
        let address: Rc<Address> = main.listens[self.listen].address(|| self.local_of(key));
        let client = Rc::new(Client::new(self.clone(), *key));
        self.sessions.borrow_mut().insert(Known(client.clone()));
        main.udp_sessions.begin(&client);
        if self.leaving.get() {
            // If that fails, the session ends after its answers.
            let _ = self.keep(&client);
        }
        let mut s = StreamSession::new(main, address, key.peer(), None, None);
        s.received.set(first.len() as u64);
        s.preread.extend_from_slice(&first);
        s.set_datagrams(Held::new(client));
        main.stats.add(Field::Accepted, 1);
        main.stats.add(Field::Handled, 1);
        accept::begin_datagrams(s);
    }

    /// All UDP sessions of the worker.
    fn sessions(&self) -> &Rc<Sessions> {
        &self.main.udp_sessions
    }

    /// Makes room for a session; false if evicted sessions have not ended yet.
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
    fn complain(&self, what: &str, e: &io::Error) {
        let (log, e) = (base::log::default(), os_error(e));
        base::log!(log, Level::Alert, None, "{what} {e}");
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

impl Home for Endpoint {
    fn local_of(&self, key: &Key) -> Option<SockAddr> {
        match (&self.local, key.local) {
            (Some(local), _) => Some(local.clone()),
            (None, Some(ip)) => Some(SockAddr::ip(ip, self.port())),
            (None, None) => None,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.fd()
    }

    fn forget(&self, key: &Key) {
        let known = self.sessions.borrow_mut().take(key);
        drop(known);
    }

    fn deliver(self: Rc<Self>, key: &Key, datagram: Bytes) {
        self.deliver_one(key, datagram);
    }

    fn ended(&self, client: &Client) {
        self.sessions().end(client);
        self.table.forget_arrivals(client);
    }

    fn adopt(&self, client: &Rc<Client>, relay: Relay) {
        self.table.adopt(client, relay);
    }

    fn member(&self, fd: OwnedFd, place: u32) -> Member {
        self.table.member(fd, place)
    }

    fn queue(&self, client: &Rc<Client>) {
        self.table.queue(client);
    }

    fn wake_at_arrival(&self, client: &Rc<Client>, waker: &Waker) {
        self.table.wake_at_arrival(client, waker);
    }

    fn answer(&self, client: &Rc<Client>, bytes: &[u8], segment: usize) {
        self.table.answer(client, bytes, segment);
    }

    fn is_held_up(&self) -> bool {
        self.table.has_full_outbox()
    }
}
