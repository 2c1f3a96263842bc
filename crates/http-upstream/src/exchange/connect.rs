//! Connections of an exchange: to addresses that a resolver gives, kept or new.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::pin::pin;
use std::rc::Weak;

use base::future::rarely;
use base::time::now_ms;
use bytes::Bytes;
use event::{Deadline, Either, Sock, race_if};
use http::channel::ClientEnd;
use http::module::Verdict;
use http::request::Request;
use net::Transport;
use upstream::failure;
use upstream::h2::{self, Dialling, MuxConf, Outcome};
use upstream::peer::{Peer, ServerSpec};
use upstream::pool::UpConn;
use upstream::resolver::Resolving;
use upstream::socket::{self, NotOpened};
use upstream::ssl::Shake;
use upstream::wire::Wire;

use super::{Answered, Exchange};
use crate::conf::{Conf, next};
use crate::failure::{Stop, client_gone, not_reached};

/// The servers that a name stands for, by the resolver of the request's location.
pub(super) async fn addresses(
    r: &mut Request,
    conf: &Conf,
    host: &Bytes,
    port: u16,
) -> Result<Vec<ServerSpec>, Verdict> {
    let lookup = r.loc.confs.get::<Resolving>().cloned().unwrap_or_default().lookup();
    let watch = if conf.ignore_client_abort { None } else { r.watched() };
    let found = lookup.addresses(r, host, port);
    match race_if(found, watch.as_ref().map(ClientEnd::gone)).await {
        Either::First(found) => found.ok_or(Verdict::Status(502)),
        Either::Second(_) => {
            client_gone(r, "connecting to upstream");
            Err(r.abandon())
        }
    }
}

impl Exchange {
    /// A connection stands, and that is all that was asked for.
    pub(super) fn connected(&mut self, r: &mut Request) -> Answered {
        let u = r.upstream_mut();
        self.protocol.head(b"", &mut u.head);
        let status = u.head.status;
        u.now().status = status;
        Answered { text: Bytes::new(), rest: Bytes::new(), takes: true }
    }

    pub(super) fn kept_connection(&self, peer: &Peer) -> Option<Wire> {
        if self.is_refused_again() {
            return None;
        }
        let (pool, addr, tls) = (self.pool.as_ref()?, &peer.spec.addr, self.tls.is_some());
        match self.protocol.is_stream() {
            false => pool.take(addr, self.tag(), tls).map(Wire::Conn),
            true => pool.open(addr, self.tag(), tls, self.is_long()).map(Wire::Stream),
        }
    }

    /// Whether the body may be long, or never end: others are not to wait behind it.
    fn is_long(&self) -> bool {
        self.body.is_streamed()
    }

    /// Whether servers have refused the request more than once: it gets a connection of which it is
    /// the first request, since a limit of the connection may be the reason.
    fn is_refused_again(&self) -> bool {
        self.refusals > 1
    }

    /// Over a new connection: the connection itself, or its first stream.
    fn wire(
        &self,
        r: &Request,
        peer: &Peer,
        sock: Transport,
        dialling: Option<Dialling>,
    ) -> Result<Wire, Stop> {
        if !self.protocol.is_stream() {
            return Ok(Wire::Conn(UpConn { sock, requests: 0, start_ms: now_ms(), cached: false }));
        }
        if r.loc.core.tcp_nodelay && !peer.spec.addr.is_unix() {
            // A frame would wait for the acknowledgement of the one before it, and that for the
            // response of another exchange or 40 ms.
            let _ = sock.set_nodelay(true);
        }
        let gate = r.main.life.gate.clone();
        let (conf, weak) = match &self.pool {
            Some(pool) if !gate.is_closed() => (pool.mux_conf(), pool.weak()),
            _ => (MuxConf::ONCE, Weak::new()),
        };
        let mux = h2::start(sock, conf, weak, dialling, gate);
        let stream = mux.open(self.is_long()).ok_or(Stop::Next(next::ERROR))?;
        if let Some(pool) = &self.pool {
            pool.share(mux, peer.spec.addr.clone(), self.tag());
        }
        Ok(Wire::Stream(stream))
    }

