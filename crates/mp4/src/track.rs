//! One track of a film: its atoms, and those of its cut.

use std::ops::Range;

use super::atom::{self, atoms, u32_at, u64_at};
use super::chunks::{Chunks, Offsets, SamplesToChunks, Sizes};
use super::samples::{Chosen, Table, pair, scaled};
use super::{Fault, Layout, Window, duplicate, too_small};

/// An atom with a duration, which is of 32 or of 64 bits as its version says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed<'a> {
    data: &'a [u8],
    at: usize,
    wide: bool,
    pub duration: u64,
    /// The number before it: units a second, where the atom has one.
    pub timescale: u32,
}

/// The offset of the duration, and the least length of the atom, in both versions.
type Form = [(usize, usize); 2];

pub(super) const MVHD: Form = [(16, 100), (24, 112)];
const TKHD: Form = [(20, 84), (28, 96)];
const MDHD: Form = [(16, 24), (24, 36)];

impl<'a> Timed<'a> {
    pub fn read(name: &str, data: &'a [u8], form: Form) -> Result<Timed<'a>, Fault> {
        let wide = data.first().is_some_and(|version| *version != 0);
        let (at, len) = form[usize::from(wide)];
        if data.len() < len {
            return Err(too_small(name));
        }
        let duration = if wide { u64_at(data, at) } else { u32_at(data, at).map(u64::from) };
        let timescale = u32_at(data, at - 4).unwrap_or(0);
        Ok(Timed { data, at, wide, duration: duration.unwrap_or(0), timescale })
    }

    /// The rest of the duration in a window; `None` where there is none.
    pub fn left(&self, window: &Window, timescale: u32) -> Option<u64> {
        let left = self.duration.checked_sub(scaled(window.start_ms, timescale))?;
        Some(match window.length_ms {
            0 => left,
            length => left.min(scaled(length, timescale)),
        })
    }

    pub fn write(&self, out: &mut Vec<u8>, duration: u64) {
        let behind = self.at + if self.wide { 8 } else { 4 };
        out.extend_from_slice(&self.data[..self.at]);
        if self.wide {
            out.extend_from_slice(&duration.to_be_bytes());
        } else {
            // It was one of 32 bits and is less now, or the atom cannot express it.
            let duration = u32::try_from(duration).unwrap_or(u32::MAX);
            out.extend_from_slice(&duration.to_be_bytes());
        }
        out.extend_from_slice(&self.data[behind..]);
    }
}

/// The atoms of a track that are kept.
#[derive(Default)]
pub(super) struct Track<'a> {
    tkhd: Option<Timed<'a>>,
    /// The content of `edts`, which a cut does not have.
    pub edits: Option<&'a [u8]>,
    pub mdhd: Option<Timed<'a>>,
    pub hdlr: Option<&'a [u8]>,
    vmhd: Option<&'a [u8]>,
    smhd: Option<&'a [u8]>,
    dinf: Option<&'a [u8]>,
    pub stsd: Option<&'a [u8]>,
    pub stts: Option<Table<'a>>,
    pub stss: Option<Table<'a>>,
    pub ctts: Option<Table<'a>>,
    pub stsc: Option<Table<'a>>,
    pub stsz: Option<Sizes<'a>>,
    pub offsets: Option<Offsets<'a>>,
    has: [bool; 3],
}

/// A track's part of the cut.
pub(super) struct Part<'a> {
    track: Track<'a>,
    samples: Chosen,
    stts: Table<'a>,
    stsc: SamplesToChunks<'a>,
    offsets: Offsets<'a>,
    chunks: Chunks,
    /// The rest of the film's duration, and of the track's own.
    left: (u64, u64),
    /// The range of the file that has its samples; empty where there are none.
    pub data: Range<u64>,
}

fn put<T>(field: &mut Option<T>, name: &str, value: T) -> Result<(), Fault> {
    if field.is_some() {
        return Err(duplicate(name));
    }
    *field = Some(value);
    Ok(())
}

/// Takes an atom, by its name.
type Reader<'a> = fn(&mut Track<'a>, [u8; 4], &'a [u8]) -> Result<(), Fault>;

