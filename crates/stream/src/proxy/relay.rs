//! The relay of a TCP session: copies bytes in both directions until the session ends.
//!
//! ```text
//!  client ──up──▶ server        ends: a side ended and all of its bytes were sent
//!  client ◀─down── server              (half close: both sides did), time-out, broken
//! ```

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::pin;

use base::future::boxed;
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use conf::template::Template;
use engine::min_rate::{self, Credit, MinRate};
use engine::{Client, overload};
use event::Deadline;
use mem::Chain;
use net::Transport;
use net::moves::{self, Kind, unless_due};
use net::relay::wait::{Event, Times, held};
use net::relay::{Flow, Rate, withdraw};
use upstream::balance::ServerOutcome;

use super::conf::ProxyConf;
use super::offer::offer;
use super::resumed::Rest;
use crate::session::{ServedBy, StreamSession};

/// A connection to a server, and the bytes to send before the client's.
pub(super) struct Server {
    pub sock: Transport,
    pub first: Chain,
    /// TCP_NODELAY is still to be set.
    pub nodelay: bool,
    /// The relay that another process has begun.
    pub rest: Option<Box<Rest>>,
}

/// The reason that `proxy_session_drop` gives.
pub(super) const SERVER_IS_OUT: &str = "upstream server was removed or is down";

/// Why a session ends.
pub(super) enum End {
    /// A filter ends it with a status.
    Status(u16),
    /// Another process goes on with it.
    Moved,
    /// A side closed its connection.
    Client,
    Server,
    /// The idle timeout has expired.
    Late,
    /// The session was slower than the minimum rate.
    Slow,
    /// The session was evicted to make room for others.
    Displaced,
    /// The server was removed, or is down (`proxy_session_drop`).
    Dropped,
    /// A connection has failed.
    Broken(io::Error),
}

impl From<io::Error> for End {
    fn from(e: io::Error) -> End {
        End::Broken(e)
    }
}

/// Relays until the session ends; resolves to the outcome for the server.
///
/// An idle session consists of this future and little else, so rarely needed state is boxed. It is
/// an `async` block in a function, because an `async fn` stores its arguments twice.
pub(super) fn run<'a>(
    s: &'a mut StreamSession,
    conf: &'a ProxyConf,
    group: &'a Bytes,
    server: Server,
) -> impl Future<Output = ServerOutcome> + use<'a> {
    let Server { sock: server, first, nodelay, rest } = server;
    async move {
        let Some(client) = s.take_sock() else { return ServerOutcome::Ok };
        let mut candidate = s.main.life.moves().and_then(|moves| moves.candidate(Kind::Session));
        let ends = (&client, &server);
        let (mut up, mut down, mut relay) = begin(s, conf, ends, (first, nodelay, rest));
        let end = 'relay: loop {
            match relay.turn(&mut up, &mut down) {
                Err(end) => break end,
                Ok(Turn::Busy) => {
                    event::task::yield_now().await;
                    continue;
                }
                Ok(Turn::Waits) => {}
            }
            relay.last = loop {
                let waited = match is_idle(&up, &down) {
                    true => {
                        let look = Deadline::at(relay.look_ms);
                        let wait = pin!(server.either_readable(&client, look));
                        unless_due(candidate.as_ref(), wait).await.map(Event::of_idle)
                    }
                    false => {
                        let wait = boxed(|| held(&up, &down, relay.times()));
                        unless_due(candidate.as_ref(), wait).await
                    }
                };
                let Some(event) = waited else {
                    // One that cannot move now has no second turn.
                    let turn = candidate.take().and_then(|candidate| candidate.turn());
                    let Some(turn) = turn else { continue };
                    match boxed(|| leave(&mut relay, turn, group, (&mut up, &mut down))).await {
                        true => break 'relay End::Moved,
                        false => break Event::Both,
                    }
                };
                match event {
                    Event::Look => {}
                    Event::Displaced => break 'relay End::Displaced,
                    Event::Failed(kind) => break 'relay End::Broken(kind.into()),
                    event => break event,
                }
                if let Err(end) = relay.look() {
                    break 'relay end;
                }
            };
        };
        drop((up, down));
        let is_broken = relay.is_broken;
        drop(relay);
        match end {
            End::Moved => s.served_by = ServedBy::Process,
            end => say(s, &end),
        }
        s.put_sock(client);
        if is_broken { ServerOutcome::Failed } else { ServerOutcome::Ok }
    }
}

