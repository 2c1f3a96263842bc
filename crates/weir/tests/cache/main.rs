//! Caches of responses: what is kept, for how long, and what survives faults and upgrades.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/tmpfs.rs"]
mod tmpfs;

mod cache;
mod cache_faults;
mod cache_index;
mod cache_lock;
mod cache_rfc9111;
mod cache_trouble;
mod cache_upgrade;
mod cache_workers;
mod origin;
mod shared_purges;
mod slice;
