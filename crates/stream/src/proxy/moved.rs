//! Sessions over TCP that come from another process: see [`net::moves`].
//!
//! The receiver assigns a session to its own configuration by the listening address and the
//! server's name. The settings of the new configuration hold from then on; rates that were
//! evaluated at the session's start go on.

use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use base::time::now_ms;
use bytes::Bytes;
use common_modules::moved::{self, Addresses};
use common_modules::ssl::Established;
use engine::vars;
use event::Sock;
use net::Transport;
use net::moves::{self, Kind, Moves, Ready, Taker};
use net::relay::Resting;
use proto::handover::{self, Message, Refusal};
use upstream::Upstreams;
use upstream::lease::Occupied;

use super::exchanges::Exchanges;
use super::resumed::{Rest, Resumed};
use crate::accept;
use crate::module::TasklessProxy;
use crate::server::{Address, Server, StreamMain};
use crate::session::{ServedBy, StreamSession};
use crate::ssl;

/// Takes sessions into this worker's configuration.
struct Sessions(Weak<StreamMain>);

/// Has this worker take sessions.
pub(crate) fn register(main: &Rc<StreamMain>, moves: &Moves) {
    moves.take_by(Kind::Session, Rc::new(Sessions(Rc::downgrade(main))));
}

impl Taker for Sessions {
    fn take(&self, message: &Message<'_>, fds: Vec<OwnedFd>) -> Result<Ready, Refusal> {
        let [client, server] = moves::ends(fds)?;
        let Message::Session(described) = message else { return Err(Refusal::Version) };
        let main = self.0.upgrade().ok_or(Refusal::Other)?;
        let (address, addresses) = moved::place(&main.listens, &described.client)?;
        let (to, proxy) = chosen(&address, described).ok_or(Refusal::Configuration)?;
        if !to.core.handover {
            return Err(Refusal::Off);
        }
        let leased = &described.leased;
        let upstreams = main.confs.get::<Upstreams>();
        let named = |name: &[u8]| upstreams.and_then(|all| all.peer(leased.group, name));
        let (peer, exchanges) =
            (named(leased.server), Exchanges::resumed(&described.attempts, named));
        let of_client = described.client.tls.as_ref();
        let (client, client_session) = Transport::resumed(Sock::of_client(client), of_client)?;
        let of_server = described.server_tls.as_ref();
        let (server, server_session) = Transport::resumed(Sock::of_server(server), of_server)?;
        let mut s = session(&main, address, addresses, client, described).ok_or(Refusal::Other)?;
        s.server = to;
        // Values that were asked for come by themselves; this serves the logs of this
        // configuration.
        if let Some(handshake) = &described.client.handshake
            && let Ok(tls) = Established::resumed(ssl::tls_of(&s).tls.clone(), handshake)
        {
            s.set_tls(Box::new(tls));
        }
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
        Ok(Box::new(move || {
            if let Some(client) = s.sock() {
                client.arrived(client_session);
            }
            server.arrived(server_session);
            let place = peer.map(Occupied::new);
            accept::resume(s, proxy, Resumed { server, rest, group, place });
        }))
    }
}

/// The server that a session is for, and its proxy.
fn chosen(
    address: &Address,
    described: &handover::Session<'_>,
) -> Option<(Rc<Server>, Rc<dyn TasklessProxy>)> {
    let server = match described.server {
        None => address.default.clone(),
        Some(name) => address.names.as_ref()?.find_text(name)?.clone(),
    };
    // A filter begins with a session's first bytes.
    if server.pipeline.filter.is_some() {
        return None;
    }
    let proxy = server.pipeline.datagrams.clone()?;
    Some((server, proxy))
}

fn session(
    main: &Rc<StreamMain>,
    address: Rc<Address>,
    addresses: Addresses,
    sock: Transport,
    described: &handover::Session<'_>,
) -> Option<StreamSession> {
    let (client, Addresses { local, peer, real_peer }) = (&described.client, addresses);
    let number = client.number;
    let mut s = StreamSession::numbered(main, address, peer, Some(local), Some(sock), number);
    s.start_ms = s.start_ms.saturating_sub(client.age_ms);
    s.served_by = ServedBy::Arrived;
    s.received.set(described.bytes.0);
    s.sent.set(described.bytes.1);
    if let Some(real) = real_peer {
        s.set_real_peer(real);
    }
    if let Some(header) = &client.proxy {
        s.set_proxy_header(Some(moved::header(header)?));
    }
    if let (Some(ip), Some(sock)) = (s.client_ip(), s.sock()) {
        sock.set_client(ip);
    }
    Some(s)
}
