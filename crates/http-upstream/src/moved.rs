//! Tunnels that come from another process: see [`net::moves`].

use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use base::time::now_ms;
use event::Sock;
use http::server::HttpMain;
use net::moves::{Kind, Ready, Taker};
use proto::handover::{Message, Refusal};
use upstream::lease::Occupied;
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
    }
}

impl Taker for Tunnels {
    fn take(
        &self,
        message: &Message<'_>,
        [client, server]: [OwnedFd; 2],
    ) -> Result<Ready, Refusal> {
        let Message::Tunnel(tunnel) = message else { return Err(Refusal::Version) };
        let main = self.0.upgrade().ok_or(Refusal::Other)?;
        let mut resumed = http::moves::resume(&main, &tunnel.client, &tunnel.request, client)?;
        let upstreams = main.confs.get::<Upstreams>();
        let peer = upstreams.and_then(|all| all.peer(tunnel.leased.group, tunnel.leased.server));
        let sock = Sock::from_fd(server).into();
        let conn = UpConn { sock, requests: 1, start_ms: now_ms(), cached: false };
        resumed.request().upstream_mut().now().row = peer.as_ref().and_then(|peer| peer.row());
        let mut tunnel = Tunnel::resumed(tunnel, Wire::Conn(conn));
        Ok(Box::new(move || {
            tunnel.hold(peer.map(Occupied::new));
            resumed.run(Box::new(tunnel));
        }))
    }
}