impl<'a> Track<'a> {
    pub fn read(trak: &'a [u8]) -> Result<Track<'a>, Fault> {
        let mut track = Track::default();
        for atom in atoms(trak) {
            let atom = atom?;
            match &atom.name {
                b"tkhd" => put(&mut track.tkhd, "tkhd", Timed::read("tkhd", atom.data, TKHD)?)?,
                b"edts" => track.edits = Some(atom.data),
                b"mdia" => track.nested(0, "mdia", atom.data, Track::media)?,
                _ => {}
            }
        }
        Ok(track)
    }

    fn nested(
        &mut self,
        n: usize,
        name: &str,
        data: &'a [u8],
        read: Reader<'a>,
    ) -> Result<(), Fault> {
        if std::mem::replace(&mut self.has[n], true) {
            return Err(duplicate(name));
        }
        for atom in atoms(data) {
            let atom = atom?;
            read(self, atom.name, atom.data)?;
        }
        Ok(())
    }

    fn media(&mut self, name: [u8; 4], data: &'a [u8]) -> Result<(), Fault> {
        match &name {
            b"mdhd" => put(&mut self.mdhd, "mdhd", Timed::read("mdhd", data, MDHD)?),
            b"hdlr" => put(&mut self.hdlr, "hdlr", data),
            b"minf" => self.nested(1, "minf", data, Track::information),
            _ => Ok(()),
        }
    }

    fn information(&mut self, name: [u8; 4], data: &'a [u8]) -> Result<(), Fault> {
        let either = self.vmhd.is_some() || self.smhd.is_some();
        match &name {
            b"vmhd" | b"smhd" if either => Err(duplicate("vmhd/smhd")),
            b"vmhd" => put(&mut self.vmhd, "vmhd", data),
            b"smhd" => put(&mut self.smhd, "smhd", data),
            b"dinf" => put(&mut self.dinf, "dinf", data),
            b"stbl" => self.nested(2, "stbl", data, Track::sample_table),
            _ => Ok(()),
        }
    }

    fn sample_table(&mut self, name: [u8; 4], data: &'a [u8]) -> Result<(), Fault> {
        match &name {
            b"stsd" if data.len() < 16 => Err(too_small("stsd")),
            b"stsd" => put(&mut self.stsd, "stsd", data),
            b"stts" => put(&mut self.stts, "stts", Table::read("stts", data, 8)?),
            b"stss" => put(&mut self.stss, "stss", Table::read("stss", data, 4)?),
            b"ctts" => put(&mut self.ctts, "ctts", Table::read("ctts", data, 8)?),
            b"stsc" => put(&mut self.stsc, "stsc", Table::read("stsc", data, 12)?),
            b"stsz" => put(&mut self.stsz, "stsz", Sizes::read(data)?),
            b"stco" => put(&mut self.offsets, "stco/co64", Offsets::read(data, false)?),
            b"co64" => put(&mut self.offsets, "stco/co64", Offsets::read(data, true)?),
            _ => Ok(()),
        }
    }

    /// Its part in a window; `None` where it has ended before that.
    pub fn cut(
        self,
        layout: &Layout,
        window: &Window,
        timescale: u32,
    ) -> Result<Option<Part<'a>>, Fault> {
        let own_scale = self.mdhd.map_or(0, |mdhd| mdhd.timescale);
        let left = |timed: Option<Timed<'_>>, timescale| match timed {
            // A track that ends at the beginning of the window has ended.
            Some(timed) => timed.left(window, timescale).filter(|left| *left > 0),
            None => Some(0),
        };
        let (Some(of_film), Some(own)) = (left(self.tkhd, timescale), left(self.mdhd, own_scale))
        else {
            return Ok(None);
        };
        let none = |name: &str| Fault::in_file(format!("no mp4 {name} atoms were found"));
        let stts = self.stts.ok_or_else(|| none("stts"))?;
        let samples = Chosen::find(&stts, self.stss.as_ref(), own_scale, window)?;
        let stsc = self.stsc.ok_or_else(|| none("stsc"))?;
        let offsets = self.offsets.ok_or_else(|| none("stco"))?;
        let stsc = SamplesToChunks::new(stsc, offsets.len())?;
        let chunks = stsc.chosen(&samples)?;
        if let Some(sizes) = &self.stsz {
            sizes.check(&samples)?;
        }
        let size = |sample, n| self.stsz.map_or(0, |sizes| sizes.before(sample, n));
        let into = size(samples.start, chunks.before);
        let start = offsets.within(chunks.first, into, (layout.file_len, "start"))?;
        let data = match (samples.end, chunks.used) {
            (None, _) => start..layout.mdat.end,
            (Some(end), Some(used)) => {
                let into = size(end, used);
                start..offsets.within(chunks.behind - 1, into, (layout.file_len, "end"))?
            }
            (Some(_), None) => layout.file_len..0,
        };
        let left = (of_film, own.saturating_add(samples.prefix));
        Ok(Some(Part { track: self, samples, stts, stsc, offsets, chunks, left, data }))
    }
}