/// The two directions and the state of a relay that begins, or that another process has begun.
fn begin<'a>(
    s: &'a mut StreamSession,
    conf: &'a ProxyConf,
    (client, server): (&'a Transport, &'a Transport),
    (first, nodelay, rest): (Chain, bool, Option<Box<Rest>>),
) -> (Way<'a>, Way<'a>, Relay<'a>) {
    if let Some(rest) = rest {
        let Rest { up, down, closed, moved_ms } = *rest;
        let (up, down) = (Flow::resumed(client, server, up), Flow::resumed(server, client, down));
        let mut relay = Relay::new(s, conf, moved_ms);
        (relay.closed, relay.runs_on) = (closed, true);
        return (up, down, relay);
    }
    let first = with_preread(s, first);
    let (upload, download) = (rate(s, &conf.upload_rate), rate(s, &conf.download_rate));
    let mut up = Flow::new(client, server, first).limited(upload, conf.buffer_size);
    if nodelay {
        up = up.nodelay();
    }
    let down = Flow::new(server, client, Chain::new()).limited(download, conf.buffer_size);
    (up, down, Relay::new(s, conf, now_ms()))
}

/// Gives the session to another process. False: it goes on here.
async fn leave<'a>(
    relay: &mut Relay<'_>,
    turn: moves::Turn,
    group: &Bytes,
    (up, down): (&mut Way<'a>, &mut Way<'a>),
) -> bool {
    let (client, server) = (up.from, up.to);
    if let Err(why) = withdraw(client, server).await {
        turn.stays(why);
        return false;
    }
    let received = down.take_received();
    if received > 0 {
        relay.s.exchanges.first_byte_now();
    }
    relay.from_server += received;
    relay.from_client += up.take_received();
    relay.settle();
    let empty = |from, to| Flow::new(from, to, Chain::new());
    let rest = Rest {
        up: std::mem::replace(up, empty(client, server)).rest(),
        down: std::mem::replace(down, empty(server, client)).rest(),
        closed: relay.closed,
        moved_ms: relay.moved_ms,
    };
    let moved = offer(relay.s, turn, group, (client, server), &rest).await;
    if moved {
        client.part();
        server.part();
    } else {
        *up = Flow::resumed(client, server, rest.up);
        *down = Flow::resumed(server, client, rest.down);
    }
    moved
}

/// The bytes to send to the server first: `first`, then the client's preread bytes.
fn with_preread(s: &mut StreamSession, mut first: Chain) -> Chain {
    if !s.preread.is_empty() {
        first.push(std::mem::take(&mut s.preread).into());
    }
    first
}

/// The state of a relay except for its two directions. Counts relayed bytes, and adds them to the
/// session's counters when dropped, whatever the reason.
pub(super) struct Relay<'a> {
    pub s: &'a mut StreamSession,
    conf: &'a ProxyConf,
    pub from_client: u64,
    pub to_client: u64,
    pub from_server: u64,
    pub to_server: u64,
    /// The time of the last turn, in milliseconds.
    moved_ms: u64,
    /// The next time to check the idle timeout, in milliseconds. Not moved by every message,
    /// because resetting a timer costs more than one early check.
    look_ms: u64,
    pace: Option<Box<Pace>>,
    /// The event that ended the last wait, which says in which direction to look first.
    pub last: Event,
    /// A direction waits for our own rate limit.
    is_held: bool,
    /// Whether the end was forwarded: to the server, to the client.
    closed: [bool; 2],
    /// The connection to the server has failed.
    pub is_broken: bool,
    /// The idle time that began in another process runs on until bytes move.
    runs_on: bool,
}

/// What follows a turn of a relay.
pub(super) enum Turn {
    /// There is more to move, after other tasks had their turn.
    Busy,
    /// Nothing can be moved without waiting.
    Waits,
}

