//! Positions in the sample tables: they only move forward, so that a walk over a track costs the
//! number of its rows, not their square.

use super::super::Fault;
use super::super::chunks::{Offsets, Run, SamplesToChunks, Sizes};
use super::super::samples::Table;

/// A position in a table of runs (`stts`, `ctts`): a sample, and the value that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs<'a> {
    table: Table<'a>,
    row: usize,
    /// The row's samples from this one on.
    left: u64,
    /// The row's value.
    value: u32,
    pub sample: u64,
    /// The sum of the values before.
    pub sum: u64,
}

impl<'a> Runs<'a> {
    pub fn new(table: Table<'a>) -> Runs<'a> {
        let mut runs = Runs { table, row: 0, left: 0, value: 0, sample: 0, sum: 0 };
        runs.load();
        runs
    }

    fn load(&mut self) {
        while self.left == 0 && self.row < self.table.len() {
            self.left = u64::from(self.table.number(self.row, 0).unwrap_or(0));
            self.value = self.table.number(self.row, 1).unwrap_or(0);
            self.row += 1;
        }
    }

    /// The value of the sample; `None` behind the last.
    pub fn value(&self) -> Option<u32> {
        (self.left > 0).then_some(self.value)
    }

    fn step(&mut self, n: u64) {
        self.sample += n;
        self.sum = self.sum.saturating_add(n.saturating_mul(u64::from(self.value)));
        self.left -= n;
        self.load();
    }

    pub fn next(&mut self) {
        if self.left > 0 {
            self.step(1);
        }
    }

    /// Moves to a sample, or behind the last.
    pub(crate) fn advance_to_sample(&mut self, sample: u64) {
        while self.left > 0 && self.sample < sample {
            self.step(self.left.min(sample - self.sample));
        }
    }

    /// Moves to the first sample with at least this sum before it, or behind the last.
    pub(crate) fn advance_to_sum(&mut self, sum: u64) {
        while self.left > 0 && self.sum < sum {
            let needed = match self.value {
                0 => self.left,
                value => (sum - self.sum).div_ceil(u64::from(value)),
            };
            self.step(self.left.min(needed));
        }
    }
}

/// A sample's position in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    stsc: SamplesToChunks<'a>,
    sizes: Sizes<'a>,
    offsets: Offsets<'a>,
    row: usize,
    run: Run,
    chunk: u64,
    /// The chunk's samples from this one on.
    left: u64,
    pos: u64,
    sample: u64,
}

impl<'a> Places<'a> {
    pub fn at(
        (stsc, sizes, offsets): (SamplesToChunks<'a>, Sizes<'a>, Offsets<'a>),
        sample: u64,
    ) -> Result<Places<'a>, Fault> {
        let mut before = sample;
        for row in 0..stsc.table().len() {
            let run = stsc.run(row)?;
            let all = (run.behind - run.first).saturating_mul(u64::from(run.samples));
            if before < all {
                let samples = u64::from(run.samples);
                let (chunk, in_chunk) = (run.first + before / samples, before % samples);
                let into = sizes.before(sample, in_chunk);
                let pos = offsets.get(chunk).and_then(|offset| offset.checked_add(into));
                let pos = pos.ok_or_else(out_of_chunks)?;
                let left = samples - in_chunk;
                return Ok(Places { stsc, sizes, offsets, row, run, chunk, left, pos, sample });
            }
            before -= all;
        }
        Err(out_of_chunks())
    }

    /// The position and the size of the sample; moves to the next.
    pub fn next(&mut self) -> Result<(u64, u32), Fault> {
        if self.left == 0 {
            self.next_chunk()?;
        }
        let size = self.sizes.get(self.sample);
        let size = size.ok_or_else(|| Fault::in_file("sample is out of mp4 stsz samples"))?;
        let pos = self.pos;
        self.pos = pos.saturating_add(u64::from(size));
        self.left -= 1;
        self.sample += 1;
        Ok((pos, size))
    }

    fn next_chunk(&mut self) -> Result<(), Fault> {
        self.chunk += 1;
        while self.chunk >= self.run.behind || self.run.samples == 0 {
            self.row += 1;
            if self.row >= self.stsc.table().len() {
                return Err(out_of_chunks());
            }
            self.run = self.stsc.run(self.row)?;
            self.chunk = self.run.first;
        }
        self.left = u64::from(self.run.samples);
        self.pos = self.offsets.get(self.chunk).ok_or_else(out_of_chunks)?;
        Ok(())
    }
}

fn out_of_chunks() -> Fault {
    Fault::in_file("sample is out of mp4 chunks")
}
