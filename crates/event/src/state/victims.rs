//! The choice of the connections that are closed when the loop runs short of connections,
//! descriptors or memory. The loop chooses because it knows which connections are parked, which
//! wait for their client, and to which client each belongs.
//!
//! Clients (an address; with IPv6 a block of 64 bits) lose connections by number: first the client
//! with the most, down to the number of the next one; among equals the connection that waits
//! longest. So a client that opens thousands is closed for those with a few. Without pressure
//! nothing limits how many connections one address has, because it may be a balancer or a network
//! behind one.
//!
//! If more than half of the parked connections have not sent their first request, or only a part of
//! one, only these are candidates: such clients then take the room, and connections kept for a next
//! request stay.
//!
//! If all of that is not enough, busy connections are *displaced* ([`Core::displace`]): those of
//! clients with more than their share, the one that waits longest for its client first. A displaced
//! connection's wait fails, and the engine asks for the reason (`Sock::is_displaced`) where it logs
//! the failure.

use super::Core;
use super::index::NONE;
use super::slot::{Park, SlotKey, SlotState};
use super::socks::{SockKey, SockKind, bits};

/// In the first round one connection in this number is asked to close.
const SHARE: usize = 32;

/// One of so many parked connections is chosen at once: those behind come with the next choice.
const PART: usize = 8;

/// Turns in which a connection that was asked to close has closed. One that is not has got its
/// bytes at the same moment.
const LEAVING_TURNS: u64 = 16;

/// A choice that is older does not tell who has the most now.
const STALE_MS: u64 = 100;

/// A connection that may make room.
struct Candidate {
    client: u32,
    /// Its place among all, the longest wait first; then its number among those of its client, of
    /// which the last comes first.
    since: u64,
    number: u32,
    key: SlotKey,
    sock: SockKey,
}

/// The parked connections that are next to make room, and the clients that take nothing.
#[derive(Default)]
pub(crate) struct Victims {
    /// The next one last.
    parked: Vec<SlotKey>,
    chosen_ms: u64,
    /// Busy connections of clients with more than their share, the next to go last.
    displaced: Vec<Candidate>,
    displaced_ms: u64,
    /// The sockets of those that were asked, with the turn.
    leaving: Vec<(SockKey, u64)>,
    /// Waits to send, with the time at which each was seen first.
    pub(crate) unmoved: Vec<(SlotKey, u64)>,
}

/// Connections that were asked to close.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Idle ones, and those with half a request.
    pub parked: usize,
    /// Connections with a slow client.
    pub slow: usize,
}

/// In that round one connection in this number is asked to close.
fn share_of(round: u32) -> usize {
    SHARE >> round.min(SHARE.ilog2() - 1)
}

/// Puts the fairest `count` candidates first, in their order.
fn choose(all: &mut Vec<Candidate>, count: usize) {
    // The youngest of a client has the number 0.
    all.sort_unstable_by_key(|c| (c.client, std::cmp::Reverse(c.since)));
    let mut before = None;
    let mut number = 0;
    for candidate in all.iter_mut() {
        number = if before == Some(candidate.client) { number + 1 } else { 0 };
        before = Some(candidate.client);
        candidate.number = number;
    }
    all.sort_unstable_by_key(|c| (std::cmp::Reverse(c.number), c.since));
    all.truncate(count);
}

impl Core {
    /// Asks `count` parked connections to close, or as many as there are; returns their number.
    pub(crate) fn reclaim_parked(&mut self, count: usize) -> usize {
        let mut asked = 0;
        let mut anew = base::time::now_ms().saturating_sub(self.victims.chosen_ms) > STALE_MS;
        while asked < count && self.slots.parked() > 0 {
            if std::mem::take(&mut anew) {
                self.choose_parked();
            }
            match self.victims.parked.pop() {
                Some(key) => {
                    let sock = self.slots.sock_of(key);
                    if self.slots.reclaim(&mut self.tasks, key) {
                        asked += 1;
                        self.victims.leaving.push((self.socks.key_at(sock), self.stats.turns));
                    }
                }
                None => anew = true,
            }
        }
        asked
    }

