//! The attempts of a session to reach a server, for `$upstream_…` variables and log lines.

use std::num::{NonZeroU32, NonZeroU64};
use std::rc::Rc;

use base::time::now_ms;
use bytes::Bytes;
use engine::metrics::RowId;
use os::SockAddr;
use proto::handover;
use upstream::peer::{Peer, ServerSpec};
use upstream::servers::Servers;

/// An attempt with one server. Kept small, because a session keeps it to its end.
#[derive(Clone)]
pub struct Attempt {
    /// `None` if no server was available; then this is the last attempt.
    peer: Option<Rc<Peer>>,
    clock: Clock,
    connected: Mark,
    first_byte: Mark,
    /// Bytes sent to it.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
}

/// The start time of an attempt; after its end, its duration. Encoded as (ms + 1) * 2, plus 1 after
/// the end.
#[derive(Clone, Copy)]
struct Clock(NonZeroU64);

impl Clock {
    fn of(ms: u64, is_over: bool) -> Clock {
        let value = ms.min(u64::MAX >> 2).saturating_add(1) << 1 | u64::from(is_over);
        Clock(NonZeroU64::MIN.saturating_add(value - 1))
    }

    fn ms(self) -> u64 {
        (self.0.get() >> 1) - 1
    }

    fn is_over(self) -> bool {
        self.0.get() & 1 != 0
    }
}

/// The time from an attempt's start to some event, encoded as milliseconds + 1; `None` before the
/// event.
#[derive(Clone, Copy, Default)]
struct Mark(Option<NonZeroU32>);

impl Mark {
    fn set(&mut self, ms: u64) {
        let ms = u32::try_from(ms).unwrap_or(u32::MAX);
        self.0 = NonZeroU32::new(ms.saturating_add(1));
    }

    fn ms(self) -> Option<u64> {
        self.0.map(|ms| u64::from(ms.get() - 1))
    }
}

impl Attempt {
    fn begin(peer: Option<Rc<Peer>>) -> Attempt {
        let (connected, first_byte) = (Mark::default(), Mark::default());
        let clock = Clock::of(now_ms(), false);
        Attempt { peer, clock, connected, first_byte, sent: 0, received: 0 }
    }

    fn passed_ms(&self) -> u64 {
        now_ms().saturating_sub(self.clock.ms())
    }

    /// The attempt as it travels to another process; `None` if it has no server.
    fn described(&self) -> Option<handover::Attempt<'_>> {
        Some(handover::Attempt {
            peer: Some(&self.peer.as_ref()?.name),
            status: 0,
            age_ms: if self.clock.is_over() { self.clock.ms() } else { self.passed_ms() },
            connect_ms: self.connect_ms(),
            first_ms: self.first_byte_ms(),
            end_ms: self.session_ms(),
            length: 0,
            received: self.received,
            sent: self.sent,
        })
    }

    /// The attempt that another process has made with `peer`.
    fn resumed(of: &handover::Attempt<'_>, peer: Rc<Peer>) -> Attempt {
        let clock = match of.end_ms {
            Some(ms) => Clock::of(ms, true),
            None => Clock::of(now_ms().saturating_sub(of.age_ms), false),
        };
        let mark = |ms: Option<u64>| {
            let mut mark = Mark::default();
            ms.into_iter().for_each(|ms| mark.set(ms));
            mark
        };
        let (connected, first_byte) = (mark(of.connect_ms), mark(of.first_ms));
        let (sent, received) = (of.sent, of.received);
        Attempt { peer: Some(peer), clock, connected, first_byte, sent, received }
    }

    /// The server's row of counters.
    pub(crate) fn row(&self) -> Option<RowId> {
        self.peer.as_ref()?.row()
    }

    /// The time to connect, in milliseconds.
    pub(crate) fn connect_ms(&self) -> Option<u64> {
        self.connected.ms()
    }

    /// The time to the first byte, in milliseconds.
    pub(crate) fn first_byte_ms(&self) -> Option<u64> {
        self.first_byte.ms()
    }

    /// The duration in milliseconds, after its end.
    pub(crate) fn session_ms(&self) -> Option<u64> {
        self.clock.is_over().then(|| self.clock.ms())
    }
}

/// All attempts of a session. Most sessions have one, so further ones are boxed.
#[derive(Default)]
pub struct Exchanges {
    pub(super) last: Option<Attempt>,
    more: Option<Box<More>>,
}

