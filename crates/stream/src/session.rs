//! A session: a client's TCP connection, or its UDP datagrams, with the data for variables and
//! logs.

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

use base::log::{Context, Fields, Level, Log, debug};
use bytes::Bytes;
use common_modules::connection_vars::Connected;
use common_modules::log::AccessLog;
use common_modules::passing::Passed;
use common_modules::ssl::Established;
use conf::table::Contexts;
use conf::template::{Template, VarId, VarSource};
use engine::life::{Active, Main};
use engine::regex::Captures;
use engine::settings::ConfSet;
use engine::vars::{self, Values, Variables};
use engine::{Client, Metrics, Session, Stats};
use mem::Page;
use net::{Kind, Transport};
use os::SockAddr;
use proto::proxy_protocol::Header;

use crate::counted::Counted;
use crate::module::{Block, Pipeline, ServerInfo};
use crate::proxy::exchanges::Exchanges;
use crate::server::{Address, Server, StreamMain};
use crate::udp::client::{Client as UdpClient, Held};

/// Who serves a session's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ServedBy {
    #[default]
    Session,
    /// The session, which has come from another process.
    Arrived,
    /// Another engine, to which it was handed over.
    Engine,
    /// Another process, which logs it.
    Process,
}

/// A session. Kept small, because there may be many idle ones.
pub struct StreamSession {
    /// The configuration of `stream`.
    pub main: Active<StreamMain>,
    /// The server that the session is in.
    pub server: Rc<Server>,
    /// The listening address that the client connected to.
    pub listen: Rc<Address>,
    /// TCP or UDP.
    pub kind: Kind,
    /// The proxy serves the session.
    pub(crate) is_proxied: bool,
    link: Link,
    /// The peer's address.
    pub peer: SockAddr,
    /// The bytes read in the preread phase.
    pub preread: Page,
    /// The session's number in logs, unique across all workers.
    pub number: u64,
    /// The start time, in milliseconds of the monotonic clock.
    pub start_ms: u64,
    /// The number of bytes received from the client.
    pub received: Cell<u64>,
    /// The number of bytes sent to the client.
    pub sent: Cell<u64>,
    /// The final status; 0 before the end.
    pub status: u16,
    /// The attempts to reach upstream servers.
    pub exchanges: Exchanges,
    /// How many times `pass` has handed the connection over.
    passes: u8,
    /// Who serves the connection.
    pub(crate) served_by: ServedBy,
    local: OnceCell<Box<SockAddr>>,
    rare: Option<Box<Rare>>,
    debug: bool,
    /// The content handler was started.
    pub(crate) is_served: bool,
}

/// The connection to a session's client.
enum Link {
    /// Taken by the content handler, or handed over.
    Taken,
    /// A TCP connection.
    Stream(Transport),
    Datagrams(Held),
}

/// Data that many sessions do not have, stored separately to keep the others small.
#[derive(Default)]
pub(crate) struct Rare {
    values: Values,
    captures: Captures,
    shared: Vec<Rc<dyn Any>>,
    /// The client's address reported by a trusted proxy.
    real_peer: Option<SockAddr>,
    /// The received PROXY protocol header.
    proxy: Option<Box<Header>>,
    /// The parameters of TLS with the client.
    tls: Option<Box<Established>>,
    /// The count in a server's zone as active.
    counted: Option<Counted>,
    /// Logs whose lines must be written before the connection is closed.
    logs: Vec<Rc<AccessLog>>,
}

impl StreamSession {
    /// Creates a session of a client at socket `listen`. `local` is the local address, if known.
    pub(crate) fn new(
        main: &Rc<StreamMain>,
        listen: Rc<Address>,
        peer: SockAddr,
        local: Option<SockAddr>,
        sock: Option<Transport>,
    ) -> StreamSession {
        let number = main.stats.next_connection();
        StreamSession::numbered(main, listen, peer, local, sock, number)
    }

