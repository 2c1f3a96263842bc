//! A film's index, and that of its cut.

use std::ops::Range;

use super::atom::{self, atoms, u32_at, u64_at};
use super::track::{MVHD, Moved, Part, Timed, Track};
use super::{Cut, Fault, Layout, Window, duplicate};

pub(super) struct Movie<'a> {
    pub mvhd: Option<Timed<'a>>,
    pub tracks: Vec<&'a [u8]>,
}

impl<'a> Movie<'a> {
    pub fn read(moov: &'a [u8]) -> Result<Movie<'a>, Fault> {
        let mut movie = Movie { mvhd: None, tracks: Vec::new() };
        for atom in atoms(moov) {
            let atom = atom?;
            match &atom.name {
                b"mvhd" if movie.mvhd.is_some() => return Err(duplicate("mvhd")),
                b"mvhd" => movie.mvhd = Some(Timed::read("mvhd", atom.data, MVHD)?),
                b"trak" => movie.tracks.push(atom.data),
                b"cmov" => {
                    let what = "mp4 compressed moov atom (cmov) is not supported";
                    return Err(Fault::of_file(what));
                }
                _ => {}
            }
        }
        Ok(movie)
    }
}

pub(super) fn length_ms(moov: &[u8]) -> Result<Option<u64>, Fault> {
    let told = |mvhd: &Timed<'_>| mvhd.duration > 0 && mvhd.timescale > 0;
    let mvhd = Movie::read(moov)?.mvhd.filter(told);
    Ok(mvhd.map(|mvhd| mvhd.duration.saturating_mul(1000) / u64::from(mvhd.timescale)))
}

pub(super) fn cut(moov: &[u8], layout: &Layout, window: &Window) -> Result<Cut, Fault> {
    let movie = Movie::read(moov)?;
    let timescale = movie.mvhd.map_or(0, |mvhd| mvhd.timescale);
    let duration = match &movie.mvhd {
        Some(mvhd) => mvhd.left(window, timescale),
        None => Some(0),
    };
    let Some(duration) = duration else {
        return Err(Fault::of_file("mp4 start time exceeds file duration"));
    };
    let mut parts = Vec::new();
    for trak in &movie.tracks {
        parts.extend(Track::read(trak)?.cut(layout, window, timescale)?);
    }
    if parts.is_empty() {
        return Err(Fault::in_file("no mp4 trak atoms were found"));
    }
    let data = range(&parts, layout)?;
    let mut head = Vec::with_capacity(moov.len() + 64);
    let mut moved = Vec::with_capacity(parts.len());
    let mut fault = None;
    atom::write(&mut head, b"moov", |out| {
        if let Some(mvhd) = &movie.mvhd {
            atom::write(out, b"mvhd", |out| mvhd.write(out, duration));
        }
        for part in &parts {
            match part.write(out) {
                Ok(at) => moved.push(at),
                Err(e) => fault = Some(e),
            }
        }
    });
    if let Some(fault) = fault {
        return Err(fault);
    }
    write_mdat(&mut head, data.end - data.start);
    let to = layout.ftyp_len + head.len() as u64;
    moved.iter().for_each(|moved| shift(&mut head, moved, to.wrapping_sub(data.start)));
    Ok(Cut { head, data })
}

/// The range of the file that has the samples of all parts.
fn range(parts: &[Part<'_>], layout: &Layout) -> Result<Range<u64>, Fault> {
    let start = parts.iter().map(|part| part.data.start).min().unwrap_or(layout.file_len);
    let end = parts.iter().map(|part| part.data.end).max().unwrap_or(0);
    if end <= start {
        return Err(Fault::in_file("no data between start time and end time"));
    }
    if start >= layout.mdat.end {
        return Err(Fault::in_file("start time is out mp4 mdat atom"));
    }
    Ok(start..end)
}

fn write_mdat(out: &mut Vec<u8>, len: u64) {
    match u32::try_from(len + 8) {
        Ok(size) => {
            out.extend_from_slice(&size.to_be_bytes());
            out.extend_from_slice(b"mdat");
        }
        Err(_) => {
            out.extend_from_slice(b"\0\0\0\x01mdat");
            out.extend_from_slice(&(len + 16).to_be_bytes());
        }
    }
}

/// Moves offsets of chunks by a distance; a negative one wraps around.
fn shift(head: &mut [u8], moved: &Moved, by: u64) {
    let len = if moved.wide { 8 } else { 4 };
    for row in head[moved.at.clone()].chunks_exact_mut(len) {
        if let (true, Some(offset)) = (moved.wide, u64_at(row, 0)) {
            row.copy_from_slice(&offset.wrapping_add(by).to_be_bytes());
        } else if let Some(offset) = u32_at(row, 0) {
            row.copy_from_slice(&offset.wrapping_add(by as u32).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
