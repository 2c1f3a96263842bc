//! A connection that both sides agreed to use for something else: bytes go both ways until either
//! ends it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use event::{Deadline, Sock};
use mem::{Chain, Page};

use super::conf::Conf;
use super::exchange::{Link, log_io};
use super::wire::{Either, either, only_if};
use crate::output;
use crate::request::Request;

/// See the module's documentation.
pub(super) struct Tunnel {
    link: Link,
    /// What the upstream sent behind its head.
    rest: Bytes,
    conf: Rc<Conf>,
}

impl Tunnel {
    pub fn new(link: Link, rest: Bytes, conf: Rc<Conf>) -> Tunnel {
        Tunnel { link, rest, conf }
    }
}

/// One direction.
struct Way<'a> {
    from: &'a Sock,
    to: &'a Sock,
    pending: Chain,
    ended: bool,
}

impl Way<'_> {
    /// Moves what can be moved without waiting; gives the bytes read and written.
    fn go(&mut self) -> io::Result<(u64, u64)> {
        let (mut read, mut written) = (0, 0);
        loop {
            if !self.pending.is_empty() {
                let n = self.to.try_send(&mut self.pending, None)?;
                written += n as u64;
                if !self.pending.is_empty() {
                    return Ok((read, written));
                }
            }
            if self.ended {
                return Ok((read, written));
            }
            let mut page = Page::new();
            match self.from.try_recv_into(&mut page) {
                Ok(None) => return Ok((read, written)),
                // The end, or a broken connection, which is an end too.
                Ok(Some(0)) | Err(_) => self.ended = true,
                Ok(Some(n)) => {
                    read += n as u64;
                    self.pending.push(page.into());
                }
            }
        }
    }

    fn wants_read(&self) -> bool {
        self.pending.is_empty() && !self.ended
    }

    fn is_done(&self) -> bool {
        self.ended && self.pending.is_empty()
    }
}

impl output::Tunnel for Tunnel {
    fn run<'a>(self: Box<Self>, r: &'a mut Request) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(self.carry(r))
    }
}

impl Tunnel {
    async fn carry(mut self: Box<Self>, r: &mut Request) {
        let client = r.c().clone();
        let Some(conn) = self.link.conn.take() else { return };
        if !self.link.addr.is_unix() {
            let _ = os::socket::set_nodelay(conn.sock.fd(), true);
        }
        let mut up =
            Way { from: &client.sock, to: &conn.sock, pending: Chain::new(), ended: false };
        let early = r.unread();
        if !early.is_empty() {
            up.pending.write(early);
        }
        let mut down =
            Way { from: &conn.sock, to: &client.sock, pending: Chain::new(), ended: false };
        if !self.rest.is_empty() {
            down.pending.push_bytes(std::mem::take(&mut self.rest));
        }
        let send_timeout = r.loc.core.send_timeout;
        loop {
            let moved = down.go().and_then(|d| Ok((d, up.go()?)));
            match moved {
                Ok(((read, written), (_, sent))) => {
                    r.bytes_sent += written;
                    let a = r.upstream_mut().now();
                    a.received += read;
                    a.sent += sent;
                }
                Err(e) => {
                    log_io(r, "send()", &e, "proxying upgraded connection");
                    break;
                }
            }
            if up.is_done() || down.is_done() || up.ended && down.ended {
                break;
            }
            if let Err(e) = wait(&up, &down, &self.conf, send_timeout).await {
                let (who, level) = match e {
                    Side::Client => ("client", Level::Info),
                    Side::Upstream => ("upstream", Level::Error),
                };
                let m = "timed out (110: Connection timed out) while";
                r.log(level, format_args!("{who} {m} proxying upgraded connection"));
                break;
            }
        }
        let u = r.upstream_mut();
        let a = u.now();
        a.response_length = a.received;
        a.response_ms = Some(now_ms().saturating_sub(a.start_ms));
        u.peer = None;
    }
}

/// Whose time is over.
enum Side {
    Client,
    Upstream,
}

/// Waits until one of the directions can go on.
async fn wait(up: &Way<'_>, down: &Way<'_>, conf: &Conf, send_timeout: u64) -> Result<(), Side> {
    let read_upstream =
        only_if(down.wants_read(), down.from.readable(Deadline::in_ms(conf.read_timeout)));
    let write_upstream =
        only_if(!up.pending.is_empty(), up.to.writable(Deadline::in_ms(conf.send_timeout)));
    let read_client = only_if(up.wants_read(), up.from.readable(Deadline::NEVER));
    let write_client =
        only_if(!down.pending.is_empty(), down.to.writable(Deadline::in_ms(send_timeout)));
    let upstream = either(read_upstream, write_upstream);
    let client = either(read_client, write_client);
    let over = |e: &io::Result<()>| e.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::TimedOut);
    match either(upstream, client).await {
        Either::First(Either::First(done) | Either::Second(done)) if over(&done) => {
            Err(Side::Upstream)
        }
        Either::Second(Either::First(done) | Either::Second(done)) if over(&done) => {
            Err(Side::Client)
        }
        _ => Ok(()),
    }
}
