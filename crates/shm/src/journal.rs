//! The holds of each process on a table, so that the master can release those of a dead process.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::table::Entry;
use crate::{LINE_FIELDS, Zone};

/// A row of notes for each process slot, in memory that is touched only as far as it is used. Each
/// process writes its own row; the master reads the row of a dead process.
///
/// A process notes an entry while it has the table's lock. A process that dies between the change
/// of the entry and the note leaves that one hold behind; nothing worse.
#[derive(Debug)]
pub struct Journal {
    zone: Zone,
    slots: usize,
    /// Notes in a row; the row has one word more, which counts the notes ever used.
    places: usize,
    /// Places of this process's row that are free again.
    free: RefCell<Vec<u32>>,
}

/// Where a hold is noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    slot: usize,
    place: u32,
}

impl Journal {
    /// A journal for `slots` processes with `places` holds each, made before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(slots: usize, places: usize) -> io::Result<Journal> {
        // Rows of two processes do not share a cache line.
        let row = (places + 1).next_multiple_of(LINE_FIELDS);
        let words = slots.checked_mul(row).ok_or(io::ErrorKind::OutOfMemory)?;
        let bytes = words.checked_mul(8).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Journal {
            zone: Zone::anonymous(bytes)?,
            slots,
            places: row - 1,
            free: RefCell::default(),
        })
    }

    fn row(&self, slot: usize) -> Option<&[AtomicU64]> {
        let row = self.places + 1;
        (slot < self.slots).then(|| &self.zone.words()[slot * row..(slot + 1) * row])
    }

    /// Notes that this process, of slot `slot`, holds an entry. `None` where there is no room for
    /// the note: the hold counts, and only a death would not release it.
    pub fn note(&self, slot: usize, entry: Entry) -> Option<Place> {
        let row = self.row(slot)?;
        let place = match self.free.borrow_mut().pop() {
            Some(place) => place,
            None => {
                let used = row[0].load(Ordering::Relaxed);
                let next = usize::try_from(used).ok().filter(|used| *used < self.places)?;
                row[0].store(used + 1, Ordering::Relaxed);
                next as u32
            }
        };
        row.get(1 + place as usize)?.store(entry.to_word(), Ordering::Release);
        Some(Place { slot, place })
    }

    /// The hold that was noted there is given back.
    pub fn forget(&self, place: Place) {
        if let Some(row) = self.row(place.slot)
            && let Some(word) = row.get(1 + place.place as usize)
        {
            word.store(0, Ordering::Release);
            self.free.borrow_mut().push(place.place);
        }
    }

    /// In the master: the holds of a dead process. Empties its row for the next one.
    pub fn take(&self, slot: usize) -> Vec<Entry> {
        let Some(row) = self.row(slot) else { return Vec::new() };
        let used = usize::try_from(row[0].swap(0, Ordering::AcqRel)).unwrap_or(usize::MAX);
        let places = &row[1..=used.min(self.places)];
        places.iter().filter_map(|word| Entry::from_word(word.swap(0, Ordering::AcqRel))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Record, Table};

    #[derive(Clone, Copy)]
    struct One;

    impl Record for One {
        const WORDS: usize = 1;

        fn to_words(self) -> [u64; 4] {
            [1, 0, 0, 0]
        }

        fn from_words(_: [u64; 4]) -> One {
            One
        }
    }

    #[test]
    fn holds_of_the_dead() {
        let table = Table::<One>::new(1 << 16).unwrap();
        let mut t = table.lock();
        let entries: Vec<_> = (0..5u8).map(|n| t.insert(table.key(&[n]), One).unwrap()).collect();
        let journal = Journal::new(2, 7).unwrap();
        let places: Vec<_> = entries.iter().map(|e| journal.note(1, *e).unwrap()).collect();
        journal.forget(places[0]);
        journal.forget(places[3]);
        // Places are used again.
        journal.note(1, entries[0]).unwrap();
        assert!(journal.take(0).is_empty());
        let mut held = journal.take(1);
        held.sort_by_key(|e| e.to_word());
        assert_eq!(held, [entries[0], entries[1], entries[2], entries[4]]);
        assert!(journal.take(1).is_empty());
    }

    #[test]
    fn no_place_is_no_fault() {
        let table = Table::<One>::new(1 << 16).unwrap();
        let entry = table.lock().insert(table.key(b"a"), One).unwrap();
        let journal = Journal::new(1, 7).unwrap();
        let noted = (0..9).filter(|_| journal.note(0, entry).is_some()).count();
        assert_eq!(noted, 7);
        assert_eq!(journal.note(1, entry), None);
        assert!(journal.take(1).is_empty());
        assert_eq!(journal.take(0).len(), 7);
    }
}
