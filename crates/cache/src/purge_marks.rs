//! Marks of purges: by key, at once, and by prefix and tag, whose entries the manager searches for.
//!
//! A purge by prefix or tag holds from the moment it is written here, for every response kept or
//! begun before: a request that opens a file compares it with the marks that are not settled, and
//! one that has fetched a response compares it with the marks since it asked. The manager takes
//! matching entries out of the zone meanwhile, counts them, and deletes their files.
//!
//! ```text
//!  (free) ─publish─▶ new ─entries are out, counted─▶ done ─files are deleted─▶ cleared
//! ```
//!
//! A mark is *settled* when no entry that it covers can be left: all files are known to the zone,
//! and the keys of all of them to the index.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::index_format::{Purge, PurgeBy};
use shm::Zone;

use crate::file_header::Header;
use crate::key::Hash;
use crate::tags;

/// Marks that are remembered.
const MARKS: u64 = 1024;
/// Longest prefix or tag, bytes.
pub const TEXT_MAX: usize = 4096;
/// Words of a mark before its text.
const BEFORE: usize = 8;
const ROW: usize = BEFORE + TEXT_MAX / 8;
/// Words before the marks.
const HEAD: usize = 8;
/// Counters of purged keys, shared by hash.
const GENERATIONS: usize = 4096;

/// The state of a mark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MarkState {
    /// Its entries have not been searched yet.
    New = 1,
    /// Its entries are out of the zone.
    Done,
    /// Their files are deleted, too.
    Cleared,
}

/// Words of a mark.
#[derive(Clone, Copy)]
enum Word {
    /// Its number, and its state in the low eight bits.
    State,
    /// The last version of the zone that it covers; 0: only entries without one.
    Version,
    Time,
    /// Its target, and in the low half the length of its text.
    Of,
    Count,
    Id,
}

/// The version is not known yet, since the mark is being written: it covers all.
const ALL: u64 = u64::MAX;

/// A mark as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeMark {
    /// Its number: they grow.
    pub seq: u64,
    pub state: MarkState,
    version: u64,
    /// The time of the purge, seconds since 1970.
    pub time: u32,
    /// Its name in files.
    pub id: u64,
    pub of: PurgeBy,
    pub text: Vec<u8>,
}

impl PurgeMark {
    /// As it stands in files.
    pub fn purge(&self) -> Purge<'_> {
        Purge { id: self.id, time: self.time, of: self.of, text: &self.text }
    }

    /// Whether an entry of that version, fetched at that time, is old enough to be covered.
    pub(crate) fn is_as_old(&self, version: u32, date: i64) -> bool {
        match (version, self.version) {
            (0, _) => date <= i64::from(self.time),
            (_, ALL) => true,
            (_, 0) => false,
            (version, mine) => version.wrapping_sub(mine as u32) as i32 <= 0,
        }
    }
}

/// The state of purges at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Since {
    generation: u64,
    seq: u64,
}

/// The marks of a zone.
pub struct PurgeMarks {
    words: Zone,
    generations: Zone,
}

