//! The table of tasks, and the queue of woken ones.
//!
//! A waker's word has the number of the loop in its upper 16 bits, then 16 bits of the task's
//! generation and the index of the task.

use std::future::Future;
use std::pin::Pin;
use std::task::{RawWakerVTable, Waker};

use super::gathering::Gathering;
use super::index::NONE;
use super::prefetch::{self, Prefetches};

pub(crate) type BoxFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Names a task of this thread's loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

const LIVE: u8 = 1;
const QUEUED: u8 = 2;
const CANCELLED: u8 = 4;

struct TaskEntry {
    /// `None` while it is being polled.
    future: Option<BoxFuture>,
    generation: u32,
    next_free: u32,
    /// The list of its regions in `Tasks::prefetches`.
    foreseen: u32,
    state: u8,
}

pub(crate) struct Tasks {
    loop_id: u16,
    /// The functions of the wakers that name tasks here.
    vtable: &'static RawWakerVTable,
    list: Vec<TaskEntry>,
    free: u32,
    live: usize,
    pub(crate) queue: Vec<u32>,
    pub(crate) gathering: Gathering,
    prefetches: Prefetches,
    pub(crate) current: Option<TaskId>,
    /// Foreign wakers to be called, or dropped, once nothing is borrowed.
    pub(crate) later: Vec<Waker>,
    /// Woken when this turn is over.
    pub(crate) next_turn: Vec<Waker>,
    /// Woken when everything else of this turn has run.
    pub(crate) turn_end: Vec<Waker>,
    /// The tasks in `turn_end` run now.
    pub(crate) is_ending: bool,
    /// The number of polls in this turn before that.
    pub(crate) turn_polls: usize,
    pub(crate) garbage: Vec<Waker>,
}

impl Tasks {
    pub(crate) fn new(loop_id: u16, vtable: &'static RawWakerVTable) -> Tasks {
        Tasks {
            loop_id,
            vtable,
            list: Vec::new(),
            free: NONE,
            live: 0,
            queue: Vec::new(),
            gathering: Gathering::default(),
            prefetches: Prefetches::default(),
            current: None,
            later: Vec::new(),
            next_turn: Vec::new(),
            turn_end: Vec::new(),
            is_ending: false,
            turn_polls: 0,
            garbage: Vec::new(),
        }
    }

    pub(crate) fn loop_id(&self) -> u16 {
        self.loop_id
    }

