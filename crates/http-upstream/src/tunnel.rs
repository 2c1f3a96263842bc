//! Tunnels: a connection that both sides agreed to use for something else (Upgrade, CONNECT). Bytes
//! go both ways until either side ends it.
//!
//! A tunnel runs in a task of its own, and the connection's task waits for its end. The task
//! touches two sockets and little else for a message, because with thousands of tunnels the
//! processor's caches decide the cost (docs/PASSING_ON.md). Each side is a connection or a stream
//! (`net::relay::End`). Over a stream, an upgrade is an extended CONNECT (RFC 8441, RFC 9220;
//! `proto::fields`), which is translated at the edge, so that phases, filters and logs know only
//! the upgrade.

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

/// An upgraded connection that is not carried yet.
pub(crate) struct Tunnel {
    link: Link,
    /// Bytes that came behind the upstream's head.
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

/// Whether the tunnel ended to make room for others, which is logged then.
fn is_displaced(r: &Request) -> bool {
    let doing = "while proxying upgraded connection";
    r.c().is_displaced(|m| r.log(Level::Info, format_args!("{m} {doing}")))
}

/// Time-outs of the two sides, milliseconds.
struct Timeouts {
    /// The upstream sends nothing, and nothing else happens.
    read: u64,
    /// The upstream takes nothing.
    send: u64,
    /// The client takes nothing.
    client: u64,
}

/// The cause of a tunnel's end.
enum TunnelEnd {
    /// One side ended it.
    Closed,
    Broken(io::Error),
    /// The client makes room for others.
    Displaced,
    /// A side was silent for too long; the level of the log line.
    Late(&'static str, Level),
}

/// Bytes that went through.
#[derive(Clone, Copy, Default)]
struct Moved {
    to_client: u64,
    from_upstream: u64,
    to_upstream: u64,
}

/// The report of the carrying task to the request.
#[derive(Default)]
struct Report {
    over: Notify,
    moved: Cell<Moved>,
    end: Cell<Option<TunnelEnd>>,
}

/// Delivers the report, whether the task came to its end or was dropped.
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

/// The request's hold on the task: they end together, and the request learns the bytes moved.
struct Watch<'a> {
    task: TaskId,
    report: Rc<Report>,
    r: &'a mut Request,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        event::task::cancel(self.task);
        let moved = self.report.moved.get();
        self.r.bytes_sent += moved.to_client;
        let a = self.r.upstream_mut().now();
        a.received += moved.from_upstream;
        a.sent += moved.to_upstream;
    }
}

/// Carries the bytes, as a task of its own: a message then wakes this, which is small, and not the
/// connection's task with all that a request consists of. Thousands of tunnels do not fit the
/// processor's caches otherwise.
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
                // A closed tunnel ends like a stream, not like a request that was given up.
                if matches!(end, TunnelEnd::Closed) {
                    let _ = stream.try_send(&mut Chain::new(), true);
                }
                end
            }
        };
        reporting.report.end.set(Some(end));
    }
}

/// Carries between two ends; `first` is what goes to the upstream, and to the client, at once.
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

/// Moves bytes both ways until one direction ends. A tunnel that waits for bytes of either side has
/// one wait for both, where both are connections: thousands of them are idle at a time.
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
        // The upstream's time to send is counted from here.
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
            // While the client takes nothing, the upstream is not asked for more.
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

/// Sets the time until which a side is to take bytes, where some wait for it: from when they began
/// to, or it took others.
fn renew(until_ms: &mut u64, moved: bool, waits: bool, time_ms: u64) {
    match waits {
        false => *until_ms = Times::NEVER,
        true if moved || *until_ms == Times::NEVER => *until_ms = now_ms().saturating_add(time_ms),
        true => {}
    }
}

/// Moves bytes in the direction of the event; in both at first.
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
