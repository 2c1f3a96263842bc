//! A session: one client's connection, with what logs and the authentication server are told of it.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use base::log::{Context, Fields, Level, Log, debug};
use bytes::Bytes;
use common_modules::passing::Passed;
use common_modules::ssl::Established;
use conf::table::Contexts;
use conf::template::{Template, VarId, VarSource};
use engine::life::{Active, Main};
use engine::regex::Captures;
use engine::settings::ConfSet;
use engine::vars::{self, Values, Variables};
use engine::{Client, Metrics, Session, Stats, overload};
use mail_proto::ClientHost;
use net::Transport;
use os::SockAddr;
use proto::proxy_protocol::Header;

use crate::module::Block;
use crate::server::{Address, MailMain, Server};

/// A client's connection, from the greeting to the end of the proxied session.
pub struct MailSession {
    /// The whole `mail` configuration.
    pub main: Active<MailMain>,
    /// The server block that the listening address belongs to.
    pub server: Rc<Server>,
    /// The listening address that the client connected to.
    pub listen: Rc<Address>,
    /// The address that the connection came from.
    pub peer: SockAddr,
    /// The number in logs, unique among all workers.
    pub number: u64,
    /// The run of the server in which another process has had the session before; 0 if none has.
    pub(crate) moved_in: u64,
    /// The name of the client, for SMTP.
    pub host: Option<ClientHost>,
    /// The attempts to log in so far.
    pub attempts: u64,
    /// The PROXY protocol header.
    pub proxy: Option<Box<Header>>,
    /// The mail server that it is connected to.
    pub upstream: Option<Bytes>,
    /// The last name that the client gave.
    pub login: Bytes,
    /// TLS began by a command.
    pub is_starttls: bool,
    /// Another engine has accepted it, whose limits hold it, too.
    pub(crate) is_passed: bool,
    sock: Option<Transport>,
    local: Option<SockAddr>,
    real_peer: Option<SockAddr>,
    tls: Option<Box<Established>>,
    doing: Cell<&'static str>,
    captures: Captures,
    values: Option<Box<Values>>,
    shared: Vec<Rc<dyn Any>>,
    debug: bool,
}

impl MailSession {
    /// A session with a client of `listen`. `local` is the local address where it is known.
    pub(crate) fn new(
        main: &Rc<MailMain>,
        listen: Rc<Address>,
        peer: SockAddr,
        local: Option<SockAddr>,
        sock: Transport,
    ) -> MailSession {
        let number = main.stats.next_connection();
        MailSession {
            main: Active::new(main),
            server: listen.default.clone(),
            listen,
            debug: main.debugs(&peer),
            peer,
            number,
            moved_in: 0,
            host: None,
            attempts: 0,
            proxy: None,
            upstream: None,
            login: Bytes::new(),
            is_starttls: false,
            is_passed: false,
            sock: Some(sock),
            local,
            real_peer: None,
            tls: None,
            doing: Cell::new(""),
            captures: Captures::default(),
            values: None,
            shared: Vec::new(),
        }
    }

    /// A session of a connection that is passed to socket `listen`.
    pub(crate) fn passed(main: &Rc<MailMain>, listen: usize, passed: Passed) -> MailSession {
        let Passed { sock, read, peer, local, number, proxy, tls, kept, .. } = passed;
        let address = main.listens[listen].address(|| Some(local.clone()));
        let sock = if address.ssl { sock.expect_tls() } else { sock };
        sock.prepend(read);
        let mut s = MailSession::new(main, address, peer, Some(local), sock);
        (s.number, s.proxy, s.tls, s.shared) = (number, proxy, tls, kept);
        s.is_passed = true;
        s
    }

    /// The client's connection.
    pub fn sock(&self) -> Option<&Transport> {
        self.sock.as_ref()
    }

    /// Takes the client's connection.
    pub fn take_sock(&mut self) -> Option<Transport> {
        self.sock.take()
    }

    /// Puts the client's connection back.
    pub fn put_sock(&mut self, sock: Transport) {
        self.sock = Some(sock);
    }

    /// The facts of TLS with the client, if it speaks TLS.
    pub fn tls(&self) -> Option<&Established> {
        self.tls.as_deref()
    }

    pub(crate) fn set_tls(&mut self, tls: Box<Established>) {
        self.tls = Some(tls);
    }

    /// The client's address is this one, as a trusted proxy reported it.
    pub(crate) fn set_real_peer(&mut self, peer: SockAddr) {
        self.real_peer = Some(peer);
    }