    pub(crate) fn numbered(
        main: &Rc<StreamMain>,
        listen: Rc<Address>,
        peer: SockAddr,
        local: Option<SockAddr>,
        sock: Option<Transport>,
        number: u64,
    ) -> StreamSession {
        let known = OnceCell::new();
        if let Some(local) = local {
            let _ = known.set(Box::new(local));
        }
        StreamSession {
            main: Active::new(main),
            server: listen.default.clone(),
            listen,
            kind: if sock.is_some() { Kind::Stream } else { Kind::Datagram },
            is_proxied: false,
            link: sock.map_or(Link::Taken, Link::Stream),
            debug: main.debugs(&peer),
            peer,
            preread: Page::new(),
            number,
            start_ms: base::time::now_ms(),
            received: Cell::new(0),
            sent: Cell::new(0),
            status: 0,
            exchanges: Exchanges::default(),
            passes: 0,
            served_by: ServedBy::default(),
            local: known,
            rare: None,
            is_served: false,
        }
    }

    /// Creates a session for a connection that was handed over to socket `listen`.
    pub(crate) fn passed(main: &Rc<StreamMain>, listen: usize, passed: Passed) -> StreamSession {
        let Passed { sock, read, peer, local, number, start_ms, proxy, tls, passes, .. } = passed;
        let address = main.listens[listen].address(|| Some(local.clone()));
        let sock = if address.ssl { sock.expect_tls() } else { sock };
        let mut s = StreamSession::numbered(main, address, peer, Some(local), Some(sock), number);
        s.received.set(read.len() as u64);
        (s.preread, s.start_ms) = (read, start_ms);
        s.passes = passes;
        s.set_proxy_header(proxy);
        if let Some(tls) = tls {
            s.set_tls(tls);
        }
        s
    }

    /// A session without a client, for a server's own work; `None` if nothing listens.
    pub fn without_client(main: &Rc<StreamMain>, server: &Rc<Server>) -> Option<StreamSession> {
        let address = main.listens.first()?.address(|| None);
        let peer = SockAddr::ip(IpAddr::from([127, 0, 0, 1]), 0);
        let mut s = StreamSession::new(main, address, peer, None, None);
        s.kind = Kind::Stream;
        s.server.clone_from(server);
        Some(s)
    }

