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
use std::pin::{Pin, pin};
use std::rc::Rc;

use base::future::boxed;
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use event::{Deadline, Notify, TaskId};
use http::channel::Upgraded;
use http::moves::Facts;
use http::output;
use http::request::Request;
use mem::Chain;
use net::Transport;
use net::moves::{self, Berth, Kind, Member, Moves, Offered, Stay, Turn};
use net::relay::wait::{Event, Times, held};
use net::relay::{End, Flow, Resting, RestingCopy, withdraw, withdraw_server};
use net::transport::SealedCopy;
use proto::handover::{self, Message};
use tls::Session;
use upstream::lease::Occupied;
use upstream::wire::Wire;

use crate::caller::{Called, Caller, unless_due};
use crate::conf::Conf;
use crate::failure::log_io;
use crate::link::Link;
use crate::moved;

/// An upgraded connection before the tunnel starts, or while it rests.
pub(crate) struct Tunnel {
    upstream: Option<Wire>,
    hold: Hold,
    /// The server, by its group's name and its own; empty if no group has it.
    leased: (Bytes, Bytes),
    timeouts: Timeouts,
    rest: Rest,
    /// Its part among the tunnels of the client's connection, if it moves with that.
    member: Option<Rc<Member>>,
}

/// The tunnel's place among the exchanges of its server.
#[expect(dead_code, reason = "kept for its drop")]
enum Hold {
    /// The exchange began here.
    Lease(Link),
    /// It began in another process; a server that is no longer in the configuration has no place.
    Resumed(Option<Occupied>),
}

/// A tunnel that rests: all of it but its two ends.
struct Rest {
    up: Resting,
    down: Resting,
    clocks: Clocks,
}

/// The times of a tunnel, in milliseconds of [`now_ms`].
#[derive(Clone, Copy)]
struct Clocks {
    /// Bytes moved last.
    moved_ms: u64,
    /// The client is to read until then, if bytes wait for it.
    client_ms: u64,
    /// The upstream is to read until then.
    upstream_ms: u64,
}

impl Clocks {
    fn new() -> Clocks {
        Clocks { moved_ms: now_ms(), client_ms: Times::NEVER, upstream_ms: Times::NEVER }
    }
}

impl Tunnel {
    /// `rest` followed the upstream's headers; `group` has the server.
    pub fn new(mut link: Link, rest: Bytes, conf: &Conf, group: Bytes) -> Tunnel {
        let upstream = link.wire.take();
        if let Some(upstream) = &upstream
            && !link.peer.spec.addr.is_unix()
        {
            let _ = upstream.transport().set_nodelay(true);
        }
        let mut down = Chain::new();
        if !rest.is_empty() {
            down.push_bytes(rest);
        }
        let (read, send) = (conf.read_timeout, conf.send_timeout);
        let (up, down) = (Resting::default(), Resting::new(down));
        let leased = (group, link.lease.server_name().unwrap_or_default());
        Tunnel {
            upstream,
            hold: Hold::Lease(link),
            leased,
            // The client's is the location's.
            timeouts: Timeouts { read, send, client: 0 },
            rest: Rest { up, down, clocks: Clocks::new() },
            member: None,
        }
    }

    /// A tunnel that another process has described, over the connection `upstream`.
    pub fn resumed(described: &handover::Tunnel<'_>, upstream: Wire) -> Tunnel {
        let (read, send, client) = described.timeouts;
        let now = now_ms();
        let until = |left: Option<u64>| left.map_or(Times::NEVER, |ms| now.saturating_add(ms));
        let clocks = Clocks {
            moved_ms: now.saturating_sub(described.silent_ms),
            upstream_ms: until(described.left_ms.0),
            client_ms: until(described.left_ms.1),
        };
        let (up, down) = (Resting::of(&described.up, 0), Resting::of(&described.down, 0));
        let (name, leased) = (Bytes::copy_from_slice, &described.exchange.leased);
        Tunnel {
            upstream: Some(upstream),
            hold: Hold::Resumed(None),
            leased: (name(leased.group), name(leased.server)),
            timeouts: Timeouts { read, send, client },
            rest: Rest { up, down, clocks },
            member: None,
        }
    }
}

impl Tunnel {
    /// The other process has given it up: speaks TLS to the server, if it did, and has a place
    /// among the exchanges of the server, if the configuration has that.
    pub fn begin(&mut self, session: Option<Session>, place: Option<Occupied>) {
        if let Some(upstream) = &self.upstream {
            upstream.transport().arrived(session);
        }
        self.hold = Hold::Resumed(place);
    }
}