    pub(crate) fn real_peer(&self) -> Option<&SockAddr> {
        self.real_peer.as_ref()
    }

    /// The address that the client connected to.
    pub fn local(&self) -> Option<SockAddr> {
        let ask = || self.sock.as_ref().and_then(|sock| sock.local_addr().ok());
        self.local.clone().or_else(ask)
    }

    /// The settings of type `T` in its server.
    ///
    /// # Panics
    /// If no module lists `T` in its `confs`: a mistake in the module's table, found by any test.
    pub fn conf<T: 'static>(&self) -> Rc<T> {
        self.server.confs.listed()
    }

    /// Sets the step of the session, for lines of the log.
    pub fn now(&self, doing: &'static str) {
        self.doing.set(doing);
    }

    /// Writes a line without the fields behind it.
    pub fn log_bare(&self, level: Level, m: fmt::Arguments<'_>) {
        if self.logs(level) {
            self.log_in_force().write(level, Some(self.number), m);
        }
    }

    /// Tells the log that the session ends to make room for others, as often as such lines may
    /// come.
    pub(crate) fn tell_displaced(&self) {
        if overload::is_told(self.address().ip_addr()) {
            self.log(Level::Info, format_args!("closing a session to make room for others"));
        }
    }

    fn log_in_force(&self) -> Log {
        let log = &self.server.core.error_log;
        if self.debug { log.debugging() } else { log.clone() }
    }
}

impl VarSource for MailSession {
    fn value(&mut self, id: VarId) -> Option<Bytes> {
        vars::value(self, id)
    }

    fn write(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        vars::write(self, id, out)
    }
}

impl Client for MailSession {
    fn address(&self) -> &SockAddr {
        self.real_peer.as_ref().unwrap_or(&self.peer)
    }

    fn eval(&mut self, template: &Template) -> Bytes {
        template.eval(self)
    }

    fn logs(&self, level: Level) -> bool {
        self.debug || self.server.core.error_log.enabled(level)
    }

    fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        if !self.logs(level) {
            return;
        }
        let log = self.log_in_force();
        match self.doing.get() {
            "" => log.write_about(level, Some(self.number), message, self),
            doing => {
                let message = format_args!("{message} while {doing}");
                log.write_about(level, Some(self.number), message, self);
            }
        }
    }
}

impl Session for MailSession {
    const BLOCK: Contexts = Contexts::MAIL;
    const SERVER: Contexts = Contexts::MAIL_SERVER;
    const UPSTREAM: Contexts = Contexts::EMPTY;
    const HAS_HEADS: bool = false;

    type Block = Block;
    type Place = ();
    type Pipeline = ();
    type Main = MailMain;

    fn variables(&self) -> &Rc<Variables<MailSession>> {
        &self.main.vars
    }

    fn values(&self) -> &Values {
        self.values.as_deref().unwrap_or(&self.main.nothing)
    }

    fn values_mut(&mut self) -> &mut Values {
        self.values.get_or_insert_default()
    }

    fn captures(&self) -> &Captures {
        &self.captures
    }

    fn captures_mut(&mut self) -> &mut Captures {
        &mut self.captures
    }

    fn confs(&self) -> &ConfSet {
        &self.server.confs
    }

    fn shared<T: Default + 'static>(&mut self) -> Rc<T> {
        engine::shared_in(&mut self.shared)
    }

    fn stats(&self) -> &Stats {
        &self.main.stats
    }

    fn metrics(&self) -> &Rc<Metrics> {
        &self.main.metrics
    }

    fn debug(&self, message: fmt::Arguments<'_>) {
        let log = self.log_in_force();
        if log.debug_enabled(debug::MAIL) {
            log.write_debug(debug::MAIL, Some(self.number), message);
        }
    }

    fn error_log(&self) -> &Log {
        &self.server.core.error_log
    }

    fn connection(&self) -> u64 {
        self.number
    }
}

/// The session in log lines.
impl Context for MailSession {
    fn tell(&self, fields: &mut Fields<'_>) {
        let by = if self.is_starttls { " using starttls" } else { "" };
        fields.plain("client", format_args!("{}{by}", self.address().host()));
        fields.plain("server", format_args!("{}", self.listen.addr));
        if !self.login.is_empty() {
            fields.quoted("login", format_args!("{}", base::log::lossy(&self.login)));
        }
        if let Some(upstream) = &self.upstream {
            fields.plain("upstream", format_args!("{}", base::log::lossy(upstream)));
        }
    }
}
