//! What was purged: by key, at once, and by prefix and tag, which the manager looks for.
//!
//! A purge by prefix or tag holds from the moment it is written here, for whatever was kept or
//! begun before: who opens a file compares it with the marks that are not settled, and who has
//! fetched a response compares it with those that came since it asked. The manager takes matching
//! entries out of the zone meanwhile, counts them, and deletes their files.
//!
//! ```text
//!  (free) ─publish─▶ new ─entries are out, counted─▶ done ─files are deleted─▶ cleared
//! ```
//!
//! A mark is *settled* when nothing that it is of can be met any more: all files are known to the
//! zone, and the keys of all of them to the index.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::cache_index::{Of, Purge};
use shm::Zone;

use super::format::Header;
use super::key::Hash;
use super::tags;

/// How many marks are remembered.
const MARKS: u64 = 1024;
/// Longest prefix or tag, bytes.
pub(crate) const TEXT_MAX: usize = 4096;
/// Words of a mark before its text.
const BEFORE: usize = 8;
const ROW: usize = BEFORE + TEXT_MAX / 8;
/// Words before the marks.
const HEAD: usize = 8;
/// How many counters of purged keys there are, for keys by their hash.
const GENERATIONS: usize = 4096;

/// What became of a mark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum State {
    /// Nobody has looked for its entries yet.
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
    /// The last version of the zone that it is of; 0: of entries without one alone.
    Version,
    Time,
    /// What it is of, and in the low half the length of its text.
    Of,
    Count,
    Id,
}

/// A version that is not known yet, since the mark is being written: it is of all.
const ALL: u64 = u64::MAX;

/// A mark as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    /// Its number: they grow.
    pub seq: u64,
    pub state: State,
    version: u64,
    /// When it was made, seconds since 1970.
    pub time: u32,
    /// Its name in files.
    pub id: u64,
    pub of: Of,
    pub text: Vec<u8>,
}

impl Mark {
    /// As it stands in files.
    pub fn purge(&self) -> Purge<'_> {
        Purge { id: self.id, time: self.time, of: self.of, text: &self.text }
    }

    /// Whether it is of an entry of that version, fetched then, as far as these are concerned.
    pub fn is_as_old(&self, version: u32, date: i64) -> bool {
        match (version, self.version) {
            (0, _) => date <= i64::from(self.time),
            (_, ALL) => true,
            (_, 0) => false,
            (version, mine) => version.wrapping_sub(mine as u32) as i32 <= 0,
        }
    }
}

/// What had been purged at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Since {
    generation: u64,
    seq: u64,
}

/// See the module's documentation.
pub(crate) struct Marks {
    words: Zone,
    generations: Zone,
}

