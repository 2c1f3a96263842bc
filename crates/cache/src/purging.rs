//! Purges: of a key at once, and of prefixes, tags and variants by marks.
//!
//! A key alone is gone from the zone, and its file from the disk, before the answer. For everything
//! else the manager looks in the index ([`crate::purge_marks`]); the answer waits until it has
//! taken out the entries it found. If the answer says `complete`, the journal on the disk has the
//! purge, of either kind; the manager writes all waiting purges in one go.

use std::rc::Rc;

use base::time::{now_ms, unix_secs};
use event::Pool;

use crate::file_header::Header;
use crate::index_format::{KEY_MAX, Purge, PurgeBy};
use crate::instance::Cache;
use crate::key::{self, Hash};
use crate::keys::{Purged, RenameTurn};
use crate::purge_marks::{Since, TEXT_MAX};
use crate::store;
use crate::tags;

/// The time for which an answer waits for the manager, milliseconds.
const ANSWER_MS: u64 = 60_000;

/// The pause between two looks where no bell rings, milliseconds.
const LOOK_MS: u64 = 50;

/// The same while the index is being read at a start, or there is no room for another purge.
const READ_MS: u64 = 5;

/// The file in a cache's folder that says how far purges of other servers have been made.
pub const PURGES_FILE: &str = ".weir.purges";

/// Tags that one request may name.
const TAGS_MAX: usize = 64;

/// A purge that cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PurgeError {
    /// The index takes no purges.
    NoIndex,
    /// A text is too long, or there are too many tags.
    TooLong,
    /// Too many purges are under way.
    TooMany,
}

/// The outcome of a purge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgeResult {
    /// Entries that were taken out; `None` where the manager goes on with that.
    pub count: Option<u64>,
    /// The keys of all files are known, and the journal has the purge.
    pub complete: bool,
}

/// Purges the key of a request, all keys that begin with it where it ends with an asterisk, or the
/// entries of `tags`, which have a space between two.
///
/// # Errors
/// See [`PurgeError`].
pub async fn purge(
    cache: &Rc<Cache>,
    key: &[u8],
    main: &Hash,
    tags: &[u8],
    pool: Option<&Pool>,
) -> Result<PurgeResult, PurgeError> {
    // At a start, the entries that the index tells of are in the zone soon.
    let until = now_ms() + ANSWER_MS;
    while !cache.keys.is_read() && now_ms() < until {
        event::sleep(READ_MS).await;
    }
    // Before anything is purged: the variants of such a key could not be looked for, here or on
    // servers that hear of the purge.
    let is_shared = cache.shares.get().is_some();
    let needs_mark = is_shared || cache.keys.may_have_variants() || !is_all_known(cache);
    let prefix = key.strip_suffix(b"*");
    let is_too_long = prefix.unwrap_or(key).len() > TEXT_MAX;
    if tags.is_empty() && is_too_long && (prefix.is_some() || needs_mark) {
        return Err(PurgeError::TooLong);
    }
    let mut out = 0;
    let mut flush = None;
    let purges: Vec<(PurgeBy, &[u8])> = if !tags.is_empty() {
        tags.split(|b| *b == b' ').map(|tag| (PurgeBy::Tag, tag)).collect()
    } else if let Some(prefix) = key.strip_suffix(b"*") {
        vec![(PurgeBy::Prefix, prefix)]
    } else {
        let (was_there, number) = purge_key(cache, main, pool).await;
        (out, flush) = (u64::from(was_there), number);
        if number.is_none() {
            return Err(PurgeError::NoIndex);
        }
        match cache.keys.may_have_variants() || !is_all_known(cache) {
            true => vec![(PurgeBy::Key, key)],
            false => Vec::new(),
        }
    };
    if purges.len() > TAGS_MAX || purges.iter().any(|(_, text)| text.len() > TEXT_MAX) {
        return Err(PurgeError::TooLong);
    }
    let marks = publish(cache, purges, until).await?;
    let found = looked_for(cache, &marks, flush).await;
    // Keys that the index does not know are compared when their files are read.
    let complete = found.is_some() && is_all_known(cache) && !cache.keys.journal_failed();
    Ok(PurgeResult { count: found.map(|found| out + found), complete })
}

