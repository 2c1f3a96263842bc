//! The recent past of many series: a ring of time steps, with a cell of each series for each step.
//! One process writes, all processes read.
//!
//! ```text
//!  ┌────────────────────────┬──────────────────┬───────────────────────────────────┬─ ─┐
//!  │ steps, version, rows   │ times of steps   │ row: epoch, range, name │ cells … │   │
//!  └────────────────────────┴──────────────────┴───────────────────────────────────┴─ ─┘
//! ```
//!
//! Step `n` is in place `n` modulo the places. The writer puts the cells of a step first and then
//! publishes the step by raising the number of steps, so that a reader never sees half a step. The
//! ring has [`SPARE`] places more than the steps it promises: a reader has that many steps of time
//! to copy the oldest cells before they are overwritten.
//!
//! A row whose series has ended is given to a new one. Its epoch is odd meanwhile, and a reader
//! that finds another epoch after the copy than before leaves the row out.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::Zone;
use crate::counters::LINE_FIELDS;

/// Words of a cell: one cache line.
pub const CELL_WORDS: usize = LINE_FIELDS;

/// The values of a series in a step. All zeroes stand for none.
pub type Cell = [u64; CELL_WORDS];

/// Places of the ring beyond the steps that are promised.
const SPARE: usize = 8;

/// Words before the times of the steps.
const HEAD: usize = LINE_FIELDS;
/// Words of a step: its end, and its length.
const TIMES: usize = 2;
/// Words of a row before its cells.
const ROW_HEAD: usize = 5 * LINE_FIELDS;

/// Places in the head of a row.
const EPOCH: usize = 0;
const FIRST: usize = 1;
const AFTER_LAST: usize = 2;
const NAME: usize = 3;

/// The longest name of a series in bytes; longer ones are cut.
pub const SERIES_NAME_MAX: usize = (ROW_HEAD - NAME - 1) * 8;

/// The times of a step, milliseconds on a clock of the writer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepTime {
    /// When the step ended, milliseconds since 1970.
    pub end_ms: u64,
    /// How long the step was, milliseconds.
    pub length_ms: u64,
}

/// Series over the latest steps, made before the fork.
#[derive(Debug)]
pub struct Timeline {
    zone: Zone,
    steps: usize,
    rows: usize,
}

impl Timeline {
    /// Room for `rows` series over `steps` steps. Memory is taken for what is written.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(rows: usize, steps: usize) -> io::Result<Timeline> {
        let (rows, steps) = (rows.max(1), steps.max(1));
        let places = steps.checked_add(SPARE);
        let of_row = places.and_then(|n| n.checked_mul(CELL_WORDS)?.checked_add(ROW_HEAD));
        let of_times = places.and_then(|n| n.checked_mul(TIMES)?.checked_add(HEAD));
        let words = of_row.and_then(|n| n.checked_mul(rows)?.checked_add(of_times?));
        let bytes = words.and_then(|n| n.checked_mul(8)).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Timeline { zone: Zone::anonymous(bytes)?, steps, rows })
    }

    fn places(&self) -> usize {
        self.steps + SPARE
    }

    fn place(&self, step: u64) -> usize {
        (step % self.places() as u64) as usize
    }

    fn time(&self, step: u64) -> &[AtomicU64] {
        &self.zone.words()[HEAD + self.place(step) * TIMES..][..TIMES]
    }

    fn row(&self, row: usize) -> &[AtomicU64] {
        let len = ROW_HEAD + self.places() * CELL_WORDS;
        &self.zone.words()[HEAD + self.places() * TIMES + row * len..][..len]
    }

    fn cell(&self, row: usize, step: u64) -> &[AtomicU64] {
        &self.row(row)[ROW_HEAD + self.place(step) * CELL_WORDS..][..CELL_WORDS]
    }
}

/// For readers.
impl Timeline {
    /// The numbers of the steps that can be read, the oldest first.
    pub fn steps(&self) -> Range<u64> {
        let next = self.zone.words()[0].load(Ordering::Acquire);
        next.saturating_sub(self.steps as u64)..next
    }

    /// The times of a step in [`Timeline::steps`].
    pub fn step(&self, step: u64) -> StepTime {
        let time = self.time(step);
        let get = |at: usize| time[at].load(Ordering::Relaxed);
        StepTime { end_ms: get(0), length_ms: get(1) }
    }

