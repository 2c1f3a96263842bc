//! Tasks: the futures that a loop runs, and the queue of woken ones.
//!
//! A waker is a word: loop, generation and index of the task. Waking on the loop's own thread
//! pushes the index to a queue; from any other thread it goes through [`super::remote`]. Neither
//! counts or allocates anything. A word that outlives its task wakes, at worst, the task that has
//! its index now: futures must tolerate spurious polls.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use base::log::Level;

use crate::runtime::batch::Gathering;
use crate::runtime::prefetch::{self, Prefetches};
use crate::runtime::remote;
use crate::runtime::slot::NONE;
use crate::runtime::spare;
use crate::runtime::turn::{try_with, with};

pub(super) type BoxFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Names a task of this thread's loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskId {
    index: u32,
    generation: u32,
}

/// Starts a task on this thread's loop; it is polled for the first time in the current turn or
/// the next one. A panic in it is caught, logged at alert, and costs that task alone.
///
/// # Panics
/// When this thread has no loop.
pub fn spawn(future: impl Future<Output = ()> + 'static) -> TaskId {
    let future = Box::pin(future);
    with(|inner| inner.core.tasks.insert(future))
}

/// The name of a task that has no future yet. A future may be polled under it at once, within the
/// task that is running, and becomes a task only if it has to wait: work that usually needs no wait
/// costs no task. The name serves one future after the other.
#[derive(Debug)]
pub struct Unborn(TaskId);

impl Unborn {
    /// Takes a name.
    ///
    /// # Panics
    /// When this thread has no loop.
    pub fn new() -> Unborn {
        Unborn(with(|inner| inner.core.tasks.name()))
    }