impl output::Tunnel for Tunnel {
    fn run<'a>(self: Box<Self>, r: &'a mut Request) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(self.carry(r))
    }
}

impl Tunnel {
    async fn carry(mut self: Box<Self>, r: &mut Request) {
        let Some((_, mut early)) = http::channel::upgrade(r) else { return };
        if let Hold::Lease(_) = self.hold {
            self.timeouts.client = r.loc.core.send_timeout;
            self.rest.up = Resting::new(early.take());
        }
        let mut moves = r.main.life.moves().cloned();
        loop {
            let end = self.spell(r, moves.take()).await;
            match end {
                None | Some(TunnelEnd::Closed) => {}
                Some(TunnelEnd::Rests(resting)) => {
                    if boxed(|| self.leave(r, *resting)).await {
                        return;
                    }
                    continue;
                }
                Some(TunnelEnd::Broken(e)) => {
                    log_io(r, "send()", &e, "proxying upgraded connection")
                }
                Some(TunnelEnd::Displaced | TunnelEnd::Late("client", _)) if is_displaced(r) => {}
                Some(TunnelEnd::Displaced) => {}
                Some(TunnelEnd::Late(who, level)) => {
                    let m = "timed out (110: Connection timed out) while";
                    r.log(level, format_args!("{who} {m} proxying upgraded connection"));
                }
            }
            break;
        }
        let u = r.upstream_mut();
        let a = u.now();
        a.response_length = a.received;
        a.response_ms = Some(now_ms().saturating_sub(a.start_ms));
        u.asking = false;
    }

    /// Carries bytes in a task until the tunnel ends or rests.
    async fn spell(&mut self, r: &mut Request, moves: Option<Rc<Moves>>) -> Option<TunnelEnd> {
        let upstream = self.upstream.take()?;
        let (client, _) = http::channel::upgrade(r)?;
        let none = Rest { up: Resting::default(), down: Resting::default(), clocks: Clocks::new() };
        let rest = std::mem::replace(&mut self.rest, none);
        let report = Rc::new(Report::default());
        let timeouts = self.timeouts;
        let movable = moves.as_ref().filter(|_| r.server.core.handover);
        if let (Upgraded::Stream(stream), Wire::Conn(_), Some(_)) = (&client, &upstream, movable) {
            self.member = Some(Rc::new(stream.join()));
        }
        let member = self.member.clone();
        let carrier = Carrier { upstream, rest, timeouts, report: report.clone(), moves, member };
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
        report.end.take()
    }

    /// Gives the tunnel, which rests, to another process. False: it goes on here.
    async fn leave(&mut self, r: &mut Request, resting: Offer) -> bool {
        let Offer { called, upstream, rest } = resting;
        let (ends, terms) = ((&upstream, &rest), (&self.leased, self.timeouts));
        let moved = match (called, self.member.take()) {
            (Called::Alone(turn), _) => match offer(r, turn, ends, terms) {
                Some(offer) => offer.await.is_ok_and(Offered::give_up),
                None => false,
            },
            (Called::Together, Some(member)) => {
                let berth = berth(r, member.id, ends, terms);
                member.rest(berth).await
            }
            (Called::Together, None) => false,
        };
        if moved {
            r.set_moved();
            upstream.transport().part();
        } else {
            (self.upstream, self.rest) = (Some(upstream), rest);
        }
        moved
    }
}

/// Describes a tunnel that rests, and offers it to other processes; `None` if it stays.
fn offer(
    r: &mut Request,
    turn: Turn,
    (upstream, rest): (&Wire, &Rest),
    (leased, timeouts): (&(Bytes, Bytes), Timeouts),
) -> Option<impl Future<Output = Result<Offered, ()>> + use<>> {
    let c = r.c().clone();
    let ends = [c.transport(), upstream.transport()];
    let described = described(r, upstream, rest).and_then(|described| {
        let client_tls = c.transport().copy_session()?;
        Ok((described, client_tls))
    });
    let (described, client_tls) = match described {
        Ok(described) => described,
        Err(why) => {
            turn.stays(why);
            return None;
        }
    };
    let client = described.facts.client(&c, client_tls.as_ref());
    let message = described.message(r, client, &rest.clocks, (leased, timeouts))?;
    Some(turn.offer(&message, &ends.map(Transport::descriptor)))
}

