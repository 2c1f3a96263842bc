//! The loop of a thread: its state with its driver, and the access to it.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use crate::driver::Driver;
use crate::state::{Core, Stats};

/// The loop of a thread.
pub(crate) struct Inner {
    /// Dropped first: it ends its use of the memory that the flights own.
    pub(crate) driver: Driver,
    pub(crate) core: Core,
}

thread_local! {
    /// Taken out when the [`Loop`](super::turn::Loop) is dropped, and not when the thread ends: a
    /// value that the thread has to drop is asked at each access whether it is registered for that.
    pub(super) static INNER: ManuallyDrop<RefCell<Option<Inner>>> =
        const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Calls `f` with this thread's loop. `f` must not call anything that may use the loop itself:
/// dropping a future, a socket or a foreign waker does.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&mut Inner) -> R) -> R {
    INNER.with(|inner| f(inner.borrow_mut().as_mut().expect("this thread has an event loop")))
}

/// [`with`], or nothing when the thread has no loop, or it is in use at this moment.
#[inline]
pub(crate) fn try_with<R>(f: impl FnOnce(&mut Inner) -> R) -> Option<R> {
    INNER.try_with(|inner| Some(f(inner.try_borrow_mut().ok()?.as_mut()?))).ok().flatten()
}

/// Whether a thread has a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It has none.
    Absent,
    /// It has one, whose functions may be called.
    Free,
    /// It has one, which is in use: it has called the destructor of a value.
    InUse,
}

/// Whether this thread has a loop.
pub fn presence() -> Presence {
    let seen = INNER.try_with(|inner| match inner.try_borrow_mut() {
        Ok(inner) if inner.is_none() => Presence::Absent,
        Ok(_) => Presence::Free,
        Err(_) => Presence::InUse,
    });
    seen.unwrap_or(Presence::Absent)
}

/// The name of the driver of this thread's loop.
pub fn driver_name() -> &'static str {
    with(|inner| inner.driver.kind().name())
}

/// Sends that were left to the driver of this thread's loop, and are not over.
pub fn posted() -> usize {
    try_with(|inner| inner.core.flights.posted()).unwrap_or(0)
}

/// The number of the present turn of this thread's loop: it is another one after each wait.
#[inline]
pub fn turn() -> u64 {
    try_with(|inner| inner.core.stats.turns).unwrap_or(0)
}

/// The work of this thread's loop so far.
pub fn stats() -> Stats {
    try_with(|inner| Stats {
        tasks: inner.core.tasks.live(),
        waiting: inner.core.slots.in_use(),
        ..inner.core.stats
    })
    .unwrap_or_default()
}
