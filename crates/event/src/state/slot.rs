//! Slots: one for each operation that waits.
//!
//! ```text
//!           begin                    complete
//!   Free ----------> Waiting ----------------------> Ready | TimedOut | Gate | Reclaim
//!     ^                 |                                          |
//!     |     cancel      |              release                     |
//!     +-----------------+------------------------------------------+
//! ```
//!
//! For drivers that complete operations, the state is `Flying` instead of `Waiting`. A slot that is
//! released while it flies is `Orphaned` until the driver is done: see [`flights`](super::flights).
//! A `Posted` slot flies without a waiter.
//!
//! A future holds the key of its slot and nothing that the kernel can see. The slot holds the
//! waker, the deadline with its position in the timer wheel, and for parked connections the
//! position in the list of those that may be reclaimed. 48 bytes; an operation allocates nothing
//! but its slot.

use std::collections::HashMap;
use std::task::Waker;

use super::index::{NO_TASK, NONE};
use super::tasks::Tasks;
use super::timer::{NO_BUCKET, Wheel};

/// The maximum number of timed-out waits that end in one turn. Each may cause much work, which
/// would delay the connections that have received something.
const EXPIRED_A_TURN: usize = 16;

/// The maximum number of waits at a closed gate that end in one turn, because each starts the end
/// of a connection or its move to another process.
const GATE_A_TURN: usize = 256;

/// The state of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Free,
    Waiting,
    /// The driver has the operation.
    Flying,
    /// The driver has the operation, whose future was dropped.
    Orphaned,
    /// The driver has the operation, which never had a future.
    Posted,
    /// The operation is ready, as far as the driver knows.
    Ready,
    TimedOut,
    /// The operation's gate was closed.
    Gate,
    /// The loop is short of connections or of memory and asks this one to close.
    Reclaim,
    /// Memory is short: the operation fails.
    Shed,
}

/// Names a slot for as long as an operation has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SlotKey {
    pub(crate) const NONE: SlotKey = SlotKey { index: NONE, generation: 0 };
}

pub(crate) struct Slot {
    generation: u32,
    state: SlotState,
    /// The manner in which the connection is parked, if it is in that list.
    park: Park,
    pub(crate) bucket: u16,
    /// The waker's data word, or `FOREIGN`.
    waker: u64,
    /// The socket whose reader or writer this is, or `NONE`.
    pub(crate) sock: u32,
    /// The gate at which the operation stands; 0 for none.
    gate: u32,
    pub(crate) deadline_ms: u64,
    pub(crate) timer_prev: u32,
    pub(crate) timer_next: u32,
    /// Neighbours among the parked connections; `next` also links the free slots.
    prev: u32,
    next: u32,
}

impl Slot {
    pub(crate) const VACANT: Slot = Slot {
        generation: 0,
        state: SlotState::Free,
        park: Park::No,
        bucket: NO_BUCKET,
        waker: 0,
        sock: NONE,
        gate: 0,
        deadline_ms: u64::MAX,
        timer_prev: NONE,
        timer_next: NONE,
        prev: NONE,
        next: NONE,
    };
}

/// Marks a slot whose waker is not of this loop and is kept in `Slots::foreign`.
const FOREIGN: u64 = u64::MAX;

/// Whether a connection that waits may be given up when the loop is short of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Park {
    No,
    /// An idle connection, kept for its next request.
    Idle,
    /// The client has sent none of its first request, or only a part of a request.
    Begun,
}

/// The conditions that end an operation's wait, besides the readiness of its socket.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) sock: u32,
    pub(crate) gate: u32,
    pub(crate) park: Park,
    pub(crate) deadline_ms: u64,
}

pub(crate) struct Slots {
    list: Vec<Slot>,
    free: u32,
    in_use: u32,
    wheel: Wheel,
    /// Wakers of combinators that bring their own; empty otherwise.
    foreign: HashMap<u32, Waker>,
    /// Parked connections, the longest parked first.
    parked_first: u32,
    parked_last: u32,
    parked: usize,
    /// Kept for its capacity.
    fired: Vec<u32>,
    /// Operations that the driver must cancel.
    cancels: Vec<u32>,
    /// Operations that were given to the driver since the last wait. Most have landed after the
    /// next one, and then never needed a timer.
    departed: Vec<SlotKey>,
    /// The soonest deadline of those.
    departed_ms: u64,
}

