//! `keyval_zone` and `keyval`: tables of keys and values in memory that all workers share.
//!
//! A [`Zone`] is what a configuration says of a table: its lifetime, its state file, what happens
//! when it is full. A [`Store`] is the memory, which a reload keeps. Variables, the API and scripts
//! change a table through its zone, so that each change reaches the state file.
#![forbid(unsafe_code)]

mod changes;
pub mod directives;
mod find;
mod lengths;
pub mod pairs;
mod state;
mod store;
mod sync;
mod zone;

pub use state::Format;
pub use store::{Change, Kind, Pair, Refused, Store};
pub use zone::{AllZones, Zone};
