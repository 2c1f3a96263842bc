//! Requests that purge (`*_cache_purge`): by their key, by all keys that begin like it where it
//! ends with an asterisk, or by tags where they name some (`Cache-Tag`, `Surrogate-Key`).
//!
//! A key alone is gone from the zone, and its file from the disk, before the answer. For everything
//! else the manager looks in the index ([`super::marks`]); the answer waits until it has taken out
//! what it found. Either stands in the journal before the answer, on the disk: the manager writes
//! at once what comes from all who wait.

use std::rc::Rc;

use base::ascii::eq_ignore_case;
use base::log::Level;
use base::time::{now_ms, unix_secs};
use bytes::Bytes;
use event::Pool;
use proto::cache_index::{KEY_MAX, Of, Purge};

use super::Cache;
use super::format::Header;
use super::key::{self, Hash};
use super::keys::{Purged, Turn};
use super::marks::{Since, TEXT_MAX};
use super::store;
use super::tags;
use super::ticket::Ticket;
use crate::module::Verdict;
use crate::request::Request;

/// How long an answer waits for the manager, milliseconds.
const PATIENCE_MS: u64 = 60_000;

/// How often it looks by itself, milliseconds.
const LOOK_MS: u64 = 50;

/// The same while the index is being read at a start, or there is no room for another purge.
const READ_MS: u64 = 5;

/// Most tags that one request may name.
const TAGS_MAX: usize = 64;

/// Purges what a request asks for, and answers.
pub(super) async fn purge(r: &mut Request, t: &Ticket) -> Verdict {
    let cache = t.cache.clone();
    let mut named = Vec::new();
    for (name, value) in r.headers() {
        if tags::FIELDS.iter().any(|field| eq_ignore_case(name, field)) {
            tags::add(value, &mut named);
        }
    }
    // At a start, what the index tells is in the zone soon.
    let until = now_ms() + PATIENCE_MS;
    while !cache.keys.is_read() && now_ms() < until {
        event::sleep(READ_MS).await;
    }
    let mut out = 0;
    let mut sure = None;
    let mut marks = Vec::new();
    let wanted: Vec<(Of, &[u8])> = if !named.is_empty() {
        named.split(|b| *b == b' ').map(|tag| (Of::Tag, tag)).collect()
    } else if let Some(prefix) = t.key.strip_suffix(b"*") {
        vec![(Of::Prefix, prefix)]
    } else {
        let (was_there, number) = one(r, &cache, &t.main).await;
        (out, sure) = (u64::from(was_there), number);
        if number.is_none() {
            r.log(Level::Error, format_args!("the index of the cache takes no purges"));
            return Verdict::Status(503);
        }
        match cache.keys.may_have_variants() || !is_all_known(&cache) {
            true => vec![(Of::Key, &t.key[..])],
            false => Vec::new(),
        }
    };
    if wanted.len() > TAGS_MAX || wanted.iter().any(|(_, text)| text.len() > TEXT_MAX) {
        r.log(Level::Error, format_args!("too long to be purged by"));
        return Verdict::Status(400);
    }
    let time = u32::try_from(unix_secs()).unwrap_or(u32::MAX);
    for (of, text) in wanted {
        let purge = Purge { id: 0, time, of, text };
        let keys = &cache.keys;
        let publish = || keys.marks.publish(&purge, keys.id.into(), || keys.last_version());
        let mut published = publish();
        // Files of the oldest ones are being deleted.
        while published.is_none() && now_ms() < until {
            event::sleep(READ_MS).await;
            published = publish();
        }
        let Some(seq) = published else {
            r.log(Level::Error, format_args!("too many purges are under way"));
            return Verdict::Status(503);
        };
        marks.push(seq);
    }
    let found = looked_for(&cache, &marks, sure).await;
    answer(r, &cache, found.map(|found| out + found));
    Verdict::Done
}

