//! Tunnels: a connection that both sides agreed to use for something else (Upgrade, CONNECT). Bytes
//! go both ways until either side ends it.
//!
//! A tunnel runs in a task of its own, and the connection's task waits for its end. The task
//! touches two sockets and little else for a message, because with thousands of tunnels the
//! processor's caches decide the cost (docs/PASSING_ON.md). Each side is a connection or a stream
//! (`net::relay::End`). Over a stream, an upgrade is an extended CONNECT (RFC 8441, RFC 9220;
//! `http_wire::fields`), which is translated at the edge, so that phases, filters and logs know
//! only the upgrade.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use base::future::boxed;
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use event::{Deadline, Notify, TaskId};
use http::channel::Upgraded;
use http::output;
use http::request::Request;
use mem::Chain;
use net::relay::wait::{Event, Times, held};
use net::relay::{End, Flow};
use upstream::wire::Wire;

use crate::conf::Conf;
use crate::failure::log_io;
use crate::link::Link;

/// An upgraded connection before the tunnel starts.
pub(crate) struct Tunnel {
    link: Link,
    /// Bytes that followed the upstream's headers.
    rest: Bytes,
    conf: Rc<Conf>,
}

impl Tunnel {
    pub fn new(link: Link, rest: Bytes, conf: Rc<Conf>) -> Tunnel {
        Tunnel { link, rest, conf }
    }
}

impl output::Tunnel for Tunnel {
    fn run<'a>(self: Box<Self>, r: &'a mut Request) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(self.carry(r))
    }
}

impl Tunnel {
    async fn carry(mut self: Box<Self>, r: &mut Request) {
        let Some(upstream) = self.link.wire.take() else { return };
        let Some((client, up)) = http::channel::upgrade(r) else { return };
        if !self.link.addr.is_unix() {
            let _ = upstream.transport().set_nodelay(true);
        }
        let mut down = Chain::new();
        if !self.rest.is_empty() {
            down.push_bytes(std::mem::take(&mut self.rest));
        }
        let timeouts = Timeouts {
            read: self.conf.read_timeout,
            send: self.conf.send_timeout,
            client: r.loc.core.send_timeout,
        };
        let report = Rc::new(Report::default());
        let carrier = Carrier { upstream, up, down, timeouts, report: report.clone() };
        let task = match client {
            Upgraded::Connection(c) => {
                event::spawn(async move { carrier.run(c.transport()).await })
            }
            Upgraded::Stream(stream) => event::spawn(async move { carrier.run(&stream).await }),
            Upgraded::Quic(stream) => event::spawn(async move { carrier.run(&stream).await }),
        };
        let watch = Watch { task, report: report.clone(), r };
        report.over.notified().await;
        drop(watch);
        match report.end.take() {
            None | Some(TunnelEnd::Closed) => {}
            Some(TunnelEnd::Broken(e)) => log_io(r, "send()", &e, "proxying upgraded connection"),
            Some(TunnelEnd::Displaced | TunnelEnd::Late("client", _)) if is_displaced(r) => {}
            Some(TunnelEnd::Displaced) => {}
            Some(TunnelEnd::Late(who, level)) => {
                let m = "timed out (110: Connection timed out) while";
                r.log(level, format_args!("{who} {m} proxying upgraded connection"));
            }
        }
        let u = r.upstream_mut();
        let a = u.now();
        a.response_length = a.received;
        a.response_ms = Some(now_ms().saturating_sub(a.start_ms));
        u.asking = false;
    }
}

/// Whether the tunnel was evicted to make room for other connections; logs that.
fn is_displaced(r: &Request) -> bool {
    let doing = "while proxying upgraded connection";
    r.c().is_displaced(|m| r.log(Level::Info, format_args!("{m} {doing}")))
}

/// The timeouts of the two sides, in milliseconds.
struct Timeouts {
    /// Nothing moves in either direction.
    read: u64,
    /// The upstream does not read.
    send: u64,
    /// The client does not read.
    client: u64,
}

/// Why a tunnel ended.
enum TunnelEnd {
    /// One side closed.
    Closed,
    Broken(io::Error),
    /// Evicted to make room for other connections.
    Displaced,
    /// A timeout; the message and level of the log line.
    Late(&'static str, Level),
}

/// The number of bytes copied.
#[derive(Clone, Copy, Default)]
struct Moved {
    to_client: u64,
    from_upstream: u64,
    to_upstream: u64,
}

/// The result that the tunnel's task reports to the request.
#[derive(Default)]
struct Report {
    over: Notify,
    moved: Cell<Moved>,
    end: Cell<Option<TunnelEnd>>,
}

/// Delivers the report when the task ends or is dropped.
struct Reporting {
    report: Rc<Report>,
    moved: Moved,
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.report.moved.set(self.moved);
        self.report.over.notify_one();
    }
}

/// The request's handle of the task: both end together, and the request gets the byte counts.
struct Watch<'a> {
    task: TaskId,
    report: Rc<Report>,
    r: &'a mut Request,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        event::task::cancel(self.task);
        let moved = self.report.moved.get();
        self.r.account.bytes_sent += moved.to_client;
        let a = self.r.upstream_mut().now();
        a.received += moved.from_upstream;
        a.sent += moved.to_upstream;
    }
}