impl PurgeMarks {
    /// None, made before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new() -> io::Result<PurgeMarks> {
        let words = HEAD + MARKS as usize * ROW;
        Ok(PurgeMarks {
            words: Zone::anonymous(words * 8)?,
            generations: Zone::anonymous(GENERATIONS * 8)?,
        })
    }

    fn last(&self) -> &AtomicU64 {
        &self.words.words()[0]
    }

    fn settled_word(&self) -> &AtomicU64 {
        &self.words.words()[1]
    }

    fn row(&self, seq: u64) -> &[AtomicU64] {
        let at = HEAD + (seq % MARKS) as usize * ROW;
        &self.words.words()[at..at + ROW]
    }

    fn generation(&self, main: &Hash) -> &AtomicU64 {
        let at = usize::from(u16::from_le_bytes([main[0], main[1]])) % GENERATIONS;
        &self.generations.words()[at]
    }

    /// The number of the last mark; 0 is none.
    pub fn newest(&self) -> u64 {
        self.last().load(Ordering::SeqCst)
    }

    /// All up to that one are settled.
    pub fn settled(&self) -> u64 {
        self.settled_word().load(Ordering::SeqCst)
    }

    /// All up to that one are settled.
    pub fn settle(&self, seq: u64) {
        self.settled_word().fetch_max(seq, Ordering::SeqCst);
    }

    /// The time of the last purge, seconds since 1970; 0: none is known.
    pub(crate) fn last_time(&self) -> u32 {
        self.words.words()[2].load(Ordering::SeqCst) as u32
    }

    /// Notes a purge at that time.
    pub(crate) fn purge_at(&self, time: u32) {
        self.words.words()[2].fetch_max(time.into(), Ordering::SeqCst);
    }

    /// The time up to which files that the index does not have are not trusted, seconds since 1970;
    /// 0: all are.
    pub(crate) fn distrusted(&self) -> u32 {
        self.words.words()[3].load(Ordering::SeqCst) as u32
    }

    /// At a start: the time of the last purge in the index. A file that the index does not have may
    /// have been renamed unseen by it: a process was killed between the rename and its report, or
    /// between taking an entry out and deleting its file.
    pub(crate) fn distrust(&self, time: u32) {
        self.words.words()[3].fetch_max(time.into(), Ordering::SeqCst);
        self.purge_at(time);
    }

    /// The state of purges now, for a key among others.
    pub fn now(&self, main: &Hash) -> Since {
        let generation = self.generation(main).load(Ordering::SeqCst);
        Since { generation, seq: self.newest() }
    }

    /// A key is purged: fetches of it that have begun are not kept.
    pub(crate) fn purge_key(&self, main: &Hash) {
        self.generation(main).fetch_add(1, Ordering::SeqCst);
    }

    /// Marks every entry kept so far, and every response that is being fetched, as purged.
    /// `version` gives the zone's last version; 0 covers only entries without one. Gives the mark's
    /// number; `None` where too many are not cleared.
    pub fn publish(
        &self,
        purge: &Purge<'_>,
        name: u64,
        version: impl FnOnce() -> u32,
    ) -> Option<u64> {
        let oldest = self.row(self.newest() + 1)[Word::State as usize].load(Ordering::SeqCst);
        if oldest != 0 && oldest & 0xff < MarkState::Cleared as u64 || purge.text.len() > TEXT_MAX {
            return None;
        }
        self.purge_at(purge.time);
        let seq = self.last().fetch_add(1, Ordering::SeqCst) + 1;
        let row = self.row(seq);
        let set = |word: Word, value: u64| row[word as usize].store(value, Ordering::SeqCst);
        set(Word::State, 0);
        set(Word::Version, ALL);
        set(Word::Time, purge.time.into());
        set(Word::Of, (purge.of as u64) << 32 | purge.text.len() as u64);
        set(Word::Count, 0);
        set(Word::Id, if purge.id == 0 { name << 32 | seq } else { purge.id });
        for (word, chunk) in row[BEFORE..].iter().zip(purge.text.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        set(Word::State, seq << 8 | MarkState::New as u64);
        // Taken when the mark can be seen: a file that gets a version up to this one without seeing
        // the mark had it before, and is covered.
        set(Word::Version, version().into());
        Some(seq)
    }

    /// The mark of that number; `None` where it is not there yet, or not any more.
    pub fn get(&self, seq: u64) -> Option<PurgeMark> {
        let row = self.row(seq);
        let get = |word: Word| row[word as usize].load(Ordering::SeqCst);
        let before = get(Word::State);
        let state = match before & 0xff {
            1 => MarkState::New,
            2 => MarkState::Done,
            3 => MarkState::Cleared,
            _ => return None,
        };
        let of = get(Word::Of);
        let len = (of & 0xffff_ffff).min(TEXT_MAX as u64) as usize;
        let mut text = Vec::with_capacity(len + 8);
        for word in &row[BEFORE..BEFORE + len.div_ceil(8)] {
            text.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        text.truncate(len);
        let mark = PurgeMark {
            seq,
            state,
            version: get(Word::Version),
            time: get(Word::Time) as u32,
            id: get(Word::Id),
            of: match of >> 32 {
                0 => PurgeBy::Key,
                1 => PurgeBy::Prefix,
                _ => PurgeBy::Tag,
            },
            text,
        };
        let whole = before >> 8 == seq && get(Word::State) >> 8 == seq;
        whole.then_some(mark)
    }

    /// The marks of these numbers that are there.
    fn range(&self, after: u64, to: u64) -> impl Iterator<Item = PurgeMark> + '_ {
        let first = (after + 1).max((to + 1).saturating_sub(MARKS));
        (first..=to).filter_map(|seq| self.get(seq))
    }

    /// The marks that are not cleared.
    pub(crate) fn uncleared(&self) -> Vec<PurgeMark> {
        let newest = self.newest();
        // Looked at often: the texts of those that are cleared are not read.
        let is_cleared = |seq: &u64| {
            let state = self.row(*seq)[Word::State as usize].load(Ordering::SeqCst);
            state >> 8 == *seq && state & 0xff == MarkState::Cleared as u64
        };
        let first = (newest + 1).saturating_sub(MARKS).max(1);
        let all = (first..=newest).filter(|seq| !is_cleared(seq)).filter_map(|seq| self.get(seq));
        all.filter(|mark| mark.state < MarkState::Cleared).collect()
    }

    /// A mark has come that far; `count` entries were taken out for it.
    pub fn set(&self, seq: u64, state: MarkState, count: Option<u64>) {
        let row = self.row(seq);
        let word = &row[Word::State as usize];
        let old = word.load(Ordering::SeqCst);
        if old >> 8 != seq {
            return;
        }
        if let Some(count) = count {
            row[Word::Count as usize].store(count, Ordering::SeqCst);
        }
        word.store(seq << 8 | state as u64, Ordering::SeqCst);
    }

    /// The number of entries taken out for a mark, once it is known.
    pub fn count(&self, seq: u64) -> Option<u64> {
        let row = self.row(seq);
        let state = row[Word::State as usize].load(Ordering::SeqCst);
        let done = state >> 8 == seq && state & 0xff >= MarkState::Done as u64;
        done.then(|| row[Word::Count as usize].load(Ordering::SeqCst))
    }

    /// Whether a response that was asked for at `since` was purged by now.
    pub(crate) fn purged_since(&self, since: Since, main: &Hash, key: &[u8], tags: &[u8]) -> bool {
        if self.generation(main).load(Ordering::SeqCst) != since.generation {
            return true;
        }
        let newest = self.newest();
        if newest == since.seq {
            return false;
        }
        // A mark that is not remembered any more, or not written yet, may have covered it.
        newest - since.seq >= MARKS
            || (since.seq + 1..=newest)
                .any(|seq| self.get(seq).is_none_or(|mark| mark.purge().is_of(key, tags)))
    }

    /// Whether a response with that header was, or may have been, fetched before a purge of it.
    pub(crate) fn fetched_before(&self, header: &Header) -> bool {
        let newest = self.newest();
        newest > 0 && {
            let tags = tags::of_header(header);
            self.range(newest.saturating_sub(MARKS), newest).any(|mark| {
                header.date <= i64::from(mark.time) && mark.purge().is_of(&header.key, &tags)
            })
        }
    }

    /// Whether a file was purged whose entry has that version, and was fetched then, by marks that
    /// came after one of them. `tags` is only asked where it matters.
    pub fn purged(
        &self,
        settled: u64,
        version: u32,
        date: i64,
        key: &[u8],
        mut tags: impl FnMut() -> Vec<u8>,
    ) -> bool {
        let newest = self.newest();
        settled < newest
            && self.range(settled, newest).any(|mark| {
                let tags = if mark.of == PurgeBy::Tag { tags() } else { Vec::new() };
                mark.is_as_old(version, date) && mark.purge().is_of(key, &tags)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge<'a>(of: PurgeBy, text: &'a [u8], time: u32) -> Purge<'a> {
        Purge { id: 0, time, of, text }
    }

    #[test]
    fn a_mark_is_of_what_was_before_it() {
        let marks = PurgeMarks::new().unwrap();
        let none = || Vec::new();
        assert!(!marks.purged(0, 1, 0, b"/a/b", none));
        let seq = marks.publish(&purge(PurgeBy::Prefix, b"/a/", 100), 7, || 5).unwrap();
        let purged = |version, date| marks.purged(marks.settled(), version, date, b"/a/b", none);
        assert_eq!([4, 5, 6].map(|v| purged(v, 0)), [true, true, false]);
        // Without a version the time tells.
        assert_eq!([99, 100, 101].map(|date| purged(0, date)), [true, true, false]);
        assert!(!marks.purged(0, 1, 0, b"/b", none));
        let tag = purge(PurgeBy::Tag, b"red", 100);
        marks.publish(&tag, 7, || u32::MAX).unwrap();
        assert!(marks.purged(0, u32::MAX, 0, b"/b", || b"blue red".to_vec()));
        assert!(!marks.purged(0, 3, 0, b"/b", || b"blue red".to_vec()), "versions come round");
        let mark = marks.get(seq).unwrap();
        assert_eq!(
            (mark.id, mark.state, &mark.text[..]),
            (7 << 32 | seq, MarkState::New, &b"/a/"[..])
        );
        marks.settle(seq);
        assert!(!purged(4, 0));
        // A request that looked at the entry before that asks again.
        assert!(marks.purged(0, 4, 0, b"/a/b", none));
        assert_eq!(marks.range(marks.settled(), marks.newest()).count(), 1);
    }

    #[test]
    fn what_is_being_fetched() {
        let marks = PurgeMarks::new().unwrap();
        let (one, other) = ([1; 16], [2; 16]);
        let since = marks.now(&one);
        let purged = |main, key: &[u8], tags: &[u8]| marks.purged_since(since, main, key, tags);
        assert!(!purged(&one, b"/a", b""));
        marks.purge_key(&other);
        assert!(!purged(&one, b"/a", b""));
        marks.purge_key(&one);
        assert!(purged(&one, b"/a", b""));
        let since = marks.now(&one);
        marks.publish(&purge(PurgeBy::Tag, b"red", 1), 0, || 0).unwrap();
        assert!(marks.purged_since(since, &one, b"/a", b"red blue"));
        assert!(!marks.purged_since(since, &one, b"/a", b"blue"));
        // A settled mark is of it all the same.
        marks.settle(1);
        assert!(marks.purged_since(since, &one, b"/a", b"red"));
        for _ in 0..MARKS {
            let seq = marks.publish(&purge(PurgeBy::Tag, b"green", 1), 0, || 0);
            let seq = seq.unwrap_or_else(|| {
                marks
                    .uncleared()
                    .iter()
                    .for_each(|m| marks.set(m.seq, MarkState::Cleared, Some(1)));
                marks.publish(&purge(PurgeBy::Tag, b"green", 1), 0, || 0).unwrap()
            });
            marks.set(seq, MarkState::Done, Some(0));
        }
        assert!(marks.purged_since(since, &one, b"/a", b"blue"), "too long ago to know");
    }

    #[test]
    fn too_many_are_refused() {
        let marks = PurgeMarks::new().unwrap();
        let all = purge(PurgeBy::Prefix, b"", 1);
        for seq in 1..=MARKS {
            assert_eq!(marks.publish(&all, 0, || 1), Some(seq));
        }
        assert_eq!(marks.publish(&all, 0, || 1), None);
        assert_eq!(marks.count(1), None);
        marks.set(1, MarkState::Done, Some(9));
        assert_eq!((marks.count(1), marks.publish(&all, 0, || 1)), (Some(9), None));
        marks.set(1, MarkState::Cleared, None);
        assert_eq!(marks.uncleared().len(), MARKS as usize - 1);
        assert_eq!(marks.publish(&all, 0, || 1), Some(MARKS + 1));
        assert_eq!((marks.get(1), marks.count(1)), (None, None));
        marks.set(1, MarkState::New, None);
        assert_eq!(marks.get(MARKS + 1).unwrap().state, MarkState::New);
        let long = vec![b'x'; TEXT_MAX + 1];
        assert_eq!(marks.publish(&purge(PurgeBy::Tag, &long, 1), 0, || 1), None);
    }
}
