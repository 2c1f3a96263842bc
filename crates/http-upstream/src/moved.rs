//! Tunnels that come from another process: see [`net::moves`].

use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use base::time::now_ms;
use bytes::Bytes;
use event::Sock;
use http::exchanges::{Attempt, Exchanges};
use http::output::Beginning;
use http::request::Request;
use http::server::HttpMain;
use net::Transport;
use net::moves::{self, Kind, Ready, Taker};
use proto::handover::{self, Exchange, Leased, Message, Refusal};
use upstream::lease::Occupied;
use upstream::peer::Peer;
use upstream::pool::UpConn;
use upstream::upstreams::Upstreams;
use upstream::wire::Wire;

use crate::tunnel::Tunnel;

/// Takes tunnels into this worker's configuration.
struct Tunnels(Weak<HttpMain>);

/// Has this worker take tunnels.
pub(crate) fn register(main: &Rc<HttpMain>) {
    if let Some(moves) = main.life.moves() {
        moves.take_by(Kind::Tunnel, Rc::new(Tunnels(Rc::downgrade(main))));
        let _ = main.tunnels.set(begin);
    }
}

impl Taker for Tunnels {
    fn take(&self, message: &Message<'_>, fds: Vec<OwnedFd>) -> Result<Ready, Refusal> {
        let [client, server] = moves::ends(fds)?;
        let Message::Tunnel(tunnel) = message else { return Err(Refusal::Version) };
        let main = self.0.upgrade().ok_or(Refusal::Other)?;
        let mut resumed = http::moves::resume(&main, &tunnel.client, &tunnel.request, client)?;
        let begin = begin(resumed.request(), tunnel, server)?;
        Ok(Box::new(move || resumed.run(begin())))
    }
}

/// Makes the tunnel of a request that another process has described, over the connection `server`.
fn begin(
    r: &mut Request,
    described: &handover::Tunnel<'_>,
    server: OwnedFd,
) -> Result<Beginning, Refusal> {
    let main = r.main.clone();
    let (upstreams, leased) = (main.confs.get::<Upstreams>(), &described.exchange.leased);
    let named = |name: &[u8]| upstreams.and_then(|all| all.peer(leased.group, name));
    let peer = named(leased.server);
    restore(r, &described.exchange, named).ok_or(Refusal::Other)?;
    let server_tls = described.server_tls.as_ref();
    let (sock, session) = Transport::resumed(Sock::of_server(server), server_tls)?;
    let conn = UpConn { sock, requests: 1, start_ms: now_ms(), cached: false, moved_in: 0 };
    let mut tunnel = Tunnel::resumed(described, Wire::Conn(conn));
    Ok(Box::new(move || {
        tunnel.begin(session, peer.map(Occupied::new));
        Box::new(tunnel)
    }))
}

/// The schemes of protocols that open tunnels.
const SCHEMES: &[&str] = &["http://", "https://", ""];

/// Describes the exchange by which a request has become a tunnel.
pub(crate) fn described<'a>(u: &'a Exchanges, leased: &'a (Bytes, Bytes)) -> Exchange<'a> {
    let now = now_ms();
    let attempts = u.attempts.iter().map(|attempt| handover::Attempt {
        peer: attempt.peer.as_ref().map(|peer| &peer[..]),
        status: attempt.status,
        age_ms: now.saturating_sub(attempt.start_ms),
        connect_ms: attempt.connect_ms,
        first_ms: attempt.header_ms,
        end_ms: attempt.response_ms,
        length: attempt.response_length,
        received: attempt.received,
        sent: attempt.sent,
    });
    Exchange {
        scheme: u.scheme.as_bytes(),
        uri: &u.uri,
        host: (&u.host, &u.port),
        attempts: attempts.collect(),
        leased: Leased { group: &leased.0, server: &leased.1 },
    }
}

/// Gives a request the exchange that another process has described; `named` finds the servers of
/// its attempts, for whom they count. `None` if it is of a protocol that opens no tunnels.
fn restore(
    r: &mut Request,
    exchange: &Exchange<'_>,
    named: impl Fn(&[u8]) -> Option<Rc<Peer>>,
) -> Option<()> {
    let now = now_ms();
    let u = r.upstream_mut();
    u.begin();
    u.scheme = SCHEMES.iter().find(|known| known.as_bytes() == exchange.scheme)?;
    u.asking = true;
    u.uri = exchange.uri.to_vec();
    u.host = Bytes::copy_from_slice(exchange.host.0);
    u.port = Bytes::copy_from_slice(exchange.host.1);
    let attempts = exchange.attempts.iter().map(|of| Attempt {
        peer: of.peer.map(Bytes::copy_from_slice),
        status: of.status,
        start_ms: now.saturating_sub(of.age_ms),
        connect_ms: of.connect_ms,
        header_ms: of.first_ms,
        response_ms: of.end_ms,
        response_length: of.length,
        received: of.received,
        sent: of.sent,
        row: of.peer.and_then(&named).and_then(|peer| peer.row()),
    });
    u.attempts = attempts.collect();
    Some(())
}
