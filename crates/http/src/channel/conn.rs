//! A client's connection as requests see it: its peer, its age, its counters. Requests and their
//! subrequests share it, whatever the protocol.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::rc::Rc;

use base::log::{Context, Fields, Level, Log};
use common_modules::moved;
use common_modules::passing::Passed;
use common_modules::ssl::Established;
use engine::life::Main;
use engine::overload;
use event::{Sock, Socketless};
use http_wire::h2::unread::Sent;
use net::Transport;
use os::SockAddr;
use proto::handover::Client;

use crate::server::{Address, HttpMain, Server};

/// The time that a connection has for its first request where there is no room for it.
const SURPLUS_MS: u64 = 1_000;

/// A client's connection.
pub struct Conn {
    carrier: Carrier,
    /// Its number in logs, unique among all workers.
    pub number: u64,
    /// The client's address.
    pub peer: SockAddr,
    /// The listening address that the client connected to.
    pub listen: Rc<Address>,
    /// Requests so far.
    pub requests: Cell<u64>,
    /// The time of its acceptance, on the monotonic clock.
    pub start_ms: u64,
    /// Every line about it is logged.
    pub(crate) debug: Cell<bool>,
    /// Whether TCP_NODELAY is on; inherited from the listening socket.
    nodelay: Cell<bool>,
    /// The bytes that the socket holds unsent are limited.
    unsent_limited: Cell<bool>,
    local: OnceCell<Option<SockAddr>>,
    pub(crate) proxy: OnceCell<Box<proto::proxy_protocol::Header>>,
    pub(crate) tls: OnceCell<Rc<Secured>>,
    /// It ends with a reset.
    pub(crate) reset_at_end: Cell<bool>,
    /// The owner of connections to servers that serve this client alone (`ntlm`).
    pub owner: OnceCell<Rc<upstream::pool::Owner>>,
    /// Another process has it now: it closes here without a word to the client.
    pub(crate) has_moved: Cell<bool>,
    /// The run of the server in which another process has had the connection before; 0 if none has.
    pub(crate) moved_in: u64,
    /// No other process takes it.
    pub(crate) stays: Cell<bool>,
    /// Another engine has accepted it, whose limits hold it, too.
    pub(crate) is_passed: bool,
    /// There was no room for it when it was accepted: see [`engine::overload`].
    pub(crate) is_surplus: Cell<bool>,
}

/// The transport of the connection.
enum Carrier {
    /// A byte stream.
    Stream(Transport),
    /// A connection of QUIC, with its place among the worker's connections.
    Quic(Rc<Socketless>),
    /// None: requests of the server's own, to which nobody waits for an answer.
    Nobody,
}

/// TLS with the client.
pub(crate) struct Secured {
    pub session: Established,
    /// The server that the client named in its hello.
    pub server: Rc<Server>,
}

impl Conn {
    /// A connection that was just accepted on socket `listen` of the configuration.
    pub(crate) fn new(main: &HttpMain, listen: usize, sock: Sock, peer: SockAddr) -> Conn {
        let mut known = None;
        let address = main.listens[listen].address(|| {
            known = os::socket::local_addr(sock.fd()).ok();
            known.clone()
        });
        let traced = main.trace.get();
        let address = traced.map_or(address, |trace| {
            known = Some(trace.local.clone());
            main.listens[listen].address(|| known.clone())
        });
        let awaits_tls = address.ssl && traced.is_none();
        let sock = if awaits_tls { Transport::awaiting_tls(sock) } else { sock.into() };
        let carrier = Carrier::Stream(sock);
        let c = Conn::of(main, address, carrier, peer, main.stats.next_connection());
        if !c.listen.proxy_protocol {
            c.look_for_room();
        }
        if let Some(a) = known {
            let _ = c.local.set(Some(a));
        }
        c
    }

    /// A connection that another engine passes to socket `listen`.
    pub(crate) fn passed(main: &HttpMain, listen: usize, passed: Passed) -> Conn {
        let Passed { sock, peer, local, number, start_ms, proxy, tls, .. } = passed;
        let address = main.listens[listen].address(|| Some(local.clone()));
        let sock = if address.ssl { sock.expect_tls() } else { sock };
        let mut c = Conn::of(main, address, Carrier::Stream(sock), peer, number);
        c.start_ms = start_ms;
        c.is_passed = true;
        let _ = c.local.set(Some(local));
        if let Some(header) = proxy {
            let _ = c.proxy.set(header);
        }
        if let Some(session) = tls {
            let server = c.listen.default.clone();
            let _ = c.tls.set(Rc::new(Secured { session: *session, server }));
        }
        c
    }

