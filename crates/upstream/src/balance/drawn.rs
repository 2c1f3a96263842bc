//! The common part of methods that draw servers, by a key or by chance, until one of them can be
//! asked. After too many misses they leave the choice to round robin.

use std::rc::Rc;

use base::time;

use super::{ExchangeTimes, Picker, Round, ServerOutcome};
use crate::peer::Peer;

/// After so many servers that cannot be asked a method gives up.
const MISSES_MAX: u32 = 20;

/// The draws that missed so far, in all tries of a session.
#[derive(Default)]
pub struct Misses(u32);

impl Misses {
    fn are_too_many(&self) -> bool {
        self.0 > MISSES_MAX
    }
}

/// Calls `server` until it gives one, or until too many draws missed.
pub fn until_one_fits(
    misses: &mut Misses,
    mut server: impl FnMut() -> Option<usize>,
) -> Option<usize> {
    while !misses.are_too_many() {
        if let Some(i) = server() {
            return Some(i);
        }
        misses.0 += 1;
    }
    None
}

/// A way of drawing.
pub trait Draw {
    /// Under the servers' lock: a server of the round's list that can be asked.
    fn draw(&mut self, round: &Round, misses: &mut Misses, now: i64) -> Option<usize>;

    /// Whether there is a key to draw by.
    fn has_key(&self) -> bool {
        true
    }

    /// See [`Picker::counts_connecting`].
    fn counts_connecting(&self) -> bool {
        false
    }

    /// Under the lock: takes an exchange that is over into the method's own figures.
    fn account(&self, _: &Peer, _: ServerOutcome, _: ExchangeTimes) {}
}

/// The picker of a method that draws.
pub struct Drawn<D> {
    round: Round,
    method: D,
    misses: Misses,
}

impl<D: Draw> Drawn<D> {
    /// Begins with the servers as they are now.
    pub fn new(round: Round, method: D) -> Drawn<D> {
        Drawn { round, method, misses: Misses::default() }
    }

    fn choose(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let servers = self.round.servers();
        let _lock = self.round.lock_to_choose(&servers);
        if self.round.list().len() < 2 {
            return None;
        }
        let now = time::unix_secs() as i64;
        let bound = self.round.bound(bound, now);
        let i = bound.or_else(|| self.method.draw(&self.round, &mut self.misses, now))?;
        Some(self.round.take(i, now))
    }
}

impl<D: Draw> Picker for Drawn<D> {
    fn tries(&self) -> u32 {
        self.round.tries()
    }

    fn next(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let few = self.round.list().len() < 2;
        if few || self.misses.are_too_many() || !self.method.has_key() {
            return self.round.next(bound);
        }
        self.choose(bound).or_else(|| self.round.next(bound))
    }

    fn done(&mut self, peer: &Peer, outcome: ServerOutcome, times: ExchangeTimes) -> bool {
        let servers = self.round.servers();
        let lock = servers.lock();
        self.method.account(peer, outcome, times);
        let out = self.round.done_locked(peer, outcome);
        drop(lock);
        servers.notify_queue();
        out
    }

    fn is_single(&self) -> bool {
        self.round.is_single()
    }

    fn counts_connecting(&self) -> bool {
        self.method.counts_connecting()
    }
}

/// The index of the server on which a point within the sum of all weights falls.
pub fn at_weight(list: &[Rc<Peer>], mut point: i64) -> usize {
    for (i, p) in list.iter().enumerate() {
        if point < p.spec.weight {
            return i;
        }
        point -= p.spec.weight;
    }
    list.len() - 1
}
