//! Requests that move to another process, as tunnels that rest: their description, and the request
//! of the same kind that the other process makes of it (`net::moves`).
//!
//! The receiver assigns the request to its own configuration: by the listening address, the host
//! and the location's name. What handlers of the sender have found out comes as the values of
//! variables. The receiver logs the request, once, with its whole time and all of its bytes.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use common_modules::proxied;
use engine::life::Active;
use engine::vars;
use event::Sock;
use http_wire::h1::{HeadParser, Limits, Step};
use net::Kind;
use net::moves::Stay;
use os::SockAddr;
use proto::handover::{self, Client, Place, Refusal};

use crate::accept;
use crate::channel::Channel;
use crate::channel::conn::Conn;
use crate::exchanges::Attempt;
use crate::location_kind::LocKind;
use crate::output::Tunnel;
use crate::request::{PhaseTimes, Request};
use crate::server::location::{at_path, path_to};
use crate::server::{Address, HttpMain};
use crate::target;

/// Variables that change until a request is logged, or that cost much: the receiver computes them.
/// Those of the request's fields, which travel with the header section, are not among those that
/// are carried, either.
const LIVE: &[&str] = &[
    "body_bytes_sent",
    "bytes_sent",
    "connection_time",
    "connections_active",
    "connections_reading",
    "connections_waiting",
    "connections_writing",
    "limit_rate",
    "msec",
    "pid",
    "realpath_root",
    "request_body",
    "request_body_file",
    "request_completion",
    "request_time",
    "status",
    "time_iso8601",
    "time_local",
    "time_rfc3339",
    "upstream_addr",
    "upstream_bytes_received",
    "upstream_bytes_sent",
    "upstream_connect_time",
    "upstream_header_time",
    "upstream_last_addr",
    "upstream_response_length",
    "upstream_response_time",
    "upstream_status",
];

/// Families of such variables.
const LIVE_FAMILIES: &[&str] = &["arg_", "cookie_", "http_", "tcpinfo_"];

/// The schemes of protocols that open tunnels.
const SCHEMES: &[&str] = &["http://", "https://", ""];

/// Whether a variable's value does not change any more once a tunnel is open.
fn is_past(name: &[u8]) -> bool {
    !LIVE.iter().any(|live| live.as_bytes() == name)
        && !LIVE_FAMILIES.iter().any(|family| name.starts_with(family.as_bytes()))
}

/// The facts of a request that have no text of their own in it.
pub struct Facts {
    listener: String,
    local: String,
    peer: String,
    real_peer: Option<String>,
    proxy: Option<proxied::Texts>,
    path: Vec<(LocKind, Bytes)>,
    values: Vec<(Bytes, Option<Bytes>)>,
}

impl Request {
    /// The facts of a request that has become a tunnel.
    ///
    /// # Errors
    /// It cannot move.
    pub fn facts(&mut self) -> Result<Facts, Stay> {
        if !self.server.core.handover {
            return Err(Stay::Off);
        }
        let c = self.c().clone();
        if !matches!(self.channel, Channel::Http1(_)) || c.tls.get().is_some() {
            return Err(Stay::Protocol);
        }
        let is_plain = self.edited_head.is_empty()
            && self.method == self.head.method
            && self.body.received() == 0
            && self.loc.core.post_action.is_empty()
            && c.owner.get().is_none()
            && !self.is_traced();
        let path = path_to(&self.server, &self.loc);
        let (Some(local), Some(path), true) = (c.local(), path, is_plain) else {
            return Err(Stay::State);
        };
        Ok(Facts {
            listener: c.listen.addr.to_string(),
            local: local.to_string(),
            peer: c.peer.to_string(),
            real_peer: self.real_peer.as_ref().map(SockAddr::to_string),
            proxy: c.proxy_header().map(proxied::Texts::of),
            path,
            values: vars::carried(self, is_past),
        })
    }

    /// Another process serves the request from now on.
    pub fn set_moved(&mut self) {
        self.flags.moved = true;
        self.flags.unlogged = false;
        self.account.leave_uncounted();
        let c = self.c();
        c.has_moved.set(true);
        c.transport().part();
    }
}

impl Facts {
    /// Describes the request's connection.
    pub fn client<'a>(&'a self, c: &'a Conn) -> Client<'a> {
        let proxy = self.proxy.as_ref().zip(c.proxy_header());
        Client {
            listener: self.listener.as_bytes(),
            local: self.local.as_bytes(),
            peer: self.peer.as_bytes(),
            real_peer: self.real_peer.as_ref().map(String::as_bytes),
            number: c.number,
            age_ms: base::time::now_ms().saturating_sub(c.start_ms),
            requests: c.requests.get(),
            proxy: proxy.map(|(texts, header)| texts.described(header)),
        }
    }