    /// Connections that were asked to close, and have not.
    pub(crate) fn leaving(&mut self) -> usize {
        let turns = self.stats.turns;
        let socks = &mut self.socks;
        self.victims
            .leaving
            .retain(|(key, asked)| *asked + LEAVING_TURNS > turns && socks.get(*key).is_some());
        self.victims.leaving.len()
    }

    /// Chooses the next parked connections.
    fn choose_parked(&mut self) {
        let all = || self.slots.all_parked().enumerate();
        let begun = all().filter(|(_, (.., park))| *park == Park::Begun).count();
        let only_begun = begun * 2 > self.slots.parked();
        let candidates = all().filter(|(_, (.., park))| !only_begun || *park == Park::Begun);
        let mut candidates: Vec<Candidate> = candidates
            .map(|(place, (key, sock, _))| {
                let (client, sock) = (self.socks.clients.at(sock), self.socks.key_at(sock));
                Candidate { client, since: place as u64, number: 0, key, sock }
            })
            .collect();
        // No more: connections that come meanwhile may be the ones to go.
        let count = candidates.len().div_ceil(PART);
        choose(&mut candidates, count);
        self.victims.parked.clear();
        self.victims.parked.extend(candidates.iter().rev().map(|candidate| candidate.key));
        self.victims.chosen_ms = base::time::now_ms();
    }

    /// Asks connections to close, more of them each round: parked ones, and those of slow clients.
    pub(crate) fn shed_round(&mut self, round: u32) -> Asked {
        let parked = self.shed_round_of_parked(round);
        Asked { parked, slow: self.shed_slow(share_of(round)) }
    }

    /// The same of parked ones alone; returns their number.
    pub(crate) fn shed_round_of_parked(&mut self, round: u32) -> usize {
        self.reclaim_parked((self.slots.parked() / share_of(round)).max(32))
    }

    /// Ends waits for clients without progress; returns their number.
    fn shed_slow(&mut self, share: usize) -> usize {
        let mut slow: Vec<Candidate> = Vec::new();
        for (index, entry) in self.socks.all().iter().enumerate() {
            if entry.kind != SockKind::Connection || entry.bits & bits::ACCEPTED == 0 {
                continue;
            }
            let reader = if entry.bits & bits::READER_FOR_CLOSE == 0 { entry.reader } else { NONE };
            for slot in [entry.writer, reader].into_iter().filter(|&slot| slot != NONE) {
                // The soonest deadline is that of the longest wait.
                let Some(since) = self.slots.waits_until(slot) else { continue };
                slow.push(self.candidate(index, slot, since));
            }
        }
        let count = (slow.len() / share).max(4);
        self.shed(slow, count)
    }

    /// Ends `count` of these waits.
    fn shed(&mut self, mut slow: Vec<Candidate>, count: usize) -> usize {
        choose(&mut slow, count);
        slow.iter().for_each(|candidate| self.close(candidate));
        slow.len()
    }

    /// The connection at `index`, whose task waits with `slot`.
    fn candidate(&self, index: usize, slot: u32, since: u64) -> Candidate {
        let index = index as u32;
        let (client, sock) = (self.socks.clients.at(index), self.socks.key_at(index));
        Candidate { client, since, number: 0, key: self.slots.key_at(slot), sock }
    }

    /// Ends the wait of a busy connection: for its client it fails, and a wait for the client's end
    /// is over as if that had come.
    fn close(&mut self, candidate: &Candidate) {
        let slot = candidate.key.index;
        let Some(entry) = self.socks.get(candidate.sock) else { return };
        entry.bits |= bits::DISPLACED;
        match entry.reader == slot && entry.bits & bits::READER_FOR_CLOSE != 0 {
            true => self.apply(candidate.sock, bits::PEER_CLOSED),
            false => self.slots.complete(&mut self.tasks, slot, SlotState::Shed),
        }
    }

