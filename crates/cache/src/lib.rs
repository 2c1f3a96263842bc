//! The cache of responses: kept in files, known to all workers by keys in shared memory.
//!
//! The crate knows no request. A caller brings a key, a head and a [`Feed`] that reads the
//! upstream; it gets kept responses and the bodies of responses on their way.
//!
//! | module | holds |
//! | --- | --- |
//! | `instance` | a cache as a worker has it: zone, folder, limits, responses in memory |
//! | `key` | hashes of keys, variants by `Vary`, and the names of files |
//! | `keys` | the zone in shared memory: entries, locks, sizes, order of use |
//! | `store` | files: opened and checked, written and renamed, deleted; never on the loop |
//! | `file_header`, `kept_head` | the header of files (docs/CACHE.md), and the head in it |
//! | `fill` | a response on its way from the upstream to a file and to clients at the same time |
//! | `streams`, `growing` | a response that another worker fetches, read from its file |
//! | `location`, `ticket` | the settings of a location, and the business of one request |
//! | `waiters` | requests that wait for another's fill, in this worker and others |
//! | `rules`, `ignore` | the fields that decide about keeping a response, as nginx reads them |
//! | `rfc9111` | the same by RFC 9111 |
//! | `purging`, `purge_marks`, `tags` | purges by key, prefix and tag |
//! | `index`, `index_format` | the index of keys and tags on the disk |
//! | `keeper`, `unindexed` | the task that keeps the index, and files that are not in it |
//! | `manager`, `loader`, `helpers` | the two processes that look after the folders |
//! | `faults`, `status`, `access` | faults, counted and logged; statuses; the way to files |
//!
//! Nothing in here fails a request: where a zone or a disk is full, a file cannot be read or a
//! folder is gone, the response passes by the cache.
#![forbid(unsafe_code)]

mod access;
mod faults;
mod file_header;
mod fill;
mod growing;
mod helpers;
pub mod ignore;
mod index;
pub mod index_format;
mod instance;
mod keeper;
mod kept_head;
mod key;
mod keys;
mod loader;
mod location;
mod manager;
mod purge_marks;
mod purging;
pub mod rfc9111;
mod rules;
mod status;
mod store;
mod streams;
pub mod tags;
mod ticket;
mod unindexed;
mod waiters;

pub use access::DiskAccess;
pub use faults::FaultCause;
pub use file_header::Header;
pub use fill::{Feed, FeedEnding, Fill, FillPiece, FillReader, Plan};
pub use growing::GrowingFile;
pub use helpers::{help, start};
pub use instance::{Cache, Pace, Report, Settings};
pub use kept_head::{head_text, length, parsed};
pub use key::{Hash, Layout, hash};
pub use keys::{Count, Evicted, FetchLock, Hold, Keys, Seen, Visit};
pub use location::{CacheConf, LocationCache, methods};
pub use purge_marks::Since;
pub use purging::{PurgeError, PurgeResult, can_be_found, purge};
pub use rules::{Forbids, Rules, range_begins_beyond};
pub use status::CacheStatus;
pub use store::{
    HEAD_ROOM, Opened, Stored, TempPlace, held, invalidate, open_file, outdate, renew,
    unless_purged,
};
pub use streams::{LiveStream, StreamId};
pub use ticket::{CacheEntry, Ticket};