    /// A connection that another exchange makes, if this one may share it.
    async fn joined(&self, r: &mut Request, peer: &Peer) -> Result<Option<Wire>, Stop> {
        let Some(pool) = &self.pool else { return Ok(None) };
        let (addr, tag, bound) = (&peer.spec.addr, self.tag(), self.tls.is_some());
        let deadline = self.protocol.until().or(Deadline::in_ms(self.conf.connect_timeout));
        let watch = self.client(r);
        while let Some(dial) = pool.join(addr, tag, bound) {
            let gone = watch.as_ref().map(ClientEnd::gone);
            let outcome = match race_if(pin!(dial.outcome(deadline)), gone).await {
                Either::First(outcome) => outcome,
                Either::Second(_) => return Err(client_gone(r, "connecting to upstream")),
            };
            let wire = self.kept_connection(peer);
            if wire.is_some() || matches!(outcome, None | Some(Outcome::Failed)) {
                return Ok(wire);
            }
            // It has no stream left, or one of those that waited for it makes another one.
        }
        Ok(None)
    }

    /// A new connection, or one that another exchange makes at this moment.
    pub(super) async fn connect(&self, r: &mut Request, peer: &Peer) -> Result<Wire, Stop> {
        let joins = !self.is_long() && !self.is_refused_again();
        let shares = self.protocol.is_stream() && self.pool.is_some() && joins;
        if shares && let Some(wire) = self.joined(r, peer).await? {
            return Ok(wire);
        }
        let pool = self.pool.as_ref().filter(|_| shares && !r.main.life.gate.is_closed());
        let dialling = pool.map(|pool| pool.dial(&peer.spec.addr, self.tag()));
        match self.open(r, peer).await {
            Ok(sock) => self.wire(r, peer, sock, dialling),
            Err(stop) => {
                if !matches!(stop, Stop::ClientGone) {
                    dialling.iter().for_each(Dialling::fails);
                }
                Err(stop)
            }
        }
    }

    /// Opens a connection, with TLS where that is wanted.
    async fn open(&self, r: &mut Request, peer: &Peer) -> Result<Transport, Stop> {
        let sock = socket::open(r, &self.conf.socket, &peer.spec.addr)
            .map_err(|NotOpened| Stop::Status(500))?;
        socket::speaks_first(&sock, &peer.spec.addr);
        let watch = self.client(r);
        let deadline = self.protocol.until().or(Deadline::in_ms(self.conf.connect_timeout));
        let connecting = sock.connect(&peer.spec.addr, deadline);
        let gone = watch.as_ref().map(ClientEnd::gone);
        match (race_if(connecting, gone).await, &self.terms) {
            (Either::First(Ok(())), None) => Ok(sock.into()),
            (Either::First(Ok(())), Some(terms)) => rarely(self.shake(r, peer, sock, terms)).await,
            (Either::First(Err(e)), _) => Err(not_reached(failure::not_connected(r, peer, &e))),
            (Either::Second(_), _) => Err(client_gone(r, "connecting to upstream")),
        }
    }
}

/// The terms of a session with a server, for one request.
pub(super) struct Terms {
    name: Bytes,
    certificate: Option<(Bytes, Bytes)>,
}

impl Terms {
    /// Tells connections apart that are kept.
    pub fn hash(&self) -> usize {
        BuildHasherDefault::<DefaultHasher>::default().hash_one((&self.name, &self.certificate))
            as usize
    }
}

impl Exchange {
    pub(super) fn terms(&self, r: &mut Request) -> Option<Box<Terms>> {
        let (name, tls) = (self.tls.as_ref()?, self.conf.tls.as_ref()?);
        let name = tls.name.as_ref().map_or_else(|| (**name).clone(), |name| name.eval(r));
        let certificate = tls.changing.as_ref().map(|c| (c.certificate.eval(r), c.key.eval(r)));
        Some(Box::new(Terms { name, certificate }))
    }

    /// TLS over a new connection.
    async fn shake(
        &self,
        r: &mut Request,
        peer: &Peer,
        sock: Sock,
        terms: &Terms,
    ) -> Result<Transport, Stop> {
        let Some(tls) = &self.conf.tls else { return Err(Stop::Status(500)) };
        let shake = Shake {
            peer: &peer.name,
            name: &terms.name,
            certificate: terms.certificate.clone(),
            deadline: self.protocol.until().or(Deadline::in_ms(self.conf.connect_timeout)),
            counted: Some(peer),
        };
        if r.loc.core.tcp_nodelay && !peer.spec.addr.is_unix() {
            // The end of the handshake and the request are two writes: the second one would wait
            // for the acknowledgement of the first, which servers delay by 40 ms.
            let _ = os::socket::set_nodelay(sock.fd(), true);
        }
        let watch = self.client(r);
        let done =
            race_if(Box::pin(tls.connect(sock, shake)), watch.as_ref().map(ClientEnd::gone)).await;
        match done {
            Either::First(Ok(transport)) => Ok(transport),
            Either::First(Err(fault)) => Err(not_reached(failure::no_session(r, &fault))),
            Either::Second(_) => Err(client_gone(r, failure::SHAKING)),
        }
    }
}
