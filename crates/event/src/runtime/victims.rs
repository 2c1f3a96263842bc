//! Closing connections of this thread's loop, so that there is room: `state::victims` chooses them.

use crate::runtime::inner::try_with;
use crate::state::victims::Asked;

/// Asks connections of this thread's loop to close: parked ones, and those of slow clients. Each
/// round asks more of them than the one before; the first is 0. Returns what memory the last one
/// has freed to the system.
pub fn shed(round: u32) -> Asked {
    give_back();
    try_with(|inner| inner.core.shed_round(round)).unwrap_or_default()
}

/// The same of parked connections alone; returns their number.
pub fn shed_parked(round: u32) -> usize {
    give_back();
    try_with(|inner| inner.core.shed_round_of_parked(round)).unwrap_or_default()
}

/// Returns free memory to the system.
pub fn give_back() {
    mem::trim();
    os::memory::give_back();
}

/// Asks an eighth of the clients to go that have taken nothing of their responses for `ms`, as far
/// as calls in between have seen them; returns their number.
pub fn shed_unmoved(ms: u64) -> usize {
    try_with(|inner| inner.core.shed_unmoved(ms)).unwrap_or_default()
}

/// Makes room for a client that has less: closes a connection of one that has more than `share`, be
/// it busy. False where there is none that can be closed at once.
pub fn displace(share: usize) -> bool {
    let share = u32::try_from(share).unwrap_or(u32::MAX);
    try_with(|inner| inner.core.displace(share)).unwrap_or(false)
}

/// Nothing is to be shed: forgets who was waited for.
pub fn forget_unmoved() {
    let _ = try_with(|inner| inner.core.victims.unmoved = Vec::new());
}
