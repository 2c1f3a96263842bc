//! The state of a loop: its tables of sockets, slots, tasks and operations, as plain data.
//!
//! Nothing here uses the driver or the thread's loop. The drivers change this state when they
//! report events; the operations and the loop's turn, which are built on the drivers, read it.

pub(crate) mod clients;
pub(crate) mod flights;
mod gathering;
pub(crate) mod index;
mod landing;
pub(crate) mod listening;
pub(crate) mod prefetch;
pub(crate) mod relief;
pub(crate) mod sets;
pub(crate) mod slot;
pub(crate) mod socks;
pub(crate) mod tasks;
pub(crate) mod timer;
pub(crate) mod victims;

use std::io;
use std::rc::Weak;

use flights::Flights;
use index::NONE;
use listening::Listening;
use relief::{Relief, Tidying};
use sets::Sets;
use slot::{SlotState, Slots};
use socks::{Direction, SockKey, SockKind, Socks, bits};
use tasks::Tasks;
use victims::Victims;

/// The work of a loop so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// How often the loop waited for events and handled them.
    pub turns: u64,
    /// Tasks polled.
    pub polls: u64,
    /// Tasks that have not ended.
    pub tasks: usize,
    /// Operations that wait.
    pub waiting: usize,
    /// Connections accepted, those without room included.
    pub accepted: u64,
    /// Milliseconds spent waiting in the kernel, to the clock's tick of some milliseconds.
    pub wait_ms: u64,
    /// Milliseconds spent running tasks and timers, to the same precision.
    pub busy_ms: u64,
    /// The longest run between two waits, in milliseconds.
    pub longest_turn_ms: u64,
}

/// The state that the drivers, the operations and the loop's turn share.
pub(crate) struct Core {
    pub(crate) socks: Socks,
    pub(crate) slots: Slots,
    pub(crate) tasks: Tasks,
    pub(crate) flights: Flights,
    pub(crate) sets: Sets,
    pub(crate) stats: Stats,
    pub(crate) listeners: Vec<Weak<dyn Listening>>,
    pub(crate) idle_listeners: Vec<SockKey>,
    pub(crate) connections_max: usize,
    pub(crate) descriptors_max: usize,
    /// Descriptors that are no connections: the most that were seen in this period.
    pub(crate) others: usize,
    others_period: u64,
    pub(crate) multi_accept: bool,
    /// Whether connections may be accepted: always, or while the accept lock is held.
    pub(crate) accept_held: bool,
    /// Whether listeners are reported: always, or from holding the accept lock until another worker
    /// has it.
    pub(crate) accept_listening: bool,
    /// Turns in which the accept lock is left to others.
    pub(crate) accept_disabled: usize,
    /// Set while descriptors have run out.
    pub(crate) starved_until_ms: Option<u64>,
    pub(crate) relief: Relief,
    pub(crate) victims: Victims,
    /// The last turn in which a connection was accepted.
    pub(crate) accepted_turn: u64,
    pub(crate) tidying: Tidying,
    /// Polls of the last turn.
    pub(crate) polled: usize,
    /// The driver has closed a descriptor since accepting was last looked at.
    pub(crate) descriptor_closed: bool,
    /// Failures to watch a listener, to be logged when nothing is borrowed: a log may use the loop.
    pub(crate) listen_failures: Vec<io::Error>,
    /// The second in which the lack of connections was last logged.
    pub(crate) reuse_logged: u64,
    /// The second in which the lack of descriptors was last logged.
    pub(crate) starved_logged: u64,
}

impl Core {
    /// The state of a new loop, which may have these numbers of connections and descriptors.
    pub(crate) fn new(tasks: Tasks, connections_max: usize, descriptors_max: usize) -> Core {
        Core {
            socks: Socks::new(),
            slots: Slots::new(base::time::now_ms()),
            tasks,
            flights: Flights::default(),
            sets: Sets::default(),
            stats: Stats::default(),
            listeners: Vec::new(),
            idle_listeners: Vec::new(),
            connections_max,
            descriptors_max,
            others: 0,
            others_period: 0,
            multi_accept: false,
            accept_held: true,
            accept_listening: true,
            accept_disabled: 0,
            starved_until_ms: None,
            relief: Relief::default(),
            victims: Victims::default(),
            accepted_turn: 0,
            tidying: Tidying::default(),
            polled: 0,
            descriptor_closed: false,
            listen_failures: Vec::new(),
            reuse_logged: 0,
            starved_logged: 0,
        }
    }

    /// About how many descriptors are open, those of other uses included. The kernel gives the
    /// lowest free number: when `newest` was opened, all below it were in use. Freed lower numbers
    /// hide the others for a while, so the recent maximum is taken.
    pub(crate) fn descriptors_used(&mut self, newest: usize) -> usize {
        let connections = self.socks.with_descriptor();
        let others = (newest + 1).saturating_sub(connections);
        let period = base::time::unix_secs() / 16;
        if others > self.others || period != self.others_period {
            (self.others, self.others_period) = (others, period);
        }
        connections + self.others
    }

    /// Asks some of the parked connections to go; false when there are none.
    pub(crate) fn reclaim(&mut self) -> bool {
        let parked = self.slots.parked();
        if parked > 0 {
            self.reclaim_parked((parked / 8).clamp(1, 32));
        }
        parked > 0
    }

    /// Whether so few connections are left that others make room.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let max = self.connections_max;
        max.saturating_sub(self.socks.connections()) <= max / 16
    }

    /// Makes `slot` the one that waits for `key` in `direction`.
    pub(crate) fn set_waiter(&mut self, key: SockKey, direction: Direction, slot: u32) {
        let Some(entry) = self.socks.get(key) else { return };
        match direction {
            Direction::Write => entry.writer = slot,
            Direction::Read => entry.reader = slot,
            Direction::PeerClosed => {
                entry.reader = slot;
                entry.bits |= bits::READER_FOR_CLOSE;
            }
        }
    }

    /// Records the driver's report for `key`, and completes the operations that waited for it.
    pub(crate) fn apply(&mut self, key: SockKey, ready: u8) {
        let Some(entry) = self.socks.get(key) else { return };
        let (reader, writer) = (entry.reader, entry.writer);
        if entry.kind == SockKind::Member {
            return self.sets.report(&mut self.slots, &mut self.tasks, reader, writer);
        }
        entry.bits |= ready;
        let wanted = match entry.bits & bits::READER_FOR_CLOSE {
            0 => bits::READ,
            _ => bits::PEER_CLOSED,
        };
        if ready & wanted != 0 && reader != NONE {
            self.slots.complete(&mut self.tasks, reader, SlotState::Ready);
        }
        if ready & bits::WRITE != 0 && writer != NONE {
            self.slots.complete(&mut self.tasks, writer, SlotState::Ready);
        }
    }

    /// A report came for a listener without an accepting task.
    pub(crate) fn idle_listener(&mut self, key: SockKey) {
        self.idle_listeners.push(key);
    }
}