    /// Describes the request.
    pub fn request<'a>(&'a self, r: &'a Request) -> handover::Request<'a> {
        let times = r.account.times;
        let exchanges = r.exchanges.as_deref();
        let bytes = |value: &'a Option<Bytes>| value.as_ref().map(|value| &value[..]);
        handover::Request {
            head: r.channel.head_only(),
            uri: &r.uri,
            args: &r.args,
            places: self
                .path
                .iter()
                .map(|(kind, name)| Place { kind: *kind as u8, name })
                .collect(),
            status: r.out.status,
            sent: (r.account.bytes_sent, r.account.header_bytes),
            start_ms: r.account.start_ms,
            elapsed_us: r.account.elapsed_us(),
            times_us: (times.head_us, times.access_us, times.ready_us),
            values: self.values.iter().map(|(name, value)| (&name[..], bytes(value))).collect(),
            scheme: exchanges.map_or(b"", |u| u.scheme.as_bytes()),
            upstream_uri: exchanges.map_or(b"", |u| &u.uri),
            upstream_host: exchanges.map_or((b"", b""), |u| (&u.host, &u.port)),
            attempts: exchanges
                .map_or_else(Vec::new, |u| u.attempts.iter().map(described).collect()),
        }
    }
}

fn described(attempt: &Attempt) -> handover::Attempt<'_> {
    handover::Attempt {
        peer: attempt.peer.as_ref().map(|peer| &peer[..]),
        status: attempt.status,
        age_ms: base::time::now_ms().saturating_sub(attempt.start_ms),
        connect_ms: attempt.connect_ms,
        first_ms: attempt.header_ms,
        end_ms: attempt.response_ms,
        length: attempt.response_length,
        received: attempt.received,
        sent: attempt.sent,
    }
}

/// A request that another process has begun, before it is served here.
pub struct Resumed {
    /// Counts the connection from now on: a worker that begins to leave waits for it.
    main: Active<HttpMain>,
    c: Rc<Conn>,
    r: Box<Request>,
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
    let addr = |text| SockAddr::parse(text).ok_or(Refusal::Other);
    let (local, peer) = (addr(client.local)?, addr(client.peer)?);
    let real_peer = client.real_peer.map(addr).transpose()?;
    let address = address(main, &addr(client.listener)?, &local).ok_or(Refusal::Configuration)?;
    if address.ssl {
        return Err(Refusal::Configuration);
    }
    let sock = Sock::from_fd(fd);
    let c = Rc::new(Conn::resumed(main, address, sock, (peer, local), client));
    let mut r = Request::take(c.clone(), main);
    r.real_peer = real_peer;
    read_head(&mut r, request.head).ok_or(Refusal::Other)?;
    target::resume(&mut r).map_err(|_| Refusal::Configuration)?;
    let path = request.places.iter().map(|place| (place.kind, place.name));
    r.loc = at_path(&r.server, path).ok_or(Refusal::Configuration)?;
    if !r.server.core.handover {
        return Err(Refusal::Off);
    }
    restore(&mut r, request).ok_or(Refusal::Other)?;
    Ok(Resumed { main: Active::new(main), c, r })
}

/// The listening address, or the wildcard that stands for it.
fn address(main: &HttpMain, listener: &SockAddr, local: &SockAddr) -> Option<Rc<Address>> {
    let streams = || main.listens.iter().filter(|listen| listen.spec.kind == Kind::Stream);
    let same = streams().find(|l| l.addresses.iter().any(|a| a.addr == *listener));
    Some(same?.address(|| Some(local.clone())))
}

fn read_head(r: &mut Request, head: &[u8]) -> Option<()> {
    let Channel::Http1(stream) = &mut r.channel else { return None };
    stream.resume(head);
    // It has been checked against the limits of its time.
    let size = u32::try_from(head.len()).ok()?.max(1024);
    let limits = Limits {
        header_buffer: size,
        large_size: size,
        large_number: size,
        max_headers: size,
        ..r.c.as_ref()?.server().core.head_limits()
    };
    let step = HeadParser::new().parse(r.channel.head_text(), &limits, &mut r.head);
    matches!(step, Step::Done { len } if len == head.len()).then_some(())
}

fn restore(r: &mut Request, request: &handover::Request<'_>) -> Option<()> {
    let scheme = SCHEMES.iter().find(|known| known.as_bytes() == request.scheme)?;
    r.method = r.head.method;
    r.uri = request.uri.to_vec();
    r.args = request.args.to_vec();
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
    let now = base::time::now_ms();
    let u = r.upstream_mut();
    u.begin();
    u.scheme = scheme;
    u.asking = true;
    u.uri = request.upstream_uri.to_vec();
    u.host = Bytes::copy_from_slice(request.upstream_host.0);
    u.port = Bytes::copy_from_slice(request.upstream_host.1);
    u.attempts = request
        .attempts
        .iter()
        .map(|of| Attempt {
            peer: of.peer.map(Bytes::copy_from_slice),
            status: of.status,
            start_ms: now.saturating_sub(of.age_ms),
            connect_ms: of.connect_ms,
            header_ms: of.first_ms,
            response_ms: of.end_ms,
            response_length: of.length,
            received: of.received,
            sent: of.sent,
            row: None,
        })
        .collect();
    Some(())
}

impl Resumed {
    /// The request.
    pub fn request(&mut self) -> &mut Request {
        &mut self.r
    }

    /// Serves the request, whose tunnel goes on.
    pub fn run(mut self, tunnel: Box<dyn Tunnel>) {
        let location = self.r.loc.clone();
        location.pipeline.resume.iter().for_each(|resume| resume(&mut self.r));
        accept::resume(self.main, self.c, self.r, tunnel);
    }
}