    /// Polls a future with the waker of the task that it would be. Panics pass through.
    pub fn poll<F: Future<Output = ()> + Unpin>(&self, future: &mut F) -> Poll<()> {
        let (loop_id, outer) = with(|inner| {
            let tasks = &mut inner.core.tasks;
            (tasks.loop_id, tasks.current.replace(self.0))
        });
        let _back = Outer(outer);
        let waker = waker(loop_id, self.0);
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    /// Makes a task of a future that was polled under this name. It is polled next when something
    /// wakes it, as if it had always been one.
    pub fn spawn(self, future: impl Future<Output = ()> + 'static) -> TaskId {
        let future = Box::pin(future);
        let task = self.0;
        with(|inner| inner.core.tasks.list[task.index as usize].future = Some(future));
        std::mem::forget(self);
        task
    }
}

impl Default for Unborn {
    fn default() -> Unborn {
        Unborn::new()
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        cancel(self.0);
    }
}

/// Makes the outer task the current one again, whatever way the poll ends.
struct Outer(Option<TaskId>);

impl Drop for Outer {
    fn drop(&mut self) {
        let _ = try_with(|inner| inner.core.tasks.current = self.0);
    }
}

/// Drops a task's future: at once, or after the current poll when the task cancels itself. Does
/// nothing when the task has ended.
pub fn cancel(task: TaskId) {
    // Dropped outside: the future's own drop uses the loop.
    let future = try_with(|inner| inner.core.tasks.cancel(task)).flatten();
    drop_quietly(future);
}

/// The task that is being polled.
pub fn current() -> Option<TaskId> {
    try_with(|inner| inner.core.tasks.current).flatten()
}

/// Wakes a task. Does nothing when it has ended.
pub fn wake(task: TaskId) {
    let word = u64::from(task.generation as u16) << 32 | u64::from(task.index);
    let _ = try_with(|inner| inner.core.tasks.wake(word));
}

/// Wakes every task, for a change that all of them are to see: looks at each one.
pub fn wake_all() {
    let _ = try_with(|inner| {
        let tasks = &mut inner.core.tasks;
        for index in 0..tasks.list.len() {
            if tasks.list[index].state & LIVE != 0 {
                tasks.enqueue(index as u32);
            }
        }
    });
}

/// Lets everything else that is ready run first.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits until other tasks that are ready now have reached this step as well, a few dozen of them
/// at most. Then the step runs for one task after the other, and its code stays in the processor's
/// caches; system calls between them would evict it. Does not wait if no other task is ready.
pub async fn gather() {
    let mut gathered = false;
    std::future::poll_fn(|cx| {
        let gather = || try_with(|inner| inner.core.tasks.gather(cx.waker()));
        let waits = !gathered && gather() == Some(true);
        gathered = true;
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

/// Lets the loop look at its sockets and timers, and others run: [`yield_now`] has rounds of tasks
/// between, of which a turn has several.
pub async fn next_turn() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        wake_in_next_turn(cx.waker());
        Poll::Pending
    })
    .await;
}

/// Wakes a task when the loop has looked at its sockets and timers once more, and others have run.
pub fn wake_in_next_turn(waker: &Waker) {
    with(|inner| inner.core.tasks.next_turn.push(waker.clone()));
}

/// Waits until everything else of a turn has run: of this one, or of the next one where the task
/// runs at this point already. Says how many polls that turn had. Until then the loop does not
/// sleep.
pub async fn turn_end() -> usize {
    let mut began = false;
    std::future::poll_fn(|cx| {
        with(|inner| {
            let tasks = &mut inner.core.tasks;
            if began && tasks.is_ending {
                return Poll::Ready(tasks.turn_polls);
            }
            began = true;
            if !tasks.turn_end.iter().any(|waker| waker.will_wake(cx.waker())) {
                tasks.turn_end.push(cx.waker().clone());
            }
            Poll::Pending
        })
    })
    .await
}

/// The rounds of a turn are over, which had so many polls: queues the tasks that wait for that.
pub(crate) fn end_turn(polls: usize) -> bool {
    let waiting = with(|inner| {
        let tasks = &mut inner.core.tasks;
        tasks.turn_polls = polls;
        tasks.is_ending = !tasks.turn_end.is_empty();
        std::mem::take(&mut tasks.turn_end)
    });
    let any = !waiting.is_empty();
    waiting.into_iter().for_each(Waker::wake);
    any
}

/// The turn is over: queues the tasks that wait for the next one.
pub(crate) fn begin_next_turn() {
    let waiting = with(|inner| {
        inner.core.tasks.is_ending = false;
        std::mem::take(&mut inner.core.tasks.next_turn)
    });
    waiting.into_iter().for_each(Waker::wake);
    spare::begin_turn();
}

/// Notes that the task under poll will use `what` at its next poll. Before that it is prefetched,
/// as the task's own future is; with thousands of tasks both have left the processor's caches
/// meanwhile. Only the address is kept, and only until then.
pub fn foresee<T: ?Sized>(what: &T) {
    let _ = try_with(|inner| inner.core.tasks.foresee(what));
}

/// A box of a future that is brought nearer before its task is polled again; see [`foresee`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Foreseen<F: ?Sized>(Pin<Box<F>>);

/// Prefetches the future in the box together with the data noted in it.
pub fn foreseen<F: Future + ?Sized>(future: Pin<Box<F>>) -> Foreseen<F> {
    Foreseen(future)
}

impl<F: Future + ?Sized> Future for Foreseen<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = self.0.as_mut().poll(cx);
        if polled.is_pending() {
            let _ = try_with(|inner| inner.core.tasks.foresee_more(&*self.0));
        }
        polled
    }
}

/// A waker's word that names no task, of any loop: it ends a wait and wakes nothing.
pub(crate) const NO_TASK: u64 = NONE as u64;

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
    list: Vec<TaskEntry>,
    free: u32,
    live: usize,
    pub(super) queue: Vec<u32>,
    pub(super) gathering: Gathering,
    prefetches: Prefetches,
    current: Option<TaskId>,
    /// Foreign wakers to be called, or dropped, once nothing is borrowed.
    pub(super) later: Vec<Waker>,
    /// Woken when this turn is over.
    next_turn: Vec<Waker>,
    /// Woken when everything else of this turn has run.
    turn_end: Vec<Waker>,
    /// The tasks of `turn_end` run.
    is_ending: bool,
    /// Polls of the turn before they did.
    turn_polls: usize,
    pub(super) garbage: Vec<Waker>,
}