    /// A connection that another process has accepted and served so far. `local` is our own end.
    pub(crate) fn resumed(
        main: &HttpMain,
        listen: Rc<Address>,
        sock: Transport,
        (peer, local): (SockAddr, SockAddr),
        client: &Client<'_>,
    ) -> Conn {
        let mut c = Conn::of(main, listen, Carrier::Stream(sock), peer, client.number);
        c.moved_in = main.stats.run();
        c.start_ms = c.start_ms.saturating_sub(client.age_ms);
        c.requests.set(client.requests);
        let _ = c.local.set(Some(local));
        if let Some(header) = client.proxy.as_ref().and_then(moved::header) {
            let _ = c.proxy.set(header);
        }
        if let (Some(ip), Some(sock)) = (c.client_ip(), c.stream()) {
            sock.set_client(ip);
        }
        c
    }

    /// A connection of a client that begins with QUIC, to the local address given.
    pub(crate) fn over_quic(
        main: &HttpMain,
        listen: usize,
        peer: SockAddr,
        local: Option<SockAddr>,
    ) -> Conn {
        let address = main.listens[listen].address(|| local.clone());
        let local = local.or_else(|| Some(address.addr.clone()));
        let carrier = Carrier::Quic(Rc::new(Socketless::new(peer.ip_addr())));
        let c = Conn::of(main, address, carrier, peer, main.stats.next_connection());
        let _ = c.local.set(local);
        c.look_for_room();
        c
    }

    /// No connection, for requests of the server's own in a server that answers on `address`.
    pub(crate) fn nobody(main: &HttpMain, address: Rc<Address>) -> Conn {
        let peer = SockAddr::ip(IpAddr::from([127, 0, 0, 1]), 0);
        Conn::of(main, address, Carrier::Nobody, peer, main.stats.next_connection())
    }

    /// Whether there is a client.
    pub(crate) fn has_client(&self) -> bool {
        !matches!(self.carrier, Carrier::Nobody)
    }

    fn of(
        main: &HttpMain,
        listen: Rc<Address>,
        carrier: Carrier,
        peer: SockAddr,
        number: u64,
    ) -> Conn {
        Conn {
            debug: Cell::new(main.debugs(&peer)),
            carrier,
            number,
            peer,
            listen,
            requests: Cell::new(0),
            start_ms: base::time::now_ms(),
            nodelay: Cell::new(true),
            unsent_limited: Cell::new(false),
            local: OnceCell::new(),
            proxy: OnceCell::new(),
            tls: OnceCell::new(),
            reset_at_end: Cell::new(false),
            has_moved: Cell::new(false),
            moved_in: 0,
            stays: Cell::new(false),
            is_passed: false,
            owner: OnceCell::new(),
            is_surplus: Cell::new(false),
        }
    }

    /// The server that holds until a request names another: the one that the client's hello named,
    /// else the default of the address.
    pub(crate) fn server(&self) -> &Rc<Server> {
        self.tls.get().map_or(&self.listen.default, |tls| &tls.server)
    }

    /// Whether the first bytes say which protocol it is: later ones do not, and TLS has told.
    pub(crate) fn may_be_http2(&self) -> bool {
        !self.listen.ssl && self.requests.get() == 0 && self.listen.default.http2.enabled
    }

    /// Asks whether there is room for it, once its client is known.
    pub(crate) fn look_for_room(&self) {
        let is_surplus = match &self.carrier {
            Carrier::Stream(sock) => {
                overload::is_surplus(self.client_ip(), |share| sock.standing(share))
            }
            Carrier::Quic(place) => {
                overload::is_surplus(self.client_ip(), |share| place.standing(share))
            }
            Carrier::Nobody => false,
        };
        self.is_surplus.set(is_surplus);
    }

    /// Whether the worker displaced this connection. `log` gets the line, one a minute per client.
    #[cold]
    pub fn is_displaced(&self, log: impl FnOnce(&str)) -> bool {
        let is_displaced = match &self.carrier {
            Carrier::Stream(sock) => sock.is_displaced(),
            Carrier::Quic(place) => place.is_displaced(),
            Carrier::Nobody => false,
        };
        if is_displaced && overload::is_told(self.client_ip()) {
            log("closing a connection to make room for others");
        }
        is_displaced
    }

    /// Whether the worker wants the connection back after a response.
    #[inline]
    pub(crate) fn is_unwanted(&self) -> bool {
        self.is_surplus.get() || overload::ends(self.start_ms)
    }

    /// The time for a head, milliseconds: short where there is no room, as an answer that refuses
    /// is all that comes of it.
    pub(crate) fn head_timeout(&self) -> u64 {
        let ms = self.server().core.client_header_timeout;
        if self.is_surplus.get() { ms.min(SURPLUS_MS) } else { ms }
    }

    /// The client's address, behind a balancer the one that it tells. None for unix sockets.
    pub(crate) fn client_ip(&self) -> Option<IpAddr> {
        match self.proxy_header() {
            Some(header) => header.source.ip,
            None => self.peer.ip_addr(),
        }
    }

    /// The local address; the kernel is asked once.
    pub fn local(&self) -> Option<&SockAddr> {
        self.local.get_or_init(|| self.stream()?.local_addr().ok()).as_ref()
    }