/// Data that few sessions have.
#[derive(Default)]
struct More {
    /// The attempts before the last one.
    earlier: Vec<Attempt>,
    /// The group's name, if none of its servers was available.
    group: Bytes,
}

impl Exchanges {
    /// Starts an attempt; `None` if no server of the group is available.
    pub fn begin(&mut self, peer: Option<Rc<Peer>>, group: &Bytes) {
        if peer.is_none() {
            self.more.get_or_insert_default().group = group.clone();
        }
        if let Some(before) = self.last.replace(Attempt::begin(peer)) {
            self.more.get_or_insert_default().earlier.push(before);
        }
    }

    /// All attempts as they travel to another process.
    pub(crate) fn described(&self) -> Vec<handover::Attempt<'_>> {
        self.attempts().filter_map(Attempt::described).collect()
    }

    /// The attempts that another process has made; `named` finds the servers that the configuration
    /// still has. `None` if a server's name is no address.
    pub(crate) fn resumed(
        attempts: &[handover::Attempt<'_>],
        named: impl Fn(&[u8]) -> Option<Rc<Peer>>,
    ) -> Option<Exchanges> {
        let mut exchanges = Exchanges::default();
        for of in attempts {
            let name = of.peer?;
            let peer = match named(name) {
                Some(peer) => peer,
                None => {
                    let spec = ServerSpec::new(SockAddr::parse(name)?);
                    let servers = Servers::own(Bytes::copy_from_slice(name), &[spec]);
                    servers.lists().main.first()?.clone()
                }
            };
            if let Some(before) = exchanges.last.replace(Attempt::resumed(of, peer)) {
                exchanges.more.get_or_insert_default().earlier.push(before);
            }
        }
        Some(exchanges)
    }

    /// All attempts, in order.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.more.iter().flat_map(|more| &more.earlier).chain(&self.last)
    }

    /// The current attempt.
    pub fn now(&mut self) -> Option<&mut Attempt> {
        self.last.as_mut()
    }

    /// The connection is established.
    pub fn connected(&mut self) {
        if let Some(a) = self.now() {
            a.connected.set(a.passed_ms());
        }
    }

    /// The first byte has arrived.
    pub(crate) fn first_byte_now(&mut self) {
        if let Some(a) = self.now()
            && a.first_byte_ms().is_none()
        {
            a.first_byte.set(a.passed_ms());
        }
    }

    /// The time to the first byte of the current attempt, in milliseconds.
    pub(crate) fn first_byte_ms(&self) -> Option<u64> {
        self.last.as_ref()?.first_byte_ms()
    }

    /// The current attempt has ended.
    pub fn over(&mut self) {
        if let Some(a) = self.now()
            && !a.clock.is_over()
        {
            a.clock = Clock::of(a.passed_ms(), true);
        }
    }

    /// The address of an attempt's server, or the group's name if no server was available.
    pub(super) fn name<'a>(&'a self, attempt: &'a Attempt) -> &'a Bytes {
        static NONE: Bytes = Bytes::new();
        match (&attempt.peer, &self.more) {
            (Some(peer), _) => &peer.name,
            (None, Some(more)) => &more.group,
            (None, None) => &NONE,
        }
    }

    /// Whether the current attempt's server is out for good.
    pub(crate) fn has_lost_server(&self) -> bool {
        let peer = self.last.as_ref().and_then(|a| a.peer.as_ref());
        peer.is_some_and(|peer| peer.is_out_for_good())
    }

    /// The address of the current attempt's server.
    pub fn peer(&self) -> Option<&Bytes> {
        self.last.as_ref().map(|a| self.name(a))
    }

    /// The bytes received from and sent to the server, while connected.
    pub(crate) fn bytes_now(&self) -> Option<(u64, u64)> {
        let a = self.last.as_ref().filter(|a| a.connect_ms().is_some())?;
        Some((a.received, a.sent))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, write: impl Fn(&Attempt, &mut Vec<u8>)) {
        for (i, attempt) in self.attempts().enumerate() {
            if i > 0 {
                out.extend_from_slice(b", ");
            }
            write(attempt, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_small() {
        assert_eq!((size_of::<Attempt>(), size_of::<Exchanges>()), (40, 48));
    }
}