impl Tasks {
    pub(crate) fn new(loop_id: u16) -> Tasks {
        Tasks {
            loop_id,
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

    fn insert(&mut self, future: BoxFuture) -> TaskId {
        let task = self.name();
        self.list[task.index as usize].future = Some(future);
        self.enqueue(task.index);
        task
    }

    /// A live task without a future.
    fn name(&mut self) -> TaskId {
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

    /// Puts the task under poll aside for [`gather`]; false where no other is ready. `waker` is
    /// that of the future which waits: one that is not the task's would not hear of its end.
    fn gather(&mut self, waker: &Waker) -> bool {
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

    fn cancel(&mut self, task: TaskId) -> Option<BoxFuture> {
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
        (std::ptr::eq(waker.vtable(), &VTABLE) && loop_of(data) == self.loop_id).then_some(data)
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
    pub(super) fn prefetch(&self, index: u32) {
        if let Some(entry) = self.list.get(index as usize)
            && let Some(future) = entry.future.as_deref()
        {
            prefetch::fetch(prefetch::region(future));
            self.prefetches.fetch(entry.foreseen);
        }
    }

    fn foresee<T: ?Sized>(&mut self, what: &T) {
        if let Some(task) = self.current
            && let Some(entry) = self.list.get_mut(task.index as usize)
        {
            self.prefetches.note(&mut entry.foreseen, what);
        }
    }

    /// The same where something was foreseen already.
    #[inline]
    fn foresee_more<T: ?Sized>(&mut self, what: &T) {
        let foreseen = |task: TaskId| self.list.get(task.index as usize).map(|e| e.foreseen);
        if self.current.and_then(foreseen).is_some_and(|number| number != NONE) {
            self.foresee(what);
        }
    }

    pub(super) fn begin_poll(&mut self, index: u32) -> Option<(BoxFuture, TaskId)> {
        let entry = &mut self.list[index as usize];
        entry.state &= !QUEUED;
        self.prefetches.forget(&mut entry.foreseen);
        let future = entry.future.take()?;
        let task = TaskId { index, generation: entry.generation };
        self.current = Some(task);
        Some((future, task))
    }

    /// Puts the future back; returns it when it must be dropped instead.
    pub(super) fn end_poll(
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
    fn take_all(&mut self) -> Vec<BoxFuture> {
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

/// Drops every future of this thread's loop; tasks that they start meanwhile are dropped as well.
pub(crate) fn drop_all() {
    loop {
        let futures = with(|inner| inner.core.tasks.take_all());
        if futures.is_empty() {
            return;
        }
        futures.into_iter().for_each(|future| drop_quietly(Some(future)));
    }
}

/// Drops a value whose drop may panic.
pub(crate) fn drop_quietly<T>(value: Option<T>) {
    if let Some(value) = value
        && let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value)))
    {
        log_panic(&*panic);
        // Only a value that panics again in its destructor is leaked: it is not worth the process.
        if panic.is::<&str>() || panic.is::<String>() {
            drop(panic);
        } else {
            std::mem::forget(panic);
        }
    }
}

/// Runs `f`. A panic in it is caught and logged at alert, as one in a task is: for work of many
/// that one task does.
pub fn caught<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(panic) => {
            log_panic(&*panic);
            drop_quietly(Some(panic));
            None
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of unknown kind")
}

#[cold]
pub(super) fn log_panic(panic: &(dyn std::any::Any + Send)) {
    let text = panic_text(panic);
    base::log!(base::log::default(), Level::Alert, None, "panic in a task: {text}");
}

fn loop_of(data: u64) -> u16 {
    (data >> 48) as u16
}

pub(super) fn waker(loop_id: u16, task: TaskId) -> Waker {
    let data =
        u64::from(loop_id) << 48 | u64::from(task.generation as u16) << 32 | u64::from(task.index);
    // SAFETY: the functions of VTABLE treat the data as a number and never as an address, may be
    // called from any thread, and own nothing.
    unsafe { Waker::from_raw(raw(std::ptr::without_provenance(data as usize))) }
}

const fn raw(data: *const ()) -> RawWaker {
    RawWaker::new(data, &VTABLE)
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(raw, wake_word, wake_word, |_| ());

fn wake_word(data: *const ()) {
    let data = data.addr() as u64;
    let here = try_with(|inner| {
        let mine = inner.core.tasks.loop_id == loop_of(data);
        if mine {
            inner.core.tasks.wake(data);
        }
        mine
    });
    if here != Some(true) {
        remote::wake(loop_of(data), data);
    }
}

// A waker's word needs all its 64 bits.
const _: () = assert!(usize::BITS == 64);
