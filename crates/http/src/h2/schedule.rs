//! The order in which streams send (RFC 9218 section 10): by urgency. Within one, responses that
//! are of use as a whole go to their ends in the order in which they were asked for, those that are
//! of use in parts take turns, and both kinds get half, so that neither waits for an end of the
//! other that may be far.
//!
//! A client that knows nothing newer than RFC 7540 has a tree of dependencies instead, from its
//! first word about one.
//!
//! A request that makes a long response waits for room in its stream's queue, and the connection's
//! task for requests. Lest a stream send only because the requests of those before it were not
//! polled yet, frames are made no further than to the first stream whose request was woken; see
//! [`Schedule::expect`].

use std::collections::VecDeque;

use http_wire::h2::tree::Tree;
use mem::WIDE_SIZE;

use super::mux::{Entry, QUEUE_LOW, State};

/// Bytes of frames that are made before the socket has taken those before them. A little more than
/// 64 KB would be a packet of the longest kind and one with some bytes, each time: on the loopback
/// device that costs a quarter more for a byte than this does.
pub(super) const OUTPUT_MAX: usize = 96 << 10;

const _: () = assert!(OUTPUT_MAX < WIDE_SIZE, "the frames of a send are one piece");

/// Bytes of a file that a stream sends in its turn while others of its urgency wait for theirs: a
/// frame of the usual size is a small read, and what is sent together may as well lie together.
const TURN: usize = 16 << 10;

/// The same where the client has said nothing about priorities, and so not that parts of a response
/// are of use to it. With twice the reads, files of 100 KB cost an eighth more.
const TURN_UNASKED: usize = 32 << 10;

/// A stream in the order.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Lower goes first: the rank, and behind it what orders those of one rank.
    key: u64,
    slot: u32,
}

/// Streams with something to send and a window to send it in.
pub(super) struct Schedule {
    /// The streams that wait, sorted by key; empty if there is a tree.
    order: VecDeque<Waiting>,
    /// Counts turns.
    turns: u32,
    /// The place in the order of the stream that is having its turn.
    picked: usize,
    /// The urgency of the last turn, where that was one of a response that is of use as a whole.
    was_whole: Option<u64>,
    /// The order of a client that uses RFC 7540's.
    pub tree: Option<Box<Tree>>,
    /// The client's dependencies are not used, whatever it sends.
    pub treeless: bool,
    /// The client has used the priorities of RFC 9218.
    pub signalled: bool,
    /// Client or responses have said that one stream is more urgent than others, and may again.
    pub is_ranked: bool,
    /// Streams behind this key wait: one before them is about to get more.
    expected: u64,
    /// Counts the times that all tasks which were woken have run.
    pub round: u32,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule {
            order: VecDeque::new(),
            turns: 0,
            picked: 0,
            was_whole: None,
            tree: None,
            treeless: false,
            signalled: false,
            is_ranked: false,
            expected: u64::MAX,
            round: 1,
        }
    }
}

impl Schedule {
    /// Adds a stream, if it is not there.
    pub fn add(&mut self, i: usize, entry: &mut Entry) {
        if std::mem::replace(&mut entry.scheduled, true) {
            return;
        }
        match (&mut self.tree, entry.place) {
            (Some(tree), Some(place)) => tree.set_ready(place, true),
            _ => self.insert(i as u32, entry),
        }
    }

    pub fn insert(&mut self, slot: u32, entry: &Entry) {
        let key = self.key(entry);
        let at = self.order.partition_point(|other| other.key <= key);
        self.order.insert(at, Waiting { key, slot });
    }

    /// By urgency, then non-incremental streams by number, then incremental ones by turn.
    fn key(&mut self, entry: &Entry) -> u64 {
        let takes_turns = self.takes_turns(entry);
        let order = if takes_turns { self.turns } else { entry.id };
        self.turns = self.turns.wrapping_add(u32::from(takes_turns));
        rank(entry, takes_turns) | u64::from(order)
    }