/// The positions in the output of chunk offsets that must be moved.
pub(super) struct Moved {
    pub at: Range<usize>,
    pub wide: bool,
}

impl Part<'_> {
    pub fn write(&self, out: &mut Vec<u8>) -> Result<Moved, Fault> {
        let rows = self.stsc.rows(&self.chunks)?;
        let mut moved = Moved { at: 0..0, wide: self.offsets.wide };
        atom::write(out, b"trak", |out| {
            if let Some(tkhd) = &self.track.tkhd {
                atom::write(out, b"tkhd", |out| tkhd.write(out, self.left.0));
            }
            self.write_edits(out);
            atom::write(out, b"mdia", |out| {
                if let Some(mdhd) = &self.track.mdhd {
                    atom::write(out, b"mdhd", |out| mdhd.write(out, self.left.1));
                }
                atom::copy(out, b"hdlr", self.track.hdlr);
                atom::write(out, b"minf", |out| {
                    atom::copy(out, b"vmhd", self.track.vmhd);
                    atom::copy(out, b"smhd", self.track.smhd);
                    atom::copy(out, b"dinf", self.track.dinf);
                    atom::write(out, b"stbl", |out| self.write_tables(out, &rows, &mut moved));
                });
            });
        });
        Ok(moved)
    }

    /// Samples that are there for the sake of a key frame are not shown.
    fn write_edits(&self, out: &mut Vec<u8>) {
        if self.samples.prefix == 0 {
            return;
        }
        atom::write(out, b"edts", |out| {
            atom::write(out, b"elst", |out| {
                // Version 1, one entry; at its end the rate: 1.0.
                out.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 1]);
                out.extend_from_slice(&self.left.0.to_be_bytes());
                out.extend_from_slice(&self.samples.prefix.to_be_bytes());
                out.extend_from_slice(&[0, 1, 0, 0]);
            });
        });
    }

    fn write_tables(&self, out: &mut Vec<u8>, rows: &[[u32; 3]], moved: &mut Moved) {
        let (track, samples) = (&self.track, &self.samples);
        atom::copy(out, b"stsd", track.stsd);
        atom::write(out, b"stts", |out| {
            self.stts.write_rows(out, samples.runs(&self.stts), pair);
        });
        if let Some(stss) = &track.stss {
            atom::write(out, b"stss", |out| {
                stss.write_rows(out, samples.key_frames(stss), u32::to_be_bytes);
            });
        }
        if let Some(ctts) = &track.ctts
            && samples.runs(ctts).next().is_some()
        {
            atom::write(out, b"ctts", |out| ctts.write_rows(out, samples.runs(ctts), pair));
        }
        atom::write(out, b"stsc", |out| {
            let row = |row: &[u32; 3]| row.map(u32::to_be_bytes).concat();
            self.stsc.table().write_rows(out, rows.iter(), row);
        });
        if let Some(sizes) = &track.stsz {
            atom::write(out, b"stsz", |out| sizes.write(out, samples));
        }
        atom::write(out, self.offsets.name(), |out| {
            let from = out.len() + 8;
            self.offsets.write(out, &self.chunks, self.data.start);
            moved.at = from..out.len();
        });
    }
}
