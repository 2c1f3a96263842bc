//! The parts of a relay, which moves bytes between two byte streams: its ends ([`End`]: a
//! connection, or a stream of HTTP/2 or HTTP/3), one direction with its rate ([`Flow`]), and waits
//! that stay registered while others complete ([`wait`]).
//!
//! HTTP's tunnels (`http_upstream`'s `tunnel`) and the proxy of `stream` (`stream::proxy::relay`)
//! are two loops over these parts, because they end for different reasons and allow different
//! times.

pub mod wait;

use std::future::Future;
use std::io;

use event::Deadline;
use mem::{Chain, PAGE_SIZE, Page};
use proto::handover::Way;

use crate::Transport;
use crate::moves::Stay;
use crate::wiped::Wiped;

/// One end of a relay.
pub trait End {
    /// See [`Transport::try_recv_into`].
    fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>>;

    /// See [`Transport::try_send`].
    fn try_send(&self, chain: &mut Chain) -> io::Result<usize>;

    /// See [`Transport::try_send_last`].
    fn try_send_last(&self, chain: &mut Chain) -> io::Result<usize> {
        self.try_send(chain)
    }

    /// See [`Transport::peer_closed`].
    fn peer_closed(&self) -> bool {
        false
    }

    /// See [`Transport::has_unsent`].
    fn has_unsent(&self) -> bool;

    /// See [`Transport::readable`].
    fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>>;

    /// See [`Transport::writable`].
    fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>>;

    /// See [`Transport::take_received`].
    fn take_received(&self) -> Option<Page> {
        None
    }

    /// Turns off Nagle's algorithm (`TCP_NODELAY`), where the end has a socket of its own for that.
    fn set_nodelay(&self) {}

    /// The connection that this end is, unless it shares one with others: two connections can be
    /// waited for together ([`Transport::either_readable`]).
    fn transport(&self) -> Option<&Transport> {
        None
    }
}

impl End for Transport {
    fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>> {
        Transport::try_recv_into(self, page)
    }

    fn try_send(&self, chain: &mut Chain) -> io::Result<usize> {
        Transport::try_send(self, chain, None)
    }

    fn try_send_last(&self, chain: &mut Chain) -> io::Result<usize> {
        Transport::try_send_last(self, chain)
    }

    fn peer_closed(&self) -> bool {
        Transport::peer_closed(self)
    }

    fn has_unsent(&self) -> bool {
        Transport::has_unsent(self)
    }

    fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        Transport::readable(self, deadline)
    }

    fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        Transport::writable(self, deadline)
    }

    fn take_received(&self) -> Option<Page> {
        Transport::take_received(self)
    }

    fn set_nodelay(&self) {
        // Passing bytes does without it where the socket refuses.
        let _ = Transport::set_nodelay(self, true);
    }

    fn transport(&self) -> Option<&Transport> {
        Some(self)
    }
}

/// A limit on the bytes that a direction reads.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Bytes a second.
    per_second: u64,
    /// The time from which they are counted, in milliseconds of [`base::time::now_ms`].
    since_ms: u64,
    /// The bytes read since then.
    read: u64,
    /// Nothing is read before this time.
    resume_ms: u64,
}

impl Rate {
    /// A limit that counts from now.
    pub fn new(per_second: u64) -> Rate {
        Rate { per_second, since_ms: base::time::now_ms(), read: 0, resume_ms: 0 }
    }

    /// The time to wait for, in milliseconds of [`base::time::now_ms`], before anything may pass.
    pub fn wait_until(&mut self) -> Option<u64> {
        let now = base::time::now_ms();
        (self.allowed(now) == 0).then_some(self.resume_ms)
    }

    /// Counts bytes that pass now, although they may be more than the rate has room for.
    pub fn count(&mut self, n: u64) {
        self.took(n, base::time::now_ms());
    }

