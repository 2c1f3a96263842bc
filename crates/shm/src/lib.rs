//! Memory shared by the master and its workers: counters, and locks that outlive a dead worker.
//!
//! Everything here is made by the master before it forks and lies in anonymous shared mappings.
//! What a worker may find in such memory after another died in the middle of a change is part of
//! each type's contract: counters are whole at any moment, and a lock knows its owner.

mod counters;
mod lock;
mod zone;

pub use counters::{Counters, LINE_FIELDS, Line};
pub use lock::ShmLock;
pub use zone::Zone;