    /// Goes up when a row is given to a series: names of rows may have changed.
    pub fn version(&self) -> u64 {
        self.zone.words()[1].load(Ordering::Acquire)
    }

    /// The number of rows in use.
    pub fn rows(&self) -> usize {
        let rows = self.zone.words()[2].load(Ordering::Acquire);
        usize::try_from(rows).unwrap_or(usize::MAX).min(self.rows)
    }

    /// The name of a row's series, and its cells of some steps. `None` if the row is given to
    /// another series at this moment.
    pub fn read(&self, row: usize, steps: Range<u64>) -> Option<(Vec<u8>, Vec<Cell>)> {
        let words = self.row(row);
        let epoch = words[EPOCH].load(Ordering::Acquire);
        let get = |at: usize| words[at].load(Ordering::Relaxed);
        let len = usize::try_from(get(NAME)).ok().filter(|len| *len <= SERIES_NAME_MAX)?;
        let mut name: Vec<u8> =
            (0..len.div_ceil(8)).flat_map(|i| get(NAME + 1 + i).to_le_bytes()).collect();
        name.truncate(len);
        let kept = self.steps();
        let written = get(FIRST).max(kept.start)..get(AFTER_LAST);
        let cells = steps.map(|step| match written.contains(&step) {
            true => std::array::from_fn(|i| self.cell(row, step)[i].load(Ordering::Relaxed)),
            false => [0; CELL_WORDS],
        });
        let cells = cells.collect();
        fence(Ordering::Acquire);
        let same = words[EPOCH].load(Ordering::Relaxed) == epoch;
        (same && epoch > 0 && epoch.is_multiple_of(2)).then_some((name, cells))
    }
}

