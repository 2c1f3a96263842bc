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

use crate::runtime::inner::{try_with, with};
use crate::runtime::{remote, spare};
use crate::state::tasks::loop_of;

pub use crate::state::tasks::TaskId;

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
            (tasks.loop_id(), tasks.current.replace(self.0))
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
        with(|inner| inner.core.tasks.set_future(task, future));
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
    let _ = try_with(|inner| inner.core.tasks.wake_all());
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

/// Lets the loop poll its sockets and timers before the task continues. [`yield_now`] only waits
/// for the next round of tasks, of which a turn has several.
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

/// A boxed future that is prefetched before its task is polled again; see [`foresee`].
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

/// Runs `f`; catches a panic in it and logs it at alert, as if `f` were a task. For tasks that work
/// for several clients, so that the panic costs only one of them.
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

/// The functions of the wakers of tasks.
pub(crate) static VTABLE: RawWakerVTable = RawWakerVTable::new(raw, wake_word, wake_word, |_| ());

fn wake_word(data: *const ()) {
    let data = data.addr() as u64;
    let here = try_with(|inner| {
        let mine = inner.core.tasks.loop_id() == loop_of(data);
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
