//! Connections that move to another process (`net::moves`): those that are idle between two
//! requests, and requests that have become tunnels and rest; their descriptions, and what the other
//! process makes of these.
//!
//! The receiver assigns the request to its own configuration: by the listening address, the host
//! and the location's name. What handlers of the sender have found out comes as the values of
//! variables. The receiver logs the request, once, with its whole time and all of its bytes.

use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use common_modules::moved::{self, Addresses, Texts};
use common_modules::ssl::Established;
use engine::life::Active;
use engine::vars;
use event::Sock;
use http_wire::fields::carried;
use http_wire::h1::{HeadParser, Limits, Step};
use mem::Page;
use net::Transport;
use net::moves::{Kind, Ready, Stay, Taker};
use net::transport::SealedCopy;
use os::SockAddr;
use proto::handover::{self, Client, Message, Place, Refusal};
use tls::Session;

use crate::accept;
use crate::channel::Channel;
use crate::channel::conn::{Conn, Secured};
use crate::location_kind::LocKind;
use crate::output::Tunnel;
use crate::request::{PhaseTimes, Request};
use crate::server::HttpMain;
use crate::server::location::{Found, Location, find};
use crate::{h2, ssl, target};

/// The facts of a request that have no text of their own in it.
pub struct Facts {
    client: Texts,
    /// The fields of the header section, over HTTP/2.
    head: Option<Vec<u8>>,
    values: Vec<(Bytes, Option<Bytes>)>,
}

impl Request {
    /// The facts of a request that has become a tunnel, and leaves with TCP_NODELAY as if new.
    ///
    /// # Errors
    /// It cannot move.
    pub fn depart(&mut self) -> Result<Facts, Stay> {
        if !self.server.core.handover {
            return Err(Stay::Off);
        }
        let c = self.c().clone();
        let head = match &self.client.channel {
            Channel::Http1(_) => None,
            Channel::Http2(_) => {
                let scheme = if c.tls.get().is_some() { &b"https"[..] } else { b"http" };
                Some(carried::list(&self.head, self.client.channel.head_text(), scheme))
            }
            _ => return Err(Stay::Protocol),
        };
        let is_plain = self.target.edited_head.is_empty()
            && self.target.method == self.head.method
            && self.body.received() == 0
            && self.loc.core.post_action.is_empty()
            && c.owner.get().is_none()
            // The limits of the engine before count it until its connection ends here.
            && !c.is_passed
            && !self.is_traced();
        // Blocks inside a location are chosen by conditions, which may be others by now.
        let kind = self.loc.info.kind;
        let is_block = matches!(kind, LocKind::If | LocKind::LimitExcept);
        let (Some(local), true, false) = (c.local(), is_plain, is_block) else {
            return Err(Stay::State);
        };
        c.set_nodelay(true);
        let (ends, real_peer) = ((&c.listen.addr, local, &c.peer), self.client.real_peer.as_ref());
        let client = Texts::new(ends, real_peer, c.proxy_header());
        Ok(Facts { client, head, values: vars::carried(self) })
    }

    /// Another process serves the request from now on.
    pub fn set_moved(&mut self) {
        self.flags.moved = true;
        self.flags.unlogged = false;
        self.account.leave_uncounted();
        self.c().set_moved();
    }
}

/// Takes idle connections into this worker's configuration.
struct Idles(Weak<HttpMain>);

/// Has this worker take idle connections.
pub(crate) fn register(main: &Rc<HttpMain>) {
    if let Some(moves) = main.life.moves() {
        let idles = Rc::new(Idles(Rc::downgrade(main)));
        moves.take_by(Kind::Idle, idles.clone());
        moves.take_by(Kind::Http2, idles);
    }
}

