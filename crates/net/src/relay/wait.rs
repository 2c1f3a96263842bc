//! The waits of a relay, and the events that end them.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use base::future::poll_kept;
use event::{Deadline, Side, sleep_until};

use super::{End, Flow};

/// The event that ended a relay's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The direction from the client to the server may go on.
    Up,
    /// The other direction may go on.
    Down,
    /// Either may, or a rate lets one go on.
    Both,
    /// The client took nothing in time.
    ClientLate,
    /// The server took nothing in time.
    ServerLate,
    /// The idle time is to be checked.
    Look,
    /// The client makes room for others.
    Displaced,
}

impl Event {
    /// The event that ended an idle relay's wait for its server, or else for its client
    /// ([`Transport::either_readable`](crate::Transport::either_readable)).
    pub fn of_idle(waited: io::Result<Side>) -> Event {
        match waited {
            Ok(Side::This) => Event::Down,
            Ok(Side::Other) => Event::Up,
            Err(e) if e.kind() == ErrorKind::TimedOut => Event::Look,
            Err(e) if e.kind() == ErrorKind::OutOfMemory => Event::Displaced,
            // Whatever else is wrong with a connection shows when it is used.
            Err(_) => Event::Both,
        }
    }
}

/// The times of a wait, in milliseconds of [`base::time::now_ms`].
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The client is to take bytes until then.
    pub client: u64,
    /// The server is to take bytes until then.
    pub server: u64,
    /// The idle time is checked then.
    pub look: u64,
}

impl Times {
    /// A time that does not come.
    pub const NEVER: u64 = u64::MAX;
}

/// The wait of a relay with a direction that is over, that a rate holds up, whose receiver takes no
/// more, or whose end is no connection of its own.
pub async fn held<C: End, S: End>(
    up: &Flow<'_, C, S>,
    down: &Flow<'_, S, C>,
    times: Times,
) -> Event {
    let (client, server, never) = (up.from, up.to, Deadline::NEVER);
    let (take, send) = (Deadline::at(times.client), Deadline::at(times.server));
    let mut from_client = pin!(up.wants_read().then(|| client.readable(never)));
    let mut from_server = pin!(down.wants_read().then(|| server.readable(never)));
    let mut to_client = pin!(down.has_unsent().then(|| client.writable(take)));
    let mut to_server = pin!(up.has_unsent().then(|| server.writable(send)));
    let resume = up.resumes_at().into_iter().chain(down.resumes_at()).min();
    let mut resume = pin!(resume.map(|at| sleep_until(Deadline::at(at))));
    let mut look = pin!(sleep_until(Deadline::at(times.look)));
    let shed = Event::Displaced;
    std::future::poll_fn(|cx| {
        let ended = poll_side(from_server.as_mut(), cx, Event::Down, [Event::Down; 2])
            .or_else(|| poll_side(from_client.as_mut(), cx, Event::Up, [shed; 2]))
            .or_else(|| poll_side(to_client.as_mut(), cx, Event::Down, [Event::ClientLate, shed]))
            .or_else(|| poll_side(to_server.as_mut(), cx, Event::Up, [Event::ServerLate; 2]))
            .or_else(|| poll_kept(resume.as_mut(), cx).is_ready().then_some(Event::Both))
            .or_else(|| look.as_mut().poll(cx).is_ready().then_some(Event::Look));
        ended.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// The event of a side's wait that ended: `ready`, or where it ran out of time or was ended to make
/// room for others, the first and the second of `failed`. Its slot is empty then.
fn poll_side<F: Future<Output = io::Result<()>>>(
    slot: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
    ready: Event,
    failed: [Event; 2],
) -> Option<Event> {
    let Poll::Ready(done) = poll_kept(slot, cx) else { return None };
    Some(match done.map_err(|e| e.kind()) {
        Err(ErrorKind::TimedOut) => failed[0],
        Err(ErrorKind::OutOfMemory) => failed[1],
        // Whatever else is wrong with a connection shows when it is used.
        Ok(()) | Err(_) => ready,
    })
}
