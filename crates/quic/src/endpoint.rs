//! A UDP socket and its connections: dispatches each datagram to its connection, creates
//! connections on the virtual server that the ClientHello names, and sends the datagrams of all
//! connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use base::log::{Level, os_error};
use bytes::BytesMut;
use event::task::{Unborn, caught};
use event::{Deadline, Fd, Gate};
use net::listeners::{Removals, State};
use net::quic_id;
use net::quic_relay::{Owner, Passed, Relay, Relayed};
use os::SockAddr;
use os::datagram::{self, Batch};
use quinn_proto::{
    ConnectionEvent, ConnectionHandle, ConnectionId, ConnectionIdGenerator, DatagramEvent,
    EcnCodepoint, EndpointConfig, EndpointEvent, Incoming, ServerConfig, Transmit,
};

use crate::clock;
use crate::connection::{Connection, Session};
use crate::ids::{Ids, id_of};
use crate::initial::{Greeting, Hello, Known, first_id, has_retry_token, invalid_token};
use crate::outbox::Outbox;
use crate::settings::Choice;
use crate::timers::Timers;

/// The maximum size of the datagrams that the kernel joins by UDP_GRO, in bytes.
pub(crate) const DATAGRAM_MAX: usize = 65_536;

/// The maximum number of clients whose ClientHello is incomplete or whose server is not chosen yet.
const GREETINGS_MAX: usize = 1024;

/// The maximum number of buffered bytes of one such client, and of all of them.
const GREETING_MAX: u64 = 16 << 10;
const GREETINGS_BYTES_MAX: u64 = 4 << 20;

/// The timeout for a complete ClientHello, in milliseconds.
const GREETING_MS: u64 = 10_000;

/// The addresses of a client that starts a connection.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The client's address.
    pub remote: SocketAddr,
    /// The local address that it sends to, if the socket is bound to a wildcard.
    pub local: Option<IpAddr>,
}

/// Resolves to a client's virtual server and the constructor of the connection's protocol.
pub type Chosen = Pin<Box<dyn Future<Output = (Choice, Begin)>>>;

/// Creates the protocol session of a new connection.
pub type Begin = Box<dyn FnOnce(&Rc<Connection>) -> Box<dyn Session>>;

