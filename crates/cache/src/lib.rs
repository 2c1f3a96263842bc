//! The cache of responses of any upstream: kept in files (docs/CACHE.md), known to all workers by
//! keys in shared memory.
//!
//! The crate knows no request. A caller brings a key, a head and a [`Feed`] that reads the
//! upstream, and gets stored responses and the bodies of responses that are being fetched.
//! `http_upstream::caching` has the directives, the key of a request, lookup, serving and the
//! bodies of single clients.
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
//! | `location`, `ticket` | the settings of a location, and the cache's state of one request |
//! | `waiters` | requests that wait for another's fill, in this worker and others |
//! | `rules`, `ignore` | the fields that decide about storing a response, as nginx reads them |
//! | `rfc9111` | the same by RFC 9111 |
//! | `purging`, `purge_marks`, `tags` | purges by key, prefix and tag |
//! | `index`, `index_format` | the index of keys and tags on the disk |
//! | `keeper`, `unindexed` | the task that keeps the index, and files that are not in it |
//! | `manager`, `loader`, `helpers` | the two processes that maintain the folders |
//! | `faults`, `status`, `access` | errors, counted and logged; statuses; access to files |
//!
//! The parts meet at few points:
//!
//! - **Keys** are entries of a zone in shared memory (`keys` on a `shm::Table`). The right to fetch
//!   a key is a value, `Hold`. Dropping it returns the right and wakes the waiters: by a
//!   notification within the worker, by a bell (`shm::Bells`, an eventfd for each process) in
//!   others.
//! - **Files** are opened by the crate `files`, like files of a site. The pool that `aio` names
//!   writes them, under a temporary name until they are complete.
//! - **A fill** is a task of its own that reads the feed into the file. All clients, the first one
//!   too, read along from it: one that is slow or gone affects neither the others nor the file.
//!   Clients of other workers read the file as it grows; its number and length are in shared memory
//!   (`streams`).
//! - **The index** holds keys and tags, for which the zone has no room. Workers report entries
//!   through rings in shared memory (`shm::Rings`), and the cache manager writes them (`keeper`).
//!   The zone is authoritative for the existence of entries, the index for their keys and tags. So
//!   a restart is warm, and a purge by prefix or tag opens no file. An entry is *unindexed* if the
//!   ring was full or its file is older than the index; its file is read later.
//! - **Purges** are marks in shared memory (`purge_marks`). A mark covers all entries with a
//!   smaller version, or fetched before it. Whenever a file is opened or a response has been
//!   fetched, it is compared with the marks. A mark is removed when it can no longer cover one.
//! - **Rules.** `rules` decides as nginx does whether a response may be stored and served; with
//!   `proxy_cache_rfc9111`, `rfc9111` decides. Both are plain functions of fields and times. All
//!   variants of a key have one family number, so that invalidating the first one invalidates all.
//! - **Exchanges** consult the cache in `http_upstream::caching`'s `decisions`: whether to serve a
//!   stale response instead of an error, and whether and how long to store a new one.
//! - **Processes** next to the workers (`engine::Helper`): the cache manager also keeps the index;
//!   the loader takes entries from the index after a start, reads the folders, and exits.
//!
//! Nothing in here fails a request: where a zone or a disk is full, a file cannot be read or a
//! folder is gone, the response bypasses the cache.
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
pub use instance::{Cache, Pace, Report, Settings, Sharing};
pub use kept_head::{head_text, length, parsed};
pub use key::{Hash, Layout, hash};
pub use keys::{Count, Evicted, FetchLock, Hold, Keys, Seen, Visit};
pub use location::{CacheConf, LocationCache, methods};
pub use purge_marks::Since;
pub use purging::{PURGES_FILE, PurgeError, PurgeResult, can_be_found, purge};
pub use rules::{Forbids, Rules, range_begins_beyond};
pub use status::CacheStatus;
pub use store::{
    HEAD_ROOM, Opened, Stored, TempPlace, held, invalidate, open_file, outdate, renew,
    unless_purged,
};
pub use streams::{LiveStream, StreamId};
pub use ticket::{CacheEntry, Ticket};
