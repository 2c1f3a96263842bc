//! Connecting to upstream servers.

use base::future::rarely;
use base::log::Level;
use bytes::Bytes;
use engine::Client;
use event::{Deadline, Sock};
use mem::{Chain, Page};
use net::Transport;
use os::SockAddr;
use upstream::failure::{self, NotReached, SHAKING};
use upstream::peer::Peer;
use upstream::socket::{self, NotOpened};
use upstream::ssl::{Shake, UpstreamTls};

use super::choice::Others;
use super::{Proxy, Stop, header, relay};
use crate::phases::status;
use crate::session::StreamSession;

impl Proxy {
    /// Connects to a server, completes its TLS handshake, and sends the PROXY protocol header.
    pub(super) async fn connect(
        &self,
        s: &mut StreamSession,
        peer: &Peer,
        others: &Others,
    ) -> Result<relay::Server, Stop> {
        let addr = &peer.spec.addr;
        let conf = others.bound.as_deref().unwrap_or(&self.conf.socket);
        let sock =
            socket::open(s, conf, addr).map_err(|NotOpened| Stop::Status(status::INTERNAL))?;
        if self.speaks_first(s) {
            socket::speaks_first(&sock, addr);
        }
        let deadline = Deadline::in_ms(self.conf.connect_timeout);
        if let Err(e) = sock.connect(addr, deadline).await {
            return Err(not_reached(failure::not_connected(s, peer, &e)));
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
            None => {
                let nodelay = is_nodelay(s, addr);
                Ok(relay::Server { sock: sock.into(), first: chain, nodelay, rest: None })
            }
            Some(tls) => {
                let tls = tls.of(s);
                let sock = rarely(self.shake(s, peer, sock, (&tls, &others.host, chain))).await?;
                Ok(relay::Server { sock, first: Chain::new(), nodelay: false, rest: None })
            }
        }
    }

    /// Whether there are bytes to send before the server sends any. Reads the client's bytes if
    /// some are available.
    fn speaks_first(&self, s: &mut StreamSession) -> bool {
        if self.conf.protocol.is_some() || self.conf.tls.is_some() || !s.preread.is_empty() {
            return true;
        }
        // Left to the relay, which applies the rate limit.
        if self.conf.upload_rate.is_some() {
            return false;
        }
        let Some(client) = s.sock() else { return false };
        let mut page = Page::new();
        // The relay will see an end or an error itself.
        let Ok(Some(n @ 1..)) = client.try_recv_into(&mut page) else { return false };
        // Shrinks the buffer, because the bytes may have to wait for the server.
        page.narrow();
        s.received.set(s.received.get() + n as u64);
        s.preread = page;
        true
    }

    /// Sends the PROXY protocol header over a new connection, then starts TLS.
    async fn shake(
        &self,
        s: &mut StreamSession,
        peer: &Peer,
        sock: Sock,
        (tls, host, mut first): (&UpstreamTls, &[u8], Chain),
    ) -> Result<Transport, Stop> {
        let deadline = Deadline::in_ms(self.conf.connect_timeout);
        if is_nodelay(s, &peer.spec.addr) {
            // If the socket refuses the option, the session works without it.
            let _ = os::socket::set_nodelay(sock.fd(), true);
        }
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

/// Whether to set TCP_NODELAY on connections to `addr`.
fn is_nodelay(s: &StreamSession, addr: &SockAddr) -> bool {
    s.server.core.tcp_nodelay && !addr.is_unix()
}

fn not_reached(reached: NotReached) -> Stop {
    match reached {
        NotReached::Late | NotReached::Failed => Stop::Next,
        NotReached::Ours => Stop::Status(status::INTERNAL),
    }
}