/// Describes a tunnel that rests on a stream of its client's connection, and is to move with that.
fn berth(
    r: &mut Request,
    id: u32,
    (upstream, rest): (&Wire, &Rest),
    terms: (&(Bytes, Bytes), Timeouts),
) -> Result<Berth, Stay> {
    let c = r.c().clone();
    let described = described(r, upstream, rest)?;
    let client = described.facts.client_of_stream(&c);
    let message = described.message(r, client, &rest.clocks, terms).ok_or(Stay::State)?;
    let server = upstream.transport().descriptor().try_clone_to_owned();
    let message = moves::written(&message).ok_or(Stay::State)?;
    Ok(Berth { id, message, server: server.map_err(|_| Stay::State)? })
}

/// The parts of a tunnel's description that are copies.
struct Described {
    facts: Facts,
    server_tls: Option<SealedCopy>,
    up: RestingCopy,
    down: RestingCopy,
}

fn described(r: &mut Request, upstream: &Wire, rest: &Rest) -> Result<Described, Stay> {
    let (facts, server_tls) = (r.depart()?, upstream.transport().copy_session()?);
    Ok(Described { facts, server_tls, up: rest.up.copy(), down: rest.down.copy() })
}

impl Described {
    fn message<'a>(
        &'a self,
        r: &'a Request,
        client: handover::Client<'a>,
        clocks: &Clocks,
        (leased, timeouts): (&'a (Bytes, Bytes), Timeouts),
    ) -> Option<Message<'a>> {
        let now = now_ms();
        let left = |until: u64| (until != Times::NEVER).then(|| until.saturating_sub(now));
        Some(Message::Tunnel(Box::new(handover::Tunnel {
            client,
            request: self.facts.request(r),
            exchange: moved::described(r.exchanges()?, leased),
            server_tls: self.server_tls.as_ref().map(SealedCopy::sealed),
            up: self.up.way(false),
            down: self.down.way(false),
            timeouts: (timeouts.read, timeouts.send, timeouts.client),
            silent_ms: now.saturating_sub(clocks.moved_ms),
            left_ms: (left(clocks.upstream_ms), left(clocks.client_ms)),
        })))
    }
}

/// Whether the tunnel was evicted to make room for other connections; logs that.
fn is_displaced(r: &Request) -> bool {
    let doing = "while proxying upgraded connection";
    r.c().is_displaced(|m| r.log(Level::Info, format_args!("{m} {doing}")))
}

/// The timeouts of the two sides, in milliseconds.
#[derive(Clone, Copy)]
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
    /// It is to move to another process.
    Rests(Box<Offer>),
}

/// A tunnel that is to move.
struct Offer {
    called: Called,
    upstream: Wire,
    rest: Rest,
}

/// Why [`both`] has ended.
enum Over {
    End(TunnelEnd),
    Rests(Called, Clocks),
}

/// The number of bytes copied.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
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
    rest: Rest,
    timeouts: Timeouts,
    report: Rc<Report>,
    moves: Option<Rc<Moves>>,
    member: Option<Rc<Member>>,
}

impl Carrier {
    async fn run(self, client: &impl End) {
        let Carrier { upstream, rest, timeouts, report, moves, member } = self;
        let mut reporting = Reporting { report, moved: Moved::default() };
        let moved = &mut reporting.moved;
        let caller = member.map(Caller::Member).or_else(|| {
            let candidate = moves.as_ref().and_then(|moves| moves.candidate(Kind::Tunnel));
            candidate.map(Caller::Candidate)
        });
        drop(moves);
        let terms = (&timeouts, caller);
        let over = match &upstream {
            Wire::Conn(conn) => carry(client, &conn.sock, rest, terms, moved).await,
            Wire::Stream(stream) => {
                let over = carry(client, stream, rest, terms, moved).await;
                // A closed tunnel ends its stream regularly, rather than resetting it.
                if matches!(over, Carried::End(TunnelEnd::Closed)) {
                    let _ = stream.try_send(&mut Chain::new(), true);
                }
                over
            }
        };
        let end = match over {
            Carried::End(end) => end,
            Carried::Rests(called, rest) => {
                TunnelEnd::Rests(Box::new(Offer { called, upstream, rest }))
            }
        };
        reporting.report.end.set(Some(end));
    }
}

/// Why [`carry`] has ended.
enum Carried {
    End(TunnelEnd),
    Rests(Called, Rest),
}