    /// The bytes that may be read at `now`; 0 sets the time from which on some may.
    fn allowed(&mut self, now: u64) -> u64 {
        if now < self.resume_ms {
            return 0;
        }
        let seconds = (now - self.since_ms) / 1000 + 1;
        let budget = self.per_second.saturating_mul(seconds);
        if budget <= self.read {
            let over = u128::from(self.read - budget) * 1000 / u128::from(self.per_second);
            self.resume_ms = now.saturating_add(u64::try_from(over).unwrap_or(u64::MAX) + 1);
            return 0;
        }
        budget - self.read
    }

    /// Counts `n` bytes that were read at `now`.
    fn took(&mut self, n: u64, now: u64) {
        self.read += n;
        let pause = u128::from(n) * 1000 / u128::from(self.per_second);
        self.resume_ms = now.saturating_add(u64::try_from(pause).unwrap_or(u64::MAX));
    }
}

/// A rate, with the bytes that were read and wait for it: some drivers, and TLS, give what they
/// have.
struct Limit {
    rate: Rate,
    ahead: Chain,
}

/// When `TCP_NODELAY` is set on a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nodelay {
    /// It is set, or is not to be set.
    Settled,
    /// After the next send.
    AfterOne,
    /// Before the next send.
    Due,
}

/// The bytes of one direction.
pub struct Flow<'a, F, T> {
    /// The end that is read.
    pub from: &'a F,
    /// The end that is written to.
    pub to: &'a T,
    /// Bytes that were read and not yet taken.
    pub pending: Chain,
    /// `from` will give no more: it ended, or broke.
    pub ended: bool,
    /// It yielded although more could be moved.
    pub busy: bool,
    /// It reads no more for now: a filter has sent too much the other way.
    pub paused: bool,
    nodelay: Nodelay,
    /// The most bytes of one read; 0 leaves that to the page.
    read_max: u32,
    /// The error that broke `from`.
    pub broken: Option<io::Error>,
    limit: Option<Box<Limit>>,
}

/// Has nothing in the kernel receive for this process any more, on either end of a relay that is to
/// move. No task may wait for them.
///
/// # Errors
/// The relay cannot move, and may go on.
pub async fn withdraw<C: End, S: End>(client: &C, server: &S) -> Result<(), Stay> {
    for end in [client.transport(), server.transport()] {
        let transport = end.ok_or(Stay::Protocol)?;
        transport.withdraw().await.map_err(|_| Stay::State)?;
    }
    Ok(())
}

/// The same for a relay whose client is on a stream of a connection: the server's end alone.
///
/// # Errors
/// The relay cannot move, and may go on.
pub async fn withdraw_server<S: End>(server: &S) -> Result<(), Stay> {
    let transport = server.transport().ok_or(Stay::Protocol)?;
    transport.withdraw().await.map_err(|_| Stay::State)
}

/// A direction without its ends.
#[derive(Default)]
pub struct Resting {
    pending: Chain,
    ended: bool,
    limit: Option<Box<Limit>>,
    read_max: u32,
}

impl Resting {
    /// A direction that has moved nothing yet; `pending` goes first.
    pub fn new(pending: Chain) -> Resting {
        Resting { pending, ..Resting::default() }
    }

    /// The bytes that it holds: those to be sent, and those that wait for the rate.
    pub fn held(&self) -> u64 {
        self.pending.len() + self.limit.as_ref().map_or(0, |limit| limit.ahead.len())
    }

    /// A copy for another process.
    pub fn copy(&self) -> RestingCopy {
        let limit = self.limit.as_ref().map(|limit| (limit.rate, memory(&limit.ahead)));
        RestingCopy { pending: memory(&self.pending), ended: self.ended, limit }
    }