/// What the endpoint needs of the HTTP engine.
pub trait Server {
    /// Chooses the virtual server for a client by its ClientHello.
    fn choose(&self, hello: Hello<'_>, client: Client) -> Chosen;

    /// Whether new clients have to validate their address by a Retry first, given the number of
    /// handshakes in progress.
    fn asks_proof(&self, under_way: usize) -> bool;

    /// Whether another connection may be accepted, given that `waiting` clients have no server
    /// chosen yet.
    fn has_room(&self, waiting: usize) -> bool;
}

/// What a socket shares with other processes.
pub struct Place {
    /// The channel to other processes that have connections on this address.
    pub relay: Rc<Relay>,
    /// The listening address of the socket.
    pub listener: SockAddr,
    /// Closed once nobody else reads the socket.
    pub alone: Gate,
    /// Whether a newer process listens on this address.
    pub removals: Removals,
}

/// A client whose virtual server is not chosen yet.
struct Waiting {
    greeting: Greeting,
    incoming: Option<Incoming>,
    client: Client,
    since_ms: u64,
}

/// A UDP socket with its connections; see the module.
pub struct Endpoint {
    inner: RefCell<quinn_proto::Endpoint>,
    fd: Fd,
    at: Place,
    /// Another process reads the socket now and forwards the datagrams of this process's
    /// connections.
    is_left: Cell<bool>,
    /// No process replaces this one: it keeps reading for its connections but refuses new ones.
    is_last: Cell<bool>,
    server: Box<dyn Server>,
    token_key: Arc<dyn quinn_proto::crypto::HandshakeTokenKey>,
    /// Indexed by quinn-proto's connection handle.
    connections: RefCell<Vec<Option<Rc<Connection>>>>,
    waiting: RefCell<HashMap<ConnectionId, Waiting, foldhash::fast::RandomState>>,
    /// Connections that have work in the next turn.
    listed: RefCell<Vec<Rc<Connection>>>,
    timers: RefCell<Timers>,
    outbox: RefCell<Outbox>,
    /// Wakes the endpoint's task while it waits.
    waker: Cell<Option<Waker>>,
    /// A buffer for datagrams outside of any connection, such as Retry and Version Negotiation.
    scratch: RefCell<Vec<u8>>,
    /// The number of connections whose handshake is in progress.
    shaking: Cell<usize>,
}

impl Endpoint {
    /// Starts the task that serves a socket; its socket options must be set already. `secret` keys
    /// the tokens and stateless resets; all processes of a server share it, so that each accepts
    /// the others' tokens.
    pub fn start(
        fd: OwnedFd,
        place: Place,
        secret: &[u8],
        server: Box<dyn Server>,
    ) -> Rc<Endpoint> {
        let (key, own) = ((**place.relay.key()).clone(), place.relay.place());
        let ids = move || -> Box<dyn ConnectionIdGenerator> {
            Box::new(Ids { key: key.clone(), place: own })
        };
        let mut config = EndpointConfig::new(tls::quic::reset_key(secret));
        config.supported_versions(vec![tls::quic::VERSION]).cid_generator(ids);
        let token_key = tls::quic::token_key(secret);
        let nobody = tls::quic::refusal(80, "no server was chosen".to_owned());
        let mut first = ServerConfig::new(nobody, token_key.clone());
        first
            .max_incoming(GREETINGS_MAX)
            .incoming_buffer_size(GREETING_MAX)
            .incoming_buffer_size_total(GREETINGS_BYTES_MAX);
        let inner = quinn_proto::Endpoint::new(Arc::new(config), Some(Arc::new(first)), true, None);
        let endpoint = Rc::new(Endpoint {
            inner: RefCell::new(inner),
            fd: Fd::new(fd),
            at: place,
            is_left: Cell::new(false),
            is_last: Cell::new(false),
            server,
            token_key,
            connections: RefCell::default(),
            waiting: RefCell::default(),
            listed: RefCell::default(),
            timers: RefCell::default(),
            outbox: RefCell::default(),
            waker: Cell::new(None),
            scratch: RefCell::default(),
            shaking: Cell::new(0),
        });
        let own = endpoint.clone();
        event::spawn(async move { own.run().await });
        endpoint
    }

