//! A film's tracks: one with video and one with audio, on a common time line.

use super::super::atom::{atoms, u32_at, u64_at};
use super::super::chunks::{Offsets, SamplesToChunks, Sizes};
use super::super::movie::Movie;
use super::super::samples::Table;
use super::super::track::Track;
use super::super::{Fault, too_small};
use super::codec::{self, Codec};
use super::cursor::{Places, Runs};
use super::mux::Kind;
use super::{CLOCK, rescaled};

/// A film whose tracks can be sent.
#[derive(Debug)]
pub struct Film<'a> {
    /// Video first; at most one of a kind, and at least one.
    pub(super) tracks: Vec<Media<'a>>,
}

/// A track of a film. Its times are in its own timescale.
#[derive(Debug)]
pub(super) struct Media<'a> {
    pub kind: Kind,
    pub codec: Codec,
    pub timescale: u32,
    /// Added to the times of the index, so that the tracks are in step and no time is negative.
    pub shift: u64,
    /// The largest distance by which a frame is shown before its time in the index. Frames are
    /// decoded that much earlier.
    pub lead: u64,
    pub times: Table<'a>,
    /// Distances from a frame's time to when it is shown, if it has any.
    pub delays: Option<Table<'a>>,
    /// Key frames, if not all are.
    keys: Option<Table<'a>>,
    parts: (SamplesToChunks<'a>, Sizes<'a>, Offsets<'a>),
}