impl<'a> Relay<'a> {
    pub(super) fn new(s: &'a mut StreamSession, conf: &'a ProxyConf, moved_ms: u64) -> Relay<'a> {
        let pace = (conf.min_rate.rate > 0).then(|| Box::new(Pace::new(conf)));
        let first = pace.as_ref().map_or(u64::MAX, |pace| pace.left());
        Relay {
            s,
            conf,
            from_client: 0,
            to_client: 0,
            from_server: 0,
            to_server: 0,
            moved_ms,
            look_ms: moved_ms.saturating_add(conf.timeout.min(first).min(conf.look_ms())),
            pace,
            last: Event::Both,
            is_held: false,
            closed: [false; 2],
            is_broken: false,
            runs_on: false,
        }
    }

    /// Adds the counts of bytes to the session's.
    fn settle(&mut self) {
        add(&self.s.received, std::mem::take(&mut self.from_client));
        add(&self.s.sent, std::mem::take(&mut self.to_client));
        let (to_server, from_server) = (&mut self.to_server, &mut self.from_server);
        if let Some(a) = self.s.exchanges.now() {
            a.sent += std::mem::take(to_server);
            a.received += std::mem::take(from_server);
        }
        if let Some(pace) = &mut self.pace {
            pace.bytes = 0;
        }
    }

    /// Moves bytes in both directions as far as possible without waiting.
    fn turn(&mut self, up: &mut Way<'_>, down: &mut Way<'_>) -> Result<Turn, End> {
        self.check_server()?;
        self.go(up, down)?;
        self.after(up, down, None)
    }

    /// What follows after bytes were moved. `filter`: there is one; it may send more behind the end
    /// of a side.
    pub(super) fn after(
        &mut self,
        up: &mut Way<'_>,
        down: &mut Way<'_>,
        filter: Option<bool>,
    ) -> Result<Turn, End> {
        let has_moved = self.from_client + self.to_client + self.from_server + self.to_server > 0;
        if !std::mem::take(&mut self.runs_on) || has_moved {
            self.moved_ms = now_ms();
        }
        self.count();
        // What a filter has sent against the direction that ended is sent first, and what it still
        // waits for may be bytes of before the end.
        let holds =
            filter == Some(true) || filter.is_some() && (up.has_unsent() || down.has_unsent());
        if !holds && let Some(end) = ended(up, down, self.conf.half_close) {
            return Err(end);
        }
        if self.conf.half_close && filter != Some(true) {
            close(up, &mut self.closed[0]);
            close(down, &mut self.closed[1]);
        }
        if std::mem::take(&mut up.busy) | std::mem::take(&mut down.busy) {
            self.last = Event::Both;
            return Ok(Turn::Busy);
        }
        self.is_held = resumes_at(up, down).is_some();
        Ok(Turn::Waits)
    }

    /// `proxy_session_drop`: ends the session if its server is out for good.
    pub(super) fn check_server(&self) -> Result<(), End> {
        match self.conf.session_drop && self.s.exchanges.has_lost_server() {
            true => Err(End::Dropped),
            false => Ok(()),
        }
    }

    /// Moves bytes in the direction of the last event; in both directions the first time.
    fn go(&mut self, up: &mut Way<'_>, down: &mut Way<'_>) -> Result<(), End> {
        if self.last != Event::Up {
            let moved = down.go().map_err(End::Broken)?;
            if moved.read > 0 && self.from_server == 0 {
                self.s.exchanges.first_byte_now();
            }
            self.to_client += moved.written;
            self.from_server += moved.read;
        }
        if self.last != Event::Down {
            let moved = up.go().map_err(|e| {
                self.is_broken = true;
                End::Broken(e)
            })?;
            self.to_server += moved.written;
            self.from_client += moved.read;
        }
        self.is_broken |= down.broken.is_some();
        Ok(())
    }

    /// Updates the minimum rate.
    fn count(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.count(self.to_client + self.to_server, self.is_held);
        }
    }

    /// The deadlines of the next wait. A side that does not read counts as idle.
    pub(super) fn times(&self) -> Times {
        Times { client: Times::NEVER, server: Times::NEVER, look: self.look_ms }
    }

    /// Checks the idle timeout: ends the session, or sets the time of the next check.
    pub(super) fn look(&mut self) -> Result<(), End> {
        self.check_server()?;
        self.count();
        let pace = self.pace.as_ref().map_or(u64::MAX, |pace| pace.left());
        let (now, timeout) = (now_ms(), self.conf.timeout);
        let passed = now.saturating_sub(self.moved_ms);
        if pace == 0 && (self.is_held || passed < timeout) {
            return Err(End::Slow);
        }
        // Waiting for a rate limit does not count as idle.
        let left = match timeout.saturating_sub(passed) {
            0 if !self.is_held => return Err(End::Late),
            0 => timeout,
            left => left,
        };
        self.look_ms = now.saturating_add(left.min(pace).min(self.conf.look_ms()));
        Ok(())
    }
}

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