/// For the one process that writes.
impl Timeline {
    /// Gives a row to a series: the one that has its name, then one that was never used, otherwise
    /// that of the series which ended first. `None` if all series are written in each
    /// step.
    pub fn assign(&self, name: &[u8]) -> Option<usize> {
        let name = &name[..name.len().min(SERIES_NAME_MAX)];
        let (rows, next) = (self.rows(), self.steps().end);
        let is_old = |row: &usize| self.read(*row, 0..0).is_some_and(|(known, _)| known == name);
        if let Some(row) = (0..rows).find(is_old) {
            return Some(row);
        }
        let row = if rows < self.rows {
            self.zone.words()[2].store(rows as u64 + 1, Ordering::Release);
            rows
        } else {
            let ended = |row: usize| self.row(row)[AFTER_LAST].load(Ordering::Relaxed);
            let oldest = (0..rows).min_by_key(|row| ended(*row))?;
            if ended(oldest) >= next {
                return None;
            }
            oldest
        };
        let words = self.row(row);
        let put = |at: usize, n: u64| words[at].store(n, Ordering::Relaxed);
        let epoch = words[EPOCH].load(Ordering::Relaxed) | 1;
        put(EPOCH, epoch);
        fence(Ordering::Release);
        put(NAME, name.len() as u64);
        for (i, chunk) in name.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            put(NAME + 1 + i, u64::from_le_bytes(word));
        }
        put(FIRST, next);
        put(AFTER_LAST, next);
        words[EPOCH].store(epoch + 1, Ordering::Release);
        self.zone.words()[1].fetch_add(1, Ordering::AcqRel);
        Some(row)
    }

    /// Writes a series' cell of the step that [`Timeline::publish`] is about to add. Steps that
    /// were left out since the last one have no values.
    pub fn put(&self, row: usize, cell: Cell) {
        let steps = self.steps();
        let last = &self.row(row)[AFTER_LAST];
        let from = last.load(Ordering::Relaxed).max(steps.start);
        for step in from..steps.end {
            self.cell(row, step).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        let words = self.cell(row, steps.end).iter().zip(cell);
        words.for_each(|(word, n)| word.store(n, Ordering::Relaxed));
        last.store(steps.end + 1, Ordering::Relaxed);
    }

    /// Adds the step whose cells have been written.
    pub fn publish(&self, time: StepTime) {
        let next = self.steps().end;
        let words = self.time(next);
        words[0].store(time.end_ms, Ordering::Relaxed);
        words[1].store(time.length_ms, Ordering::Relaxed);
        self.zone.words()[0].store(next + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(line: &Timeline) {
        let end_ms = line.steps().end * 10 + 10;
        line.publish(StepTime { end_ms, length_ms: 10 });
    }

    /// The first words of a row's cells in all steps.
    fn words(line: &Timeline, row: usize) -> Vec<u64> {
        let (_, cells) = line.read(row, line.steps()).unwrap();
        cells.iter().map(|cell| cell[0]).collect()
    }

    #[test]
    fn the_oldest_steps_give_way() {
        let line = Timeline::new(2, 4).unwrap();
        assert!(line.steps().is_empty() && line.rows() == 0);
        let row = line.assign(b"a").unwrap();
        for n in 1..=30 {
            line.put(row, [n; CELL_WORDS]);
            publish(&line);
        }
        assert_eq!(line.steps(), 26..30);
        assert_eq!(words(&line, row), [27, 28, 29, 30]);
        assert_eq!(line.step(29), StepTime { end_ms: 300, length_ms: 10 });
        assert_eq!(line.read(row, 28..30).unwrap().0, b"a");
    }

    /// A series that returns is found by its name, cut as it was.
    #[test]
    fn a_series_with_a_long_name_has_one_row() {
        let line = Timeline::new(3, 4).unwrap();
        let name = vec![b'n'; SERIES_NAME_MAX + 30];
        let row = line.assign(&name).unwrap();
        assert_eq!(line.assign(&name), Some(row));
        assert_eq!(line.read(row, 0..0).unwrap().0, name[..SERIES_NAME_MAX]);
        assert_ne!(line.assign(&name[..9]), Some(row));
    }

    #[test]
    fn a_step_is_read_when_it_is_whole() {
        let line = Timeline::new(1, 4).unwrap();
        let row = line.assign(b"a").unwrap();
        line.put(row, [7; CELL_WORDS]);
        assert!(line.steps().is_empty());
        publish(&line);
        assert_eq!(words(&line, row), [7]);
    }

    #[test]
    fn steps_without_a_series_are_empty() {
        let line = Timeline::new(2, 4).unwrap();
        let row = line.assign(b"a").unwrap();
        for n in 1..=12 {
            line.put(row, [n; CELL_WORDS]);
            publish(&line);
        }
        publish(&line);
        publish(&line);
        assert_eq!(words(&line, row), [11, 12, 0, 0]);
        line.put(row, [15; CELL_WORDS]);
        publish(&line);
        assert_eq!(words(&line, row), [12, 0, 0, 15]);
        // A series that begins late has nothing before.
        let late = line.assign(b"late").unwrap();
        line.put(late, [16; CELL_WORDS]);
        publish(&line);
        assert_eq!(words(&line, late), [0, 0, 0, 16]);
    }

    #[test]
    fn a_series_that_returns_has_its_past() {
        let line = Timeline::new(2, 4).unwrap();
        let row = line.assign(b"a").unwrap();
        line.put(row, [1; CELL_WORDS]);
        publish(&line);
        publish(&line);
        assert_eq!(line.assign(b"a"), Some(row));
        line.put(row, [3; CELL_WORDS]);
        publish(&line);
        assert_eq!(words(&line, row), [1, 0, 3]);
    }

    #[test]
    fn a_new_series_takes_the_row_of_one_that_ended() {
        let line = Timeline::new(2, 4).unwrap();
        let (a, b) = (line.assign(b"a").unwrap(), line.assign(b"b").unwrap());
        line.put(a, [1; CELL_WORDS]);
        line.put(b, [2; CELL_WORDS]);
        publish(&line);
        assert_eq!(line.assign(b"c"), None);
        line.put(a, [1; CELL_WORDS]);
        publish(&line);
        let version = line.version();
        let long = [b'c'; SERIES_NAME_MAX + 9];
        assert_eq!(line.assign(&long), Some(b));
        assert_eq!(line.version(), version + 1);
        let (name, cells) = line.read(b, line.steps()).unwrap();
        assert_eq!((&name[..], cells), (&long[..SERIES_NAME_MAX], vec![[0; CELL_WORDS]; 2]));
        // Its writer is at it, or died there.
        line.row(b)[EPOCH].fetch_add(1, Ordering::Relaxed);
        assert_eq!(line.read(b, line.steps()), None);
    }
}
