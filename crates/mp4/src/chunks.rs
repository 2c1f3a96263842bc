//! Chunks: which samples lie in which, and where in the file.

use super::atom::{u32_at, u64_at};
use super::samples::{Chosen, Table};
use super::{Fault, too_small};

/// `stsc`: the number of samples in each chunk, by runs of chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplesToChunks<'a> {
    table: Table<'a>,
    /// The track's number of chunks.
    chunks: u64,
}

/// Consecutive chunks with the same number of samples in each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Counted from 0.
    pub first: u64,
    pub behind: u64,
    pub samples: u32,
    /// The description of these samples.
    id: u32,
}

/// The place of a sample in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ChunkPosition {
    chunk: u64,
    /// The number of the chunk's samples before it.
    before: u64,
}

/// The chunks that have the chosen samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunks {
    pub first: u64,
    /// The one behind the last.
    pub behind: u64,
    /// Samples of the first chunk before the chosen ones.
    pub before: u64,
    /// Samples of the last chunk up to the end of the chosen ones, those before them included;
    /// `None`: all.
    pub used: Option<u64>,
}

impl<'a> SamplesToChunks<'a> {
    pub fn new(table: Table<'a>, chunks: usize) -> Result<SamplesToChunks<'a>, Fault> {
        if table.len() == 0 {
            return Err(Fault::in_file("zero number of entries in stsc atom"));
        }
        Ok(SamplesToChunks { table, chunks: chunks as u64 })
    }

    fn number(&self, row: usize, column: usize) -> u32 {
        self.table.number(row, column).unwrap_or(0)
    }

    pub fn run(&self, row: usize) -> Result<Run, Fault> {
        let first = u64::from(self.number(row, 0));
        let next = match row + 1 < self.table.len() {
            true => u64::from(self.number(row + 1, 0)),
            false => self.chunks + 1,
        };
        if next < first {
            return Err(Fault::in_file("unordered mp4 stsc chunks"));
        }
        let Some(first) = first.checked_sub(1) else { return Err(Fault::in_file("zero chunk")) };
        let (samples, id) = (self.number(row, 1), self.number(row, 2));
        Ok(Run { first, behind: next - 1, samples, id })
    }

    /// Finds a sample. The one behind the last is in a chunk behind the last.
    fn find(&self, sample: u64, what: &str) -> Result<ChunkPosition, Fault> {
        let mut left = sample;
        for row in 0..self.table.len() {
            let run = self.run(row)?;
            let all = (run.behind - run.first).saturating_mul(u64::from(run.samples));
            let is_last = row + 1 == self.table.len();
            if left < all || is_last && left == all {
                if run.samples == 0 {
                    return Err(Fault::in_file("zero number of samples"));
                }
                let samples = u64::from(run.samples);
                return Ok(ChunkPosition {
                    chunk: run.first + left / samples,
                    before: left % samples,
                });
            }
            left -= all;
        }
        Err(Fault::in_file(format!("{what} time is out mp4 stsc chunks")))
    }

    pub fn chosen(&self, samples: &Chosen) -> Result<Chunks, Fault> {
        let start = self.find(samples.start, "start")?;
        let (first, before) = (start.chunk, start.before);
        let Some(end) = samples.end else {
            return Ok(Chunks { first, behind: self.chunks, before, used: None });
        };
        if end <= samples.start {
            return Ok(Chunks { first, behind: first, before, used: None });
        }
        let last = self.find(end - 1, "end")?;
        Ok(Chunks { first, behind: last.chunk + 1, before, used: Some(last.before + 1) })
    }

    /// The rows for the chosen chunks: chunk counted from 1, samples in it, description.
    pub fn rows(&self, chunks: &Chunks) -> Result<Vec<[u32; 3]>, Fault> {
        let mut rows: Vec<[u32; 3]> = Vec::new();
        for row in 0..self.table.len() {
            let run = self.run(row)?;
            let (from, to) = (run.first.max(chunks.first), run.behind.min(chunks.behind));
            if from >= to {
                continue;
            }
            // The ends of the cut may lie within chunks, which have fewer samples then.
            for chunk in [from, (from + 1).min(to - 1), to - 1] {
                let samples = chunks.samples_of(chunk, u64::from(run.samples));
                let number = (chunk - chunks.first + 1) as u32;
                match rows.last() {
                    Some([_, same, id]) if *same == samples && *id == run.id => {}
                    Some([before, ..]) if *before == number => {}
                    _ => rows.push([number, samples, run.id]),
                }
            }
        }
        Ok(rows)
    }

    pub fn table(&self) -> &Table<'a> {
        &self.table
    }
}

impl Chunks {
    /// The chosen samples of a chunk with `all` samples.
    fn samples_of(&self, chunk: u64, all: u64) -> u32 {
        let end = match self.used {
            Some(used) if chunk + 1 == self.behind => used.min(all),
            _ => all,
        };
        let before = if chunk == self.first { self.before } else { 0 };
        u32::try_from(end.saturating_sub(before)).unwrap_or(u32::MAX)
    }
}

