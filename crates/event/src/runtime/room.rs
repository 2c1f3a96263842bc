//! The room in a loop for connections, and what makes room: parked connections close when few
//! connections or descriptors are left.

use base::log::Level;

use crate::runtime::inner::{Inner, try_with};
use crate::state::Core;

/// The room in a loop.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Room {
    /// Its connections, those to servers included.
    pub connections: usize,
    /// Of these, idle ones and those with half a request: they make room for others.
    pub parked: usize,
    /// The most connections.
    pub connections_max: usize,
    /// About how many descriptors the process has open.
    pub descriptors: usize,
    /// The most descriptors.
    pub descriptors_max: usize,
    /// An allocation has failed lately.
    pub lacks_memory: bool,
    /// Bytes that the kernel may fill, with which no memory needs to be yet.
    pub lent: usize,
}

/// A scarce resource, with its amount.
#[derive(Clone, Copy)]
pub(crate) enum Shortage {
    Connections(usize),
    Descriptors(usize),
}

/// The limit on the numbers of descriptors.
pub(crate) fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

impl Core {
    /// The room in the loop.
    fn room(&self) -> Room {
        let connections = self.socks.connections();
        Room {
            connections,
            parked: self.slots.parked(),
            connections_max: self.connections_max,
            descriptors: self.socks.with_descriptor() + self.others,
            descriptors_max: self.descriptors_max,
            lacks_memory: self.relief.is_on(),
            lent: 0,
        }
    }
}

/// Whether so much of something is taken that parked connections make room: a sixteenth is left. Of
/// few parked ones most have come this moment, and are about to send their request: they stay until
/// almost nothing is left.
fn is_short(used: usize, max: usize, parked: usize) -> bool {
    let (free, few) = (max.saturating_sub(used), max / 16);
    free <= few && (parked >= few || free <= max / 64)
}

impl Inner {
    /// Asks parked connections to close when few connections or descriptors are left: active ones
    /// need some for files and upstreams. `newest` is the one opened last. Returns the shortage to
    /// log: once a second.
    pub(crate) fn make_room(&mut self, newest: usize) -> Option<Shortage> {
        let core = &mut self.core;
        let (max, descriptors) = (core.connections_max, core.descriptors_max);
        // The connections that were asked to close are still open.
        let leaving = core.leaving();
        let connections = core.socks.connections().saturating_sub(leaving);
        let used = core.descriptors_used(newest).saturating_sub(leaving);
        let parked = core.slots.parked().saturating_sub(leaving);
        let shortage = if is_short(connections, max, parked) {
            Shortage::Connections(max)
        } else if is_short(used, descriptors + 1, parked) {
            Shortage::Descriptors(descriptors)
        } else {
            return None;
        };
        if !core.reclaim() {
            return None;
        }
        let second = base::time::unix_secs();
        (std::mem::replace(&mut core.reuse_logged, second) != second).then_some(shortage)
    }
}

#[cold]
pub(crate) fn log_shortage(shortage: Shortage) {
    let (max, what) = match shortage {
        Shortage::Connections(max) => (max, "worker_connections"),
        Shortage::Descriptors(max) => (max, "open files"),
    };
    let log = base::log::default();
    base::log!(log, Level::Warn, None, "{max} {what} are not enough, reusing connections");
}

/// Connections that this thread's loop holds.
pub fn connections_in_use() -> usize {
    try_with(|inner| inner.core.socks.connections()).unwrap_or(0)
}

/// The room in this thread's loop.
pub fn room() -> Room {
    try_with(|inner| Room { lent: inner.driver.lent(), ..inner.core.room() }).unwrap_or_default()
}

/// The limit of its connections.
pub fn connections_max() -> usize {
    try_with(|inner| inner.core.connections_max).unwrap_or(0)
}