impl<'a> Film<'a> {
    /// Reads the content of a `moov` atom.
    ///
    /// # Errors
    /// A contradiction in the file, or no track of a supported codec.
    pub fn read(moov: &'a [u8]) -> Result<Film<'a>, Fault> {
        let movie = Movie::read(moov)?;
        let film_scale = movie.mvhd.map_or(0, |mvhd| mvhd.timescale);
        let (mut tracks, mut edits) = (Vec::<Media<'a>>::new(), Vec::new());
        let mut unsupported = [None, None];
        for trak in &movie.tracks {
            let track = Track::read(trak)?;
            let kind = match track.hdlr.and_then(|hdlr| hdlr.get(8..12)) {
                Some(b"vide") => Kind::Video,
                Some(b"soun") => Kind::Audio,
                // Subtitles, chapters, hints.
                _ => continue,
            };
            if tracks.iter().any(|media| media.kind == kind) {
                continue;
            }
            match codec::read(track.stsd.ok_or_else(|| none("stsd"))?) {
                // A track of a fragmented file (moof) has no samples here.
                Ok(_) if track.stts.is_some_and(|stts| Runs::new(stts).value().is_none()) => {}
                Ok(codec) => {
                    edits.push(Edit::read(track.edits, film_scale)?);
                    tracks.push(Media::new(kind, codec, track)?);
                }
                Err(fault) => unsupported[kind as usize] = Some(fault),
            }
        }
        for (kind, fault) in [Kind::Video, Kind::Audio].into_iter().zip(unsupported) {
            match fault {
                // A film without its sound, or sound without its film, would surprise.
                Some(fault) if tracks.iter().all(|media| media.kind != kind) => return Err(fault),
                _ => {}
            }
        }
        if tracks.is_empty() {
            return Err(Fault::in_file("no samples of video or audio were found"));
        }
        align(&mut tracks, &edits);
        tracks.sort_by_key(|media| media.kind as usize);
        Ok(Film { tracks })
    }

    /// The first millisecond behind the film.
    pub(super) fn end_ms(&self) -> u64 {
        self.tracks.iter().map(Media::end_ms).max().unwrap_or(0)
    }
}

fn none(name: &str) -> Fault {
    Fault::in_file(format!("no mp4 {name} atoms were found"))
}

/// What an edit list says about a track's beginning: a silence in units of [`CLOCK`], and the time
/// in the track at which it begins behind that.
#[derive(Clone, Copy, Default, Debug)]
struct Edit {
    silence: u64,
    media_time: u64,
}

impl Edit {
    fn read(edts: Option<&[u8]>, film_scale: u32) -> Result<Edit, Fault> {
        let mut edit = Edit::default();
        let Some(edts) = edts else { return Ok(edit) };
        for atom in atoms(edts) {
            let atom = atom?;
            if atom.name != *b"elst" {
                continue;
            }
            let wide = atom.data.first().is_some_and(|version| *version != 0);
            let table = Table::read("elst", atom.data, if wide { 20 } else { 12 })?;
            for row in (0..table.len()).map_while(|n| table.row(n)) {
                let numbers = match wide {
                    true => u64_at(row, 0).zip(u64_at(row, 8).map(|time| time as i64)),
                    false => u32_at(row, 0)
                        .map(u64::from)
                        .zip(u32_at(row, 4).map(|time| i64::from(time as i32))),
                };
                let (duration, time) = numbers.ok_or_else(|| too_small("elst"))?;
                if let Ok(time) = u64::try_from(time) {
                    edit.media_time = time;
                    return Ok(edit);
                }
                // Without a time: nothing is shown for this duration, in the film's units.
                let silence = rescaled(duration, film_scale, CLOCK);
                edit.silence = edit.silence.saturating_add(silence);
            }
        }
        Ok(edit)
    }
}

/// The longest distance between the beginnings of tracks: a day. More is no edit list of a film,
/// and sums of times must not overflow.
const SHIFT_MAX: i64 = 86_400 * CLOCK as i64;

/// Shifts the tracks by their edit lists, and all of them so that no time is negative.
fn align(tracks: &mut [Media<'_>], edits: &[Edit]) {
    let shift = |(media, edit): (&Media<'_>, &Edit)| {
        let clock = |ticks| i64::try_from(rescaled(ticks, media.timescale, CLOCK));
        let silence = i64::try_from(edit.silence).unwrap_or(SHIFT_MAX).min(SHIFT_MAX);
        let skipped = clock(edit.media_time).unwrap_or(SHIFT_MAX).min(SHIFT_MAX);
        let lead = clock(media.lead).unwrap_or(SHIFT_MAX).min(SHIFT_MAX);
        (silence - skipped, silence - skipped - lead)
    };
    let shifts: Vec<_> = tracks.iter().zip(edits).map(shift).collect();
    let first = shifts.iter().map(|(_, decoded)| *decoded).min().unwrap_or(0);
    for (media, (shift, _)) in tracks.iter_mut().zip(shifts) {
        // The lead is at least subtracted, so the difference is not negative.
        let ticks = u64::try_from(shift - first).unwrap_or(0);
        media.shift = rescaled(ticks, CLOCK, media.timescale).max(media.lead);
    }
}

impl<'a> Media<'a> {
    fn new(kind: Kind, codec: Codec, track: Track<'a>) -> Result<Media<'a>, Fault> {
        let timescale = track.mdhd.map_or(0, |mdhd| mdhd.timescale);
        if timescale == 0 {
            return Err(Fault::in_file("no timescale in mdhd atom"));
        }
        let offsets = track.offsets.ok_or_else(|| none("stco"))?;
        let stsc = track.stsc.ok_or_else(|| none("stsc"))?;
        let stsc = SamplesToChunks::new(stsc, offsets.len())?;
        let sizes = track.stsz.ok_or_else(|| none("stsz"))?;
        let delays = track.ctts;
        let least = delays.iter().flat_map(|ctts| ctts.pairs()).map(|(_, delay)| delay as i32);
        let lead = least.min().unwrap_or(0).min(0).unsigned_abs();
        Ok(Media {
            kind,
            codec,
            timescale,
            shift: 0,
            lead: u64::from(lead),
            times: track.stts.ok_or_else(|| none("stts"))?,
            delays,
            // Every frame of audio can be decoded on its own.
            keys: track.stss.filter(|_| kind == Kind::Video),
            parts: (stsc, sizes, offsets),
        })
    }

    /// The first sample at or after a time; behind the last if there is none.
    pub(crate) fn sample_at(&self, ms: u64) -> Runs<'a> {
        let mut runs = Runs::new(self.times);
        runs.advance_to_sum(self.ticks_at(ms));
        runs
    }

    /// A time in the index: the first tick whose millisecond this is.
    pub(crate) fn ticks_at(&self, ms: u64) -> u64 {
        super::ticks_at(ms, self.timescale).saturating_sub(self.shift)
    }

    /// The millisecond in which a tick of the index lies, rounded down.
    pub(crate) fn ms_of(&self, ticks: u64) -> u64 {
        rescaled(ticks.saturating_add(self.shift), self.timescale, 1000)
    }

    /// The first millisecond behind the last sample.
    fn end_ms(&self) -> u64 {
        let mut last = Runs::new(self.times);
        let mut end = last;
        end.advance_to_sample(u64::MAX);
        last.advance_to_sample(end.sample.saturating_sub(1));
        let ticks = u128::from(end.sum.saturating_add(self.shift));
        let ms = (ticks * 1000).div_ceil(u128::from(self.timescale));
        // The last sample is within, even if it has no duration.
        u64::try_from(ms).unwrap_or(u64::MAX).max(self.ms_of(last.sum).saturating_add(1))
    }

    /// The key frames' numbers, counted from 0, in the file's order; `None`: all frames are.
    pub fn keys(&self) -> Option<impl Iterator<Item = u64> + use<'a>> {
        self.keys.map(|stss| stss.numbers().filter_map(|n| u64::from(n).checked_sub(1)))
    }

    /// The last key frame at or before a sample. A track whose first frame is none begins with it
    /// all the same.
    pub(crate) fn key_before(&self, sample: u64) -> u64 {
        match self.keys() {
            None => sample,
            Some(keys) => keys.filter(|key| *key <= sample).max().unwrap_or(0),
        }
    }

    pub fn places(&self, sample: u64) -> Result<Places<'a>, Fault> {
        Places::at(self.parts, sample)
    }
}
