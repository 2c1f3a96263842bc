//! Memory shared by the master and its workers: counters, tables, and locks that
//! outlive a dead worker.
//!
//! The master makes everything here before it forks, in anonymous shared mappings. Each type says
//! what a process finds after another died in the middle of a change: counters are whole at any
//! moment, a lock knows its owner, the next process to lock a table repairs it.

mod bells;
mod counters;
mod journal;
mod latest;
mod lock;
mod mutex;
mod named_counters;
mod rings;
mod rows;
mod table;
mod timeline;
mod zone;
mod zones;

pub use bells::Bells;
pub use counters::{Counters, LINE_FIELDS, Line};
pub use journal::{Journal, Place};
pub use latest::Latest;
pub use lock::ShmLock;
pub use named_counters::{CounterRow, NAME_MAX, NamedCounters};
pub use rings::{Pushed, Rings};
pub use rows::{Rows, RowsLock};
pub use table::{Entry, Full, KEY_MAX, Key, Locked, Record, Table};
pub use timeline::{CELL_WORDS, Cell, SERIES_NAME_MAX, StepTime, Timeline};
pub use zone::Zone;
pub use zones::{Fill, ZoneConflict, ZoneReport, ZoneState, Zones};
