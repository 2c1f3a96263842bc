//! Kept responses in a worker's memory.

use std::rc::Rc;

use base::hash::Table;
use base::time::now_ms;
use bytes::Bytes;
use os::file::FileMeta;

use super::stored::Stored;
use crate::key::Hash;

/// A kept response, with its version in the zone and the time when the file system was asked for it
/// last.
struct Held {
    version: u32,
    stored: Rc<Stored>,
    asked_ms: u64,
}

/// Responses that this worker holds, in two generations: a response that is used moves to the young
/// one; when that is full it becomes the old one, and the responses left in the old one are
/// dropped.
///
/// With `memory=` they are used as long as the zone has the same version; without, only to spare
/// the parsing: the file system is asked each time.
#[derive(Default)]
pub(crate) struct ResponseMemory {
    trusted: bool,
    most: usize,
    young: Table<Hash, Held>,
    young_weight: usize,
    old: Table<Hash, Held>,
}

/// The limit where the file system is asked each time, bytes.
const CHECKED_MAX: usize = 4 << 20;

impl ResponseMemory {
    /// A memory for `bytes`; 0 asks the file system each time.
    pub fn new(bytes: usize) -> ResponseMemory {
        let most = if bytes == 0 { CHECKED_MAX } else { bytes };
        ResponseMemory { trusted: bytes > 0, most, ..ResponseMemory::default() }
    }

    fn get(&mut self, hash: &Hash) -> Option<&Held> {
        if !self.young.contains_key(hash) {
            let held = self.old.remove(hash)?;
            self.put(*hash, held);
        }
        self.young.get(hash)
    }

    fn put(&mut self, hash: Hash, held: Held) {
        let weight = held.stored.weight();
        if weight > self.most / 8 {
            return;
        }
        if self.young_weight + weight > self.most / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
        }
        self.young_weight += weight;
        if let Some(old) = self.young.insert(hash, held) {
            self.young_weight -= old.stored.weight().min(self.young_weight);
        }
    }

    /// Keeps a response that was opened just now, of which the zone tells that version.
    pub fn keep(&mut self, hash: Hash, version: u32, stored: Rc<Stored>) {
        self.put(hash, Held { version, stored, asked_ms: now_ms() });
    }

    /// A response that may be used without asking the file system.
    pub fn trusted(&mut self, hash: &Hash, version: u32) -> Option<Rc<Stored>> {
        if version == 0 {
            return None;
        }
        // Requests of the same moment, those that waited for one fetch say, share one look.
        let (trusted, now) = (self.trusted, now_ms());
        let held = self.get(hash).filter(|held| held.version == version)?;
        (trusted || held.asked_ms == now).then(|| held.stored.clone())
    }

    /// The response of an open file, if it is held; the zone has that version.
    pub fn same(
        &mut self,
        hash: &Hash,
        version: u32,
        key: &Bytes,
        meta: &FileMeta,
    ) -> Option<Rc<Stored>> {
        self.get(hash)?;
        let held = self.young.get_mut(hash)?;
        if !held.stored.meta().same_version(meta) || held.stored.header.key != *key {
            return None;
        }
        held.asked_ms = now_ms();
        if version != 0 {
            held.version = version;
        }
        Some(held.stored.clone())
    }

    /// Forgets a key.
    pub fn forget(&mut self, hash: &Hash) {
        if let Some(held) = self.young.remove(hash) {
            self.young_weight -= held.stored.weight().min(self.young_weight);
        }
        self.old.remove(hash);
    }
}
