//! Connections to servers.

use base::future::rarely;
use base::log::Level;
use bytes::Bytes;
use engine::Client;
use event::{Deadline, Sock};
use mem::Chain;
use net::Transport;
use upstream::failure::{self, NotReached, SHAKING};
use upstream::peer::Peer;
use upstream::socket::{self, NotOpened};
use upstream::ssl::{Shake, UpstreamTls};

use super::{Proxy, Stop, header, relay};
use crate::phases::status;
use crate::session::StreamSession;

impl Proxy {
    /// Connects to a server, and sends what comes before the client's bytes.
    pub(super) async fn connect(
        &self,
        s: &mut StreamSession,
        peer: &Peer,
        host: &[u8],
    ) -> Result<relay::Server, Stop> {
        let addr = &peer.spec.addr;
        let sock = socket::open(s, &self.conf.socket, addr)
            .map_err(|NotOpened| Stop::Status(status::INTERNAL))?;
        let deadline = Deadline::in_ms(self.conf.connect_timeout);
        if let Err(e) = sock.connect(addr, deadline).await {
            return Err(not_reached(failure::not_connected(s, peer, &e)));
        }
        if s.server.core.tcp_nodelay && !addr.is_unix() {
            // What the socket refuses is not needed for passing bytes.
            let _ = os::socket::set_nodelay(sock.fd(), true);
        }
        if s.logs(Level::Info)
            && let Ok(local) = os::socket::local_addr(sock.fd())
        {
            let to = base::log::lossy(&peer.name);
            s.log(Level::Info, format_args!("proxy {local} connected to {to}"));
        }
        s.exchanges.connected();
        let first = self.conf.protocol.map(|headers| header::of(s, headers.version));
        let mut chain = Chain::new();
        if let Some(first) = first {
            chain.push_bytes(first.into());
        }
        match &self.conf.tls {
            None => Ok(relay::Server { sock: sock.into(), first: chain }),
            Some(tls) => {
                let tls = tls.of(s);
                let sock = rarely(self.shake(s, peer, sock, (&tls, host, chain))).await?;
                Ok(relay::Server { sock, first: Chain::new() })
            }
        }
    }

    /// Puts TLS over a new connection, behind the PROXY protocol header.
    async fn shake(
        &self,
        s: &mut StreamSession,
        peer: &Peer,
        sock: Sock,
        (tls, host, mut first): (&UpstreamTls, &[u8], Chain),
    ) -> Result<Transport, Stop> {
        let deadline = Deadline::in_ms(self.conf.connect_timeout);
        if !first.is_empty() {
            let len = first.len();
            if let Err(e) = sock.send(&mut first, deadline).await {
                let e = base::log::os_error(&e);
                s.log(Level::Error, format_args!("send() failed {e} while {SHAKING}"));
                return Err(Stop::Next);
            }
            if let Some(a) = s.exchanges.now() {
                a.sent += len;
            }
        }
        let name =
            tls.name.as_ref().map_or_else(|| Bytes::copy_from_slice(host), |name| name.eval(s));
        let certificate = tls.changing.as_ref().map(|c| (c.certificate.eval(s), c.key.eval(s)));
        let (address, counted) = (&peer.name, Some(peer));
        let shake = Shake { peer: address, name: &name, certificate, deadline, counted };
        let done = tls.connect(sock, shake).await;
        done.map_err(|fault| not_reached(failure::no_session(s, &fault)))
    }
}

fn not_reached(reached: NotReached) -> Stop {
    match reached {
        NotReached::Late | NotReached::Failed => Stop::Next,
        NotReached::Ours => Stop::Status(status::INTERNAL),
    }
}
