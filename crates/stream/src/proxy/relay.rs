//! The relay of a TCP session: bytes go both ways until both sides agree that it is over.
//!
//! ```text
//!  client ──up──▶ server        ends: a side ended and all of its bytes were sent
//!  client ◀─down── server              (half close: both sides did), time-out, broken
//! ```

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use base::future::{boxed, keep};
use base::log::Level;
use base::time::now_ms;
use conf::template::Template;
use engine::Client;
use engine::min_rate::{self, Credit, MinRate};
use event::{Deadline, sleep, sleep_until};
use mem::Chain;
use net::Transport;
use net::relay::{Flow, Rate, poll_side};
use upstream::balance::ServerOutcome;

use super::conf::ProxyConf;
use crate::session::StreamSession;

/// A connection to a server, with the bytes that go before the client's.
pub(super) struct Server {
    pub sock: Transport,
    pub first: Vec<u8>,
}

/// The cause of a session's end.
enum End {
    /// A side closed its connection.
    Client,
    Server,
    /// Nothing moved for too long.
    Late,
    /// Less moved than the minimum rate.
    Slow,
    /// A side takes no more.
    Broken(io::Error),
}

/// The bytes that the relay has moved.
#[derive(Default)]
struct Counts {
    from_client: Cell<u64>,
    to_client: Cell<u64>,
    from_server: Cell<u64>,
    to_server: Cell<u64>,
    /// Milliseconds until the server's first byte.
    first_ms: Cell<Option<u64>>,
    /// The server's side broke.
    is_broken: Cell<bool>,
}

fn add(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get() + n);
}

/// Relays until the end; gives the server's part in it.
pub(super) async fn run(
    s: &mut StreamSession,
    conf: &ProxyConf,
    server: &mut Server,
) -> ServerOutcome {
    let Some(client) = s.sock.take() else { return ServerOutcome::Ok };
    let mut up = Chain::new();
    up.push_bytes(std::mem::take(&mut server.first).into());
    if !s.preread.is_empty() {
        up.push(std::mem::take(&mut s.preread).into());
    }
    let (upload, download) = (rate(s, &conf.upload_rate), rate(s, &conf.download_rate));
    let counts = Counts::default();
    let mut reporting = Reporting { s, counts };
    let end = {
        let mut up = Flow::new(&client, &server.sock, up);
        let mut down = Flow::new(&server.sock, &client, Chain::new());
        (up.rate, down.rate) = (upload, download);
        (up.read_max, down.read_max) = (conf.buffer_size, conf.buffer_size);
        let mut pace = (conf.min_rate.rate > 0).then(|| Box::new(Pace::new(conf)));
        both(&mut up, &mut down, conf, pace.as_deref_mut(), &reporting.counts).await
    };
    reporting.report();
    let is_broken = reporting.counts.is_broken.get();
    drop(reporting);
    say(s, &end);
    s.sock = Some(client);
    if is_broken { ServerOutcome::Failed } else { ServerOutcome::Ok }
}

/// Delivers the counts to the session, whether the relay came to its end or was dropped.
struct Reporting<'a> {
    s: &'a mut StreamSession,
    counts: Counts,
}

impl Reporting<'_> {
    fn report(&mut self) {
        let (s, c) = (&mut *self.s, &self.counts);
        add(&s.received, c.from_client.take());
        add(&s.sent, c.to_client.take());
        if let Some(x) = &mut s.exchanges {
            if let Some(ms) = c.first_ms.take() {
                x.first_byte(ms);
            }
            if let Some(a) = x.now() {
                a.sent += c.to_server.take();
                a.received += c.from_server.take();
            }
        }
    }
}

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

/// The rate that a template asks for now.
pub(super) fn rate(s: &mut StreamSession, template: &Option<Template>) -> Option<Rate> {
    let text = template.as_ref()?.eval(s);
    let rate = conf::value::parse_size(&text).unwrap_or(0);
    (rate > 0).then(|| Rate::new(rate as u64))
}

