//! Rows of words under one lock: small records that processes share and change in place, such as
//! the servers of an upstream.
//!
//! ```text
//!  ┌─────────────────────────────────┬───────┬───────┬─ ─
//!  │ lock, version, leader, numbers  │ row 0 │ row 1 │
//!  └─────────────────────────────────┴───────┴───────┴─ ─
//! ```
//!
//! Every word is valid at any moment: a process that dies with the lock leaves nothing to repair,
//! as long as the word that marks a row as used is written last. The holds of a process on a row
//! are counted by process, and the master releases those of a dead one.
//!
//! Rows may lie in memory of one process alone, too: then the lock costs nothing, and the same code
//! serves both.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Zone, mutex};

/// Words before the first row: two cache lines.
const HEAD: usize = 16;

/// Places in the head, in words. The lock is the first half of word 0.
const VERSION: usize = 1;
const LEADER: usize = 2;
const NUMBER: usize = 3;

enum Memory {
    /// Of this process alone.
    Own(Box<[AtomicU64]>),
    /// In shared memory, with a row for each process that counts its holds.
    Shared { zone: Zone, held: Zone, slots: usize },
}

/// Rows of words under one lock, in shared memory or in that of one process.
pub struct Rows {
    memory: Memory,
    row_words: usize,
    rows: usize,
    /// This process's index among those that share the rows.
    slot: Cell<usize>,
}

/// The lock of [`Rows`]; given back when dropped.
pub struct RowsLock<'a>(Option<&'a AtomicU32>);

impl Drop for RowsLock<'_> {
    fn drop(&mut self) {
        if let Some(word) = self.0 {
            mutex::unlock(word, true);
        }
    }
}