    async fn run(self: Rc<Endpoint>) {
        let mut batch = match Batch::new(DATAGRAM_MAX) {
            Ok(batch) => batch,
            Err(e) => return fail("memory for datagrams", &e),
        };
        if !self.at.alone.is_closed() {
            self.at.alone.closed().await;
        }
        // A `stream` server that had the address before may have left the socket connected, and so
        // deaf to clients.
        if let Err(e) = datagram::hear(self.fd.fd()) {
            fail("connect() failed", &e);
        }
        loop {
            let received = match self.is_left.get() {
                false => batch.recv(self.fd.fd()),
                true => Err(io::ErrorKind::WouldBlock.into()),
            };
            let has_more = match received {
                Ok(n) => {
                    self.take_all(&batch);
                    // A full batch: more may be queued in the socket.
                    n == datagram::RECV_MAX
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => false,
                // An ICMP error: some client is gone. The socket is fine.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => true,
                Err(e) => {
                    fail("recvmsg() failed", &e);
                    event::sleep(100).await;
                    true
                }
            };
            self.look_at_time();
            let has_more = self.turn().await || has_more;
            if has_more {
                event::task::next_turn().await;
            } else {
                self.wait().await;
            }
        }
    }

    /// Waits until a datagram arrives, a connection is listed, or a timer is due.
    async fn wait(&self) {
        let next = self.timers.borrow().next();
        let mut until = pin!(next.map(|at| event::sleep_until(clock::deadline(at))));
        let mut readable = pin!(self.fd.readable(Deadline::NEVER));
        poll_fn(|cx| {
            if !self.listed.borrow().is_empty() || !self.outbox.borrow().is_empty() {
                return Poll::Ready(());
            }
            let is_due = until.as_mut().as_pin_mut().is_some_and(|sleep| sleep.poll(cx).is_ready());
            let reads = !self.is_left.get();
            if is_due || reads && readable.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            self.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        self.waker.set(None);
    }

    /// Adds a connection to those that have work in the next turn, and wakes the task.
    pub(crate) fn list(&self, connection: Rc<Connection>) {
        self.listed.borrow_mut().push(connection);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Runs each listed connection once, then sends their datagrams together. Returns whether any
    /// of them has more work.
    async fn turn(&self) -> bool {
        let mut has_more = false;
        let listed = self.listed.take();
        for connection in listed {
            if self.guarded(&connection, |c| c.turn(self, &self.outbox)) {
                has_more = true;
                connection.touch();
            }
            if self.outbox.borrow().is_full() {
                self.flush().await;
            }
        }
        self.flush().await;
        has_more
    }

    async fn flush(&self) {
        loop {
            let sent = self.outbox.borrow_mut().flush(self.fd.fd());
            // `WouldBlock` is the only error: the socket's send buffer is full.
            if sent.is_ok() || self.fd.writable(Deadline::NEVER).await.is_err() {
                return;
            }
        }
    }

    /// Called on graceful shutdown. If another process takes over the socket, stops reading it; the
    /// connections continue with the datagrams that process forwards. If none does, keeps reading
    /// for the connections and refuses new clients.
    pub fn leave(&self) {
        let is_last = self.at.removals.get(&self.at.listener) == State::Ended;
        self.is_last.set(is_last);
        self.is_left.set(!is_last);
        self.touch_all();
        self.wake();
    }

    /// The listening address of the socket.
    pub fn listener(&self) -> &SockAddr {
        &self.at.listener
    }

    /// Handles datagrams of one of this process's connections, forwarded by the process that reads
    /// the socket now.
    pub fn relayed(self: &Rc<Endpoint>, message: &Relayed<'_>) {
        let Some(remote) = message.from.to_std() else { return };
        let client = Client { remote, local: message.to };
        let (now, ecn) = (clock::now(), EcnCodepoint::from_bits(message.ecn));
        for one in message.bytes.chunks(usize::from(message.segment.max(1))) {
            self.datagram(now, client, ecn, one);
        }
        self.wake();
    }

    /// Forwards a datagram to the older process that owns its connection, or drops it if a process
    /// of this generation does. Returns false if the datagram is for this process, or for no live
    /// process.
    fn pass_on(&self, from: &SockAddr, to: Option<IpAddr>, ecn: u8, bytes: &[u8]) -> bool {
        let relay = &self.at.relay;
        let Some(read) = id_of(bytes).and_then(|id| quic_id::read(relay.key(), id)) else {
            return false;
        };
        if !read.is_genuine {
            return false;
        }
        match relay.owner(read.place) {
            Owner::Own | Owner::None => false,
            Owner::Other => true,
            Owner::Elder => {
                let segment = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
                let (from, listener) = (from.clone(), self.at.listener.clone());
                let message = Relayed { from, listener, to, ecn, segment, bytes };
                relay.pass_on(read.place, &message) != Passed::Ended
            }
        }
    }

    fn take_all(self: &Rc<Endpoint>, batch: &Batch) {
        let now = clock::now();
        for (received, bytes) in batch.iter() {
            let Some(from) = &received.from else { continue };
            let Some(remote) = from.to_std() else { continue };
            let client = Client { remote, local: received.to };
            let ecn = EcnCodepoint::from_bits(received.ecn);
            for one in bytes.chunks(received.segment.max(1)) {
                if !self.pass_on(from, received.to, received.ecn, one) {
                    self.datagram(now, client, ecn, one);
                }
            }
        }
    }

    /// Handles one datagram. A panic costs only this datagram.
    fn datagram(
        self: &Rc<Endpoint>,
        now: Instant,
        client: Client,
        ecn: Option<EcnCodepoint>,
        bytes: &[u8],
    ) {
        let _ = caught(|| self.take_one(now, client, ecn, bytes));
    }

    fn take_one(
        self: &Rc<Endpoint>,
        now: Instant,
        client: Client,
        ecn: Option<EcnCodepoint>,
        bytes: &[u8],
    ) {
        let Client { remote, local } = client;
        let mut answer = self.scratch.take();
        let data = BytesMut::from(bytes);
        let event = self.inner.borrow_mut().handle(now, remote, local, ecn, data, &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connection(handle) {
                    let len = bytes.len();
                    self.guarded(&connection, |c| c.take(self, event, remote, len));
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.meet(incoming, client, bytes, &mut answer);
            }
            Some(DatagramEvent::Response(sent)) => {
                self.outbox.borrow_mut().push(std::mem::take(&mut answer), sent);
            }
            // quinn-proto has buffered it for a pending client, or dropped it.
            None => self.go_on(bytes),
        }
        answer.clear();
        self.scratch.replace(answer);
    }

    fn connection(&self, handle: ConnectionHandle) -> Option<Rc<Connection>> {
        self.connections.borrow().get(handle.0).and_then(Clone::clone)
    }

    /// Handles the first packet of a new connection: refuses it, requests address validation, or
    /// starts reading its ClientHello.
    fn meet(
        self: &Rc<Endpoint>,
        incoming: Incoming,
        client: Client,
        datagram: &[u8],
        answer: &mut Vec<u8>,
    ) {
        let waiting = self.waiting.borrow().len();
        let under_way = waiting + self.shaking.get();
        if self.is_last.get() || !self.server.has_room(waiting) {
            let sent = self.inner.borrow_mut().refuse(incoming, answer);
            self.outbox.borrow_mut().push(std::mem::take(answer), sent);
            return;
        }
        // The client used our Retry token, but it is expired or forged.
        if !incoming.remote_address_validated() && has_retry_token(datagram, client.remote) {
            self.inner.borrow_mut().ignore(incoming);
            if let Some(bytes) = invalid_token(datagram) {
                let Client { remote: destination, local: src_ip } = client;
                let size = bytes.len();
                let sent = Transmit { destination, ecn: None, size, segment_size: None, src_ip };
                self.outbox.borrow_mut().push(bytes, sent);
            }
            return;
        }
        if incoming.may_retry() && self.server.asks_proof(under_way) {
            let retried = self.inner.borrow_mut().retry(incoming, answer);
            match retried {
                Ok(sent) => self.outbox.borrow_mut().push(std::mem::take(answer), sent),
                Err(e) => self.inner.borrow_mut().ignore(e.into_incoming()),
            }
            return;
        }
        let Some(greeting) = Greeting::new(datagram).filter(|_| waiting < GREETINGS_MAX) else {
            self.inner.borrow_mut().ignore(incoming);
            return;
        };
        let (id, since_ms) = (greeting.id(), base::time::now_ms());
        let waiting = Waiting { greeting, incoming: Some(incoming), client, since_ms };
        // An earlier attempt with the same id is given up.
        let before = self.waiting.borrow_mut().insert(id, waiting);
        if let Some(incoming) = before.and_then(|before| before.incoming) {
            self.inner.borrow_mut().ignore(incoming);
        }
        self.look(id, datagram);
    }

    /// Handles a datagram that quinn-proto buffered for a pending connection: it may complete a
    /// ClientHello.
    fn go_on(self: &Rc<Endpoint>, datagram: &[u8]) {
        if !self.waiting.borrow().is_empty()
            && let Some(id) = first_id(datagram)
        {
            self.look(id, datagram);
        }
    }

    /// Adds a datagram to a pending ClientHello. Once it is complete, chooses the server and
    /// accepts the connection, at once if the choice does not have to wait.
    fn look(self: &Rc<Endpoint>, id: ConnectionId, datagram: &[u8]) {
        let mut all = self.waiting.borrow_mut();
        let Some(waiting) = all.get_mut(&id).filter(|w| w.incoming.is_some()) else { return };
        let known = waiting.greeting.look(datagram);
        if known == Known::Part {
            return;
        }
        let Some(incoming) = waiting.incoming.take() else { return };
        if known == Known::Nothing {
            all.remove(&id);
            drop(all);
            self.inner.borrow_mut().ignore(incoming);
            return;
        }
        let client = waiting.client;
        let chosen = waiting.greeting.with_hello(|hello| self.server.choose(hello, client));
        drop(all);
        let own = self.clone();
        let mut accepting = Box::pin(async move {
            let (choice, begin) = chosen.await;
            own.waiting.borrow_mut().remove(&id);
            own.accept(incoming, choice, begin);
        });
        let name = Unborn::new();
        if name.poll(&mut accepting).is_pending() {
            name.spawn(accepting);
        }
    }

    /// Creates the connection with the chosen server's configuration, and its session.
    fn accept(self: &Rc<Endpoint>, incoming: Incoming, choice: Choice, begin: Begin) {
        let Choice { crypto, transport } = choice;
        let mut config = ServerConfig::new(crypto, self.token_key.clone());
        config.transport_config(transport.0);
        let mut answer = Vec::new();
        let (config, now) = (Some(Arc::new(config)), clock::now());
        let is_proved = incoming.remote_address_validated();
        let accepted = self.inner.borrow_mut().accept(incoming, now, &mut answer, config);
        match accepted {
            Ok((handle, inner)) => {
                let connection = Connection::new(self, handle, inner, is_proved);
                connection.begin(begin(&connection));
                self.shaking.set(self.shaking.get() + 1);
                let mut all = self.connections.borrow_mut();
                if all.len() <= handle.0 {
                    all.resize_with(handle.0 + 1, || None);
                }
                all[handle.0] = Some(connection.clone());
                drop(all);
                connection.touch();
            }
            Err(failed) => {
                if let Some(sent) = failed.response {
                    self.outbox.borrow_mut().push(answer, sent);
                    self.wake();
                }
            }
        }
    }

    /// Runs the timers that are due, and drops clients whose ClientHello is not complete in time.
    fn look_at_time(&self) {
        let now = clock::now();
        loop {
            let due = self.timers.borrow_mut().due(now);
            let Some((at, number)) = due else { break };
            if let Some(connection) = self.connection(ConnectionHandle(number)) {
                self.guarded(&connection, |c| c.is_due(at, now));
            }
        }
        let now_ms = base::time::now_ms();
        let is_late = |w: &Waiting| w.incoming.is_some() && now_ms - w.since_ms > GREETING_MS;
        if self.waiting.borrow().values().any(is_late) {
            let late = self.waiting.borrow_mut().extract_if(|_, w| is_late(w)).collect::<Vec<_>>();
            for incoming in late.into_iter().filter_map(|(_, w)| w.incoming) {
                self.inner.borrow_mut().ignore(incoming);
            }
        }
    }

    /// Calls `f` with a connection. A panic in `f` costs that connection alone: the endpoint
    /// forgets it, and the client is informed by stateless resets (RFC 9000 section 10.3).
    fn guarded<T: Default>(
        &self,
        connection: &Rc<Connection>,
        f: impl FnOnce(&Connection) -> T,
    ) -> T {
        caught(|| f(connection)).unwrap_or_else(|| {
            if let Some(handle) = connection.lose(self) {
                let _ = caught(|| self.take(handle, EndpointEvent::drained()));
            }
            T::default()
        })
    }

    /// A handshake has completed or failed.
    pub(crate) fn shaken(&self) {
        self.shaking.set(self.shaking.get().saturating_sub(1));
    }

    /// Schedules all connections, so that each checks whether to close.
    pub fn touch_all(&self) {
        let all: Vec<_> = self.connections.borrow().iter().flatten().cloned().collect();
        all.iter().for_each(|connection| connection.touch());
    }

    /// Sets the timer of a connection; see [`Timers::set`].
    pub(crate) fn plan(
        &self,
        handle: ConnectionHandle,
        at: Option<Instant>,
        planned: &mut Option<Instant>,
    ) {
        self.timers.borrow_mut().set(handle.0, at, planned);
    }

    /// Passes an event of a connection (new or retired ids, or its end) to quinn-proto's endpoint,
    /// and returns the event for the connection that it results in.
    pub(crate) fn take(
        &self,
        handle: ConnectionHandle,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        if event.is_drained()
            && let Some(place) = self.connections.borrow_mut().get_mut(handle.0)
        {
            *place = None;
        }
        self.inner.borrow_mut().handle_event(handle, event)
    }
}

#[cold]
fn fail(what: &str, e: &io::Error) {
    let log = base::log::default();
    let e = os_error(e);
    base::log!(log, Level::Alert, None, "{what} {e}");
}