impl Taker for Idles {
    fn take(&self, message: &Message<'_>, mut servers: Vec<OwnedFd>) -> Result<Ready, Refusal> {
        let (idle, http2) = match message {
            Message::Idle(idle) => (&**idle, None),
            Message::Http2(http2) => (&http2.idle, Some(&**http2)),
            _ => return Err(Refusal::Version),
        };
        if servers.len() != 1 + http2.map_or(0, |http2| http2.streams.len()) {
            return Err(Refusal::Other);
        }
        let fd = servers.remove(0);
        let main = self.0.upgrade().ok_or(Refusal::Other)?;
        let Arrival { c, session, .. } = Arrival::of(&main, &idle.client, fd)?;
        if !c.server().core.handover {
            return Err(Refusal::Off);
        }
        // Without its facts, the client could enter where it must not.
        let lacks_facts = session.is_some() && c.tls.get().is_none();
        if lacks_facts || c.listen.proxy_protocol != idle.client.proxy.is_some() {
            return Err(Refusal::Configuration);
        }
        let http2 = http2
            .map(|http2| h2::Resting::of((&main, &c), http2, servers, begun).map(Box::new))
            .transpose()?;
        let read = match idle.read {
            [] => Page::new(),
            bytes => Page::copied(bytes),
        };
        let (main, left_ms) = (Active::new(&main), idle.left_ms);
        Ok(Box::new(move || {
            c.sock().arrived(session);
            accept::resume_idle(main, c, http2, read, left_ms);
        }))
    }
}

/// A connection that another process has described.
struct Arrival {
    c: Rc<Conn>,
    /// TLS with the client.
    session: Option<Session>,
    /// The client's address as a trusted proxy reported it.
    real_peer: Option<SockAddr>,
}

impl Arrival {
    fn of(main: &Rc<HttpMain>, client: &Client<'_>, fd: OwnedFd) -> Result<Arrival, Refusal> {
        let (address, Addresses { local, peer, real_peer }) = moved::place(&main.listens, client)?;
        let (sock, session) = Transport::resumed(Sock::of_client(fd), client.tls.as_ref())?;
        let c = Rc::new(Conn::resumed(main, address, sock, (peer, local), client));
        if let Some(handshake) = &client.handshake {
            let server = ssl::server_of(&c, handshake.server_name);
            let session = Established::resumed(ssl::tls_of(&c, &server).tls.clone(), handshake);
            if let Ok(session) = session {
                let _ = c.tls.set(Rc::new(Secured { session, server }));
            }
        }
        Ok(Arrival { c, session, real_peer })
    }
}

impl Facts {
    /// Describes the request's connection.
    pub fn client<'a>(&'a self, c: &'a Conn, tls: Option<&'a SealedCopy>) -> Client<'a> {
        let tls = (tls.map(SealedCopy::sealed), c.handshake());
        self.client.client(c.facts(), c.proxy_header(), tls)
    }

    /// Describes the connection for a tunnel on one of its streams.
    pub fn client_of_stream<'a>(&'a self, c: &'a Conn) -> Client<'a> {
        self.client.client(c.facts(), None, (None, None))
    }

    /// Describes the request.
    pub fn request<'a>(&'a self, r: &'a Request) -> handover::Request<'a> {
        let times = r.account.times;
        let bytes = |value: &'a Option<Bytes>| value.as_ref().map(|value| &value[..]);
        handover::Request {
            head: self.head.as_deref().unwrap_or_else(|| r.client.channel.head_only()),
            head_len: r.client.channel.head_len() as u32,
            uri: &r.target.uri,
            args: &r.target.args,
            place: Place { kind: r.loc.info.kind as u8, name: &r.loc.info.name },
            status: r.out.status,
            sent: (r.account.bytes_sent, r.account.header_bytes),
            start_ms: r.account.start_ms,
            elapsed_us: r.account.elapsed_us(),
            times_us: (times.head_us, times.access_us, times.ready_us),
            values: self.values.iter().map(|(name, value)| (&name[..], bytes(value))).collect(),
        }
    }
}

/// A request that another process has begun, before it is served here.
pub struct Resumed {
    /// Counts the connection from now on: a worker that begins to leave waits for it.
    main: Active<HttpMain>,
    c: Rc<Conn>,
    r: Box<Request>,
    /// TLS with the client.
    session: Option<Session>,
}