/// Publishes a mark for each purge, as soon as there is room for it.
async fn publish(
    cache: &Cache,
    purges: Vec<(PurgeBy, &[u8])>,
    until: u64,
) -> Result<Vec<u64>, PurgeError> {
    let keys = &cache.keys;
    let time = u32::try_from(unix_secs()).unwrap_or(u32::MAX);
    let mut marks = Vec::new();
    for (of, text) in purges {
        let purge = Purge { id: 0, time, of, text };
        let publish = || keys.marks.publish(&purge, keys.id.into(), || keys.last_version());
        let mut published = publish();
        // Files of the oldest ones are being deleted.
        while published.is_none() && now_ms() < until {
            event::sleep(READ_MS).await;
            published = publish();
        }
        marks.push(published.ok_or(PurgeError::TooMany)?);
    }
    Ok(marks)
}

/// Purges a key alone: whether there was an entry, and the number of the flush that puts the purge
/// on the disk; `None` where the index has no room for it.
async fn purge_key(cache: &Rc<Cache>, main: &Hash, pool: Option<&Pool>) -> (bool, Option<u64>) {
    let keys = &cache.keys;
    keys.marks.purge_key(main);
    let was_there = keys.purge(main) == Purged::Out;
    cache.memory.borrow_mut().forget(main);
    let number = told(cache, main).await;
    cache.tell_gone(main);
    // There may be a file that is not known yet.
    let was_left = delete_purged(cache, &[*main], pool).await > 0;
    (was_there || was_left, number)
}

/// Reports a purge to the index, and requests its flush to the disk.
async fn told(cache: &Cache, main: &Hash) -> Option<u64> {
    let until = now_ms() + ANSWER_MS;
    while !cache.keys.tell_purged(main) {
        if now_ms() >= until {
            return None;
        }
        // Many have come at once: the keeper of the index makes room.
        cache.keys.ring();
        cache.stirred.notify_all();
        event::sleep(READ_MS).await;
    }
    let number = cache.keys.request_flush();
    cache.stirred.notify_all();
    Some(number)
}

/// Deletes files that the zone does not have, unless another fill renames one to the same name
/// meanwhile. Gives the number of files deleted.
pub(crate) async fn delete_purged(cache: &Cache, list: &[Hash], pool: Option<&Pool>) -> usize {
    let (mut turns, mut files) = (Vec::new(), Vec::new());
    for hash in list {
        match cache.keys.turn_to_delete(hash) {
            RenameTurn::Ours(turn) => {
                turn.is_under_way(true);
                turns.push(turn);
                files.push(*hash);
            }
            // No fill can rename another file to its name.
            RenameTurn::Full => files.push(*hash),
            RenameTurn::Busy | RenameTurn::Purged => {}
        }
    }
    let count = store::delete_all(cache, files, pool).await;
    turns.iter().for_each(|turn| turn.is_under_way(false));
    count
}

/// Waits until the manager has searched the entries of some marks, and the flush of that number is
/// done: the number of entries taken out. `None` where that takes too long.
async fn looked_for(cache: &Rc<Cache>, marks: &[u64], sure: Option<u64>) -> Option<u64> {
    let keys = &cache.keys;
    let until = now_ms() + ANSWER_MS;
    let _listening = Listening::new(cache);
    keys.ring();
    cache.stirred.notify_all();
    loop {
        let counts: Option<Vec<u64>> = marks.iter().map(|seq| keys.marks.count(*seq)).collect();
        match counts {
            Some(counts) if sure.is_none_or(|number| keys.is_flushed(number)) => {
                return Some(counts.iter().sum());
            }
            _ if now_ms() >= until => return None,
            _ => {}
        }
        let _ = event::race(cache.stirred.notified(), event::sleep(LOOK_MS)).await;
    }
}

/// While it lives, other processes wake this one when the index changes.
struct Listening<'a>(&'a Cache);

impl Listening<'_> {
    fn new(cache: &Cache) -> Listening<'_> {
        cache.keys.begins_waiting();
        Listening(cache)
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.keys.stopped_waiting();
    }
}

/// Whether the index has the keys of all files.
fn is_all_known(cache: &Cache) -> bool {
    cache.keys.is_warm() && cache.keys.unknown() == 0
}

/// Whether the index can hold a response with that header: otherwise it could not be purged, and is
/// not kept.
pub fn can_be_found(header: &Header) -> bool {
    header.key.len() <= KEY_MAX && tags::fit(&tags::of_header(header))
}

/// Whether a response was purged since it was asked for.
pub(crate) fn meanwhile(cache: &Cache, since: Since, key: &[u8], tags: &[u8]) -> bool {
    cache.keys.marks.purged_since(since, &key::hash(key), key, tags)
}
