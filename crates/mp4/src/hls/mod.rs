//! HTTP Live Streaming (RFC 8216) of MP4 files: playlists, and fragments as MPEG transport streams
//! (ISO/IEC 13818-1) with H.264 video and AAC or MP3 audio.
//!
//! A fragment is made in two steps. [`Film::fragment`] finds its samples in the index; then the
//! caller reads the bytes that [`Muxer::wanted`] names, and [`Muxer::feed`] packs them:
//!
//! ```text
//!  moov ─▶ Film ─▶ playlist
//!            └───▶ Muxer ─▶ wanted: bytes 4711..5120 ─▶ feed ─▶ packets of 188 bytes ─┐
//!                    └──────────────────────◀─────────────────────────────────────────┘
//! ```

mod codec;
mod cursor;
mod film;
mod fragment;
mod mux;
mod playlist;
#[cfg(test)]
mod tests;
mod ts;

use std::ops::Range;

use super::Fault;

pub use film::Film;
pub use mux::{Kind, Muxer};
pub use playlist::Playlist;

/// A part of a film, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The time of the first sample.
    pub start_ms: u64,
    /// The time after the last sample; `None`: the film's end.
    pub end_ms: Option<u64>,
}

/// The limits on a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The length of the file.
    pub file_len: u64,
    /// The most bytes of a playlist or fragment.
    pub bytes_max: u64,
}

/// The reason that there is no playlist or fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The file is malformed, has no supported codec, or the result would be too large.
    Fault(Fault),
    /// The film has nothing between these two times.
    Empty,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        Refused::Fault(fault)
    }
}

/// The error for a playlist or fragment above [`Limits::bytes_max`].
pub fn too_large(what: &str, bytes_max: u64) -> Fault {
    Fault::of_file(format!(
        "hls {what} is larger than {bytes_max} bytes, you may want to increase hls_buffers"
    ))
}

/// Units of a transport stream's times, each second.
const CLOCK: u32 = 90_000;

/// Ticks of one timescale in another.
fn rescaled(ticks: u64, from: u32, to: u32) -> u64 {
    let scaled = u128::from(ticks) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The first tick at or after a time.
fn ticks_at(ms: u64, timescale: u32) -> u64 {
    let ticks = (u128::from(ms) * u128::from(timescale)).div_ceil(1000);
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// The range of the file that has some bytes.
type FileRange = Range<u64>;
