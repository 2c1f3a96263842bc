//! Sessions over TCP that move to another process, and those that come from one: see
//! [`net::moves`].
//!
//! The receiver assigns a session to its own configuration by the listening address and the
//! server's name. The settings of the new configuration hold from then on; rates that were
//! evaluated at the session's start go on.

use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use base::time::now_ms;
use bytes::Bytes;
use common_modules::connection_vars::Connected;
use common_modules::proxied;
use engine::vars;
use event::Sock;
use net::Transport;
use net::moves::{Kind, Moves, Ready, Stay, Taker, Turn};
use net::relay::Resting;
use os::SockAddr;
use proto::handover::{self, Leased, Message, Refusal};
use upstream::Upstreams;
use upstream::lease::Occupied;

use super::exchanges::Exchanges;
use super::relay::Rest;
use super::{Proxy, Resumed};
use crate::accept;
use crate::server::{Address, Server, StreamMain};
use crate::session::StreamSession;

/// Variables that change until a session is logged: the receiver computes them.
const LIVE: &[&str] = &[
    "bytes_received",
    "bytes_sent",
    "msec",
    "pid",
    "session_time",
    "status",
    "time_iso8601",
    "time_local",
    "time_rfc3339",
];

fn is_past(name: &[u8]) -> bool {
    !LIVE.iter().any(|live| live.as_bytes() == name) && !name.starts_with(b"upstream_")
}

/// Offers a session that rests to other processes. Returns whether one serves it from here on.
pub(super) async fn offer(
    s: &mut StreamSession,
    turn: Turn,
    group: &Bytes,
    (client, server): (&Transport, &Transport),
    rest: &Rest,
) -> bool {
    let local = match can_move(s) {
        Ok(()) => client.local_addr().map_err(|_| Stay::State),
        Err(why) => Err(why),
    };
    let local = match local {
        Ok(local) => local.to_string(),
        Err(why) => {
            turn.stays(why);
            return false;
        }
    };
    let values = vars::carried(s, is_past);
    let texts = |addr: &SockAddr| addr.to_string();
    let (listener, peer, real) = (texts(&s.listen.addr), texts(&s.peer), s.real_peer().map(texts));
    let proxy = s.proxy_header().map(proxied::Texts::of);
    let (up, down) = (rest.up.copy(), rest.down.copy());
    let message = Message::Session(Box::new(handover::Session {
        client: handover::Client {
            listener: listener.as_bytes(),
            local: local.as_bytes(),
            peer: peer.as_bytes(),
            real_peer: real.as_ref().map(String::as_bytes),
            number: s.number,
            age_ms: now_ms().saturating_sub(s.start_ms),
            requests: 0,
            proxy: proxy.as_ref().zip(s.proxy_header()).map(|(texts, h)| texts.described(h)),
        },
        server: (!Rc::ptr_eq(&s.server, &s.listen.default)).then_some(&s.server.name),
        values: values.iter().map(|(name, value)| (&name[..], value.as_deref())).collect(),
        bytes: (s.received.get(), s.sent.get()),
        attempts: s.exchanges.described(),
        leased: Leased { group, server: s.exchanges.peer().map_or(b"", |name| name) },
        up: up.way(rest.closed[0]),
        down: down.way(rest.closed[1]),
        silent_ms: now_ms().saturating_sub(rest.moved_ms),
    }));
    match turn.offer(&message, [client.descriptor(), server.descriptor()]).await {
        Ok(offered) => offered.give_up(),
        Err(_) => false,
    }
}

fn can_move(s: &StreamSession) -> Result<(), Stay> {
    match s {
        s if !s.server.core.handover => Err(Stay::Off),
        s if s.established().is_some() => Err(Stay::Protocol),
        // The limits of the engine before hold it, too.
        s if s.passes() > 0 => Err(Stay::State),
        _ => Ok(()),
    }
}

/// Takes sessions into this worker's configuration.
struct Sessions(Weak<StreamMain>);

/// Has this worker take sessions.
pub(crate) fn register(main: &Rc<StreamMain>, moves: &Moves) {
    moves.take_by(Kind::Session, Rc::new(Sessions(Rc::downgrade(main))));
}

impl Taker for Sessions {
    fn take(
        &self,
        message: &Message<'_>,
        [client, server]: [OwnedFd; 2],
    ) -> Result<Ready, Refusal> {
        let Message::Session(described) = message else { return Err(Refusal::Version) };
        let main = self.0.upgrade().ok_or(Refusal::Other)?;
        let (address, to, proxy) = place(&main, described).ok_or(Refusal::Configuration)?;
        if !to.core.handover {
            return Err(Refusal::Off);
        }
        let leased = &described.leased;
        let upstreams = main.confs.get::<Upstreams>();
        let peer = upstreams.and_then(|all| all.peer(leased.group, leased.server));
        let exchanges = Exchanges::resumed(&described.attempts, peer.clone());
        let client = Sock::from_fd(client).into();
        let mut s = session(&main, address, client, described).ok_or(Refusal::Other)?;
        s.server = to;
        s.exchanges = exchanges.ok_or(Refusal::Other)?;
        for (name, value) in &described.values {
            vars::keep(&mut s, name, *value);
        }
        let buffer = proxy.buffer_size();
        let rest = Rest {
            up: Resting::of(&described.up, buffer),
            down: Resting::of(&described.down, buffer),
            closed: [described.up.closed, described.down.closed],
            moved_ms: now_ms().saturating_sub(described.silent_ms),
        };
        let group = Bytes::copy_from_slice(leased.group);
        let server = Sock::from_fd(server).into();
        Ok(Box::new(move || {
            let place = peer.map(Occupied::new);
            accept::resume(s, proxy, Resumed { server, rest, group, place });
        }))
    }
}

/// The listening address, the server and its proxy that a session is for.
fn place(
    main: &StreamMain,
    described: &handover::Session<'_>,
) -> Option<(Rc<Address>, Rc<Server>, Rc<Proxy>)> {
    let listener = SockAddr::parse(described.client.listener)?;
    let local = SockAddr::parse(described.client.local)?;
    let streams = || main.listens.iter().filter(|listen| listen.spec.kind == net::Kind::Stream);
    let same = streams().find(|l| l.addresses.iter().any(|a| a.addr == listener));
    let address = same?.address(|| Some(local));
    let server = match described.server {
        None => address.default.clone(),
        Some(name) => address.names.as_ref()?.find_text(name)?.clone(),
    };
    let proxy = server.pipeline.datagrams.clone()?;
    (!address.ssl).then_some((address, server, proxy))
}

fn session(
    main: &Rc<StreamMain>,
    address: Rc<Address>,
    sock: Transport,
    described: &handover::Session<'_>,
) -> Option<StreamSession> {
    let client = &described.client;
    let (peer, local) = (SockAddr::parse(client.peer)?, SockAddr::parse(client.local)?);
    let number = client.number;
    let mut s = StreamSession::numbered(main, address, peer, Some(local), Some(sock), number);
    s.start_ms = s.start_ms.saturating_sub(client.age_ms);
    s.received.set(described.bytes.0);
    s.sent.set(described.bytes.1);
    if let Some(real) = client.real_peer {
        s.set_real_peer(SockAddr::parse(real)?);
    }
    if let Some(header) = &client.proxy {
        s.set_proxy_header(Some(proxied::header(header)?));
    }
    if let (Some(ip), Some(sock)) = (s.client_ip(), s.sock()) {
        sock.set_client(ip);
    }
    Some(s)
}