/// Purges a key alone: whether there was something, and the number under which that is to be on the
/// disk; `None` where nobody takes it.
async fn one(r: &mut Request, cache: &Rc<Cache>, main: &Hash) -> (bool, Option<u64>) {
    let keys = &cache.keys;
    keys.marks.purge_key(main);
    let was_there = keys.purge(main) == Purged::Out;
    cache.memory.borrow_mut().forget(main);
    let number = told(cache, main).await;
    cache.tell_gone(main);
    // There may be a file that is not known yet.
    let pool = r.pool().ok().flatten();
    let was_left = delete_purged(cache, &[*main], pool.as_ref()).await > 0;
    (was_there || was_left, number)
}

/// Tells the index of a purge, and wants that to be on the disk.
async fn told(cache: &Cache, main: &Hash) -> Option<u64> {
    let until = now_ms() + PATIENCE_MS;
    while !cache.keys.tell_purged(main) {
        if now_ms() >= until {
            return None;
        }
        // Many have come at once: whoever keeps the index makes room.
        cache.keys.ring();
        cache.stirred.notify_all();
        event::sleep(READ_MS).await;
    }
    let number = cache.keys.want_sure();
    cache.stirred.notify_all();
    Some(number)
}

/// Deletes files of which the zone does not tell, and nobody gives another one its place meanwhile:
/// what is fetched anew has the same name. Gives how many there were.
pub(super) async fn delete_purged(cache: &Cache, list: &[Hash], pool: Option<&Pool>) -> usize {
    let (mut turns, mut files) = (Vec::new(), Vec::new());
    for hash in list {
        match cache.keys.turn_to_delete(hash) {
            Turn::Ours(turn) => {
                turn.is_under_way(true);
                turns.push(turn);
                files.push(*hash);
            }
            // Nobody could give another one its place.
            Turn::Full => files.push(*hash),
            Turn::Busy | Turn::Purged => {}
        }
    }
    let count = store::delete_all(cache, files, pool).await;
    turns.iter().for_each(|turn| turn.is_under_way(false));
    count
}

/// Waits until the manager has looked for some marks, and what was told under the number `sure` is
/// on the disk: how many entries it took out. `None` where that takes too long.
async fn looked_for(cache: &Rc<Cache>, marks: &[u64], sure: Option<u64>) -> Option<u64> {
    let keys = &cache.keys;
    let until = now_ms() + PATIENCE_MS;
    let _listening = Listening::new(cache);
    keys.ring();
    cache.stirred.notify_all();
    loop {
        let counts: Option<Vec<u64>> = marks.iter().map(|seq| keys.marks.count(*seq)).collect();
        match counts {
            Some(counts) if sure.is_none_or(|number| keys.is_sure(number)) => {
                return Some(counts.iter().sum());
            }
            _ if now_ms() >= until => return None,
            _ => {}
        }
        let _ = event::race(cache.stirred.notified(), event::sleep(LOOK_MS)).await;
    }
}

/// Wants this process to be rung for.
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

/// Whether there is no file whose key the index does not know.
fn is_all_known(cache: &Cache) -> bool {
    cache.keys.is_warm() && cache.keys.unknown() == 0
}

/// Says how many entries were taken out; 202 where the manager goes on with that.
fn answer(r: &mut Request, cache: &Cache, found: Option<u64>) {
    // Keys that the index does not know are compared when their files are read.
    let complete = found.is_some() && is_all_known(cache) && !cache.keys.is_unwritten();
    let text = match found {
        Some(n) => format!("{{\"purged\":{n},\"complete\":{complete}}}\n"),
        None => "{\"complete\":false}\n".to_owned(),
    };
    let status = if found.is_some() { 200 } else { 202 };
    r.respond(status, Bytes::from_static(b"application/json"), Bytes::from(text));
}

/// Whether the index can tell of a response with that header: what it cannot tell of could not be
/// purged, and is not kept.
pub(crate) fn can_be_found(header: &Header) -> bool {
    header.key.len() <= KEY_MAX && tags::fit(&tags::of_header(header))
}

/// Whether a response was purged since it was asked for.
pub(super) fn meanwhile(cache: &Cache, since: Since, key: &[u8], tags: &[u8]) -> bool {
    cache.keys.marks.purged_since(since, &key::hash(key), key, tags)
}
