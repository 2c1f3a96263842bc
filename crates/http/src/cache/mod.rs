//! The cache of responses: kept in files, known to all workers by keys in shared memory.
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
//! One concern a file:
//!
//! | file | concern |
//! | --- | --- |
//! | `directives` | what modules that pass requests on have under a prefix; `*_cache_path` |
//! | `conf` | what holds in a location |
//! | `key` | hashes of keys, variants by `Vary`, and the names of files |
//! | `format` | the header of files (docs/CACHE.md), written and checked |
//! | `rules` | what `Cache-Control`, `Expires`, `Set-Cookie`, `Vary` and their like ask for |
//! | `rfc9111` | the same by RFC 9111, where asked for; what may be served; what is invalid |
//! | `keys` | the zone in shared memory: entries, who fetches them, sizes, order of use |
//! | `zone` | a cache as a worker has it: zone, folder, limits, what it holds in memory |
//! | `store` | files: opened and checked, made and given their place, deleted; never on the loop |
//! | `ticket` | what one request has to do with a cache |
//! | `lookup` | from a request to an answer from the cache, or to the upstream |
//! | `serve` | a response made of what is kept |
//! | `fill` | a response on its way from the upstream to a file and to clients at the same time |
//! | `streams`, `follow` | a response that another worker fetches, read as it comes into its file |
//! | `waiters` | requests that wait for another's fill, in this worker and others |
//! | `faults` | what goes wrong, counted, and told once a minute |
//! | `purge`, `marks` | what is not to be served any more, by key, prefix and tag |
//! | `tags` | the tags of a response |
//! | `index`, `keeper` | the index of keys and tags on the disk: its files, and who keeps it |
//! | `unknown` | files whose keys the index does not know |
//! | `manager`, `loader` | the two processes that look after the folders |
//!
//! Nothing in here fails a request: a zone or a disk that is full, a file that cannot be read, a
//! folder that is gone, all of that makes a response pass by the cache.

pub mod conf;
pub mod directives;
mod faults;
mod fill;
mod follow;
mod format;
mod index;
mod keeper;
mod key;
mod keys;

mod loader;
mod lookup;
mod manager;
mod marks;
mod purge;

pub(crate) mod rfc9111;
mod rules;
mod serve;
mod store;
mod streams;
mod tags;
mod ticket;
mod unknown;
mod waiters;
mod zone;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use engine::Helper;
use event::{Deadline, Fd};

use crate::server::HttpMain;

pub use conf::{CacheConf, Draft};
pub use directives::{Caches, Caching};
pub use zone::{Cache, Report};

pub(crate) use conf::any_set;
pub(crate) use fill::{Fill, Plan, Reader};
pub(crate) use format::Header;
pub(crate) use key::hash as hash_of;
pub(crate) use keys::Hold;
pub(crate) use lookup::{Begin, begin};
pub(crate) use purge::can_be_found;
pub(crate) use rules::Rules;
pub(crate) use serve::{head_text, stored as serve_stored};
pub(crate) use store::{ROOM, Stored, Temp, invalidate, outdate, renew};
pub(crate) use ticket::{Status, Ticket};

/// In a worker, before it serves: it may be woken by others from now on.
pub(crate) fn start(main: &Rc<HttpMain>, slot: usize) -> io::Result<()> {
    let caches = main.caches();
    if caches.is_empty() {
        return Ok(());
    }
    caches.iter().for_each(|cache| cache.use_slot(slot));
    let Some(bell) = main.bells.hear(slot)? else { return Ok(()) };
    for cache in &caches {
        cache.hears();
    }
    let bell = Fd::new(bell);
    event::spawn(async move {
        while bell.readable(Deadline::NEVER).await.is_ok() {
            os::fd::eventfd_take(bell.fd());
            caches.iter().for_each(|cache| cache.rung());
        }
    });
    Ok(())
}

/// The manager is rung for what is purged, and for news of what is kept. Where it is a part of the
/// only process, that hears its bell already, and rings nobody else's.
fn listen(caches: &[Rc<Cache>]) {
    let heard = caches.iter().filter(|cache| cache.hears()).count() > 0;
    let Some(first) = caches.first().filter(|_| !heard) else { return };
    let Some(bell) = first.keys.hear() else { return };
    // All caches have the same bells.
    first.keys.listen(true);
    let (bell, caches) = (Fd::new(bell), caches.to_vec());
    event::spawn(async move {
        while bell.readable(Deadline::NEVER).await.is_ok() {
            os::fd::eventfd_take(bell.fd());
            caches.iter().for_each(|cache| cache.rung());
        }
    });
}

/// What a process beside the workers does for caches, all at the same time: until it is to leave as
/// the manager, until all files are known as the loader.
pub(crate) async fn help(main: Rc<HttpMain>, helper: Helper) {
    let mut all: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    let caches = main.caches();
    if helper == Helper::CacheManager {
        listen(&caches);
    }
    for cache in caches {
        all.push(match helper {
            Helper::CacheManager => Box::pin(manager::manage(cache, main.gate.clone())),
            Helper::CacheLoader => Box::pin(loader::load(cache)),
        });
    }
    std::future::poll_fn(|cx| {
        all.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await
}