    /// The direction that another process has described. `read_max` as in [`Flow::limited`].
    pub fn of(way: &Way<'_>, read_max: usize) -> Resting {
        let chain = |bytes: &[u8]| {
            let mut chain = Chain::new();
            if !bytes.is_empty() {
                chain.write(bytes);
            }
            chain
        };
        let limit = way.rate.as_ref().filter(|rate| rate.per_second > 0).map(|of| {
            let now = base::time::now_ms();
            // The clock may be younger than the direction: what was read before that is forgotten,
            // with its time.
            let since_ms = now.saturating_sub(of.age_ms);
            let lost = (of.age_ms / 1000).saturating_sub((now - since_ms) / 1000);
            let rate = Rate {
                per_second: of.per_second,
                since_ms,
                read: of.read.saturating_sub(of.per_second.saturating_mul(lost)),
                resume_ms: if of.wait_ms == 0 { 0 } else { now.saturating_add(of.wait_ms) },
            };
            Box::new(Limit { rate, ahead: chain(of.ahead) })
        });
        let read_max = u32::try_from(read_max).unwrap_or(READ_MAX).min(READ_MAX);
        Resting { pending: chain(way.pending), ended: way.ended, limit, read_max }
    }
}

/// A copy of a direction at rest.
pub struct RestingCopy {
    pending: Wiped,
    ended: bool,
    limit: Option<(Rate, Wiped)>,
}

impl RestingCopy {
    /// The direction as it travels. `closed`: its end was forwarded.
    pub fn way(&self, closed: bool) -> Way<'_> {
        let rate = self.limit.as_ref().map(|(rate, ahead)| {
            let now = base::time::now_ms();
            proto::handover::Rate {
                per_second: rate.per_second,
                age_ms: now.saturating_sub(rate.since_ms),
                read: rate.read,
                wait_ms: rate.resume_ms.saturating_sub(now),
                ahead,
            }
        });
        Way { pending: &self.pending, ended: self.ended, closed, rate }
    }
}

/// A copy of a chain's bytes, which are memory alone.
pub fn memory(chain: &Chain) -> Wiped {
    let mut copy = Vec::with_capacity(usize::try_from(chain.len()).unwrap_or(0));
    chain.iter().filter_map(mem::Buf::memory).for_each(|bytes| copy.extend_from_slice(bytes));
    copy.into()
}

/// The reads of one direction that may follow each other before other connections have their turn.
const ROUNDS: usize = 16;

/// The most bytes of one read, whatever the settings.
const READ_MAX: u32 = 1 << 20;

/// The bytes that a turn of a direction moved.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Bytes read from the source.
    pub read: u64,
    /// Bytes written to the destination.
    pub written: u64,
}