/// Copies the bytes in a separate task, which is small: a message wakes only this task, not the
/// connection's with all of the request's state. Otherwise thousands of tunnels would not fit the
/// CPU's caches.
struct Carrier {
    upstream: Wire,
    up: Chain,
    down: Chain,
    timeouts: Timeouts,
    report: Rc<Report>,
}

impl Carrier {
    async fn run(self, client: &impl End) {
        let Carrier { upstream, up, down, timeouts, report } = self;
        let mut reporting = Reporting { report, moved: Moved::default() };
        let moved = &mut reporting.moved;
        let end = match &upstream {
            Wire::Conn(conn) => carry(client, &conn.sock, (up, down), &timeouts, moved).await,
            Wire::Stream(stream) => {
                let end = carry(client, stream, (up, down), &timeouts, moved).await;
                // A closed tunnel ends its stream regularly, rather than resetting it.
                if matches!(end, TunnelEnd::Closed) {
                    let _ = stream.try_send(&mut Chain::new(), true);
                }
                end
            }
        };
        reporting.report.end.set(Some(end));
    }
}

/// Copies between two ends; `first` is sent first, to the upstream and to the client.
async fn carry<C: End, U: End>(
    client: &C,
    upstream: &U,
    first: (Chain, Chain),
    timeouts: &Timeouts,
    moved: &mut Moved,
) -> TunnelEnd {
    let mut up = Flow::new(client, upstream, first.0);
    let mut down = Flow::new(upstream, client, first.1);
    both(&mut up, &mut down, timeouts, moved).await
}

/// Copies bytes in both directions until one ends. If both ends are connections, an idle tunnel
/// waits for both with a single wait, because thousands may be idle at a time.
async fn both<C: End, U: End>(
    up: &mut Flow<'_, C, U>,
    down: &mut Flow<'_, U, C>,
    timeouts: &Timeouts,
    moved: &mut Moved,
) -> TunnelEnd {
    let mut look_ms = now_ms().saturating_add(timeouts.read);
    let (mut client_ms, mut upstream_ms) = (Times::NEVER, Times::NEVER);
    let mut last = None;
    loop {
        if let Err(e) = go(up, down, last, moved) {
            return TunnelEnd::Broken(e);
        }
        // The upstream's read timeout starts here.
        let moved_ms = now_ms();
        if up.is_done() || down.is_done() || up.ended && down.ended {
            return TunnelEnd::Closed;
        }
        if std::mem::take(&mut up.busy) | std::mem::take(&mut down.busy) {
            event::task::yield_now().await;
            last = None;
            continue;
        }
        renew(&mut client_ms, last != Some(Event::Up), down.has_unsent(), timeouts.client);
        renew(&mut upstream_ms, last != Some(Event::Down), up.has_unsent(), timeouts.send);
        last = loop {
            let connections = match up.wants_read() && down.wants_read() {
                true => up.from.transport().zip(up.to.transport()),
                false => None,
            };
            let now = match connections {
                Some((client, upstream)) => {
                    let look = Deadline::at(look_ms);
                    Event::of_idle(upstream.either_readable(client, look).await)
                }
                None => {
                    let times = Times { client: client_ms, server: upstream_ms, look: look_ms };
                    boxed(|| held(up, down, times)).await
                }
            };
            match now {
                Event::Up | Event::Down => break Some(now),
                Event::Both => break None,
                Event::ServerLate => return TunnelEnd::Late("upstream", Level::Error),
                Event::ClientLate => return TunnelEnd::Late("client", Level::Info),
                Event::Displaced => return TunnelEnd::Displaced,
                Event::Look => {}
            }
            // While the client does not read, the upstream is not read either, so its timeout does
            // not apply.
            let passed = now_ms().saturating_sub(moved_ms);
            let left = match timeouts.read.saturating_sub(passed) {
                0 if down.wants_read() => return TunnelEnd::Late("upstream", Level::Error),
                0 => timeouts.read,
                left => left,
            };
            look_ms = now_ms().saturating_add(left);
        };
    }
}

/// Updates the deadline by which a side must read, if bytes are waiting for it: it starts when they
/// begin to wait, and again at each progress.
fn renew(until_ms: &mut u64, moved: bool, waits: bool, time_ms: u64) {
    match waits {
        false => *until_ms = Times::NEVER,
        true if moved || *until_ms == Times::NEVER => *until_ms = now_ms().saturating_add(time_ms),
        true => {}
    }
}

/// Copies bytes in the direction of the event; in both directions the first time.
fn go<C: End, U: End>(
    up: &mut Flow<'_, C, U>,
    down: &mut Flow<'_, U, C>,
    event: Option<Event>,
    moved: &mut Moved,
) -> io::Result<()> {
    if event != Some(Event::Up) {
        let bytes = down.go()?;
        moved.to_client += bytes.written;
        moved.from_upstream += bytes.read;
    }
    if event != Some(Event::Down) {
        moved.to_upstream += up.go()?.written;
    }
    Ok(())
}