fn say(s: &StreamSession, end: &End) {
    let who = match end {
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
        End::Broken(e) => {
            let e = base::log::os_error(e);
            s.log(Level::Info, format_args!("send() failed {e} while proxying connection"));
            return;
        }
    };
    if s.logs(Level::Info) {
        let bytes = s.exchanges.as_ref().and_then(|x| x.bytes_now());
        let (from_server, to_server) = bytes.unwrap_or_default();
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

/// `proxy_min_rate`: the bytes that a session moves, in both directions together.
struct Pace {
    min: MinRate,
    timeout: u64,
    credit: Credit,
    /// The time up to which it is counted, and the bytes.
    since_ms: u64,
    bytes: u64,
}

impl Pace {
    fn new(conf: &ProxyConf) -> Pace {
        let (min, timeout) = (conf.min_rate, conf.timeout);
        Pace { min, timeout, credit: Credit::default(), since_ms: now_ms(), bytes: 0 }
    }

    /// Counts what has moved up to now. `is_held`: a rate of the server's own took the time.
    fn count(&mut self, counts: &Counts, is_held: bool) {
        let (now, bytes) = (now_ms(), counts.to_client.get() + counts.to_server.get());
        let waited = if is_held { 0 } else { now.saturating_sub(self.since_ms) };
        self.credit.moved(self.min, waited, bytes - self.bytes);
        (self.since_ms, self.bytes) = (now, bytes);
    }

    /// The milliseconds that are left without any byte.
    fn left(&self) -> u64 {
        self.credit.limit(self.min, self.timeout)
    }
}

/// The event that ended a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The direction from the client to the server may go on.
    Up,
    /// The other direction may go on.
    Down,
    /// The idle time is to be checked.
    Look,
    /// A rate lets a direction go on.
    Resume,
}

/// Moves bytes both ways. A wait stays in place while others end, so that a message costs one wait
/// and not four, and no timer is set anew with each. Waits that an idle session does not have are
/// in boxes.
async fn both(
    up: &mut Flow<'_, Transport, Transport>,
    down: &mut Flow<'_, Transport, Transport>,
    conf: &ProxyConf,
    mut pace: Option<&mut Pace>,
    counts: &Counts,
) -> End {
    let (client, server) = (up.from, up.to);
    let start_ms = now_ms();
    let mut from_client = pin!(None);
    let mut from_server = pin!(None);
    let (mut to_client, mut to_server) = (None, None);
    let first = pace.as_ref().map_or(u64::MAX, |pace| pace.left());
    let mut look = pin!(sleep(conf.timeout.min(first)));
    let (mut is_held, mut closed, mut last) = (false, [false; 2], None);
    loop {
        if let Err(end) = go(up, down, last, counts, start_ms) {
            return end;
        }
        let moved_ms = now_ms();
        if let Some(pace) = &mut pace {
            pace.count(counts, is_held);
        }
        if let Some(end) = ended(up, down, conf.half_close) {
            return end;
        }
        if conf.half_close {
            close(up, &mut closed[0]);
            close(down, &mut closed[1]);
        }
        if std::mem::take(&mut up.busy) | std::mem::take(&mut down.busy) {
            event::task::yield_now().await;
            last = None;
            continue;
        }
        let never = Deadline::NEVER;
        keep(from_client.as_mut(), up.wants_read(), || client.readable(never));
        keep(from_server.as_mut(), down.wants_read(), || server.readable(never));
        keep(Pin::new(&mut to_client), down.has_unsent(), || boxed(|| client.writable(never)));
        keep(Pin::new(&mut to_server), up.has_unsent(), || boxed(|| server.writable(never)));
        let at = [up.resumes_at(), down.resumes_at()].into_iter().flatten().min();
        is_held = at.is_some();
        let mut resume = at.map(|at| boxed(|| sleep_until(Deadline::at(at))));
        last = loop {
            let now = std::future::poll_fn(|cx| {
                let ended = poll_side(from_server.as_mut(), cx, Event::Down, Event::Down)
                    .or_else(|| poll_side(from_client.as_mut(), cx, Event::Up, Event::Up))
                    .or_else(|| poll_side(Pin::new(&mut to_client), cx, Event::Down, Event::Down))
                    .or_else(|| poll_side(Pin::new(&mut to_server), cx, Event::Up, Event::Up))
                    .or_else(|| {
                        let resumed = resume.as_mut()?.as_mut().poll(cx).is_ready();
                        resumed.then_some(Event::Resume)
                    })
                    .or_else(|| look.as_mut().poll(cx).is_ready().then_some(Event::Look));
                ended.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            match now {
                Event::Up | Event::Down => break Some(now),
                Event::Resume => break None,
                Event::Look => {}
            }
            match rest(conf.timeout, pace.as_deref_mut(), counts, (moved_ms, is_held)) {
                Ok(ms) => look.set(sleep(ms)),
                Err(end) => return end,
            }
        };
    }
}

/// The time until the next look, where the session may rest on.
fn rest(
    timeout: u64,
    pace: Option<&mut Pace>,
    counts: &Counts,
    (moved_ms, is_held): (u64, bool),
) -> Result<u64, End> {
    let pace = pace.map_or(u64::MAX, |pace| {
        pace.count(counts, is_held);
        pace.left()
    });
    let passed = now_ms().saturating_sub(moved_ms);
    if pace == 0 && (is_held || passed < timeout) {
        return Err(End::Slow);
    }
    // A rate that holds a direction up is no idleness.
    match timeout.saturating_sub(passed) {
        0 if !is_held => Err(End::Late),
        0 => Ok(timeout.min(pace)),
        left => Ok(left.min(pace)),
    }
}

/// Moves bytes in the direction of the event; in both at first.
fn go(
    up: &mut Flow<'_, Transport, Transport>,
    down: &mut Flow<'_, Transport, Transport>,
    event: Option<Event>,
    counts: &Counts,
    start_ms: u64,
) -> Result<(), End> {
    if event != Some(Event::Up) {
        let moved = down.go().map_err(End::Broken)?;
        if moved.read > 0 && counts.from_server.get() == 0 {
            counts.first_ms.set(Some(now_ms().saturating_sub(start_ms)));
        }
        add(&counts.to_client, moved.written);
        add(&counts.from_server, moved.read);
    }
    if event != Some(Event::Down) {
        let moved = up.go().map_err(|e| {
            counts.is_broken.set(true);
            End::Broken(e)
        })?;
        add(&counts.to_server, moved.written);
        add(&counts.from_client, moved.read);
    }
    if down.broken.is_some() {
        counts.is_broken.set(true);
    }
    Ok(())
}

/// The session's end, if it has come.
fn ended(
    up: &Flow<'_, Transport, Transport>,
    down: &Flow<'_, Transport, Transport>,
    half_close: bool,
) -> Option<End> {
    let is_over = match half_close {
        true => up.is_done() && down.is_done(),
        false => up.is_done() || down.is_done() || up.ended && down.ended,
    };
    let end = || if down.ended { End::Server } else { End::Client };
    is_over.then(end)
}

/// Passes the end of a direction on, once all of it was sent.
fn close(flow: &Flow<'_, Transport, Transport>, closed: &mut bool) {
    if flow.is_done() && !*closed {
        *closed = true;
        // A connection that cannot be shut down is broken, which shows when it is used.
        let _ = flow.to.shutdown_write();
    }
}
