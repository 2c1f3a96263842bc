//! Memory shared by the master and its workers: counters, tables, and locks that
//! outlive a dead worker.
//!
//! Everything here is made by the master before it forks and lies in anonymous shared mappings.
//! What a worker may find in such memory after another died in the middle of a change is part of
//! each type's contract: counters are whole at any moment, a lock knows its owner, a
//! table is put in order by who takes its lock next.

mod bells;
mod counters;
mod journal;
mod lock;
mod mutex;
mod rings;
mod rows;
mod table;
mod zone;
mod zones;

pub use bells::Bells;
pub use counters::{Counters, LINE_FIELDS, Line};
pub use journal::{Journal, Place};
pub use lock::ShmLock;
pub use rings::{Pushed, Rings};
pub use rows::{Rows, RowsLock};
pub use table::{Entry, Full, KEY_MAX, Key, Locked, Record, Table};
pub use zone::Zone;
pub use zones::{ZoneConflict, ZoneState, Zones};
