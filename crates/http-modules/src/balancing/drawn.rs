//! What methods have in common that draw servers (by a key, by chance) until one of them can be
//! asked, and leave the choice to round robin where too many draws missed.

use std::rc::Rc;

use base::time;
use http::upstream::balance::{Outcome, Picker, Round, Times};
use http::upstream::peer::Peer;

/// After so many servers that cannot be asked a method gives up.
const MISSES_MAX: u32 = 20;

/// How many draws missed so far, in all tries of a request.
#[derive(Default)]
pub(super) struct Misses(u32);

impl Misses {
    fn are_too_many(&self) -> bool {
        self.0 > MISSES_MAX
    }
}

/// Draws `server` again and again, until it gives one that `fits`.
pub(super) fn until_it_fits(
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

/// How a method draws.
pub(super) trait Draw {
    /// Under the servers' lock: a server of the round's list that can be asked.
    fn draw(&mut self, round: &Round, misses: &mut Misses, now: i64) -> Option<usize>;

    /// Whether there is anything to draw by.
    fn has_key(&self) -> bool {
        true
    }

    /// Under the lock: what the method keeps of an exchange that is over.
    fn account(&self, _: &Peer, _: Outcome, _: Times) {}
}

/// A request's way through the servers.
pub(super) struct Drawn<D> {
    pub round: Round,
    pub method: D,
    misses: Misses,
}

impl<D: Draw> Drawn<D> {
    /// Begins with the servers of a round.
    pub fn new(round: Round, method: D) -> Drawn<D> {
        Drawn { round, method, misses: Misses::default() }
    }

    fn choose(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let servers = self.round.servers();
        let _lock = servers.lock();
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

    fn done(&mut self, peer: &Peer, outcome: Outcome, times: Times) -> bool {
        let servers = self.round.servers();
        let lock = servers.lock();
        self.method.account(peer, outcome, times);
        let out = self.round.done_locked(peer, outcome);
        drop(lock);
        servers.tell_waiting();
        out
    }

    fn is_single(&self) -> bool {
        self.round.is_single()
    }
}

/// The server on which a point of the sum of all weights falls.
pub(super) fn at_weight(list: &[Rc<Peer>], mut point: i64) -> usize {
    for (i, p) in list.iter().enumerate() {
        if point < p.spec.weight {
            return i;
        }
        point -= p.spec.weight;
    }
    list.len() - 1
}