    /// The byte stream to the client, for a protocol that has taken HTTP's place.
    ///
    /// # Panics
    /// A connection over QUIC has none.
    pub fn transport(&self) -> &Transport {
        self.sock()
    }

    /// The byte stream from and to the client, for the protocol that is spoken on it.
    ///
    /// # Panics
    /// A connection over QUIC has none, and is served by HTTP/3 alone.
    #[inline]
    pub(crate) fn sock(&self) -> &Transport {
        self.stream().expect("a connection over QUIC has no byte stream")
    }

    #[inline]
    fn stream(&self) -> Option<&Transport> {
        match &self.carrier {
            Carrier::Stream(sock) => Some(sock),
            Carrier::Quic(_) | Carrier::Nobody => None,
        }
    }

    /// The place of a connection over QUIC among the worker's connections.
    pub(crate) fn place(&self) -> Option<&Rc<Socketless>> {
        match &self.carrier {
            Carrier::Stream(_) | Carrier::Nobody => None,
            Carrier::Quic(place) => Some(place),
        }
    }

    /// The same connection over QUIC, whose client has another address now: for later requests.
    ///
    /// # Panics
    /// It is one over QUIC.
    pub(crate) fn moved(&self, main: &HttpMain, peer: SockAddr) -> Conn {
        let place = self.place().expect("a connection over QUIC has its place").clone();
        if let Some(ip) = peer.ip_addr() {
            place.set_client(ip);
        }
        let Conn { number, listen, start_ms, local, tls, requests, is_surplus, .. } = self;
        Conn {
            debug: Cell::new(main.debugs(&peer)),
            carrier: Carrier::Quic(place),
            number: *number,
            peer,
            listen: listen.clone(),
            requests: requests.clone(),
            start_ms: *start_ms,
            nodelay: Cell::new(true),
            unsent_limited: Cell::new(false),
            local: local.clone(),
            proxy: OnceCell::new(),
            tls: tls.clone(),
            reset_at_end: Cell::new(false),
            has_moved: Cell::new(false),
            moved_in: 0,
            stays: Cell::new(false),
            is_passed: self.is_passed,
            owner: OnceCell::new(),
            is_surplus: is_surplus.clone(),
        }
    }

    /// The local port; 0 for unix sockets.
    pub fn local_port(&self) -> u16 {
        match self.listen.addr.port() {
            0 => self.local().map_or(0, SockAddr::port),
            p => p,
        }
    }

    /// The kernel's figures about the connection.
    ///
    /// # Errors
    /// The system's; a socket that is not TCP's has none.
    pub(crate) fn tcp_info(&self) -> std::io::Result<os::socket::TcpInfo> {
        match self.stream() {
            Some(sock) => sock.tcp_info(),
            None => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// How far the connection's bytes have come, where the kernel tells.
    pub(crate) fn tcp_sent(&self) -> Option<Sent> {
        if self.listen.addr.is_unix() {
            return None;
        }
        let os::socket::TcpSent { written, acked } = self.stream()?.tcp_sent().ok()?;
        Some(Sent { written, acked })
    }

    /// Limits the bytes that the socket holds unsent, from now on.
    pub(crate) fn limit_unsent(&self, bytes: i32) {
        if !self.unsent_limited.replace(true) && !self.listen.addr.is_unix() {
            let _ = self.stream().map(|sock| sock.set_notsent_lowat(bytes));
        }
    }

    /// Sets TCP_NODELAY as the current location has it.
    pub(crate) fn set_nodelay(&self, on: bool) {
        if self.nodelay.replace(on) != on && !self.listen.addr.is_unix() {
            let _ = self.stream().map(|sock| sock.set_nodelay(on));
        }
    }

    /// The PROXY protocol header, sent by a balancer for the connection that it accepted.
    pub fn proxy_header(&self) -> Option<&proto::proxy_protocol::Header> {
        self.proxy.get().map(|header| &**header)
    }

    pub(crate) fn log_enabled(&self, log: &Log, level: Level) -> bool {
        self.debug.get() || log.enabled(level)
    }

    /// Writes a line about the connection, to the log of its server.
    #[cold]
    pub(crate) fn log(&self, level: Level, m: std::fmt::Arguments<'_>) {
        let log = &self.server().root.core.error_log;
        if self.log_enabled(log, level) {
            self.log_write(log, level, m, self);
        }
    }

    /// Writes a line about a request, or about the connection itself.
    pub(crate) fn log_write(
        &self,
        log: &Log,
        level: Level,
        m: std::fmt::Arguments<'_>,
        about: &dyn Context,
    ) {
        if self.debug.get() {
            log.debugging().write_about(level, Some(self.number), m, about);
        } else {
            log.write_about(level, Some(self.number), m, about);
        }
    }
}

/// The connection in log lines, before there is a request.
impl Context for Conn {
    fn tell(&self, fields: &mut Fields<'_>) {
        fields.plain("client", format_args!("{}", self.peer.host()));
        fields.plain("server", format_args!("{}", self.listen.addr));
    }
}
