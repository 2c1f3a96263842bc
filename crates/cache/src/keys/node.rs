//! The record of an entry in shared memory.

use shm::Record;

use super::until;

/// There is a file.
pub(crate) const THERE: u8 = 1;
/// It is being fetched.
pub(crate) const UPDATING: u8 = 2;
/// A request of another process than the one that fetches it waits for it, or did.
pub(crate) const AWAITED: u8 = 4;
/// The index has its key and its tags, or will in a moment.
pub(crate) const KNOWN: u8 = 8;
/// The index says that there is a file; no process has seen it yet.
pub(crate) const UNSEEN: u8 = 16;
/// The file came from the index at the start.
pub(crate) const TOLD: u8 = 32;
/// A file is being renamed: it is unknown whether it has its name.
pub(crate) const PLACING: u8 = 64;

/// In the place of a status: responses for this key are not stored at the moment, so that requests
/// do not wait for one another.
pub(crate) const NOT_STORED: u16 = 1;
/// The same: the stale response was served because fetching it anew failed.
pub(crate) const FAILED: u16 = 2;

/// Uses are counted up to here.
pub(crate) const USES_MAX: u16 = 1023;

/// The record of a key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// Size of the file in blocks of the file system.
    pub blocks: u32,
    /// The time when it expires unused, seconds since 1970.
    pub expire: u32,
    /// The file's version; 0 is unknown. Of a file that no process has seen: its fingerprint in the
    /// index.
    pub version: u32,
    /// The time until which the lock is respected, on the monotonic clock, cut; it is also the name
    /// of the lock.
    pub lock: u32,
    pub uses: u16,
    /// A status to answer with instead of asking the upstream; 0 is none. Or a mark:
    /// [`NOT_STORED`], [`FAILED`].
    pub error: u16,
    pub flags: u8,
    /// Until when `error` is good, seconds since 1970.
    pub error_until: u32,
}

impl Record for Node {
    const WORDS: usize = 3;

    fn to_words(self) -> [u64; 4] {
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let rest = u32::from(self.uses & USES_MAX)
            | u32::from(self.error & 1023) << 10
            | u32::from(self.flags) << 20;
        [
            pair(self.blocks, self.expire),
            pair(self.version, self.lock),
            pair(rest, self.error_until),
            0,
        ]
    }

    fn from_words([a, b, c, _]: [u64; 4]) -> Node {
        Node {
            blocks: a as u32,
            expire: (a >> 32) as u32,
            version: b as u32,
            lock: (b >> 32) as u32,
            uses: c as u16 & USES_MAX,
            error: (c >> 10) as u16 & 1023,
            flags: (c >> 20) as u8,
            error_until: (c >> 32) as u32,
        }
    }
}

impl Node {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The same without its file.
    pub(crate) fn without_file(self) -> Node {
        let flags = self.flags & !(THERE | KNOWN | UNSEEN | TOLD);
        Node { blocks: 0, version: 0, flags, ..self }
    }

    /// The file's version.
    pub(crate) fn file_version(&self) -> u32 {
        if self.has(UNSEEN) { 0 } else { self.version }
    }

    /// Whether the file with that fingerprint came from the index.
    pub(crate) fn is_told_of(&self, file: u32) -> bool {
        self.has(TOLD) && (!self.has(UNSEEN) || self.version == file)
    }

    /// The same after its file was seen, with its fingerprint. If the index had another one, the
    /// file's tags are unknown.
    pub fn seen(self, file: u32) -> Node {
        let unknown = if self.has(UNSEEN) && self.version != file { KNOWN | TOLD } else { 0 };
        let (version, flags) = (self.file_version(), self.flags & !(UNSEEN | unknown) | THERE);
        Node { version, flags, ..self }
    }

    /// It is being fetched, or its file renamed: the entry stays.
    pub(crate) fn is_in_use(&self) -> bool {
        self.flags & (UPDATING | PLACING) != 0
    }

    /// The same, as far as that is respected.
    pub fn is_busy(&self) -> bool {
        self.has(PLACING) || self.has(UPDATING) && until(self.lock) > 0
    }

    /// There is a file whose key the index does not have.
    pub fn is_unknown(&self) -> bool {
        self.flags & (THERE | KNOWN) == THERE
    }
}
