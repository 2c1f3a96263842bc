//! Samples: the tables that say something about each of them, row by row.

use std::ops::Range;

use super::atom::u32_at;
use super::{Fault, Window, too_small};

/// A table behind a version, flags and the number of its rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    /// Version and flags.
    head: [u8; 4],
    rows: &'a [u8],
    row_len: usize,
}

impl<'a> Table<'a> {
    pub fn read(name: &str, data: &'a [u8], row_len: usize) -> Result<Table<'a>, Fault> {
        Table::read_behind(name, data, 4, row_len)
    }

    /// The same where something stands before the number of rows, at `at`.
    pub(crate) fn read_behind(
        name: &str,
        data: &'a [u8],
        at: usize,
        row_len: usize,
    ) -> Result<Table<'a>, Fault> {
        let head = *data.first_chunk().ok_or_else(|| too_small(name))?;
        let rows = u32_at(data, at).ok_or_else(|| too_small(name))?;
        let len = (rows as usize).checked_mul(row_len).ok_or_else(|| too_small(name))?;
        let rows = data.get(at + 4..).and_then(|all| all.get(..len));
        Ok(Table { head, rows: rows.ok_or_else(|| too_small(name))?, row_len })
    }

    pub fn len(&self) -> usize {
        self.rows.len() / self.row_len
    }

    /// A row, as bytes.
    pub fn row(&self, n: usize) -> Option<&'a [u8]> {
        let at = n.checked_mul(self.row_len)?;
        self.rows.get(at..)?.get(..self.row_len)
    }

    /// A number of a row.
    pub fn number(&self, row: usize, column: usize) -> Option<u32> {
        u32_at(self.row(row)?, column * 4)
    }

    /// Rows of two numbers.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let number = |row, at| u32_at(row, at).unwrap_or(0);
        self.rows.chunks_exact(self.row_len).map(move |row| (number(row, 0), number(row, 4)))
    }

    /// Rows of one number.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.rows.chunks_exact(self.row_len).map(|row| u32_at(row, 0).unwrap_or(0))
    }

    /// Writes another table with this one's version and flags.
    pub(crate) fn write_rows<T, R: AsRef<[u8]>>(
        &self,
        out: &mut Vec<u8>,
        rows: impl Iterator<Item = T>,
        bytes: impl Fn(T) -> R,
    ) {
        out.extend_from_slice(&self.head);
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        let mut count = 0u32;
        for row in rows {
            out.extend_from_slice(bytes(row).as_ref());
            count += 1;
        }
        out[at..at + 4].copy_from_slice(&count.to_be_bytes());
    }
}

/// Two numbers as a row.
pub(super) fn pair((a, b): (u32, u32)) -> [u8; 8] {
    let mut row = [0; 8];
    row[..4].copy_from_slice(&a.to_be_bytes());
    row[4..].copy_from_slice(&b.to_be_bytes());
    row
}

/// A time of the film in another unit.
pub(super) fn scaled(ms: u64, timescale: u32) -> u64 {
    u64::try_from(u128::from(ms) * u128::from(timescale) / 1000).unwrap_or(u64::MAX)
}

/// The samples of a track in the cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chosen {
    /// The first.
    pub start: u64,
    /// The one behind the last; `None`: all to the end of the track.
    pub end: Option<u64>,
    /// The time between the first sample, a key frame, and the requested time.
    pub prefix: u64,
}

impl Chosen {
    /// Finds the samples of a window. Times in `stts` are in `timescale` units a second.
    pub fn find(
        stts: &Table<'_>,
        stss: Option<&Table<'_>>,
        timescale: u32,
        window: &Window,
    ) -> Result<Chosen, Fault> {
        let wanted = scaled(window.start_ms, timescale);
        let Some(at) = sample_at(stts, wanted) else {
            return Err(Fault::in_file("start time is out mp4 stts samples"));
        };
        let start = match stss.filter(|_| window.key_frame) {
            Some(stss) => key_frame_before(stss, at)?,
            None => at,
        };
        let begins = time_of(stts, start);
        let prefix = time_of(stts, at) - begins;
        let end = (window.length_ms > 0).then(|| {
            let length = scaled(window.length_ms, timescale);
            let until = begins.saturating_add(prefix).saturating_add(length);
            sample_at(stts, until).unwrap_or_else(|| stts.pairs().map(|(n, _)| u64::from(n)).sum())
        });
        Ok(Chosen { start, end: end.map(|end| end.max(start)), prefix })
    }

    pub fn range(&self) -> Range<u64> {
        self.start..self.end.unwrap_or(u64::MAX)
    }

    /// The part of each run of samples that is chosen, for the runs with one.
    pub fn runs<'a>(&self, table: &Table<'a>) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let range = self.range();
        let mut at = 0;
        table.pairs().filter_map(move |(count, value)| {
            let (from, to) = (at, at + u64::from(count));
            at = to;
            let chosen = to.min(range.end).saturating_sub(from.max(range.start));
            // Not more than the count that it is a part of.
            (chosen > 0).then_some((chosen as u32, value))
        })
    }

    /// The chosen key frames, counted from the first chosen sample as 1.
    pub(crate) fn key_frames<'a>(&self, stss: &Table<'a>) -> impl Iterator<Item = u32> + use<'a> {
        let range = self.range();
        stss.numbers().filter_map(move |n| {
            let sample = u64::from(n).checked_sub(1)?;
            range.contains(&sample).then(|| (sample - range.start + 1) as u32)
        })
    }
}