/// Makes the request that another process has described. `fd` is the client's connection.
///
/// # Errors
/// This configuration has no such listening address, server or location.
pub fn resume(
    main: &Rc<HttpMain>,
    client: &Client<'_>,
    request: &handover::Request<'_>,
    fd: OwnedFd,
) -> Result<Resumed, Refusal> {
    let Arrival { c, session, real_peer } = Arrival::of(main, client, fd)?;
    let mut r = Request::take(c.clone(), main);
    r.client.real_peer = real_peer;
    begun(&mut r, request)?;
    Ok(Resumed { main: Active::new(main), c, r, session })
}

/// Makes a new request the one that another process has described, with the errors of [`resume`].
fn begun(r: &mut Request, request: &handover::Request<'_>) -> Result<(), Refusal> {
    read_head(r, request.head).ok_or(Refusal::Other)?;
    target::resume(r).map_err(|_| Refusal::Configuration)?;
    r.loc = location(r, request).ok_or(Refusal::Configuration)?;
    if !r.server.core.handover {
        return Err(Refusal::Off);
    }
    restore(r, request);
    Ok(())
}

/// The location of the same kind and name that the request leads to: by the URI that the client
/// sent, or by the one that rewrites have made of it.
fn location(r: &mut Request, request: &handover::Request<'_>) -> Option<Rc<Location>> {
    let Place { kind, name } = request.place;
    if kind == LocKind::Named as u8 {
        return r.server.named.get(name).cloned();
    }
    let root = r.server.root.clone();
    let is_it = |l: &Rc<Location>| l.info.kind as u8 == kind && l.info.name == name;
    let found = |r: &mut Request| match find(r, &root) {
        Found::Location(l) => Some(l),
        // The server's own level, as for CONNECT.
        Found::None => Some(root.clone()),
        _ => None,
    };
    let location = found(r).filter(is_it);
    r.target.uri = request.uri.to_vec();
    location.or_else(|| found(r).filter(is_it))
}

fn read_head(r: &mut Request, head: &[u8]) -> Option<()> {
    // It has been checked against the limits of its time.
    let size = u32::try_from(head.len()).ok()?.max(1024);
    let limits = Limits {
        header_buffer: size,
        large_size: size,
        large_number: size,
        max_headers: size,
        ..r.client.conn.as_ref()?.server().core.head_limits()
    };
    match &mut r.client.channel {
        Channel::Http1(stream) => stream.resume(head),
        Channel::Http2(stream) => {
            return carried::resume(head, &mut r.head, &mut stream.exchange.text, &limits);
        }
        _ => return None,
    }
    let step = HeadParser::new().parse(r.client.channel.head_text(), &limits, &mut r.head);
    matches!(step, Step::Done { len } if len == head.len()).then_some(())
}

fn restore(r: &mut Request, request: &handover::Request<'_>) {
    r.target.method = r.head.method;
    r.target.args = request.args.to_vec();
    r.flags.valid_location = true;
    r.flags.header_sent = true;
    r.body.begin(&r.head);
    r.out.status = request.status;
    r.account.resume(request.start_ms, request.elapsed_us, request.sent);
    let (head_us, access_us, ready_us) = request.times_us;
    r.account.times = PhaseTimes { head_us, access_us, ready_us };
    for (name, value) in &request.values {
        vars::keep(r, name, *value);
    }
}

impl Resumed {
    /// The request of which the connection is a part.
    pub fn request(&mut self) -> &mut Request {
        &mut self.r
    }

    /// Serves the request, whose tunnel goes on.
    pub fn run(mut self, tunnel: Box<dyn Tunnel>) {
        self.c.sock().arrived(self.session);
        let location = self.r.loc.clone();
        location.pipeline.resume.iter().for_each(|resume| resume(&mut self.r));
        accept::resume(self.main, self.c, self.r, tunnel);
    }
}
