//! The cache manager: a process beside the workers that takes out entries that have expired unused,
//! and keeps caches within their limits. Each cache has a task of its own, so that a slow disk does
//! not keep the others waiting.

use std::rc::Rc;

use base::time::now_ms;
use event::Gate;

use crate::instance::Cache;
use crate::keeper;
use crate::keys::Evicted;
use crate::store;

/// The pause of the manager when nothing is due, milliseconds.
const REST_MS: u64 = 10_000;

/// Looks after a cache, its index among it, until `leave`.
pub(crate) async fn manage(cache: Rc<Cache>, leave: Gate) {
    let turns = async {
        loop {
            let rest = turn(&cache).await;
            event::sleep(rest.max(1)).await;
        }
    };
    let _ = event::race(keeper::keep(cache.clone(), leave), turns).await;
}

/// One turn: as many files and as much time as the configuration gives it. Gives the pause until
/// the next, milliseconds.
async fn turn(cache: &Rc<Cache>) -> u64 {
    let pace = cache.settings.manager;
    let began = now_ms();
    let mut left = pace.files.max(1);
    let is_over = |left: u64| left == 0 || now_ms() - began >= pace.threshold_ms;
    let rest = loop {
        let mut evicted = Vec::new();
        let due =
            cache.keys.expire(left.min(BATCH) as usize, cache.settings.inactive, &mut evicted);
        left -= (evicted.len() as u64).min(left);
        delete(cache, evicted).await;
        match due {
            Some(0) if is_over(left) => return pace.sleep_ms,
            Some(0) => {}
            Some(secs) => break (u64::from(secs) * 1000).min(REST_MS),
            None => break REST_MS,
        }
    };
    while is_above_limits(cache).await {
        let mut evicted = Vec::new();
        let max = cache.max_blocks();
        let first = std::cell::Cell::new(true);
        let count = left.min(BATCH) as usize;
        let more = |t: &crate::keys::Totals| {
            let over = max.is_some_and(|max| t.blocks >= max)
                || t.watermark > 0 && t.entries >= t.watermark;
            // At least one: it may be the disk that is too full.
            first.replace(false) || over
        };
        cache.keys.evict(count, more, &mut evicted);
        if evicted.is_empty() {
            return if cache.keys.totals().entries == 0 { REST_MS } else { 1000 };
        }
        left -= (evicted.len() as u64).min(left);
        delete(cache, evicted).await;
        if is_over(left) {
            return pace.sleep_ms;
        }
    }
    rest
}

/// Entries that are taken out under one lock.
const BATCH: u64 = 32;

async fn is_above_limits(cache: &Rc<Cache>) -> bool {
    let totals = cache.keys.totals();
    if totals.entries == 0 {
        return false;
    }
    if cache.max_blocks().is_some_and(|max| totals.blocks >= max)
        || totals.watermark > 0 && totals.entries >= totals.watermark
    {
        return true;
    }
    is_low(cache).await
}

/// Whether the disk has less than `min_free` left.
pub(crate) async fn is_low(cache: &Cache) -> bool {
    let least = cache.settings.min_free;
    if least == 0 {
        return false;
    }
    let folder = cache.settings.layout.folder.clone();
    let pool = event::pool::default();
    let space = store::elsewhere(Some(&pool), move || os::file::space(&folder)).await;
    matches!(space, Ok(Ok(space)) if space.available <= least)
}

async fn delete(cache: &Rc<Cache>, evicted: Vec<Evicted>) {
    let files: Vec<_> = evicted.iter().filter(|e| e.file).map(|e| e.hash).collect();
    files.iter().for_each(|hash| cache.tell_gone(hash));
    store::delete_all(cache, files, Some(&event::pool::default())).await;
}
