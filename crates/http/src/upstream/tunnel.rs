//! A connection that both sides agreed to use for something else: bytes go both ways until either
//! ends it.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use event::{Deadline, Sock};
use mem::{Chain, Page};

use super::conf::Conf;
use super::exchange::{Link, log_io};
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
    /// It was stopped although more could be moved.
    busy: bool,
}

/// How many reads of one way may follow each other before other connections have their turn.
const ROUNDS: usize = 16;

impl Way<'_> {
    /// Moves what can be moved without waiting; gives the bytes read and written.
    fn go(&mut self) -> io::Result<(u64, u64)> {
        let (mut read, mut written) = (0, 0);
        for _ in 0..ROUNDS {
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
        self.busy = true;
        Ok((read, written))
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
        let mut up = Way {
            from: &client.sock,
            to: &conn.sock,
            pending: Chain::new(),
            ended: false,
            busy: false,
        };
        let early = r.unread();
        if !early.is_empty() {
            up.pending.write(early);
        }
        let mut down = Way {
            from: &conn.sock,
            to: &client.sock,
            pending: Chain::new(),
            ended: false,
            busy: false,
        };
        if !self.rest.is_empty() {
            down.pending.push_bytes(std::mem::take(&mut self.rest));
        }
        let times = Times {
            read: self.conf.read_timeout,
            send: self.conf.send_timeout,
            client: r.loc.core.send_timeout,
        };
        both(r, &mut up, &mut down, &times).await;
        let u = r.upstream_mut();
        let a = u.now();
        a.response_length = a.received;
        a.response_ms = Some(now_ms().saturating_sub(a.start_ms));
        u.peer = None;
    }
}

/// How long one side may keep the other waiting, milliseconds.
struct Times {
    /// The upstream sends nothing, and nothing else happens.
    read: u64,
    /// The upstream takes nothing.
    send: u64,
    /// The client takes nothing.
    client: u64,
}

/// What ended the waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The way from the client to the upstream may go on.
    Up,
    /// The other one may.
    Down,
    /// The upstream sent nothing in time.
    ReadLate,
    /// The upstream took nothing in time.
    SendLate,
    /// The client took nothing in time.
    ClientLate,
}

/// Moves bytes both ways until one ends. A wait stays as it is while others end, so that a message
/// costs one wait and not four.
async fn both(r: &mut Request, up: &mut Way<'_>, down: &mut Way<'_>, times: &Times) {
    let (client, upstream) = (up.from, up.to);
    let mut from_client = pin!(None);
    let mut from_upstream = pin!(None);
    let mut to_client = pin!(None);
    let mut to_upstream = pin!(None);
    let mut last = None;
    // When something moved last: the upstream's time to send is counted from there.
    let mut moved_ms;
    loop {
        if let Err(e) = go(r, up, down, last) {
            log_io(r, "send()", &e, "proxying upgraded connection");
            return;
        }
        moved_ms = now_ms();
        if up.is_done() || down.is_done() || up.ended && down.ended {
            return;
        }
        if std::mem::take(&mut up.busy) | std::mem::take(&mut down.busy) {
            event::task::yield_now().await;
            last = None;
            continue;
        }
        let now = loop {
            keep(from_client.as_mut(), up.wants_read(), || client.readable(Deadline::NEVER));
            keep(from_upstream.as_mut(), down.wants_read(), || {
                let passed = now_ms().saturating_sub(moved_ms);
                upstream.readable(Deadline::in_ms(times.read.saturating_sub(passed)))
            });
            keep(to_client.as_mut(), !down.pending.is_empty(), || {
                client.writable(Deadline::in_ms(times.client))
            });
            keep(to_upstream.as_mut(), !up.pending.is_empty(), || {
                upstream.writable(Deadline::in_ms(times.send))
            });
            let now = std::future::poll_fn(|cx| {
                let ended = poll_kept(from_upstream.as_mut(), cx, Event::Down, Event::ReadLate)
                    .or_else(|| poll_kept(from_client.as_mut(), cx, Event::Up, Event::Up))
                    .or_else(|| poll_kept(to_client.as_mut(), cx, Event::Down, Event::ClientLate))
                    .or_else(|| poll_kept(to_upstream.as_mut(), cx, Event::Up, Event::SendLate));
                ended.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            // A wait is not begun anew with each message: its end may have moved away meanwhile.
            let late = now_ms().saturating_sub(moved_ms) >= times.read;
            if now != Event::ReadLate || late {
                break now;
            }
        };
        let (who, level) = match now {
            Event::Up | Event::Down => {
                last = Some(now);
                continue;
            }
            Event::ReadLate | Event::SendLate => ("upstream", Level::Error),
            Event::ClientLate => ("client", Level::Info),
        };
        let m = "timed out (110: Connection timed out) while";
        r.log(level, format_args!("{who} {m} proxying upgraded connection"));
        return;
    }
}

/// Moves what can be moved: one way, or both at first.
fn go(
    r: &mut Request,
    up: &mut Way<'_>,
    down: &mut Way<'_>,
    event: Option<Event>,
) -> io::Result<()> {
    if event != Some(Event::Up) {
        let (read, written) = down.go()?;
        r.bytes_sent += written;
        r.upstream_mut().now().received += read;
    }
    if event != Some(Event::Down) {
        let (_, sent) = up.go()?;
        r.upstream_mut().now().sent += sent;
    }
    Ok(())
}

/// Begins a wait that is wanted and not there, gives up one that is there and not wanted.
fn keep<F>(mut slot: Pin<&mut Option<F>>, wanted: bool, begin: impl FnOnce() -> F) {
    if wanted && slot.is_none() {
        slot.set(Some(begin()));
    } else if !wanted && slot.is_some() {
        slot.set(None);
    }
}

/// How a wait ended, if it did: it is not kept then.
fn poll_kept<F: Future<Output = io::Result<()>>>(
    mut slot: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
    ready: Event,
    late: Event,
) -> Option<Event> {
    let Poll::Ready(done) = slot.as_mut().as_pin_mut()?.poll(cx) else { return None };
    slot.set(None);
    // Whatever else is wrong with a socket shows when it is used.
    Some(if done.is_err_and(|e| e.kind() == io::ErrorKind::TimedOut) { late } else { ready })
}
