//! The event loop: its turns, tasks, wake-ups from other threads, and memory pressure. Its tables
//! are in [`state`](crate::state).
//!
//! # One turn
//!
//! ```text
//!  next deadline ─▶ the driver waits ─▶ completions ─▶ due timers ─▶ woken tasks (≤ 4 rounds) ─┐
//!       ▲                                                                                      │
//!       └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! **The driver never runs a task.** It only marks operations as ready and queues wake-ups, because
//! a task that ran inside the driver could start operations while the driver's tables are in use.
//! The loop polls the woken tasks afterwards.
//!
//! **Tasks run in rounds.** A round polls every task that was queued when it began; a task that is
//! woken during a round runs in the next one. A turn has at most four rounds (`turn::ROUNDS`), so
//! that accepting a connection, its first `recv` and the tasks woken by that share one turn.
//! Whatever is woken later waits for the next turn, so that one busy connection cannot starve the
//! others.
//!
//! **The clock is read once a turn** (`base::time::now_ms`). Code that has to know how long the
//! turn itself took reads the exact clock.
//!
//! **The interface to the drivers is one of completions**: start an operation, get its result.
//! Readiness can emulate completions, the reverse is impossible.
//!
//! **The kernel writes only to memory that belongs to an operation's slot**, and a future holds
//! nothing but the slot's key. Dropping the future orphans the slot: slot, buffer and descriptor
//! are freed when the operation has ended. So a cancelled future can never leave the kernel writing
//! to freed memory.
//!
//! # Bounds of a turn
//!
//! No kind of work may take a whole turn, because connections with a request at hand wait for the
//! next one:
//!
//! - Of timers that are due at once, 16 fire in a turn (`state::slot::EXPIRED_A_TURN`).
//! - io_uring receives about 256 KB within a turn where bytes keep coming in bulk
//!   (`driver::uring`): the kernel copies them within a single call, during which nothing else
//!   runs. Tasks receive the rest in their turns.
//! - Work that nobody waits for yet, such as reading ahead of a slow client into a temporary file,
//!   shares a part of each turn ([`spare`]).
//! - Tasks that are ready together run in lockstep, in groups ([`batch`]).

pub(crate) mod accepting;
mod batch;
pub(crate) mod clients;
mod flights;
pub(crate) mod inner;
mod relief;
pub(crate) mod remote;
pub(crate) mod room;
pub(crate) mod spare;
mod stopwatch;
pub mod task;
pub(crate) mod turn;
pub(crate) mod victims;