    /// Tasks that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn insert(&mut self, future: BoxFuture) -> TaskId {
        let task = self.name();
        self.list[task.index as usize].future = Some(future);
        self.enqueue(task.index);
        task
    }

    /// Gives a live task that has none its future.
    pub(crate) fn set_future(&mut self, task: TaskId, future: BoxFuture) {
        self.list[task.index as usize].future = Some(future);
    }

    /// Queues every live task.
    pub(crate) fn wake_all(&mut self) {
        for index in 0..self.list.len() {
            if self.list[index].state & LIVE != 0 {
                self.enqueue(index as u32);
            }
        }
    }

    /// A live task without a future.
    pub(crate) fn name(&mut self) -> TaskId {
        let index = match self.free {
            NONE => {
                self.list.push(TaskEntry {
                    future: None,
                    generation: 0,
                    next_free: NONE,
                    foreseen: NONE,
                    state: 0,
                });
                (self.list.len() - 1) as u32
            }
            index => {
                self.free = self.list[index as usize].next_free;
                index
            }
        };
        self.live += 1;
        let entry = &mut self.list[index as usize];
        entry.state |= LIVE;
        TaskId { index, generation: entry.generation }
    }

    fn enqueue(&mut self, index: u32) {
        let entry = &mut self.list[index as usize];
        if entry.state & QUEUED == 0 {
            entry.state |= QUEUED;
            self.queue.push(index);
        }
    }

    /// Puts the running task aside for [`gather`](crate::task::gather). Returns `false` if no other
    /// task is ready, or if `waker` is not the running task's: a waker of a combinator would not be
    /// called when the group continues.
    pub(crate) fn gather(&mut self, waker: &Waker) -> bool {
        let is_own = |task: &TaskId| self.data_of(waker).is_some_and(|w| w as u32 == task.index);
        let task = self.current.filter(|task| self.gathering.has_others() && is_own(task));
        let Some(task) = task else { return false };
        let entry = &mut self.list[task.index as usize];
        if entry.state & QUEUED == 0 {
            entry.state |= QUEUED;
            self.gathering.put_aside(task.index);
        }
        true
    }

    pub(crate) fn cancel(&mut self, task: TaskId) -> Option<BoxFuture> {
        let entry = self.list.get_mut(task.index as usize)?;
        if entry.generation != task.generation || entry.state & LIVE == 0 {
            return None;
        }
        if self.current == Some(task) {
            entry.state |= CANCELLED;
            return None;
        }
        let future = entry.future.take();
        self.remove(task.index);
        future
    }

    /// Frees the index of a task. `QUEUED` stays when it is in the queue.
    fn remove(&mut self, index: u32) {
        let entry = &mut self.list[index as usize];
        self.prefetches.forget(&mut entry.foreseen);
        entry.state &= QUEUED;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = self.free;
        self.free = index;
        self.live -= 1;
    }

    /// Queues the task that a waker's word names.
    pub(crate) fn wake(&mut self, data: u64) {
        let (index, generation) = (data as u32, (data >> 32) as u16);
        if let Some(entry) = self.list.get(index as usize)
            && entry.generation as u16 == generation
            && entry.state & (LIVE | QUEUED) == LIVE
        {
            self.enqueue(index);
        }
    }

    /// The word of `waker`, if this loop made it.
    pub(crate) fn data_of(&self, waker: &Waker) -> Option<u64> {
        let data = waker.data().addr() as u64;
        (std::ptr::eq(waker.vtable(), self.vtable) && loop_of(data) == self.loop_id).then_some(data)
    }

    /// Calls `waker` once nothing is borrowed.
    pub(crate) fn wake_later(&mut self, waker: Waker) {
        self.later.push(waker);
    }

    /// Drops `waker` once nothing is borrowed: its destructor may use the loop.
    pub(crate) fn drop_later(&mut self, waker: Waker) {
        self.garbage.push(waker);
    }

    /// Whether there is something to run.
    pub(crate) fn is_ready(&self) -> bool {
        let lists = !self.later.is_empty() || !self.garbage.is_empty();
        !self.queue.is_empty() || lists || !self.turn_end.is_empty()
    }

    /// Prefetches the future of the task at `index` and its noted regions: they arrive while
    /// another task is polled.
    pub(crate) fn prefetch(&self, index: u32) {
        if let Some(entry) = self.list.get(index as usize)
            && let Some(future) = entry.future.as_deref()
        {
            prefetch::fetch(prefetch::region(future));
            self.prefetches.fetch(entry.foreseen);
        }
    }

    pub(crate) fn foresee<T: ?Sized>(&mut self, what: &T) {
        if let Some(task) = self.current
            && let Some(entry) = self.list.get_mut(task.index as usize)
        {
            self.prefetches.note(&mut entry.foreseen, what);
        }
    }

    /// As [`Tasks::foresee`], but only if the task has noted a region before.
    #[inline]
    pub(crate) fn foresee_more<T: ?Sized>(&mut self, what: &T) {
        let foreseen = |task: TaskId| self.list.get(task.index as usize).map(|e| e.foreseen);
        if self.current.and_then(foreseen).is_some_and(|number| number != NONE) {
            self.foresee(what);
        }
    }

    pub(crate) fn begin_poll(&mut self, index: u32) -> Option<(BoxFuture, TaskId)> {
        let entry = &mut self.list[index as usize];
        entry.state &= !QUEUED;
        self.prefetches.forget(&mut entry.foreseen);
        let future = entry.future.take()?;
        let task = TaskId { index, generation: entry.generation };
        self.current = Some(task);
        Some((future, task))
    }

    /// Puts the future back; returns it when it must be dropped instead.
    pub(crate) fn end_poll(
        &mut self,
        task: TaskId,
        future: BoxFuture,
        ended: bool,
    ) -> Option<BoxFuture> {
        self.current = None;
        let entry = &mut self.list[task.index as usize];
        if ended || entry.state & CANCELLED != 0 {
            self.remove(task.index);
            return Some(future);
        }
        entry.future = Some(future);
        None
    }

    /// Takes every future out, for the end of the loop.
    pub(crate) fn take_all(&mut self) -> Vec<BoxFuture> {
        let mut all = Vec::new();
        for index in 0..self.list.len() {
            if let Some(future) = self.list[index].future.take() {
                self.remove(index as u32);
                all.push(future);
            }
        }
        all
    }
}

/// The number of the loop in a waker's word.
pub(crate) fn loop_of(data: u64) -> u16 {
    (data >> 48) as u16
}
