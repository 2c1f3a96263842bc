//! A socket that receives the datagrams of all clients, and the sessions that they belong to.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use base::log::{Level, os_error};
use bytes::Bytes;
use engine::stats::Field;
use event::{Deadline, Fd, Gate, TaskId};
use os::SockAddr;
use os::datagram;

use super::sessions::Sessions;
use super::table::Table;
use super::{Client, Datagrams, Held, Key, receive_batch};
use crate::accept;
use crate::server::{Address, StreamMain};
use crate::session::StreamSession;

/// The receives of many that may follow each other before others have their turn.
const ROUNDS: usize = 2;

/// A socket of clients.
pub(crate) struct Endpoint {
    main: Rc<StreamMain>,
    table: Rc<Table>,
    listen: usize,
    fd: Fd,
    /// The local address of a socket that has one alone.
    local: Option<SockAddr>,
    sessions: RefCell<HashSet<Known>>,
    /// The time of the last warning of too many sessions.
    warned_ms: Cell<u64>,
    /// Others receive from the socket now.
    leaving: Cell<bool>,
}

/// A client with a session, found by its key: a pointer in the table, not the key once more.
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
    /// Begins to receive, once `alone` is closed.
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
        // Kernels before 5.0 give each by itself.
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
        // A worker of before may have left it when its address was removed. At once, so that new
        // clients are not refused any more when the server is ready: they wait in the socket.
        endpoint.hear();
        let own = endpoint.clone();
        Ok((
            endpoint,
            event::spawn(async move {
                if !alone.is_closed() {
                    alone.closed().await;
                    // One that was slow to leave may have done so since.
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

    /// Leaves the socket to others, after what waits there: sessions go on with sockets of their
    /// clients' own. The task that receives has ended.
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
        // Nobody receives what new clients send. Each session has a socket of its own by now.
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
            Some(local) => client.keep(self, &local),
            None => Ok(()),
        }
    }

    /// The local address of a client's datagrams.
    pub fn local_of(&self, key: &Key) -> Option<SockAddr> {
        match (&self.local, key.local) {
            (Some(local), _) => Some(local.clone()),
            (None, Some(ip)) => Some(SockAddr::ip(ip, self.port())),
            (None, None) => None,
        }
    }

    /// The socket, for sending.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.fd()
    }

    /// The client's next datagram begins another session.
    pub fn forget(&self, key: &Key) {
        let known = self.sessions.borrow_mut().take(key);
        drop(known);
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
                    // A client that is away is no fault of the socket's.
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

    /// Gives a datagram to its session, which has its turn; the first of a client begins one.
    pub fn deliver(self: &Rc<Endpoint>, key: &Key, datagram: Bytes) {
        if let Some(client) = self.place(key, datagram) {
            self.table.turn(&client, false);
        }
    }

    /// The same for many, in their order: each session has its turn when it has got all of its own.
    fn deliver_all(self: &Rc<Endpoint>, came: &mut Vec<(Key, Datagrams)>) {
        let mut asked = Vec::new();
        for (key, datagrams) in came.drain(..) {
            for one in datagrams.each() {
                let Some(client) = self.place(&key, one) else { continue };
                // One that takes no more has its turn before the session that follows it.
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

    /// Puts a datagram into the inbox of its session, if there is one; else it begins one.
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
        let client = Rc::new(Client::new(self, *key));
        self.sessions.borrow_mut().insert(Known(client.clone()));
        main.udp_sessions.begin(&client);
        if self.leaving.get() {
            // Without a socket of its own, it is over with its answers.
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

    /// The relays of the worker.
    pub fn table(&self) -> &Rc<Table> {
        &self.table
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