/// The sample that is there at a time; `None` behind the last one.
fn sample_at(stts: &Table<'_>, time: u64) -> Option<u64> {
    let (mut left, mut sample) = (time, 0);
    for (count, duration) in stts.pairs() {
        let all = u64::from(count) * u64::from(duration);
        if left < all {
            return Some(sample + left / u64::from(duration));
        }
        left -= all;
        sample += u64::from(count);
    }
    None
}

/// When a sample begins.
fn time_of(stts: &Table<'_>, sample: u64) -> u64 {
    let (mut left, mut time) = (sample, 0u64);
    for (count, duration) in stts.pairs() {
        let these = left.min(u64::from(count));
        time = time.saturating_add(these * u64::from(duration));
        left -= these;
        if left == 0 {
            break;
        }
    }
    time
}

/// The last key frame that is not behind a sample; the sample itself where there is none.
fn key_frame_before(stss: &Table<'_>, sample: u64) -> Result<u64, Fault> {
    let mut found = sample;
    for n in stss.numbers() {
        let Some(key) = u64::from(n).checked_sub(1) else {
            return Err(Fault::in_file("zero sync sample"));
        };
        if key > sample {
            break;
        }
        found = key;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(u32, u32)]) -> Vec<u8> {
        let mut data = vec![0; 4];
        data.extend_from_slice(&(rows.len() as u32).to_be_bytes());
        rows.iter().for_each(|row| data.extend_from_slice(&pair(*row)));
        data
    }

    fn numbers(rows: &[u32]) -> Vec<u8> {
        let mut data = vec![0; 4];
        data.extend_from_slice(&(rows.len() as u32).to_be_bytes());
        rows.iter().for_each(|row| data.extend_from_slice(&row.to_be_bytes()));
        data
    }

    fn window(start_ms: u64, length_ms: u64) -> Window {
        Window { start_ms, length_ms, key_frame: false }
    }

    #[test]
    fn tables_that_are_too_small() {
        let data = table(&[(1, 2), (3, 4)]);
        assert_eq!(Table::read("stts", &data, 8).unwrap().len(), 2);
        for len in 0..data.len() {
            assert!(Table::read("stts", &data[..len], 8).is_err(), "{len}");
        }
        assert!(Table::read("stts", &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], 8).is_err());
    }

    #[test]
    fn samples_of_a_window() {
        // 10 samples of 100, 5 of 200, a unit being a millisecond: 2 s.
        let data = table(&[(10, 100), (0, 7), (5, 200)]);
        let stts = Table::read("stts", &data, 8).unwrap();
        let find = |start, length| {
            let found = Chosen::find(&stts, None, 1000, &window(start, length));
            found.map(|chosen| (chosen.start, chosen.end))
        };
        assert_eq!(find(0, 0), Ok((0, None)));
        assert_eq!(find(199, 0), Ok((1, None)));
        assert_eq!(find(1399, 0), Ok((11, None)));
        assert_eq!(find(1999, 5), Ok((14, Some(14))));
        assert_eq!(find(100, 900), Ok((1, Some(10))));
        assert_eq!(find(150, 1000), Ok((1, Some(10))));
        assert_eq!(find(0, 99_999), Ok((0, Some(15))));
        assert!(find(2000, 0).is_err());
        assert!(find(u64::MAX, u64::MAX).is_err());
        let chosen = Chosen { start: 8, end: Some(12), prefix: 0 };
        assert_eq!(chosen.runs(&stts).collect::<Vec<_>>(), [(2, 100), (2, 200)]);
        let chosen = Chosen { start: 11, end: None, prefix: 0 };
        assert_eq!(chosen.runs(&stts).collect::<Vec<_>>(), [(4, 200)]);
    }

    #[test]
    fn key_frames() {
        let (times, keys) = (table(&[(10, 100)]), numbers(&[1, 4, 9]));
        let stts = Table::read("stts", &times, 8).unwrap();
        let stss = Table::read("stss", &keys, 4).unwrap();
        let find = |start_ms| {
            let window = Window { start_ms, length_ms: 200, key_frame: true };
            Chosen::find(&stts, Some(&stss), 1000, &window).unwrap()
        };
        assert_eq!(find(0), Chosen { start: 0, end: Some(2), prefix: 0 });
        assert_eq!(find(250), Chosen { start: 0, end: Some(4), prefix: 200 });
        assert_eq!(find(300), Chosen { start: 3, end: Some(5), prefix: 0 });
        assert_eq!(find(799), Chosen { start: 3, end: Some(9), prefix: 400 });
        assert_eq!(find(799).key_frames(&stss).collect::<Vec<_>>(), [1, 6]);
        let late = numbers(&[5]);
        let stss = Table::read("stss", &late, 4).unwrap();
        let window = Window { start_ms: 300, length_ms: 0, key_frame: true };
        assert_eq!(Chosen::find(&stts, Some(&stss), 1000, &window).unwrap().start, 3);
        let zero = numbers(&[0]);
        let stss = Table::read("stss", &zero, 4).unwrap();
        assert!(Chosen::find(&stts, Some(&stss), 1000, &window).is_err());
    }
}