    /// Closes a busy connection of a client that has more than `share`; false where there is none
    /// whose end can be had at once.
    pub(crate) fn displace(&mut self, share: u32) -> bool {
        let now_ms = base::time::now_ms();
        let mut anew = now_ms.saturating_sub(self.victims.displaced_ms) > STALE_MS;
        let mut chosen = false;
        loop {
            if std::mem::take(&mut anew) {
                self.choose_displaced(share);
                chosen = true;
            }
            let Some(candidate) = self.victims.displaced.pop() else {
                if chosen {
                    return false;
                }
                anew = true;
                continue;
            };
            let waits = self.slots.key_at(candidate.key.index) == candidate.key
                && self.slots.waits_until(candidate.key.index).is_some();
            if waits && self.socks.clients.is_heavy(candidate.sock.index, share) {
                self.close(&candidate);
                return true;
            }
        }
    }

    /// Chooses the connections that are displaced next.
    fn choose_displaced(&mut self, share: u32) {
        let mut candidates = Vec::new();
        for index in 0..self.socks.all().len() {
            if !self.socks.clients.is_heavy(index as u32, share) {
                continue;
            }
            let entry = &self.socks.all()[index];
            if !entry.kind.is_connection() || entry.bits & bits::DISPLACED != 0 {
                continue;
            }
            let waits = [entry.writer, entry.reader].into_iter();
            let wait = waits.filter_map(|slot| Some((slot, self.slots.waits_until(slot)?))).next();
            // The soonest deadline is that of the longest wait.
            candidates.extend(wait.map(|(slot, since)| self.candidate(index, slot, since)));
        }
        let count = candidates.len().div_ceil(PART);
        choose(&mut candidates, count);
        candidates.reverse();
        self.victims.displaced = candidates;
        self.victims.displaced_ms = base::time::now_ms();
    }

    /// Ends waits of clients that have taken nothing for `ms`, one of [`PART`] of them; returns
    /// their number. Waits are known from the call on that has seen them.
    pub(crate) fn shed_unmoved(&mut self, ms: u64) -> usize {
        let now_ms = base::time::now_ms();
        let mut before = std::mem::take(&mut self.victims.unmoved);
        before.sort_unstable_by_key(|(key, _)| key.index);
        let mut slow = Vec::new();
        for (index, entry) in self.socks.all().iter().enumerate() {
            let is_client = entry.kind == SockKind::Connection && entry.bits & bits::ACCEPTED != 0;
            if !is_client || self.slots.waits_until(entry.writer).is_none() {
                continue;
            }
            let key = self.slots.key_at(entry.writer);
            let known = before.binary_search_by_key(&key.index, |(key, _)| key.index);
            let known = known.ok().map(|at| before[at]).filter(|(before, _)| *before == key);
            let since = known.map_or(now_ms, |(_, since)| since);
            self.victims.unmoved.push((key, since));
            if now_ms - since >= ms {
                slow.push(self.candidate(index, key.index, since));
            }
        }
        let count = slow.len().div_ceil(PART);
        self.shed(slow, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses `count` of some connections, and returns their places. Each connection is given as
    /// its client; the one that has waited longest comes first.
    fn chosen(clients: &[u32], count: usize) -> Vec<u64> {
        let of = |(since, &client): (usize, &u32)| Candidate {
            client,
            since: since as u64,
            number: 0,
            key: SlotKey::NONE,
            sock: SockKey { index: NONE, generation: 0 },
        };
        let mut all: Vec<Candidate> = clients.iter().enumerate().map(of).collect();
        choose(&mut all, count);
        all.iter().map(|candidate| candidate.since).collect()
    }

    #[test]
    fn the_client_with_the_most_loses_first() {
        assert_eq!(chosen(&[1, 7, 2, 7, 7, 3], 2), [1, 3]);
        // Down to what the next one has; from there on both lose.
        assert_eq!(chosen(&[8, 7, 8, 7, 7, 7, 7], 5), [1, 3, 4, 0, 5]);
    }

    #[test]
    fn among_equals_the_longest_wait_loses() {
        assert_eq!(chosen(&[5, 4, 3, 2, 1], 3), [0, 1, 2]);
        assert_eq!(chosen(&[9; 6], 3), [0, 1, 2]);
        assert_eq!(chosen(&[9, 8], 9), [0, 1]);
    }
}
