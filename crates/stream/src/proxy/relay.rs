//! The relay of a TCP session: bytes go both ways until both sides agree that it is over.
//!
//! ```text
//!  client ──up──▶ server        ends: a side ended and all of its bytes were sent
//!  client ◀─down── server              (half close: both sides did), time-out, broken
//! ```

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::Poll;

use base::future::{boxed, keep};
use base::log::Level;
use base::time::now_ms;
use conf::template::Template;
use engine::Client;
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
    /// A side takes no more.
    Broken(io::Error),
}

/// What the relay has moved.
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
pub(super) async fn run(s: &mut StreamSession, conf: &ProxyConf, server: Server) -> ServerOutcome {
    let Some(client) = s.sock.take() else { return ServerOutcome::Ok };
    let mut up = Chain::new();
    up.push_bytes(server.first.into());
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
        let terms = Terms { timeout: conf.timeout, half_close: conf.half_close };
        boxed(|| both(up, down, terms, &reporting.counts)).await
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

/// The terms of a relay.
struct Terms {
    /// Milliseconds without any event.
    timeout: u64,
    half_close: bool,
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
/// and not four, and no timer is set anew with each.
async fn both(
    mut up: Flow<'_, Transport, Transport>,
    mut down: Flow<'_, Transport, Transport>,
    terms: Terms,
    counts: &Counts,
) -> End {
    let (client, server) = (up.from, up.to);
    let start_ms = now_ms();
    let mut from_client = pin!(None);
    let mut from_server = pin!(None);
    let mut to_client = pin!(None);
    let mut to_server = pin!(None);
    let mut resume = pin!(None);
    let mut look = pin!(sleep(terms.timeout));
    let (mut closed_client, mut closed_server) = (false, false);
    let mut last = None;
    loop {
        if let Err(end) = go(&mut up, &mut down, last, counts, start_ms) {
            return end;
        }
        let moved_ms = now_ms();
        if let Some(end) = ended(&up, &down, terms.half_close) {
            return end;
        }
        if terms.half_close {
            close(&up, &mut closed_server);
            close(&down, &mut closed_client);
        }
        if std::mem::take(&mut up.busy) | std::mem::take(&mut down.busy) {
            event::task::yield_now().await;
            last = None;
            continue;
        }
        keep(from_client.as_mut(), up.wants_read(), || client.readable(Deadline::NEVER));
        keep(from_server.as_mut(), down.wants_read(), || server.readable(Deadline::NEVER));
        keep(to_client.as_mut(), down.has_unsent(), || client.writable(Deadline::NEVER));
        keep(to_server.as_mut(), up.has_unsent(), || server.writable(Deadline::NEVER));
        let at = [up.resumes_at(), down.resumes_at()].into_iter().flatten().min();
        resume.set(at.map(|at| sleep_until(Deadline::at(at))));
        last = loop {
            let now = std::future::poll_fn(|cx| {
                let ended = poll_side(from_server.as_mut(), cx, Event::Down, Event::Down)
                    .or_else(|| poll_side(from_client.as_mut(), cx, Event::Up, Event::Up))
                    .or_else(|| poll_side(to_client.as_mut(), cx, Event::Down, Event::Down))
                    .or_else(|| poll_side(to_server.as_mut(), cx, Event::Up, Event::Up))
                    .or_else(|| {
                        let resumed = resume.as_mut().as_pin_mut()?.poll(cx).is_ready();
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
            // A rate that holds a direction up is no idleness.
            let passed = now_ms().saturating_sub(moved_ms);
            let left = match terms.timeout.saturating_sub(passed) {
                0 if at.is_none() => return End::Late,
                0 => terms.timeout,
                left => left,
            };
            look.set(sleep(left));
        };
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