fn add(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get() + n);
}

/// Evaluates a rate limit; `None` if it is unlimited.
pub(super) fn rate(s: &mut StreamSession, template: &Option<Template>) -> Option<Rate> {
    let text = template.as_ref()?.eval(s);
    let rate = conf::value::parse_size(&text).unwrap_or(0);
    (rate > 0).then(|| Rate::new(rate as u64))
}

pub(super) fn say(s: &StreamSession, end: &End) {
    let who = match end {
        End::Status(_) | End::Moved => return,
        End::Client => "client",
        End::Server => "upstream",
        End::Late => {
            let m = "connection timed out (110: Connection timed out)";
            s.log(Level::Info, format_args!("{m} while proxying connection"));
            return;
        }
        End::Slow => {
            if let Some(m) = min_rate::reason(true, s.client_ip()) {
                s.log(Level::Info, format_args!("{m} while proxying connection"));
            }
            return;
        }
        End::Displaced => {
            if overload::is_told(s.client_ip()) {
                s.log(Level::Info, format_args!("closing a session to make room for others"));
            }
            return;
        }
        End::Dropped => {
            s.log(Level::Info, format_args!("{SERVER_IS_OUT} while proxying connection"));
            return;
        }
        End::Broken(e) => {
            let e = base::log::os_error(e);
            s.log(Level::Info, format_args!("send() failed {e} while proxying connection"));
            return;
        }
    };
    if s.logs(Level::Info) {
        let (from_server, to_server) = s.exchanges.bytes_now().unwrap_or_default();
        let (received, sent) = (s.received.get(), s.sent.get());
        let client = format_args!("bytes from/to client:{received}/{sent}").to_string();
        s.log_bare(
            Level::Info,
            format_args!(
                "{who} disconnected, {client}, bytes from/to upstream:{from_server}/{to_server}"
            ),
        );
    }
}

/// `proxy_min_rate`: measures the rate of a session, both directions together.
struct Pace {
    min: MinRate,
    timeout: u64,
    credit: Credit,
    /// The time of the last measurement, in milliseconds, and the bytes until then.
    since_ms: u64,
    bytes: u64,
}

impl Pace {
    fn new(conf: &ProxyConf) -> Pace {
        let (min, timeout) = (conf.min_rate, conf.timeout);
        Pace { min, timeout, credit: Credit::default(), since_ms: now_ms(), bytes: 0 }
    }

    /// Records the total of `bytes` moved until now. `is_held`: the time was spent waiting for our
    /// own rate limit, so it does not count.
    fn count(&mut self, bytes: u64, is_held: bool) {
        let now = now_ms();
        let waited = if is_held { 0 } else { now.saturating_sub(self.since_ms) };
        self.credit.moved(self.min, waited, bytes - self.bytes);
        (self.since_ms, self.bytes) = (now, bytes);
    }

    /// The time for which the session may still pause, in milliseconds.
    fn left(&self) -> u64 {
        self.credit.limit(self.min, self.timeout)
    }
}

/// A direction of a relay.
pub(super) type Way<'a> = Flow<'a, Transport, Transport>;

/// Whether the session can only continue when a peer sends something.
fn is_idle(up: &Way<'_>, down: &Way<'_>) -> bool {
    up.wants_read() && down.wants_read()
}

/// The time at which a rate limit lets a direction continue, if one is waiting.
fn resumes_at(up: &Way<'_>, down: &Way<'_>) -> Option<u64> {
    [up.resumes_at(), down.resumes_at()].into_iter().flatten().min()
}

/// Why the session ends now, if it does.
fn ended(up: &Way<'_>, down: &Way<'_>, half_close: bool) -> Option<End> {
    let is_over = match half_close {
        true => up.is_done() && down.is_done(),
        false => up.is_done() || down.is_done() || up.ended && down.ended,
    };
    let end = || if down.ended { End::Server } else { End::Client };
    is_over.then(end)
}

/// Forwards the end of a direction after all of its bytes were sent.
fn close(flow: &Way<'_>, closed: &mut bool) {
    if flow.is_done() && !*closed {
        *closed = true;
        // If shutdown fails the connection is broken, which the next read or write reports.
        let _ = flow.to.shutdown_write();
    }
}