    /// The value of [`Session::shared`], if it was made.
    pub fn shared_if_any<T: 'static>(&self) -> Option<Rc<T>> {
        let shared = &self.rare.as_ref()?.shared;
        shared.iter().find_map(|value| value.clone().downcast().ok())
    }

    /// Hands the connection over, to be served as if it had been accepted at `local`; `None` for
    /// UDP. The session needs no further work and is not logged.
    pub fn hand_over(&mut self, local: SockAddr) -> Option<Passed> {
        let sock = self.take_sock()?;
        self.served_by = ServedBy::Engine;
        let rare = self.rare.as_mut();
        let (proxy, tls, kept) = rare.map_or_else(Default::default, |rare| {
            (rare.proxy.take(), rare.tls.take(), std::mem::take(&mut rare.shared))
        });
        Some(Passed {
            sock,
            read: std::mem::take(&mut self.preread),
            peer: self.peer.clone(),
            local,
            number: self.number,
            start_ms: self.start_ms,
            proxy,
            tls,
            passes: self.passes + 1,
            kept,
        })
    }

    /// The client's TCP connection; `None` while the content handler has it, and for UDP.
    pub fn sock(&self) -> Option<&Transport> {
        match &self.link {
            Link::Stream(sock) => Some(sock),
            Link::Taken | Link::Datagrams(_) => None,
        }
    }

    /// Takes the client's TCP connection.
    pub fn take_sock(&mut self) -> Option<Transport> {
        match std::mem::replace(&mut self.link, Link::Taken) {
            Link::Stream(sock) => Some(sock),
            other => {
                self.link = other;
                None
            }
        }
    }

    /// Puts the client's TCP connection back.
    pub fn put_sock(&mut self, sock: Transport) {
        self.link = Link::Stream(sock);
    }

    /// The client of a UDP session.
    pub fn datagrams(&self) -> Option<&Rc<UdpClient>> {
        match &self.link {
            Link::Datagrams(held) => Some(held.client()),
            Link::Taken | Link::Stream(_) => None,
        }
    }

    /// Makes it a UDP session of this client.
    pub(crate) fn set_datagrams(&mut self, held: Held) {
        self.link = Link::Datagrams(held);
    }

    /// How many times the connection was handed over.
    pub fn passes(&self) -> u8 {
        self.passes
    }

    /// Whether it is a UDP session.
    pub fn is_udp(&self) -> bool {
        self.kind == Kind::Datagram
    }

    /// The server's settings of type `T`.
    ///
    /// # Panics
    /// If no module lists `T` in its `confs`, which is a bug in the module's table that any test
    /// finds.
    pub fn conf<T: 'static>(&self) -> Rc<T> {
        self.server.confs.listed()
    }

    /// The parameters of TLS with the client, if it uses TLS.
    pub fn established(&self) -> Option<&Established> {
        self.rare.as_ref()?.tls.as_deref()
    }

    pub(crate) fn set_tls(&mut self, tls: Box<Established>) {
        self.rare().tls = Some(tls);
    }

    pub(crate) fn set_proxy_header(&mut self, header: Option<Box<Header>>) {
        if header.is_some() {
            self.rare().proxy = header;
        }
    }

    /// The client's address, as reported by a trusted proxy.
    pub(crate) fn real_peer(&self) -> Option<&SockAddr> {
        self.rare.as_ref()?.real_peer.as_ref()
    }

    /// Sets the client's address, as reported by a trusted proxy.
    pub fn set_real_peer(&mut self, peer: SockAddr) {
        self.rare().real_peer = Some(peer);
    }

    /// Counts the session as active in a zone.
    pub(crate) fn set_counted(&mut self, counted: Counted) {
        self.rare().counted = Some(counted);
    }

    pub(crate) fn take_counted(&mut self) -> Option<Counted> {
        self.rare.as_mut()?.counted.take()
    }

    /// Keeps the connection open until the pending lines of `log` are written.
    pub fn settle(&mut self, log: &Rc<AccessLog>) {
        self.rare().logs.push(log.clone());
    }

    /// Takes the logs that must be written before the connection is closed.
    pub(crate) fn take_logs(&mut self) -> Vec<Rc<AccessLog>> {
        self.rare.as_mut().map_or_else(Vec::new, |rare| std::mem::take(&mut rare.logs))
    }

    /// The run of the server in which another process has had the session before; 0 if none has.
    pub(crate) fn moved_in(&self) -> u64 {
        match self.served_by {
            // Into this process, of whose run it is.
            ServedBy::Arrived => self.main.stats.run(),
            ServedBy::Session | ServedBy::Engine | ServedBy::Process => 0,
        }
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// The client's IP address; behind a load balancer, the one in the PROXY protocol header.
    pub(crate) fn client_ip(&self) -> Option<IpAddr> {
        match self.proxy_header() {
            Some(header) => header.source.ip,
            None => self.peer.ip_addr(),
        }
    }

    /// Logs a line without the session's fields.
    pub fn log_bare(&self, level: Level, m: fmt::Arguments<'_>) {
        if self.logs(level) {
            self.log_in_force().write(level, Some(self.number), m);
        }
    }

    fn log_in_force(&self) -> Log {
        let log = &self.server.core.error_log;
        if self.debug { log.debugging() } else { log.clone() }
    }
}

impl VarSource for StreamSession {
    fn value(&mut self, id: VarId) -> Option<Bytes> {
        vars::value(self, id)
    }

    fn write(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        vars::write(self, id, out)
    }
}