impl Marks {
    /// None, made before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new() -> io::Result<Marks> {
        let words = HEAD + MARKS as usize * ROW;
        Ok(Marks {
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

    /// When anything was purged last, seconds since 1970; 0: never, as far as is known.
    pub fn last_time(&self) -> u32 {
        self.words.words()[2].load(Ordering::SeqCst) as u32
    }

    /// Something is purged at that time.
    pub fn purge_at(&self, time: u32) {
        self.words.words()[2].fetch_max(time.into(), Ordering::SeqCst);
    }

    /// Up to when files that the index does not tell of are not believed, seconds since 1970; 0:
    /// all are.
    pub fn distrusted(&self) -> u32 {
        self.words.words()[3].load(Ordering::SeqCst) as u32
    }

    /// At a start: the last purge that the index tells of was then. A file that it does not tell
    /// of may have been in its place behind the back of that: a process was killed between giving
    /// a file its place and telling of it, or between taking an entry out and deleting its file.
    pub fn distrust(&self, time: u32) {
        self.words.words()[3].fetch_max(time.into(), Ordering::SeqCst);
        self.purge_at(time);
    }

    /// What had been purged up to now, of a key among others.
    pub fn now(&self, main: &Hash) -> Since {
        let generation = self.generation(main).load(Ordering::SeqCst);
        Since { generation, seq: self.newest() }
    }

    /// A key is purged: fetches of it that have begun are not kept.
    pub fn purge_key(&self, main: &Hash) {
        self.generation(main).fetch_add(1, Ordering::SeqCst);
    }

    /// Makes a mark that is of all that is kept now, and of what is being fetched. `version` gives
    /// the zone's last version; 0 makes the mark of entries without one. Gives its number; `None`
    /// where too many are not cleared.
    pub fn publish(
        &self,
        purge: &Purge<'_>,
        name: u64,
        version: impl FnOnce() -> u32,
    ) -> Option<u64> {
        let oldest = self.row(self.newest() + 1)[Word::State as usize].load(Ordering::SeqCst);
        if oldest != 0 && oldest & 0xff < State::Cleared as u64 || purge.text.len() > TEXT_MAX {
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
        set(Word::State, seq << 8 | State::New as u64);
        // Taken when the mark can be seen: whoever gets a version up to this one and does not see
        // the mark had it before, and is what the mark is of.
        set(Word::Version, version().into());
        Some(seq)
    }

    /// The mark of that number; `None` where it is not there yet, or not any more.
    pub fn get(&self, seq: u64) -> Option<Mark> {
        let row = self.row(seq);
        let get = |word: Word| row[word as usize].load(Ordering::SeqCst);
        let before = get(Word::State);
        let state = match before & 0xff {
            1 => State::New,
            2 => State::Done,
            3 => State::Cleared,
            _ => return None,
        };
        let of = get(Word::Of);
        let len = (of & 0xffff_ffff).min(TEXT_MAX as u64) as usize;
        let mut text = Vec::with_capacity(len + 8);
        for word in &row[BEFORE..BEFORE + len.div_ceil(8)] {
            text.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        text.truncate(len);
        let mark = Mark {
            seq,
            state,
            version: get(Word::Version),
            time: get(Word::Time) as u32,
            id: get(Word::Id),
            of: match of >> 32 {
                0 => Of::Key,
                1 => Of::Prefix,
                _ => Of::Tag,
            },
            text,
        };
        let whole = before >> 8 == seq && get(Word::State) >> 8 == seq;
        whole.then_some(mark)
    }

    /// The marks of these numbers that are there.
    fn range(&self, after: u64, to: u64) -> impl Iterator<Item = Mark> + '_ {
        let first = (after + 1).max((to + 1).saturating_sub(MARKS));
        (first..=to).filter_map(|seq| self.get(seq))
    }

    /// Those that are not cleared.
    pub fn uncleared(&self) -> Vec<Mark> {
        let newest = self.newest();
        // Looked at often: the texts of those that are cleared are not read.
        let is_cleared = |seq: &u64| {
            let state = self.row(*seq)[Word::State as usize].load(Ordering::SeqCst);
            state >> 8 == *seq && state & 0xff == State::Cleared as u64
        };
        let first = (newest + 1).saturating_sub(MARKS).max(1);
        let all = (first..=newest).filter(|seq| !is_cleared(seq)).filter_map(|seq| self.get(seq));
        all.filter(|mark| mark.state < State::Cleared).collect()
    }

    /// A mark has come that far; `count` entries were taken out for it.
    pub fn set(&self, seq: u64, state: State, count: Option<u64>) {
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

    /// How many entries were taken out for a mark, once it is known.
    pub fn count(&self, seq: u64) -> Option<u64> {
        let row = self.row(seq);
        let state = row[Word::State as usize].load(Ordering::SeqCst);
        let done = state >> 8 == seq && state & 0xff >= State::Done as u64;
        done.then(|| row[Word::Count as usize].load(Ordering::SeqCst))
    }

    /// Whether what was asked for at `since` was purged by now.
    pub fn purged_since(&self, since: Since, main: &Hash, key: &[u8], tags: &[u8]) -> bool {
        if self.generation(main).load(Ordering::SeqCst) != since.generation {
            return true;
        }
        let newest = self.newest();
        if newest == since.seq {
            return false;
        }
        // What is not remembered any more, or not written yet, may have been of it.
        newest - since.seq >= MARKS
            || (since.seq + 1..=newest)
                .any(|seq| self.get(seq).is_none_or(|mark| mark.purge().is_of(key, tags)))
    }

    /// Whether a response with that header was, or may have been, fetched before a purge of it.
    pub fn fetched_before(&self, header: &Header) -> bool {
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
                let tags = if mark.of == Of::Tag { tags() } else { Vec::new() };
                mark.is_as_old(version, date) && mark.purge().is_of(key, &tags)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge<'a>(of: Of, text: &'a [u8], time: u32) -> Purge<'a> {
        Purge { id: 0, time, of, text }
    }

    #[test]
    fn a_mark_is_of_what_was_before_it() {
        let marks = Marks::new().unwrap();
        let none = || Vec::new();
        assert!(!marks.purged(0, 1, 0, b"/a/b", none));
        let seq = marks.publish(&purge(Of::Prefix, b"/a/", 100), 7, || 5).unwrap();
        let purged = |version, date| marks.purged(marks.settled(), version, date, b"/a/b", none);
        assert_eq!([4, 5, 6].map(|v| purged(v, 0)), [true, true, false]);
        // Without a version the time tells.
        assert_eq!([99, 100, 101].map(|date| purged(0, date)), [true, true, false]);
        assert!(!marks.purged(0, 1, 0, b"/b", none));
        let tag = purge(Of::Tag, b"red", 100);
        marks.publish(&tag, 7, || u32::MAX).unwrap();
        assert!(marks.purged(0, u32::MAX, 0, b"/b", || b"blue red".to_vec()));
        assert!(!marks.purged(0, 3, 0, b"/b", || b"blue red".to_vec()), "versions come round");
        let mark = marks.get(seq).unwrap();
        assert_eq!((mark.id, mark.state, &mark.text[..]), (7 << 32 | seq, State::New, &b"/a/"[..]));
        marks.settle(seq);
        assert!(!purged(4, 0));
        // Who looked at the entry before that asks again.
        assert!(marks.purged(0, 4, 0, b"/a/b", none));
        assert_eq!(marks.range(marks.settled(), marks.newest()).count(), 1);
    }

    #[test]
    fn what_is_being_fetched() {
        let marks = Marks::new().unwrap();
        let (one, other) = ([1; 16], [2; 16]);
        let since = marks.now(&one);
        let purged = |main, key: &[u8], tags: &[u8]| marks.purged_since(since, main, key, tags);
        assert!(!purged(&one, b"/a", b""));
        marks.purge_key(&other);
        assert!(!purged(&one, b"/a", b""));
        marks.purge_key(&one);
        assert!(purged(&one, b"/a", b""));
        let since = marks.now(&one);
        marks.publish(&purge(Of::Tag, b"red", 1), 0, || 0).unwrap();
        assert!(marks.purged_since(since, &one, b"/a", b"red blue"));
        assert!(!marks.purged_since(since, &one, b"/a", b"blue"));
        // A settled mark is of it all the same.
        marks.settle(1);
        assert!(marks.purged_since(since, &one, b"/a", b"red"));
        for _ in 0..MARKS {
            let seq = marks.publish(&purge(Of::Tag, b"green", 1), 0, || 0);
            let seq = seq.unwrap_or_else(|| {
                marks.uncleared().iter().for_each(|m| marks.set(m.seq, State::Cleared, Some(1)));
                marks.publish(&purge(Of::Tag, b"green", 1), 0, || 0).unwrap()
            });
            marks.set(seq, State::Done, Some(0));
        }
        assert!(marks.purged_since(since, &one, b"/a", b"blue"), "too long ago to know");
    }

    #[test]
    fn too_many_are_refused() {
        let marks = Marks::new().unwrap();
        let all = purge(Of::Prefix, b"", 1);
        for seq in 1..=MARKS {
            assert_eq!(marks.publish(&all, 0, || 1), Some(seq));
        }
        assert_eq!(marks.publish(&all, 0, || 1), None);
        assert_eq!(marks.count(1), None);
        marks.set(1, State::Done, Some(9));
        assert_eq!((marks.count(1), marks.publish(&all, 0, || 1)), (Some(9), None));
        marks.set(1, State::Cleared, None);
        assert_eq!(marks.uncleared().len(), MARKS as usize - 1);
        assert_eq!(marks.publish(&all, 0, || 1), Some(MARKS + 1));
        assert_eq!((marks.get(1), marks.count(1)), (None, None));
        marks.set(1, State::New, None);
        assert_eq!(marks.get(MARKS + 1).unwrap().state, State::New);
        let long = vec![b'x'; TEXT_MAX + 1];
        assert_eq!(marks.publish(&purge(Of::Tag, &long, 1), 0, || 1), None);
    }
}
