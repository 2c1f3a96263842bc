//! The life of a connection over HTTP/1: parked between requests, served in batches.
//!
//! ```text
//!            accept
//!              │
//!              ▼            bytes                    response, more in the buffer
//!   ┌──────▶ parked ───────────────▶ serving ◀───────────────────────────┐
//!   │          │ time out, peer gone    │  └──────────────────────────────┘
//!   │          ▼                        │ last response, connection not kept
//!   │        closed ◀── lingering ◀─────┤
//!   └───────────────────────────────────┘ buffer empty, connection kept
//! ```
//!
//! Parked, a connection is its socket, this task's small future and a timer. The future that serves
//! is boxed apart and goes when the buffer is empty, with the request and its buffers.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;

use base::future::{boxed, rarely};
use base::log::Level;
use event::task::foreseen;
use event::{Deadline, Wake};
use mem::Page;
use net::moves::{Kind, Turn};
use proto::handover::Message;

use super::{requests, stream};
use crate::channel::conn::Conn;
use crate::channel::parting::{self, Due};
use crate::channel::{self, Answer, linger};
use crate::output::Tunnel;
use crate::request::Request;
use crate::server::HttpMain;
use engine::stats::Field;

/// The least time in milliseconds for which a worker that is leaving goes on serving kept
/// connections, so that none is cut under a request that is on its way.
const LEAVE_MS: u64 = 2_000;

/// The next step of a connection after a batch of requests.
pub(super) enum After {
    /// Park for at most this number of milliseconds.
    Keep(u64),
    /// There was nothing to read after all: park as before.
    Park,
    Close,
    /// Read and drop the client's remaining bytes, then close.
    Linger,
    /// Close with a reset.
    Reset,
    /// The client speaks HTTP/2; it sent these bytes so far.
    Http2(Page),
}

/// Serves a connection to its end, or until it is known to be one of HTTP/2: the bytes that came
/// then. `first` holds bytes that came before; without them the client has `timeout_ms` to send
/// some.
///
/// It and its parts are blocks and no async functions, which keep each argument twice.
#[allow(clippy::manual_async_fn, reason = "an async fn has room for its arguments twice")]
pub(crate) fn run<'a, A: Answer>(
    c: &'a Rc<Conn>,
    main: &'a Rc<HttpMain>,
    mut first: Page,
    mut timeout_ms: u64,
) -> impl Future<Output = Option<Page>> + use<'a, A> {
    async move {
        loop {
            let turn = event::turn();
            if first.is_empty() {
                first = parked(c, main, timeout_ms).await?;
            }
            let first = std::mem::take(&mut first);
            // Found by the wait before this turn, and not by a try.
            let turn = Some(event::turn()).filter(|now| *now != turn);
            match foreseen(boxed(|| serve::<A>(c, main, first, turn))).await {
                After::Keep(ms) => timeout_ms = ms,
                After::Park => {}
                After::Close => return None,
                After::Linger => {
                    main.life.unless_given_up(Box::pin(linger(c)).as_mut()).await;
                    return None;
                }
                After::Reset => {
                    c.reset_at_end.set(true);
                    return None;
                }
                After::Http2(first) => return Some(first),
            }
        }
    }
}

/// Serves a request that another process has begun, and that is a tunnel by now, to the end of its
/// connection.
pub(crate) async fn resume<A: Answer>(
    c: &Rc<Conn>,
    main: &Rc<HttpMain>,
    mut r: Box<Request>,
    tunnel: Box<dyn Tunnel>,
) {
    let state = main.stats.gauge(Field::Writing);
    let done = {
        let serving = pin!(async {
            let sent = A::resume(&mut r, tunnel).await;
            requests::after(c, &mut r, sent).await
        });
        main.life.unless_given_up(serving).await
    };
    drop(state);
    let after = match done {
        Some(after) => after.unwrap_or(After::Close),
        None => give_up::<A>(&mut r).await,
    };
    r.give_back();
    if let After::Linger = after {
        main.life.unless_given_up(Box::pin(linger(c)).as_mut()).await;
    }
}

/// Waits for the next bytes; `None` when the connection is to close, or has moved to another
/// process. The page holds bytes that were received for it.
fn parked<'a>(
    c: &'a Conn,
    main: &'a HttpMain,
    timeout_ms: u64,
) -> impl Future<Output = Option<Page>> + use<'a> {
    let kept = c.requests.get() > 0;
    async move {
        main.stats.add(Field::Waiting, 1);
        let wait = pin!(wait(c, main, timeout_ms, kept));
        let woken = main.life.unless_given_up(wait).await;
        main.stats.sub(Field::Waiting, 1);
        let woken = woken?;
        if let Err(e) = &woken
            && !kept
            && e.kind() == io::ErrorKind::TimedOut
        {
            let m = "client timed out (110: Connection timed out) while waiting for request";
            c.log(Level::Info, format_args!("{m}"));
        }
        woken.ok().flatten()
    }
}