/// `stsz`: the size of each sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes<'a> {
    data: &'a [u8],
    /// The common size of all samples, if there is one.
    uniform: u32,
    count: u64,
    table: Option<Table<'a>>,
}

impl<'a> Sizes<'a> {
    pub fn read(data: &'a [u8]) -> Result<Sizes<'a>, Fault> {
        let (Some(uniform), Some(count)) = (u32_at(data, 4), u32_at(data, 8)) else {
            return Err(too_small("stsz"));
        };
        let table = match uniform {
            0 => Some(Table::read_behind("stsz", data, 8, 4)?),
            _ => None,
        };
        Ok(Sizes { data, uniform, count: u64::from(count), table })
    }

    /// Checks the chosen samples before their sizes are added up.
    pub fn check(&self, samples: &Chosen) -> Result<(), Fault> {
        if samples.start >= self.count {
            return Err(Fault::in_file("start time is out mp4 stsz samples"));
        }
        if samples.end.is_some_and(|end| end > self.count) {
            return Err(Fault::in_file("end time is out mp4 stsz samples"));
        }
        Ok(())
    }

    /// The size of a sample; `None` behind the last.
    pub fn get(&self, sample: u64) -> Option<u32> {
        match &self.table {
            None => (sample < self.count).then_some(self.uniform),
            Some(table) => table.number(usize::try_from(sample).ok()?, 0),
        }
    }

    /// The size of the `n` samples before one.
    pub fn before(&self, sample: u64, n: u64) -> u64 {
        let from = sample.saturating_sub(n);
        match &self.table {
            None => (sample - from).saturating_mul(u64::from(self.uniform)),
            Some(table) => {
                let size = |n| table.number(n, 0).map_or(0, u64::from);
                (from as usize..(sample as usize).min(table.len())).map(size).sum()
            }
        }
    }

    pub fn write(&self, out: &mut Vec<u8>, samples: &Chosen) {
        let range = samples.start..samples.end.unwrap_or(self.count).min(self.count);
        let count = range.end.saturating_sub(range.start) as u32;
        out.extend_from_slice(&self.data[..8]);
        out.extend_from_slice(&count.to_be_bytes());
        if let Some(table) = &self.table {
            range.filter_map(|n| table.row(n as usize)).for_each(|row| out.extend_from_slice(row));
        }
    }
}

/// `stco` or `co64`: where each chunk begins in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets<'a> {
    table: Table<'a>,
    /// The offsets have 64 bits.
    pub wide: bool,
}