impl Client for StreamSession {
    fn address(&self) -> &SockAddr {
        self.rare.as_ref().and_then(|rare| rare.real_peer.as_ref()).unwrap_or(&self.peer)
    }

    fn eval(&mut self, template: &Template) -> Bytes {
        template.eval(self)
    }

    fn logs(&self, level: Level) -> bool {
        self.debug || self.server.core.error_log.enabled(level)
    }

    fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        if self.logs(level) {
            self.log_in_force().write_about(level, Some(self.number), message, self);
        }
    }
}

impl Session for StreamSession {
    const BLOCK: Contexts = Contexts::STREAM;
    const SERVER: Contexts = Contexts::STREAM_SERVER;
    const UPSTREAM: Contexts = Contexts::STREAM_UPSTREAM;
    const HAS_HEADS: bool = false;

    type Block = Block;
    type Place = ServerInfo;
    type Pipeline = Pipeline;
    type Main = StreamMain;

    fn variables(&self) -> &Rc<Variables<StreamSession>> {
        &self.main.vars
    }

    fn values(&self) -> &Values {
        &self.rare.as_deref().unwrap_or(&self.main.nothing).values
    }

    fn values_mut(&mut self) -> &mut Values {
        &mut self.rare().values
    }

    fn captures(&self) -> &Captures {
        &self.rare.as_deref().unwrap_or(&self.main.nothing).captures
    }

    fn captures_mut(&mut self) -> &mut Captures {
        &mut self.rare().captures
    }

    fn confs(&self) -> &ConfSet {
        &self.server.confs
    }

    fn shared<T: Default + 'static>(&mut self) -> Rc<T> {
        engine::shared_in(&mut self.rare().shared)
    }

    fn stats(&self) -> &Stats {
        &self.main.stats
    }

    fn metrics(&self) -> &Rc<Metrics> {
        &self.main.metrics
    }

    fn debug(&self, message: fmt::Arguments<'_>) {
        let log = self.log_in_force();
        if log.debug_enabled(debug::STREAM) {
            log.write_debug(debug::STREAM, Some(self.number), message);
        }
    }

    fn error_log(&self) -> &Log {
        &self.server.core.error_log
    }

    fn connection(&self) -> u64 {
        self.number
    }
}

impl Connected for StreamSession {
    fn local(&self) -> Option<&SockAddr> {
        if self.local.get().is_none() {
            let local = match &self.link {
                Link::Stream(sock) => sock.local_addr().ok()?,
                Link::Datagrams(held) => held.client().local()?,
                Link::Taken => return None,
            };
            let _ = self.local.set(Box::new(local));
        }
        self.local.get().map(|local| &**local)
    }

    fn local_port(&self) -> u16 {
        match self.listen.addr.port() {
            0 => self.local().map_or(0, SockAddr::port),
            port => port,
        }
    }

    fn proxy_header(&self) -> Option<&Header> {
        self.rare.as_ref()?.proxy.as_deref()
    }
}

impl common_modules::ssl::Secured for StreamSession {
    fn established(&self) -> Option<&Established> {
        StreamSession::established(self)
    }
}

/// The session's fields in log lines.
impl Context for StreamSession {
    fn tell(&self, fields: &mut Fields<'_>) {
        let client = if self.is_udp() { "udp client" } else { "client" };
        fields.plain(client, format_args!("{}", self.peer.host()));
        fields.plain("server", format_args!("{}", self.listen.addr));
        if !self.is_proxied {
            return;
        }
        let x = &self.exchanges;
        if let Some(peer) = x.peer() {
            fields.quoted("upstream", format_args!("{}", base::log::lossy(peer)));
        }
        let (received, sent) = (self.received.get(), self.sent.get());
        fields.tight("bytes from/to client", format_args!("{received}/{sent}"));
        if let Some((received, sent)) = x.bytes_now() {
            fields.tight("bytes from/to upstream", format_args!("{received}/{sent}"));
        }
    }
}