/// Copies between two ends, until the tunnel ends or its turn to move comes.
async fn carry<C: End, U: End>(
    client: &C,
    upstream: &U,
    rest: Rest,
    (timeouts, mut caller): (&Timeouts, Option<Caller>),
    moved: &mut Moved,
) -> Carried {
    let mut up = Flow::resumed(client, upstream, rest.up);
    let mut down = Flow::resumed(upstream, client, rest.down);
    let mut clocks = rest.clocks;
    loop {
        let called =
            match both(&mut up, &mut down, (timeouts, clocks), caller.as_ref(), moved).await {
                Over::End(end) => return Carried::End(end),
                Over::Rests(called, at) => {
                    clocks = at;
                    called
                }
            };
        // One that cannot move now has no second turn.
        let left = caller.take();
        let withdrawn = match called {
            Called::Alone(_) => boxed(|| withdraw(client, upstream)).await,
            // The client's end is its connection's matter.
            Called::Together => boxed(|| withdraw_server(upstream)).await,
        };
        match withdrawn {
            Ok(()) => {
                up.take_received();
                moved.from_upstream += down.take_received();
                let (up, down) = (up.rest(), down.rest());
                return Carried::Rests(called, Rest { up, down, clocks });
            }
            Err(why) => match (called, left) {
                (Called::Alone(turn), _) => turn.stays(why),
                (Called::Together, Some(Caller::Member(member))) => {
                    member.rest(Err(why)).await;
                }
                (Called::Together, _) => {}
            },
        }
    }
}

/// Copies bytes in both directions until one ends. If both ends are connections, an idle tunnel
/// waits for both with a single wait, because thousands may be idle at a time.
async fn both<C: End, U: End>(
    up: &mut Flow<'_, C, U>,
    down: &mut Flow<'_, U, C>,
    (timeouts, clocks): (&Timeouts, Clocks),
    mut caller: Option<&Caller>,
    moved: &mut Moved,
) -> Over {
    let Clocks { mut moved_ms, mut client_ms, mut upstream_ms } = clocks;
    let mut look_ms = moved_ms.saturating_add(timeouts.read);
    // Times that ran before, in another process, run on until bytes move.
    let mut runs_on = true;
    let mut last = None;
    loop {
        let before = *moved;
        if let Err(e) = go(up, down, last, moved) {
            return Over::End(TunnelEnd::Broken(e));
        }
        runs_on &= last.is_none() && before == *moved;
        if !runs_on {
            // The upstream's read timeout starts here.
            moved_ms = now_ms();
        }
        if up.is_done() || down.is_done() || up.ended && down.ended {
            return Over::End(TunnelEnd::Closed);
        }
        if std::mem::take(&mut up.busy) | std::mem::take(&mut down.busy) {
            event::task::yield_now().await;
            last = None;
            continue;
        }
        let (for_client, for_upstream) = (last != Some(Event::Up), last != Some(Event::Down));
        let waits = (down.has_unsent(), up.has_unsent());
        renew(&mut client_ms, for_client && !runs_on, waits.0, timeouts.client);
        renew(&mut upstream_ms, for_upstream && !runs_on, waits.1, timeouts.send);
        last = loop {
            let connections = match up.wants_read() && down.wants_read() {
                true => up.from.transport().zip(up.to.transport()),
                false => None,
            };
            let waited = match connections {
                Some((client, upstream)) => {
                    let look = Deadline::at(look_ms);
                    let wait = pin!(upstream.either_readable(client, look));
                    unless_due(caller, wait).await.map(Event::of_idle)
                }
                None => {
                    let times = Times { client: client_ms, server: upstream_ms, look: look_ms };
                    unless_due(caller, boxed(|| held(up, down, times))).await
                }
            };
            let Some(now) = waited else {
                let Some(called) = caller.take().and_then(Caller::called) else { continue };
                return Over::Rests(called, Clocks { moved_ms, client_ms, upstream_ms });
            };
            match now {
                Event::Up | Event::Down => break Some(now),
                Event::Both => break None,
                Event::ServerLate => return Over::End(TunnelEnd::Late("upstream", Level::Error)),
                Event::ClientLate => return Over::End(TunnelEnd::Late("client", Level::Info)),
                Event::Displaced => return Over::End(TunnelEnd::Displaced),
                Event::Failed(kind) => return Over::End(TunnelEnd::Broken(kind.into())),
                Event::Look => {}
            }
            let Some(left) = time_left(timeouts.read, moved_ms, down.wants_read()) else {
                return Over::End(TunnelEnd::Late("upstream", Level::Error));
            };
            look_ms = now_ms().saturating_add(left);
        };
    }
}

/// The time until the upstream is late, which has sent nothing since `moved_ms`; `None` if it is
/// late. While the client does not read, the upstream is not read either, so its timeout does not
/// apply.
fn time_left(timeout: u64, moved_ms: u64, is_read: bool) -> Option<u64> {
    match timeout.saturating_sub(now_ms().saturating_sub(moved_ms)) {
        0 if is_read => None,
        0 => Some(timeout),
        left => Some(left),
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