impl<'a, F: End, T: End> Flow<'a, F, T> {
    /// A direction without limits; `pending` goes first.
    pub fn new(from: &'a F, to: &'a T, pending: Chain) -> Flow<'a, F, T> {
        let (ended, busy, paused) = (false, false, false);
        let (read_max, broken, limit) = (0, None, None);
        let nodelay = Nodelay::Settled;
        Flow { from, to, pending, ended, busy, paused, nodelay, read_max, broken, limit }
    }

    /// Has `TCP_NODELAY` set on a destination on which nothing was sent yet, before the second
    /// send. The first one is never held back, and many sessions are over with it.
    #[must_use]
    pub fn nodelay(mut self) -> Flow<'a, F, T> {
        self.nodelay = Nodelay::AfterOne;
        self
    }

    /// The same with a rate, and a limit on the bytes of one read; 0 leaves that to the page.
    #[must_use]
    pub fn limited(mut self, rate: Option<Rate>, read_max: usize) -> Flow<'a, F, T> {
        self.limit = rate.map(|rate| Box::new(Limit { rate, ahead: Chain::new() }));
        self.read_max = u32::try_from(read_max).unwrap_or(READ_MAX).min(READ_MAX);
        self
    }

    /// Moves bytes as far as that needs no wait. The end of the source may end the destination's
    /// sending direction with the last bytes ([`Transport::try_send_last`]).
    ///
    /// # Errors
    /// The destination is broken.
    pub fn go(&mut self) -> io::Result<Moved> {
        let mut moved = Moved::default();
        for _ in 0..ROUNDS {
            if self.has_unsent() && !self.is_before_end() {
                moved.written += self.send()?;
                if self.has_unsent() {
                    return Ok(moved);
                }
            }
            if self.ended && !self.is_ahead() {
                return Ok(moved);
            }
            match self.read() {
                Some(n) => moved.read += n,
                None => {
                    if self.has_unsent() {
                        moved.written += self.send()?;
                    }
                    return Ok(moved);
                }
            }
        }
        self.busy = true;
        Ok(moved)
    }

    /// Moves bytes as [`Flow::go`] does, through a filter: what was read goes to `filter`, with
    /// whether the source has ended with it, and what is to be sent comes back, with whether it is
    /// to read no more for now ([`Flow::paused`]). The end of the source does not end the
    /// destination's sending direction, because the filter may have more to send.
    ///
    /// # Errors
    /// The destination is broken, or the filter has failed.
    pub fn go_through<E: From<io::Error>>(
        &mut self,
        mut filter: impl FnMut(Chain, bool) -> Result<(Chain, bool), E>,
    ) -> Result<Moved, E> {
        let mut moved = Moved::default();
        for _ in 0..ROUNDS {
            if self.has_unsent() {
                moved.written += self.to.try_send(&mut self.pending)? as u64;
                if self.has_unsent() {
                    return Ok(moved);
                }
            }
            if self.paused || self.ended && !self.is_ahead() {
                return Ok(moved);
            }
            // All was sent: what is pending after this was read.
            let Some(read) = self.read() else { return Ok(moved) };
            moved.read += read;
            let came = std::mem::take(&mut self.pending);
            let last = self.ended && !self.is_ahead();
            if last || !came.is_empty() {
                (self.pending, self.paused) = filter(came, last)?;
            }
        }
        self.busy = true;
        Ok(moved)
    }

    /// Whether the end of the source is known to be near: it is read before what is pending is
    /// sent, so that the destination's end leaves with its last bytes.
    fn is_before_end(&self) -> bool {
        !self.ended
            && self.limit.is_none()
            && self.from.peer_closed()
            && self.pending.len() < PAGE_SIZE as u64
    }

    /// Sends what is pending, as far as the destination takes it.
    fn send(&mut self) -> io::Result<u64> {
        if self.nodelay == Nodelay::Due {
            self.nodelay = Nodelay::Settled;
            self.to.set_nodelay();
        }
        let sent = match self.ended && !self.is_ahead() {
            true => self.to.try_send_last(&mut self.pending)?,
            false => self.to.try_send(&mut self.pending)?,
        };
        if sent > 0 && self.nodelay == Nodelay::AfterOne {
            self.nodelay = Nodelay::Due;
        }
        Ok(sent as u64)
    }

    /// Reads once; `None` where there is nothing, or no more may be read now.
    fn read(&mut self) -> Option<u64> {
        let now = if self.limit.is_some() { base::time::now_ms() } else { 0 };
        let allowed = self.limit.as_mut().map(|limit| limit.rate.allowed(now));
        if allowed == Some(0) {
            return None;
        }
        if self.is_ahead() {
            return self.take_ahead(allowed.unwrap_or(u64::MAX), now);
        }
        let mut max = self.read_max;
        if let Some(allowed) = allowed {
            let allowed = u32::try_from(allowed).unwrap_or(READ_MAX).min(READ_MAX);
            max = if max == 0 { allowed } else { max.min(allowed) };
        }
        let page = match max as usize {
            0 | PAGE_SIZE => Ok(Page::new()),
            max => Page::try_with_room(max),
        };
        let received = page.and_then(|mut page| {
            let received = self.from.try_recv_into(&mut page)?;
            Ok(received.map(|n| (n, page)))
        });
        match received {
            Ok(None) => None,
            Ok(Some((0, _))) => {
                self.ended = true;
                Some(0)
            }
            // A broken connection is an end too.
            Err(e) => {
                self.ended = true;
                self.broken = Some(e);
                Some(0)
            }
            Ok(Some((n, page))) => match (&mut self.limit, allowed) {
                (Some(limit), Some(allowed)) => {
                    limit.ahead.push(page.into());
                    self.take_ahead(allowed, now)
                }
                _ => {
                    self.pending.push(page.into());
                    Some(n as u64)
                }
            },
        }
    }

    /// Takes as much of the bytes that were read ahead as the rate allows.
    fn take_ahead(&mut self, allowed: u64, now: u64) -> Option<u64> {
        let Some(limit) = &mut self.limit else { return None };
        let mut part = limit.ahead.split_to(allowed);
        let n = part.len();
        self.pending.append(&mut part);
        limit.rate.took(n, now);
        Some(n)
    }

    /// Whether bytes were read that wait for the rate.
    fn is_ahead(&self) -> bool {
        self.limit.as_ref().is_some_and(|limit| !limit.ahead.is_empty())
    }

    /// Whether it waits for its source.
    pub fn wants_read(&self) -> bool {
        let has_none = !self.has_unsent() && !self.ended && !self.is_ahead();
        has_none && !self.paused && !self.is_delayed()
    }

    /// The time at which its rate lets it read again, if that holds it up.
    pub fn resumes_at(&self) -> Option<u64> {
        let limit = self.limit.as_ref()?;
        let waits = !self.has_unsent() && !self.paused && (!self.ended || self.is_ahead());
        // Bytes ahead are taken at the next turn at the latest.
        let held = limit.rate.resume_ms > base::time::now_ms() || self.is_ahead();
        (waits && held).then_some(limit.rate.resume_ms)
    }

    fn is_delayed(&self) -> bool {
        self.resumes_at().is_some()
    }

    /// Whether bytes wait for its destination.
    pub fn has_unsent(&self) -> bool {
        !self.pending.is_empty() || self.to.has_unsent()
    }

    /// Takes the bytes that the driver has received from the source, whose receives were withdrawn
    /// ([`Transport::withdraw`]). Returns the number of those that count as read: with a rate,
    /// bytes count when it lets them pass.
    pub fn take_received(&mut self) -> u64 {
        let mut taken = 0;
        while let Some(page) = self.from.take_received() {
            match &mut self.limit {
                Some(limit) => limit.ahead.push(page.into()),
                None => {
                    taken += page.len() as u64;
                    self.pending.push(page.into());
                }
            }
        }
        taken
    }

    /// The direction at rest: it goes on in another process, or here.
    pub fn rest(self) -> Resting {
        if self.nodelay != Nodelay::Settled {
            self.to.set_nodelay();
        }
        let Flow { pending, ended, limit, read_max, .. } = self;
        Resting { pending, ended, limit, read_max }
    }

    /// Goes on with a direction that was at rest.
    pub fn resumed(from: &'a F, to: &'a T, resting: Resting) -> Flow<'a, F, T> {
        let Resting { pending, ended, limit, read_max } = resting;
        let mut flow = Flow::new(from, to, pending);
        (flow.ended, flow.limit, flow.read_max) = (ended, limit, read_max);
        flow
    }

    /// Whether its source ended and all was sent.
    pub fn is_done(&self) -> bool {
        self.ended && !self.is_ahead() && !self.has_unsent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_is_older_than_the_clock_does_not_freeze() {
        base::time::pin(3_600_000, 0);
        let now = base::time::now_ms();
        // It has read all that it might, for these hours.
        for hours in [0, 1, 5, 1 << 20] {
            let age_ms = hours * 3_600_000;
            let read = 1000 * (age_ms / 1000 + 1);
            let rate =
                proto::handover::Rate { per_second: 1000, age_ms, read, wait_ms: 0, ahead: b"" };
            let way = Way { pending: b"", ended: false, closed: false, rate: Some(rate) };
            let mut rate = Resting::of(&way, 0).limit.unwrap().rate;
            assert_eq!(rate.allowed(now), 0, "{hours}");
            assert!(rate.resume_ms <= now + 1000, "{hours}");
            assert_eq!(rate.allowed(now + 1000), 1000, "{hours}");
        }
        base::time::unpin();
    }
}