impl Slots {
    pub(crate) fn new(now_ms: u64) -> Slots {
        Slots {
            list: Vec::new(),
            free: NONE,
            in_use: 0,
            wheel: Wheel::new(now_ms),
            foreign: HashMap::new(),
            parked_first: NONE,
            parked_last: NONE,
            parked: 0,
            fired: Vec::new(),
            cancels: Vec::new(),
            departed: Vec::new(),
            departed_ms: u64::MAX,
        }
    }

    fn take(&mut self) -> u32 {
        self.in_use += 1;
        match self.free {
            NONE => {
                self.list.push(Slot::VACANT);
                (self.list.len() - 1) as u32
            }
            index => {
                self.free = self.list[index as usize].next;
                index
            }
        }
    }

    /// Takes a slot for the task behind `waker`.
    pub(crate) fn begin(&mut self, tasks: &Tasks, waker: &Waker, terms: Terms) -> SlotKey {
        let index = self.take();
        let own = tasks.data_of(waker);
        if own.is_none() {
            self.foreign.insert(index, waker.clone());
        }
        let slot = &mut self.list[index as usize];
        slot.state = SlotState::Waiting;
        slot.waker = own.unwrap_or(FOREIGN);
        slot.sock = terms.sock;
        slot.gate = terms.gate;
        slot.deadline_ms = terms.deadline_ms;
        let generation = slot.generation;
        if terms.deadline_ms != u64::MAX {
            self.wheel.insert(&mut self.list, index);
        }
        if terms.park != Park::No {
            self.park(index, terms.park);
        }
        SlotKey { index, generation }
    }

    /// The state of `key`'s operation; `Free` when the key has outlived it.
    pub(crate) fn state(&self, key: SlotKey) -> SlotState {
        match self.list.get(key.index as usize) {
            Some(slot) if slot.generation == key.generation => slot.state,
            _ => SlotState::Free,
        }
    }

    /// The state of the operation that has the slot `index` now.
    pub(crate) fn state_at(&self, index: u32) -> SlotState {
        self.list.get(index as usize).map_or(SlotState::Free, |slot| slot.state)
    }

    /// Sets the waker; a future may move between tasks while it waits.
    pub(crate) fn set_waker(&mut self, tasks: &mut Tasks, key: SlotKey, waker: &Waker) {
        let slot = &mut self.list[key.index as usize];
        let data = tasks.data_of(waker);
        let before = std::mem::replace(&mut slot.waker, data.unwrap_or(FOREIGN));
        let old = match data {
            None => self.foreign.insert(key.index, waker.clone()),
            Some(_) if before == FOREIGN => self.foreign.remove(&key.index),
            Some(_) => None,
        };
        if let Some(old) = old {
            tasks.drop_later(old);
        }
    }

    /// Ends the wait of slot `index` with `state` and wakes its task.
    pub(crate) fn complete(&mut self, tasks: &mut Tasks, index: u32, state: SlotState) {
        let Some(slot) = self.list.get_mut(index as usize) else { return };
        match slot.state {
            SlotState::Waiting => self.wake(tasks, index, state),
            // Its end is still to come, and may be a better one.
            SlotState::Flying | SlotState::Posted
                if matches!(state, SlotState::TimedOut | SlotState::Shed) =>
            {
                self.cancels.push(index);
            }
            _ => (),
        }
    }

    fn wake(&mut self, tasks: &mut Tasks, index: u32, state: SlotState) {
        let slot = &mut self.list[index as usize];
        slot.state = state;
        let waker = slot.waker;
        self.unlink(index);
        match waker {
            FOREIGN => {
                // Only queues a task: a waker that is not ours belongs to a combinator inside
                // one of our tasks, or to another thread.
                if let Some(waker) = self.foreign.remove(&index) {
                    tasks.wake_later(waker);
                }
            }
            data => tasks.wake(data),
        }
    }