impl<'a> Offsets<'a> {
    pub fn read(data: &'a [u8], wide: bool) -> Result<Offsets<'a>, Fault> {
        let (name, row_len) = if wide { ("co64", 8) } else { ("stco", 4) };
        Ok(Offsets { table: Table::read(name, data, row_len)?, wide })
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn name(&self) -> &'static [u8; 4] {
        if self.wide { b"co64" } else { b"stco" }
    }

    pub fn get(&self, chunk: u64) -> Option<u64> {
        let row = self.table.row(usize::try_from(chunk).ok()?)?;
        if self.wide { u64_at(row, 0) } else { u32_at(row, 0).map(u64::from) }
    }

    /// Where something in a chunk is, `into` bytes behind its beginning.
    pub fn within(
        &self,
        chunk: u64,
        into: u64,
        (file_len, what): (u64, &str),
    ) -> Result<u64, Fault> {
        let Some(offset) = self.get(chunk) else {
            let name = String::from_utf8_lossy(self.name());
            return Err(Fault::in_file(format!("{what} time is out mp4 {name} chunks")));
        };
        if into > file_len {
            return Err(Fault::in_file(format!("too large mp4 {what} samples size")));
        }
        let at = offset.saturating_add(into);
        if at > file_len || !self.wide && at > u64::from(u32::MAX) {
            return Err(Fault::in_file("too large chunk offset"));
        }
        Ok(at)
    }

    /// Writes the offsets of the chosen chunks, of which the first is at `first`.
    pub fn write(&self, out: &mut Vec<u8>, chunks: &Chunks, first: u64) {
        let offset = |chunk| match chunk == chunks.first {
            true => first,
            false => self.get(chunk).unwrap_or(0),
        };
        let behind = chunks.behind.min(self.len() as u64);
        let offsets = (chunks.first..behind).map(offset);
        if self.wide {
            self.table.write_rows(out, offsets, u64::to_be_bytes);
        } else {
            // It was one of 32 bits, or was checked to be.
            self.table.write_rows(out, offsets, |offset| (offset as u32).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[u32; 3]]) -> Vec<u8> {
        let mut data = vec![0; 4];
        data.extend_from_slice(&(rows.len() as u32).to_be_bytes());
        rows.iter().flatten().for_each(|n| data.extend_from_slice(&n.to_be_bytes()));
        data
    }

    /// The chunk of each sample with its description, the slow way.
    fn slowly(rows: &[[u32; 3]], chunks: u32) -> Vec<(u64, u32)> {
        let mut all = Vec::new();
        for (n, [first, samples, id]) in rows.iter().enumerate() {
            let next = rows.get(n + 1).map_or(chunks + 1, |row| row[0]);
            for chunk in *first..next {
                all.extend((0..*samples).map(|_| (u64::from(chunk) - 1, *id)));
            }
        }
        all
    }

    #[test]
    fn every_cut_has_the_samples_that_it_should() {
        let rows = [[1, 3, 1], [2, 5, 1], [4, 5, 2], [5, 1, 1], [8, 4, 1]];
        let data = table(&rows);
        let stsc = SamplesToChunks::new(Table::read("stsc", &data, 12).unwrap(), 9).unwrap();
        let all = slowly(&rows, 9);
        for start in 0..all.len() as u64 {
            for end in (start..=all.len() as u64).map(Some).chain([None]) {
                let chosen = Chosen { start, end, prefix: 0 };
                let chunks = stsc.chosen(&chosen).unwrap();
                assert_eq!(chunks.first, all[start as usize].0);
                let want = &all[start as usize..end.map_or(all.len(), |end| end as usize)];
                let rows = stsc.rows(&chunks).unwrap();
                let got = slowly(&rows, (chunks.behind - chunks.first) as u32);
                let moved = want.iter().map(|(chunk, id)| (chunk - chunks.first, *id));
                assert_eq!(got, moved.collect::<Vec<_>>(), "{start} {end:?} {rows:?}");
                assert!(rows.is_sorted_by(|a, b| a[0] < b[0] && a[1..] != b[1..]), "{rows:?}");
            }
        }
        let behind = Chosen { start: all.len() as u64 + 1, end: None, prefix: 0 };
        assert!(stsc.chosen(&behind).is_err());
    }

    #[test]
    fn lies_about_chunks() {
        let chosen = Chosen { start: 1, end: Some(2), prefix: 0 };
        for (rows, chunks, what) in [
            (&[[0, 1, 1]][..], 5, "zero chunk"),
            (&[[1, 0, 1]], 5, "start time is out mp4 stsc chunks"),
            (&[[1, 0, 1], [2, 0, 1]], 1, "start time is out mp4 stsc chunks"),
            (&[[3, 1, 1], [2, 1, 1]], 5, "unordered mp4 stsc chunks"),
            (&[[9, 1, 1]], 5, "unordered mp4 stsc chunks"),
            (&[[1, 1, 1]], 0, "start time is out mp4 stsc chunks"),
        ] {
            let data = table(rows);
            let stsc = Table::read("stsc", &data, 12).unwrap();
            let stsc = SamplesToChunks::new(stsc, chunks).unwrap();
            assert_eq!(stsc.chosen(&chosen), Err(Fault::in_file(what)), "{rows:?}");
        }
        let data = table(&[]);
        assert!(SamplesToChunks::new(Table::read("stsc", &data, 12).unwrap(), 1).is_err());
        let data = table(&[[1, u32::MAX, 1]]);
        let stsc = Table::read("stsc", &data, 12).unwrap();
        let stsc = SamplesToChunks::new(stsc, usize::MAX - 1).unwrap();
        assert!(stsc.chosen(&Chosen { start: u64::MAX - 1, end: None, prefix: 0 }).is_ok());
    }

    #[test]
    fn sizes_and_offsets() {
        let mut data = vec![0; 8];
        for n in [3u32, 10, 20, 30] {
            data.extend_from_slice(&n.to_be_bytes());
        }
        let sizes = Sizes::read(&data).unwrap();
        assert_eq!((sizes.before(3, 2), sizes.before(3, 9), sizes.before(1, 1)), (50, 60, 10));
        assert_eq!(sizes.before(99, 97), 30);
        assert!(Sizes::read(&data[..20]).is_err() && Sizes::read(&data[..7]).is_err());
        let mut data = vec![0, 0, 0, 0, 0, 0, 0, 7];
        data.extend_from_slice(&u32::MAX.to_be_bytes());
        let sizes = Sizes::read(&data).unwrap();
        assert_eq!(sizes.before(1000, 10), 70);
        let chosen = Chosen { start: 10, end: Some(15), prefix: 0 };
        let mut out = Vec::new();
        sizes.write(&mut out, &chosen);
        assert_eq!(out, [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 5]);
        let chosen = Chosen { start: u64::from(u32::MAX), ..chosen };
        assert!(sizes.check(&chosen).is_err());

        let data = [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff];
        let offsets = Offsets::read(&data, false).unwrap();
        assert_eq!(offsets.within(0, 5, (100, "start")), Ok(14));
        assert!(offsets.within(0, 92, (100, "start")).is_err());
        assert!(offsets.within(1, 1, (u64::MAX, "start")).is_err());
        let gone = offsets.within(2, 0, (100, "end"));
        assert_eq!(gone, Err(Fault::in_file("end time is out mp4 stco chunks")));
        assert!(Offsets::read(&data, true).is_err());
    }
}
