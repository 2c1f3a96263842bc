//! The loop itself: turns, the slots of operations, timers, tasks, wakes from other threads, and
//! the relief when memory or descriptors run short, and the connections that make room.

mod batch;
pub(crate) mod clients;
pub(crate) mod prefetch;
pub(crate) mod relief;
pub(crate) mod remote;
pub(crate) mod slot;
pub(crate) mod spare;
pub mod task;
pub(crate) mod timer;
pub(crate) mod turn;
pub(crate) mod victims;
