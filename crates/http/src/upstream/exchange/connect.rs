//! Connections of an exchange: to addresses that a resolver gives, kept or new.

use std::io;

use ::upstream::peer::{Peer, ServerSpec};
use ::upstream::pool::UpConn;
use ::upstream::resolver::Resolving;
use ::upstream::socket::{self, NotOpened};
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use event::{Deadline, Either, race_if};
use mem::Page;

use super::failure::{by_network, client_gone, timed_out};
use super::{Exchange, Stop};
use crate::channel::client_end;
use crate::module::Verdict;
use crate::request::Request;
use crate::upstream::conf::{Conf, next};

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
    match race_if(found, watch.as_ref().map(client_end)).await {
        Either::First(found) => found.ok_or(Verdict::Status(502)),
        Either::Second(_) => {
            client_gone(r, "connecting to upstream");
            r.err_status = 499;
            Err(Verdict::Close)
        }
    }
}

impl Exchange {
    /// A connection stands, and that is all that was asked for.
    pub(super) fn connected(&mut self, r: &mut Request) -> Page {
        let u = r.upstream_mut();
        self.protocol.head(b"", &mut u.head);
        let status = u.head.status;
        u.now().status = status;
        Page::new()
    }

    pub(super) fn kept_connection(&self, peer: &Peer) -> Option<UpConn> {
        self.pool.as_ref()?.take(&peer.spec.addr, self.tag())
    }

    /// A new connection.
    pub(super) async fn connect(&self, r: &mut Request, peer: &Peer) -> Result<UpConn, Stop> {
        let sock = socket::open(r, &self.conf.socket, &peer.spec.addr)
            .map_err(|NotOpened| Stop::Status(500))?;
        let watch = self.client(r);
        let deadline = Deadline::in_ms(self.conf.connect_timeout);
        let connecting = sock.connect(&peer.spec.addr, deadline);
        let gone = watch.as_ref().map(client_end);
        let done = match race_if(connecting, gone).await {
            Either::First(done) => done,
            Either::Second(_) => return Err(client_gone(r, "connecting to upstream")),
        };
        match done {
            Ok(()) => {
                Ok(UpConn { sock: sock.into(), requests: 0, start_ms: now_ms(), cached: false })
            }
            Err(e) if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() => {
                Err(timed_out(r, "connecting to upstream"))
            }
            Err(e) => {
                connect_failed(r, peer, &e);
                Err(Stop::Next(next::ERROR))
            }
        }
    }
}

#[cold]
fn connect_failed(r: &Request, peer: &Peer, e: &io::Error) {
    // A refusal at once is logged with the address, as nginx does.
    let later =
        !peer.spec.addr.is_unix() && matches!(e.raw_os_error(), Some(104 | 110 | 111 | 113));
    let to = match later {
        true => String::new(),
        false => format!("to {} ", base::log::lossy(&peer.name)),
    };
    let busy = e.kind() == io::ErrorKind::WouldBlock;
    let level = if busy || by_network(e) { Level::Error } else { Level::Crit };
    let os = base::log::os_error(e);
    r.log(level, format_args!("connect() {to}failed {os} while connecting to upstream"));
}
