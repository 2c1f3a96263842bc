//! The response cache from a request's point of view. The storage is the crate `cache`.
//!
//! ```text
//!                 ┌───────────── lookup ─────────────┐
//!  request ─▶ key ─▶ keys (shared) ─▶ store (file, or this worker's memory) ─▶ serve ─▶ HIT
//!                 │      │ absent, expired                  │ torn, foreign, gone
//!                 │      ▼                                  ▼
//!                 │    lock ── held by another ─▶ waiters ── woken ─▶ (lookup again)
//!                 │      │ ours
//!                 ▼      ▼
//!              upstream exchange ─▶ rules: may it be kept, how long? ─▶ fill ─▶ client(s)
//!                                                                        └─▶ file, renamed whole
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `directives` | the directives of modules that pass requests on, and `*_cache_path` |
//! | `conf` | the settings that hold in a location |
//! | `lookup` | the way from a request to an answer from the cache, or to the upstream |
//! | `decisions` | of an exchange: whether a response is stored, or a stored one is served |
//! | `serve` | a response made of a kept one |
//! | `fill_reader` | the body of a response that this worker fetches, for one client |
//! | `stream_reader` | the body of a response that another worker fetches |
//! | `purge` | requests that purge |
//! | `sharing`, `waiting` | purges that reach other servers, and those that wait for it |
//!
//! The cache never fails a request: if a zone or disk is full, a file is unreadable or a directory
//! is missing, the response bypasses the cache.

pub mod conf;
pub(crate) mod decisions;
pub mod directives;
mod fill_reader;
mod lookup;
mod purge;
mod serve;
mod sharing;
mod stream_reader;
mod waiting;

use std::rc::Rc;

use cache::Cache;
use http::server::HttpMain;

pub use conf::Draft;
pub use directives::{Caches, Caching};

pub(crate) use fill_reader::FillBody;
pub(crate) use lookup::{Begin, begin, key_of};

/// All caches of a configuration.
pub fn all(main: &HttpMain) -> Vec<Rc<Cache>> {
    main.confs.get::<Caches>().map(|all| all.all()).unwrap_or_default()
}