impl Rows {
    /// As many rows as fit in `bytes`, shared by the processes forked later. `slots` is the
    /// greatest number of processes.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn shared(bytes: usize, row_words: usize, slots: usize) -> io::Result<Rows> {
        let zone = Zone::anonymous(bytes.max((HEAD + row_words) * 8))?;
        let rows = (zone.words().len() - HEAD) / row_words;
        let counts = slots.max(1).checked_mul(rows).and_then(|n| n.checked_mul(4));
        let held = Zone::anonymous(counts.ok_or(io::ErrorKind::OutOfMemory)?)?;
        let memory = Memory::Shared { zone, held, slots: slots.max(1) };
        Ok(Rows { memory, row_words, rows, slot: Cell::new(0) })
    }

    /// Rows of each process's own: after a fork both have theirs.
    pub fn own(rows: usize, row_words: usize) -> Rows {
        let words = (0..HEAD + rows * row_words).map(|_| AtomicU64::new(0)).collect();
        Rows { memory: Memory::Own(words), row_words, rows, slot: Cell::new(0) }
    }

    fn words(&self) -> &[AtomicU64] {
        match &self.memory {
            Memory::Own(words) => words,
            Memory::Shared { zone, .. } => zone.words(),
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether other processes see them.
    pub fn is_shared(&self) -> bool {
        matches!(self.memory, Memory::Shared { .. })
    }

    /// The words of a row.
    ///
    /// # Panics
    /// Of a row that is not there.
    pub fn row(&self, row: usize) -> &[AtomicU64] {
        let at = HEAD + row * self.row_words;
        &self.words()[at..at + self.row_words]
    }

    /// Takes the lock, waiting for it. Not to be held over anything that waits, nor taken twice.
    pub fn lock(&self) -> RowsLock<'_> {
        match &self.memory {
            Memory::Own(_) => RowsLock(None),
            Memory::Shared { zone, .. } => {
                let word = &zone.view::<AtomicU32>()[0];
                // A dead owner left whole words: see the head of this file.
                mutex::lock(word);
                RowsLock(Some(word))
            }
        }
    }

    /// Takes the lock if no other process has it: for the master, which must not wait for a worker
    /// that hangs with it.
    pub fn try_lock(&self) -> Option<RowsLock<'_>> {
        match &self.memory {
            Memory::Own(_) => Some(RowsLock(None)),
            Memory::Shared { zone, .. } => {
                let word = &zone.view::<AtomicU32>()[0];
                mutex::try_lock(word).then_some(RowsLock(Some(word)))
            }
        }
    }

    /// Goes up with [`Rows::changed`]; never 0.
    pub fn version(&self) -> u64 {
        self.words()[VERSION].load(Ordering::Acquire).wrapping_add(1)
    }

    /// Under the lock: tells the other processes that rows they have read have changed.
    pub fn changed(&self) {
        let word = &self.words()[VERSION];
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Under the lock: a number that was not given before.
    pub fn next_number(&self) -> u64 {
        let word = &self.words()[NUMBER];
        let next = word.load(Ordering::Relaxed).wrapping_add(1);
        word.store(next, Ordering::Relaxed);
        next
    }

    /// Makes this process the leader, which does what one process does for all, unless another is.
    /// True, too, when it is the leader already.
    pub fn try_lead(&self) -> bool {
        let (word, me) = (&self.words()[LEADER], u64::from(os::process::id()));
        match word.load(Ordering::Relaxed) {
            0 => word.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok(),
            leader => leader == me,
        }
    }

    /// Leaves that to others.
    pub fn stop_leading(&self) {
        self.dethrone(os::process::id());
    }

    fn dethrone(&self, pid: u32) {
        let word = &self.words()[LEADER];
        let _ = word.compare_exchange(pid.into(), 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Sets this process's index among those that share the rows.
    pub fn use_slot(&self, slot: usize) {
        self.slot.set(slot);
    }

    fn count(&self, slot: usize, row: usize) -> Option<&AtomicU32> {
        match &self.memory {
            Memory::Own(_) => None,
            Memory::Shared { held, slots, .. } => {
                let at = slot.min(slots - 1) * self.rows + row;
                held.view::<AtomicU32>().get(at)
            }
        }
    }

    /// Notes that this process holds a row once more.
    pub fn hold(&self, row: usize) {
        if let Some(count) = self.count(self.slot.get(), row) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts one hold of this process less.
    pub fn release(&self, row: usize) {
        if let Some(count) = self.count(self.slot.get(), row) {
            let less = |n: u32| n.checked_sub(1);
            let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// In the master: a process has died. Reports its holds to `give_back`, by row and number,
    /// under the lock.
    pub fn died(&self, pid: u32, slot: usize, mut give_back: impl FnMut(usize, u32)) {
        let Memory::Shared { zone, .. } = &self.memory else { return };
        mutex::free_of(&zone.view::<AtomicU32>()[0], pid);
        self.dethrone(pid);
        let _lock = self.lock();
        for row in 0..self.rows {
            let held = self.count(slot, row).map_or(0, |count| count.swap(0, Ordering::Relaxed));
            if held > 0 {
                give_back(row, held);
            }
        }
    }

    /// Bytes of text that fit in a row behind its first `from` words.
    pub(crate) fn text_max(&self, from: usize) -> usize {
        self.row_words.saturating_sub(from + 1) * 8
    }

    /// Under the lock: writes a text into the words of a row from `from` on. False where it does
    /// not fit.
    pub fn put_text(&self, row: usize, from: usize, text: &[u8]) -> bool {
        if text.len() > self.text_max(from) {
            return false;
        }
        let words = &self.row(row)[from..];
        words[0].store(text.len() as u64, Ordering::Relaxed);
        for (to, part) in words[1..].iter().zip(text.chunks(8)) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            to.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        true
    }

    /// Under the lock: the text that [`Rows::put_text`] put there.
    pub fn text(&self, row: usize, from: usize) -> Vec<u8> {
        let words = &self.row(row)[from..];
        let len = usize::try_from(words[0].load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let len = len.min(self.text_max(from));
        let mut text = Vec::with_capacity(len + 8);
        for word in &words[1..=len.div_ceil(8)] {
            text.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        text.truncate(len);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers() {
        for rows in [Rows::own(3, 12), Rows::shared(4096, 12, 4).unwrap()] {
            let _lock = rows.lock();
            assert!(rows.rows() >= 3);
            assert_eq!(rows.text(2, 8), b"");
            assert_eq!(rows.text_max(8), 24);
            assert!(rows.put_text(2, 8, b"127.0.0.1:8080"));
            assert_eq!(rows.text(2, 8), b"127.0.0.1:8080");
            assert!(!rows.put_text(2, 8, &[b'x'; 25]));
            assert!(rows.put_text(1, 8, &[b'x'; 24]));
            assert_eq!(rows.text(1, 8), [b'x'; 24]);
            assert_eq!(rows.row(0).len(), 12);
            assert_eq!((rows.next_number(), rows.next_number()), (1, 2));
            let version = rows.version();
            rows.changed();
            assert_eq!(rows.version(), version + 1);
            // Whatever length stands there, the text is read within the row.
            rows.row(2)[8].store(u64::MAX, Ordering::Relaxed);
            assert_eq!(rows.text(2, 8).len(), 24);
        }
    }

    #[test]
    fn a_lock_that_another_process_has_is_not_waited_for() {
        let rows = Rows::shared(4096, 12, 4).unwrap();
        let Memory::Shared { zone, .. } = &rows.memory else { panic!("shared") };
        let word = &zone.view::<AtomicU32>()[0];
        word.store(1, Ordering::Relaxed);
        assert!(rows.try_lock().is_none());
        word.store(0, Ordering::Relaxed);
        drop(rows.try_lock().unwrap());
        assert_eq!(word.load(Ordering::Relaxed), 0);
        assert!(Rows::own(1, 4).try_lock().is_some());
    }

    #[test]
    fn what_the_dead_held() {
        let rows = Rows::shared(4096, 8, 4).unwrap();
        rows.use_slot(2);
        rows.hold(1);
        rows.hold(1);
        rows.hold(5);
        rows.release(5);
        rows.release(5);
        assert!(rows.try_lead() && rows.try_lead());
        let mut back = Vec::new();
        rows.died(1, 1, |row, n| back.push((row, n)));
        assert!(back.is_empty() && rows.try_lead());
        rows.died(os::process::id(), 2, |row, n| back.push((row, n)));
        assert_eq!(back, [(1, 2)]);
        rows.row(0)[0].store(1, Ordering::Relaxed);
        rows.died(os::process::id(), 2, |_, _| panic!("given back twice"));
    }

    #[test]
    fn one_leads() {
        let rows = Rows::own(1, 4);
        assert!(rows.try_lead());
        rows.words()[LEADER].store(7, Ordering::Relaxed);
        assert!(!rows.try_lead());
        rows.stop_leading();
        assert!(!rows.try_lead());
        rows.dethrone(7);
        assert!(rows.try_lead());
    }
}