fn wait<'a>(
    c: &'a Conn,
    main: &'a HttpMain,
    timeout_ms: u64,
    kept: bool,
) -> impl Future<Output = io::Result<Option<Page>>> + use<'a> {
    let until = Deadline::in_ms(timeout_ms);
    async move {
        let gate = &main.life.gate;
        let woken = match kept {
            true => c.sock().readable_or(gate, until).await?,
            false => c.sock().owed_or(gate, until).await?,
        };
        match woken {
            Wake::Ready => Ok(Some(Page::new())),
            Wake::Reclaim => Ok(None),
            Wake::Gate => rarely(leave(c, main, until, kept)).await,
        }
    }
}

/// The worker is leaving. The connection moves to another process when its turn has come. If it
/// cannot move, a request may be in flight, and is answered as the last one.
async fn leave(c: &Conn, main: &HttpMain, until: Deadline, kept: bool) -> io::Result<Option<Page>> {
    let grace = || {
        let min = c.server().root.core.keepalive_min_timeout;
        let left = until.at_ms().saturating_sub(base::time::now_ms());
        Deadline::in_ms(if kept { LEAVE_MS.max(min).min(left) } else { left })
    };
    match parting::due(c, main.life.moves(), Kind::Idle, (grace(), until)).await {
        Due::Woken(woken) => return woken.map(|()| Some(Page::new())),
        // Thousands may wait for their turns, and few have them at a time.
        Due::Turn(turn) => match boxed(|| offer(c, turn, until)).await {
            Some(read) if read.is_empty() => {}
            done => return Ok(done),
        },
        Due::Stays => c.stays.set(true),
    }
    c.sock().readable(grace()).await?;
    Ok(Some(Page::new()))
}

/// Offers a connection to other processes. Returns the bytes that have arrived meanwhile, unless
/// one serves it from here on.
async fn offer(c: &Conn, turn: Turn, until: Deadline) -> Option<Page> {
    let (turn, resting) = match parting::rest(c, turn).await {
        Ok(rests) => rests,
        Err(read) => {
            c.stays.set(true);
            return Some(read);
        }
    };
    let message = Message::Idle(Box::new(resting.idle(c, until)));
    if parting::give(c, turn, &message, &[]).await {
        return None;
    }
    c.stays.set(true);
    drop(message);
    Some(resting.read)
}

/// Serves requests until the buffer is empty or the connection ends. `turn` found the first bytes.
async fn serve<A: Answer>(
    c: &Rc<Conn>,
    main: &Rc<HttpMain>,
    first: Page,
    turn: Option<u64>,
) -> After {
    let mut r = Request::take(c.clone(), main);
    if let Some(turn) = turn {
        r.work.questions.begun_in(turn);
    }
    let begun = match begin(c, &mut r, first) {
        None if c.may_be_http2() => rarely(other_protocol(c, &mut r)).await,
        begun => begun,
    };
    let after = match begun {
        Some(after) => after,
        None => {
            let state = main.stats.gauge(Field::Reading);
            let done = {
                let batch = pin!(requests::batch::<A>(c, &mut r, &state));
                main.life.unless_given_up(batch).await
            };
            match done {
                Some(after) => after,
                None => give_up::<A>(&mut r).await,
            }
        }
    };
    let timed_out = stream(&mut r).timed_out && r.loc.core.reset_timedout_connection;
    r.give_back();
    match after {
        After::Close if timed_out => After::Reset,
        a => a,
    }
}

/// Ends a request that has begun and is not answered whole. It is logged all the same.
#[cold]
async fn give_up<A: Answer>(r: &mut Request) -> After {
    r.close_connection();
    rarely(channel::give_up::<A>(r)).await;
    After::Close
}

/// Takes the first bytes. A new socket counts as readable until it has been tried: where nothing is
/// there yet, the connection parks like a kept one, without a request.
fn begin(c: &Conn, r: &mut Request, first: Page) -> Option<After> {
    let input = &mut stream(r).input;
    *input = first;
    if input.is_empty() {
        match c.sock().try_recv_into(input) {
            Ok(None) => return Some(After::Park),
            Ok(Some(0)) | Err(_) => return Some(After::Close),
            Ok(Some(_)) => {}
        }
    }
    r.account.start();
    None
}

/// Whether the first bytes of a connection are those of HTTP/2, as soon as that is known.
async fn other_protocol(c: &Conn, r: &mut Request) -> Option<After> {
    let until = Deadline::in_ms(c.head_timeout());
    loop {
        let input = &mut stream(r).input;
        match http_wire::h2::frame::is_preface(input) {
            None => return None,
            Some(true) => return Some(After::Http2(std::mem::take(input))),
            Some(false) => {}
        }
        match c.sock().recv_owed(input, until).await {
            Ok(n) if n > 0 => {}
            _ => return Some(After::Close),
        }
    }
}
