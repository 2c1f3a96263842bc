//! The multiplexer: samples in, packets out.

use super::super::Fault;
use super::codec::Codec;
use super::ts::{AUDIO_ID, Pes, Stream, VIDEO_ID, write_tables};
use super::{FileRange, codec};

/// The kind of a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Moving pictures.
    Video,
    /// Sound.
    Audio,
}

/// A sample of a fragment. Times are in units of the transport stream's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub pos: u64,
    pub size: u32,
    pub dts: u64,
    pub pts: u64,
    pub kind: Kind,
    pub is_key: bool,
}

/// Makes a fragment of its samples.
#[derive(Debug)]
pub struct Muxer {
    samples: Vec<Sample>,
    /// The number of samples that were fed.
    fed: usize,
    tracks: Vec<Track>,
    /// The kind of track whose packets have the clock.
    clock: Kind,
    /// A sample as part of its elementary stream.
    unit: Vec<u8>,
    /// Audio frames of a PES packet, with the time of the first.
    frames: Vec<u8>,
    frames_at: u64,
}

#[derive(Debug)]
struct Track {
    kind: Kind,
    codec: Codec,
    stream: Stream,
}

/// Added to all times, so that the clock can be behind them.
const FIRST: u64 = 126_000;
/// The clock's distance to the time at which a sample is decoded: what a player buffers.
const BUFFERED: u64 = 63_000;
/// The longest time that audio frames share a PES packet, whose overhead is up to 200 bytes.
const FRAMES_TIME: u64 = 9_000;
/// The most bytes of them: a PES packet of audio has a length of 16 bits.
const FRAMES_MAX: usize = 60_000;

impl Muxer {
    pub(super) fn new(codecs: impl Iterator<Item = (Kind, Codec)>, samples: Vec<Sample>) -> Muxer {
        let track = |(kind, codec): (Kind, Codec)| {
            let (pid, id) = match kind {
                Kind::Video => (0x100, VIDEO_ID),
                Kind::Audio => (0x101, AUDIO_ID),
            };
            let stream = Stream::new(pid, stream_type(&codec), id);
            Track { kind, codec, stream }
        };
        let has_video = samples.iter().any(|sample| sample.kind == Kind::Video);
        Muxer {
            samples,
            fed: 0,
            tracks: codecs.map(track).collect(),
            clock: if has_video { Kind::Video } else { Kind::Audio },
            unit: Vec::new(),
            frames: Vec::new(),
            frames_at: 0,
        }
    }

    /// The range of the file with the next sample, and its kind; `None` behind the last.
    pub fn wanted(&self) -> Option<(Kind, FileRange)> {
        let sample = self.samples.get(self.fed)?;
        Some((sample.kind, sample.pos..sample.pos + u64::from(sample.size)))
    }

    /// Where the last sample of a kind ends in the file.
    pub fn end_of(&self, kind: Kind) -> u64 {
        let of_kind = self.samples.iter().filter(|sample| sample.kind == kind);
        of_kind.map(|sample| sample.pos + u64::from(sample.size)).max().unwrap_or(0)
    }

    /// Takes the bytes of the next sample and appends the packets that are complete.
    ///
    /// # Errors
    /// The sample is malformed.
    pub fn feed(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(sample) = self.samples.get(self.fed).copied() else { return Ok(()) };
        if self.fed == 0 {
            let clock = self.tracks.iter().find(|track| track.kind == self.clock);
            let pid = clock.map_or(0x1fff, |track| track.stream.pid);
            write_tables(pid, self.tracks.iter().map(|track| &track.stream), out);
        }
        self.fed += 1;
        let Some(track) = self.tracks.iter().find(|track| track.kind == sample.kind) else {
            return Ok(());
        };
        self.unit.clear();
        match &track.codec {
            Codec::H264(h264) => {
                h264.write(data, sample.is_key, &mut self.unit)?;
                let unit = std::mem::take(&mut self.unit);
                self.write(Kind::Video, &sample, &unit, out);
                self.unit = unit;
            }
            Codec::Aac(aac) => {
                aac.write(data, &mut self.unit)?;
                self.add_frame(&sample, out)?;
            }
            Codec::Mp3 { .. } => {
                self.unit.extend_from_slice(data);
                self.add_frame(&sample, out)?;
            }
        }
        if self.fed == self.samples.len() {
            self.flush(out);
        }
        Ok(())
    }

    fn add_frame(&mut self, sample: &Sample, out: &mut Vec<u8>) -> Result<(), Fault> {
        if self.unit.len() > FRAMES_MAX {
            return Err(Fault::in_file(format!("audio frame of {} bytes", self.unit.len())));
        }
        let is_late = sample.pts.saturating_sub(self.frames_at) >= FRAMES_TIME;
        if is_late || self.frames.len() + self.unit.len() > FRAMES_MAX {
            self.flush(out);
        }
        if self.frames.is_empty() {
            self.frames_at = sample.pts;
        }
        self.frames.extend_from_slice(&self.unit);
        Ok(())
    }

    /// Writes the frames that wait for more.
    fn flush(&mut self, out: &mut Vec<u8>) {
        if self.frames.is_empty() {
            return;
        }
        let (pts, kind) = (self.frames_at, Kind::Audio);
        let sample = Sample { pos: 0, size: 0, dts: pts, pts, kind, is_key: true };
        let frames = std::mem::take(&mut self.frames);
        self.write(kind, &sample, &frames, out);
        self.frames = frames;
        self.frames.clear();
    }

    fn write(&mut self, kind: Kind, sample: &Sample, data: &[u8], out: &mut Vec<u8>) {
        let dts = sample.dts + FIRST;
        let pes = Pes {
            // A frame is not shown before it is decoded.
            pts: (sample.pts + FIRST).max(dts),
            dts,
            pcr: (kind == self.clock).then_some(dts - BUFFERED),
            is_key: sample.is_key,
            data,
        };
        let track = self.tracks.iter_mut().find(|track| track.kind == kind);
        if let Some(track) = track {
            track.stream.write(&pes, out);
        }
    }
}

fn stream_type(codec: &codec::Codec) -> u8 {
    match codec {
        Codec::H264(_) => 0x1b,
        Codec::Aac(_) => 0x0f,
        // MPEG-2 and 2.5 have the lower rates.
        Codec::Mp3 { rate } if *rate > 0 && *rate < 32_000 => 0x04,
        Codec::Mp3 { .. } => 0x03,
    }
}
