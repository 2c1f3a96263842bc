//! Indices into the tables of a loop. They have 32 bits, so that entries are small.

/// The index of nothing: no slot, no task, no socket.
pub(crate) const NONE: u32 = u32::MAX;

/// A waker's word that names no task, of any loop: it ends a wait and wakes nothing.
pub(crate) const NO_TASK: u64 = NONE as u64;