    /// The operation of slot `index`, which waits without a deadline, is given to the driver.
    pub(crate) fn fly(&mut self, index: u32, deadline_ms: u64) {
        let slot = &mut self.list[index as usize];
        slot.state = SlotState::Flying;
        slot.deadline_ms = deadline_ms;
        if deadline_ms != u64::MAX {
            self.departed.push(SlotKey { index, generation: slot.generation });
            self.departed_ms = self.departed_ms.min(deadline_ms);
        }
    }

    /// Takes a slot for a posted operation, which is cancelled at the deadline.
    pub(crate) fn post(&mut self, deadline_ms: u64) -> u32 {
        let index = self.take();
        let slot = &mut self.list[index as usize];
        (slot.waker, slot.sock, slot.gate) = (NO_TASK, NONE, 0);
        self.fly(index, deadline_ms);
        self.list[index as usize].state = SlotState::Posted;
        index
    }

    /// After a wait: starts the timers of operations that have not landed in it.
    pub(crate) fn time_flights(&mut self) {
        let mut departed = std::mem::take(&mut self.departed);
        for key in departed.drain(..) {
            if matches!(self.state(key), SlotState::Flying | SlotState::Posted) {
                self.wheel.insert(&mut self.list, key.index);
            }
        }
        self.departed = departed;
        self.departed_ms = u64::MAX;
    }

    /// The driver is done with the operation of slot `index`. Returns whether it had no waiter, and
    /// its slot is free now.
    pub(crate) fn land(&mut self, tasks: &mut Tasks, index: u32) -> bool {
        match self.list.get(index as usize).map(|slot| slot.state) {
            Some(SlotState::Flying) => self.wake(tasks, index, SlotState::Ready),
            Some(SlotState::Orphaned) => {
                self.free(index);
                return true;
            }
            Some(SlotState::Posted) => {
                self.unlink(index);
                let slot = &mut self.list[index as usize];
                slot.generation = slot.generation.wrapping_add(1);
                self.free(index);
                return true;
            }
            _ => (),
        }
        false
    }

