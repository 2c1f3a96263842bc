//! The connections of an exchange: kept or new, to resolved addresses.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::pin::pin;
use std::rc::{Rc, Weak};

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

/// Resolves a name to servers, with the resolver of the request's location.
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
    /// The connection is established, and nothing else is needed (CONNECT).
    pub(super) fn connected(&mut self, r: &mut Request) -> Answered {
        let u = r.upstream_mut();
        self.protocol.head(b"", Rc::make_mut(&mut u.head));
        let status = u.head.status;
        u.now().status = status;
        Answered { text: Bytes::new(), rest: Bytes::new(), takes: true }
    }

    pub(super) fn kept_connection(&self, peer: &Peer) -> Option<Wire> {
        if self.is_refused_again() {
            return None;
        }
        let (pool, addr, tls) = (self.pool.as_ref()?, &peer.spec.addr, self.tls.is_some());
        if !self.protocol.is_stream() {
            return pool.take(addr, self.connection_use(), tls).map(Wire::Conn);
        }
        let bound = tls || self.bound.is_some();
        pool.open(addr, self.tag(), bound, self.is_long()).map(Wire::Stream)
    }

    /// Whether the body may be long or endless, so that other requests must not wait behind it.
    fn is_long(&self) -> bool {
        self.body.is_streamed()
    }

    /// Whether servers refused the request more than once. It then gets a new connection, because a
    /// limit of the shared connection may be the reason.
    fn is_refused_again(&self) -> bool {
        self.refusals > 1
    }

    /// Uses a new connection: the connection itself, or its first HTTP/2 stream.
    fn wire(
        &self,
        r: &Request,
        peer: &Peer,
        sock: Transport,
        dialling: Option<Dialling>,
    ) -> Result<Wire, Stop> {
        if !self.protocol.is_stream() {
            return Ok(Wire::Conn(UpConn {
                sock,
                requests: 0,
                start_ms: now_ms(),
                cached: false,
                moved_in: 0,
            }));
        }
        if r.loc.core.tcp_nodelay && !peer.spec.addr.is_unix() {
            // With Nagle's algorithm a frame would wait for the acknowledgement of the previous
            // one, which may come with another response or after 40 ms.
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

    /// Waits for a connection that another exchange is opening, if this one may share it.
    async fn joined(&self, r: &mut Request, peer: &Peer) -> Result<Option<Wire>, Stop> {
        let Some(pool) = &self.pool else { return Ok(None) };
        let (addr, tag) = (&peer.spec.addr, self.tag());
        let bound = self.tls.is_some() || self.bound.is_some();
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
            // It has no stream left, or another waiting exchange opens the next connection.
        }
        Ok(None)
    }

    /// Opens a connection, or shares one that another exchange is opening.
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

    /// Opens a connection, with TLS if configured.
    async fn open(&self, r: &mut Request, peer: &Peer) -> Result<Transport, Stop> {
        let conf = self.bound.as_ref().map_or(&self.conf.socket, |bound| &bound.socket);
        let sock = socket::open(r, conf, &peer.spec.addr).map_err(|NotOpened| Stop::Status(500))?;
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

/// The TLS parameters of a connection that depend on the request: server name and client
/// certificate.
pub(super) struct Terms {
    name: Bytes,
    certificate: Option<(Bytes, Bytes)>,
}

impl Terms {
    /// A hash of the parameters, so that a kept connection is only reused with the same ones.
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

    /// Starts TLS over a new connection.
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
            // The end of the handshake and the request are two writes; with Nagle's algorithm the
            // second would wait for the acknowledgement of the first, which servers delay by 40 ms.
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