    /// Where the client says nothing about any stream, all of them take turns.
    fn takes_turns(&self, entry: &Entry) -> bool {
        entry.priority.incremental().unwrap_or(!self.signalled)
    }

    /// Removes a stream.
    pub fn forget(&mut self, i: usize, entry: &mut Entry) {
        if !std::mem::take(&mut entry.scheduled) {
            return;
        }
        match (&mut self.tree, entry.place) {
            (Some(tree), Some(place)) => tree.set_ready(place, false),
            _ => self.order.retain(|other| other.slot != i as u32),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty() && self.tree.as_ref().is_none_or(|tree| tree.is_empty())
    }

    /// The stream that is next.
    fn pick(&mut self) -> Option<usize> {
        if let Some(tree) = &self.tree {
            return tree.first().map(|slot| slot as usize);
        }
        let first = *self.order.front()?;
        self.picked = 0;
        let urgency = first.key >> URGENCY_AT;
        if first.key & IN_PARTS == 0 && self.was_whole == Some(urgency) {
            let in_parts = urgency << URGENCY_AT | IN_PARTS;
            let at = self.order.partition_point(|other| other.key < in_parts);
            let other = self.order.get(at).filter(|other| other.key >> URGENCY_AT == urgency);
            if let Some(other) = other {
                self.picked = at;
                return Some(other.slot as usize);
            }
        }
        Some(first.slot as usize)
    }

    /// Whether the stream that was picked shares its urgency with others that have turns. Those of
    /// a tree do, for all that is known here.
    fn has_rivals(&self) -> bool {
        let Some(own) = self.order.get(self.picked) else { return true };
        let urgency = own.key >> URGENCY_AT;
        let before =
            |urgency: u64| self.order.partition_point(|other| other.key < urgency << URGENCY_AT);
        let end = before(urgency + 1);
        match own.key & IN_PARTS {
            // Those that take turns stand behind the others of their urgency.
            0 => self.order.get(end - 1).is_some_and(|last| last.key & IN_PARTS != 0),
            _ => end - before(urgency) > 1,
        }
    }

    /// The stream that was picked has sent `n` bytes.
    fn turn(&mut self, entry: &mut Entry, n: usize, stays: bool) {
        entry.scheduled = stays;
        if let (Some(tree), Some(place)) = (&mut self.tree, entry.place) {
            tree.sent(place, n);
            tree.set_ready(place, stays);
            return;
        }
        let is_whole = !self.takes_turns(entry);
        if n > 0 {
            self.was_whole = is_whole.then_some(u64::from(entry.priority.urgency()));
        }
        if stays && is_whole {
            return;
        }
        if let Some(Waiting { slot, .. }) = self.order.remove(self.picked)
            && stays
        {
            self.insert(slot, entry);
        }
    }

    /// The request of a stream was woken to make more of its response.
    fn expect(&mut self, entry: &mut Entry) {
        if entry.ends {
            return;
        }
        entry.woken = self.round;
        let takes_turns = self.takes_turns(entry);
        let order = if takes_turns { u32::MAX } else { entry.id };
        self.expected = self.expected.min(rank(entry, takes_turns) | u64::from(order));
    }

    /// Whether the first stream is to wait until requests that were woken have run: one of them
    /// makes more for a stream before it, or fills a frame of its own that would be short.
    fn is_too_early(&self, entry: &Entry, is_short: bool) -> bool {
        if self.expected == u64::MAX {
            return false;
        }
        let own = entry.woken == self.round && !entry.ends;
        if own {
            return is_short;
        }
        let picked = self.order.get(self.picked);
        self.tree.is_some() || picked.is_some_and(|picked| picked.key > self.expected)
    }

    /// A stream is over.
    pub fn close(&mut self, i: usize, entry: &mut Entry) {
        self.forget(i, entry);
        if let (Some(tree), Some(place)) = (&mut self.tree, entry.place.take()) {
            tree.close(place);
        }
    }

    /// Gives back memory while there are no streams.
    pub fn shrink(&mut self) {
        self.order = VecDeque::new();
        if let Some(tree) = &mut self.tree {
            tree.shrink();
        }
    }

    /// From now on the order is that of a tree, which knows all streams.
    pub(crate) fn use_tree(&mut self, tree: Tree) {
        self.order.clear();
        self.is_ranked = true;
        self.tree = Some(Box::new(tree));
    }

    /// All tasks that were woken have run.
    pub(crate) fn next_round(&mut self) {
        self.round = self.round.wrapping_add(1).max(1);
        self.expected = u64::MAX;
    }
}

/// The mark of streams that take turns, in their keys.
const IN_PARTS: u64 = 1 << 32;

/// The place of the urgency in their keys.
const URGENCY_AT: u32 = 33;

/// The part of a stream's key that its priority makes.
fn rank(entry: &Entry, takes_turns: bool) -> u64 {
    u64::from(entry.priority.urgency()) << URGENCY_AT | if takes_turns { IN_PARTS } else { 0 }
}

impl State {
    /// Makes frames of the streams' queues, as far as windows and the output have room. Returns
    /// whether it stopped for requests that were woken and have not run yet.
    pub fn pump(&mut self) -> bool {
        while self.out_len < OUTPUT_MAX {
            let Some(i) = self.schedule.pick() else { return false };
            let entry = &mut self.streams[i];
            let most = entry.chunk.min(self.peer.frame_max as usize);
            let n = (entry.queued.min(most as u64) as usize)
                .min(entry.send.left())
                .min(self.send.left());
            if n == 0 && !entry.queue.is_empty() {
                if self.send.left() == 0 && entry.send.left() > 0 {
                    // The connection's window is what is missing: everything waits.
                    return false;
                }
                self.schedule.turn(entry, 0, false);
                continue;
            }
            if self.schedule.is_too_early(entry, n < most && n as u64 == entry.queued) {
                return true;
            }
            let made = match self.streams[i].is_file_next() {
                true => self.file_frames(i, most, self.turn_of_file(i, most)),
                false => Some(self.data_frame(i, n)),
            };
            let Some((n, ends)) = made else {
                let entry = &mut self.streams[i];
                self.schedule.turn(entry, 0, false);
                entry.wake_room();
                continue;
            };
            let entry = &mut self.streams[i];
            let stays = !entry.queue.is_empty();
            self.schedule.turn(entry, n, stays);
            let has_room = entry.queued < QUEUE_LOW && !(entry.ends && stays);
            if has_room && entry.wake_room() {
                self.schedule.expect(entry);
            }
            if ends {
                self.settle(i);
            }
        }
        false
    }

    /// Bytes of a file that a stream, which was picked, may send in its turn, in whole frames of
    /// `most` as far as windows allow.
    fn turn_of_file(&self, i: usize, most: usize) -> usize {
        let asks = self.schedule.signalled || self.streams[i].priority.incremental().is_some();
        let turn = match (&self.schedule.tree, self.schedule.has_rivals()) {
            (Some(_), _) => most,
            (None, true) if asks => TURN,
            (None, true) => TURN_UNASKED,
            (None, false) => OUTPUT_MAX - self.out_len,
        };
        let frames = turn.div_ceil(most.max(1)) * most;
        frames.min(self.streams[i].send.left()).min(self.send.left())
    }

    /// The window of a stream grew: what waits in its queue may go on.
    pub fn may_send(&mut self, i: usize) {
        let entry = &mut self.streams[i];
        if entry.send.left() == 0 {
            return;
        }
        if entry.queued < QUEUE_LOW && entry.wake_room() {
            self.schedule.expect(entry);
        }
        if !entry.queue.is_empty() {
            self.schedule.add(i, entry);
        }
    }
}