    /// The operations that the driver must cancel: their deadline has passed, or their future was
    /// dropped.
    pub(crate) fn take_cancels(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.cancels)
    }

    /// Frees the slot of `key`, or leaves it to the driver as an orphan; returns its socket, or
    /// `NONE`. Does nothing for a key that has outlived its operation.
    pub(crate) fn release(&mut self, tasks: &mut Tasks, key: SlotKey) -> u32 {
        if self.state(key) == SlotState::Free {
            return NONE;
        }
        self.unlink(key.index);
        let slot = &mut self.list[key.index as usize];
        if slot.waker == FOREIGN
            && let Some(waker) = self.foreign.remove(&key.index)
        {
            tasks.drop_later(waker);
        }
        let slot = &mut self.list[key.index as usize];
        let sock = std::mem::replace(&mut slot.sock, NONE);
        slot.generation = slot.generation.wrapping_add(1);
        if slot.state == SlotState::Flying {
            slot.state = SlotState::Orphaned;
            self.cancels.push(key.index);
        } else {
            self.free(key.index);
        }
        sock
    }

    fn free(&mut self, index: u32) {
        let slot = &mut self.list[index as usize];
        slot.state = SlotState::Free;
        slot.next = self.free;
        self.free = index;
        self.in_use -= 1;
    }

    fn unlink(&mut self, index: u32) {
        self.wheel.remove(&mut self.list, index);
        if self.list[index as usize].park != Park::No {
            self.unpark(index);
        }
    }

    fn park(&mut self, index: u32, park: Park) {
        let last = self.parked_last;
        let slot = &mut self.list[index as usize];
        (slot.park, slot.prev, slot.next) = (park, last, NONE);
        match last {
            NONE => self.parked_first = index,
            last => self.list[last as usize].next = index,
        }
        self.parked_last = index;
        self.parked += 1;
    }

    fn unpark(&mut self, index: u32) {
        let slot = &mut self.list[index as usize];
        slot.park = Park::No;
        let (prev, next) = (slot.prev, slot.next);
        match prev {
            NONE => self.parked_first = next,
            prev => self.list[prev as usize].next = next,
        }
        match next {
            NONE => self.parked_last = prev,
            next => self.list[next as usize].prev = prev,
        }
        self.parked -= 1;
    }

    /// Changes the terms of an operation that waits still.
    pub(crate) fn change(&mut self, key: SlotKey, park: Park, deadline_ms: u64) {
        if self.state(key) != SlotState::Waiting {
            return;
        }
        let (index, slot) = (key.index, &mut self.list[key.index as usize]);
        let before = slot.park;
        if slot.deadline_ms != deadline_ms {
            self.wheel.remove(&mut self.list, index);
            self.list[index as usize].deadline_ms = deadline_ms;
            if deadline_ms != u64::MAX {
                self.wheel.insert(&mut self.list, index);
            }
        }
        if before != park {
            if before != Park::No {
                self.unpark(index);
            }
            if park != Park::No {
                self.park(index, park);
            }
        }
    }

    /// Connections that are parked and may be given up.
    pub(crate) fn parked(&self) -> usize {
        self.parked
    }

    /// The parked connections, the longest parked first: slot, socket, and manner.
    pub(crate) fn all_parked(&self) -> impl Iterator<Item = (SlotKey, u32, Park)> {
        let mut index = self.parked_first;
        std::iter::from_fn(move || {
            let slot = self.list.get(index as usize)?;
            let key = SlotKey { index, generation: slot.generation };
            index = slot.next;
            Some((key, slot.sock, slot.park))
        })
    }

    /// Asks a connection to close if it is still parked. Returns whether it was.
    pub(crate) fn reclaim(&mut self, tasks: &mut Tasks, key: SlotKey) -> bool {
        let slot = self.list.get(key.index as usize);
        let parked = slot.is_some_and(|s| s.generation == key.generation && s.park != Park::No);
        if parked {
            self.complete(tasks, key.index, SlotState::Reclaim);
        }
        parked
    }

    /// The deadline of the operation of slot `index`, if it waits.
    pub(crate) fn waits_until(&self, index: u32) -> Option<u64> {
        let slot = self.list.get(index as usize)?;
        let waits =
            matches!(slot.state, SlotState::Waiting | SlotState::Flying | SlotState::Posted);
        (waits && slot.park == Park::No).then_some(slot.deadline_ms)
    }

    /// The socket of an operation that waits, or `NONE`.
    pub(crate) fn sock_of(&self, key: SlotKey) -> u32 {
        let slot = self.list.get(key.index as usize).filter(|s| s.generation == key.generation);
        slot.map_or(NONE, |slot| slot.sock)
    }

    /// The key of the operation that has the place `index` now.
    pub(crate) fn key_at(&self, index: u32) -> SlotKey {
        let generation = self.list.get(index as usize).map_or(0, |slot| slot.generation);
        SlotKey { index, generation }
    }

    /// Ends at most [`GATE_A_TURN`] waits at `gate`, starting with slot `from`. Returns the slot to
    /// continue with in the next turn, or `None` if all have ended. Scans all slots: gates close
    /// rarely, and so a wait at one costs nothing until then.
    pub(crate) fn close_gate(
        &mut self,
        tasks: &mut Tasks,
        gate: u32,
        from: usize,
    ) -> Option<usize> {
        let mut left = GATE_A_TURN;
        for index in from..self.list.len() {
            if self.list[index].gate == gate && self.list[index].state == SlotState::Waiting {
                if left == 0 {
                    return Some(index);
                }
                left -= 1;
                self.complete(tasks, index as u32, SlotState::Gate);
            }
        }
        None
    }

    /// Ends waits whose deadline has passed, at most [`EXPIRED_A_TURN`] per turn of the loop.
    pub(crate) fn expire(&mut self, tasks: &mut Tasks, now_ms: u64) {
        let mut fired = std::mem::take(&mut self.fired);
        self.wheel.expire(&mut self.list, now_ms, EXPIRED_A_TURN, &mut fired);
        for index in fired.drain(..) {
            self.complete(tasks, index, SlotState::TimedOut);
        }
        self.fired = fired;
    }

    /// When [`Slots::expire`] has something to do next.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        match (self.wheel.next_ms(), self.departed_ms) {
            (next, u64::MAX) => next,
            (next, departed) => Some(next.map_or(departed, |next| next.min(departed))),
        }
    }

    /// Operations that hold a slot.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::task::VTABLE;

    const PLAIN: Terms = Terms { sock: NONE, gate: 0, park: Park::No, deadline_ms: u64::MAX };

    #[test]
    fn a_waiting_operation_costs_48_bytes() {
        assert_eq!(size_of::<Slot>(), 48);
    }

    #[test]
    fn keys_do_not_outlive_operations() {
        let (mut tasks, mut slots) = (Tasks::new(0, &VTABLE), Slots::new(0));
        let old = slots.begin(&tasks, Waker::noop(), PLAIN);
        slots.complete(&mut tasks, old.index, SlotState::Ready);
        slots.complete(&mut tasks, old.index, SlotState::TimedOut);
        assert_eq!(slots.state(old), SlotState::Ready);
        slots.release(&mut tasks, old);
        let new = slots.begin(&tasks, Waker::noop(), PLAIN);
        assert_eq!(
            (new.index, slots.state(old), slots.state(new)),
            (0, SlotState::Free, SlotState::Waiting)
        );
        assert_eq!(slots.release(&mut tasks, old), NONE);
        assert_eq!((slots.state(new), slots.in_use()), (SlotState::Waiting, 1));
        slots.release(&mut tasks, new);
        assert_eq!((slots.in_use(), slots.foreign.len()), (0, 0));
    }

    #[test]
    fn parked_connections_are_listed_and_reclaimed_once() {
        let (mut tasks, mut slots) = (Tasks::new(0, &VTABLE), Slots::new(0));
        let park = Terms { park: Park::Idle, deadline_ms: 1000, ..PLAIN };
        let keys: Vec<SlotKey> = (0..5).map(|_| slots.begin(&tasks, Waker::noop(), park)).collect();
        slots.release(&mut tasks, keys[0]);
        slots.release(&mut tasks, keys[2]);
        let listed: Vec<SlotKey> = slots.all_parked().map(|(key, ..)| key).collect();
        assert_eq!(listed, [keys[1], keys[3], keys[4]]);
        for (n, reclaimed) in [(0, false), (1, true), (1, false), (3, true)] {
            assert_eq!(slots.reclaim(&mut tasks, keys[n]), reclaimed, "{n}");
        }
        let states: Vec<SlotState> = keys.iter().map(|&key| slots.state(key)).collect();
        use SlotState::{Free, Reclaim, Waiting};
        assert_eq!(states, [Free, Reclaim, Free, Reclaim, Waiting]);
        assert_eq!(slots.parked(), 1);
        assert!(slots.reclaim(&mut tasks, keys[4]));
        assert_eq!((slots.state(keys[4]), slots.parked()), (Reclaim, 0));
        assert_eq!(slots.next_ms(), None);
    }

    #[test]
    fn of_many_waits_at_a_gate_some_end_at_a_time() {
        let (mut tasks, mut slots) = (Tasks::new(0, &VTABLE), Slots::new(0));
        let terms = || Terms { gate: 1, ..PLAIN };
        let begin = |_| slots.begin(&tasks, Waker::noop(), terms());
        let keys: Vec<SlotKey> = (0..2 * GATE_A_TURN + 3).map(begin).collect();
        let mut next = Some(0);
        for ended in [GATE_A_TURN, 2 * GATE_A_TURN, keys.len()] {
            next = slots.close_gate(&mut tasks, 1, next.unwrap());
            let is_ended = |key: &&SlotKey| slots.state(**key) == SlotState::Gate;
            assert_eq!(keys.iter().filter(is_ended).count(), ended);
        }
        assert_eq!(next, None);
    }

    #[test]
    fn gates_wake_only_their_own() {
        let (mut tasks, mut slots) = (Tasks::new(0, &VTABLE), Slots::new(0));
        let [a, b] = [1, 2].map(|gate| slots.begin(&tasks, Waker::noop(), Terms { gate, ..PLAIN }));
        assert_eq!(slots.close_gate(&mut tasks, 2, 0), None);
        assert_eq!((slots.state(a), slots.state(b)), (SlotState::Waiting, SlotState::Gate));
    }
}
