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
    /// A connection cannot be waited for, for example because the system watches no more
    /// descriptors. To go on would be to wait in vain again, at once and without an end.
    Failed(ErrorKind),
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
            Err(e) => Event::Failed(e.kind()),
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
        Err(kind) => Event::Failed(kind),
        Ok(()) => ready,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use event::testing::real_drivers;
    use event::{DriverKind, Loop, Options, Sock};
    use mem::Chain;
    use os::limits::Limit;

    use super::*;
    use crate::Transport;

    /// A silent connection whose descriptor `select` cannot watch, and its peer.
    fn unwatched() -> (Transport, UnixStream) {
        let low: Vec<OwnedFd> =
            (0..1024).map(|_| File::open("/dev/null").unwrap().into()).collect();
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        drop(low);
        let ours = Transport::from(Sock::from_fd(ours.into()));
        assert!(ours.try_recv().unwrap().is_none());
        (ours, theirs)
    }

    #[test]
    fn a_connection_that_cannot_be_waited_for_ends_the_wait_as_failed() {
        os::limits::set(Limit::NoFile, os::limits::get_both(Limit::NoFile).1).unwrap();
        assert!(real_drivers().contains(&DriverKind::Select));
        let options = Options { driver: DriverKind::Select, ..Options::default() };
        let waits = async {
            let ((client, _user), (server, _program)) = (unwatched(), unwatched());
            let up: Flow<'_, _, _> = Flow::new(&client, &server, Chain::new());
            let down: Flow<'_, _, _> = Flow::new(&server, &client, Chain::new());
            let times = Times { client: Times::NEVER, server: Times::NEVER, look: Times::NEVER };
            assert!(matches!(held(&up, &down, times).await, Event::Failed(_)));
            let idle = server.either_readable(&client, Deadline::NEVER).await;
            assert!(matches!(Event::of_idle(idle), Event::Failed(_)));
        };
        Loop::new(options).unwrap().block_on(waits).unwrap();
    }
}
