//! Deflate by the library, as gzip has it.

use mem::Buf;
use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Status};

use super::small::Effort;
use crate::compress::coder::{Broken, Coder, Job, Until};
use crate::compress::idle::{self, Idle};

/// The settings of a compressor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `gzip_comp_level`, 1 to 9.
    pub level: i32,
    /// `gzip_window` as a power of two, 9 to 15.
    pub window_bits: i32,
    /// `gzip_hash`: 1 to 9, as zlib's memLevel.
    pub mem_level: i32,
}

/// zlib-rs's levels for those of zlib: each gives output of texts that is about as small, in less
/// time. (Its own first level is one that zlib does not have.)
const LEVELS: [i32; 9] = [2, 3, 3, 4, 5, 7, 9, 9, 9];

impl Settings {
    /// For a response of so many bytes: one that is small does with a small window, and with small
    /// tables behind it, which have to be cleared.
    pub fn fitted(mut self, len: Option<u64>) -> Settings {
        let Some(len) = len.filter(|len| *len > 0) else { return self };
        // So far from its end deflate does not look for repetitions in its window.
        const LOOK_AHEAD: u64 = 262;
        while self.window_bits > 9 && len + LOOK_AHEAD < 1 << (self.window_bits - 1) {
            self.window_bits -= 1;
            self.mem_level = (self.mem_level - 1).max(1);
        }
        self
    }

    /// The effort of [`super::small`], which stands in for the library.
    pub fn effort(&self) -> Effort {
        let (chain, lazy) = match self.level {
            ..=1 => (4, 0),
            2 => (8, 0),
            3 => (16, 4),
            4 => (16, 8),
            5 => (32, 16),
            6 => (64, 32),
            7 => (128, 64),
            8 => (512, 128),
            _ => (4096, 258),
        };
        Effort { window: 1 << self.window_bits, chain, lazy }
    }

    fn library_level(&self) -> i32 {
        let at = usize::try_from(self.level - 1).unwrap_or(0);
        LEVELS.get(at).copied().unwrap_or(9)
    }
}

/// The most idle compressors that a worker keeps: a few hundred kilobytes each.
const IDLE_MAX: usize = 8;

thread_local! {
    static IDLE: Idle<Settings, Deflate> = const { Idle::new(IDLE_MAX) };
}

/// The room that output is written into at least.
const ROOM: usize = 1024;

/// A compressor at work on one response; when that is whole, it goes back to the others.
pub(crate) struct Compressor {
    settings: Settings,
    /// `None` only while it is being dropped.
    z: Option<Deflate>,
    /// The output of the last flush is not complete.
    unflushed: bool,
    ended: bool,
}

impl Compressor {
    /// One with these settings, used before or new.
    pub fn take(settings: Settings) -> Compressor {
        let z = match idle::take(&IDLE, &settings) {
            Some(mut z) => {
                z.reset();
                z
            }
            None => Deflate::new_with_config(DeflateConfig {
                level: settings.library_level(),
                // Above 15 stands for gzip's header and end instead of zlib's.
                window_bits: settings.window_bits + 16,
                mem_level: settings.mem_level,
                ..DeflateConfig::default()
            }),
        };
        Compressor { settings, z: Some(z), unflushed: false, ended: false }
    }
}

impl Coder for Compressor {
    fn run(&mut self, Job { input, until, out, limit }: Job<'_>) -> Result<bool, Broken> {
        let Some(z) = &mut self.z else { return Err(Broken) };
        let from = z.total_out();
        while !self.ended {
            let is_last = input.iter().skip_while(|buf| buf.is_empty()).skip(1).all(Buf::is_empty);
            let piece = Job::first(input)?;
            if piece.is_empty() && !self.unflushed && until == Until::Free {
                break;
            }
            if z.total_out() - from >= limit as u64 {
                return Ok(false);
            }
            let flush = match until {
                _ if !is_last => DeflateFlush::NoFlush,
                Until::Free => DeflateFlush::NoFlush,
                Until::Flushed => DeflateFlush::SyncFlush,
                Until::Ended => DeflateFlush::Finish,
            };
            let (had_in, had_out) = (z.total_in(), z.total_out());
            let to = out.writer_for(ROOM);
            let start = to.len();
            to.resize(to.capacity(), 0);
            let status = z.compress(piece, &mut to[start..], flush);
            let made = (z.total_out() - had_out) as usize;
            let filled = start + made == to.len();
            to.truncate(start + made);
            let used = z.total_in() - had_in;
            let stuck = used == 0 && made == 0;
            input.advance(used);
            match status {
                Ok(Status::StreamEnd) => self.ended = true,
                // Nothing to do is no fault when there was nothing to flush any more.
                Ok(_) if stuck && flush == DeflateFlush::Finish => return Err(Broken),
                Ok(_) => self.unflushed = filled,
                Err(_) => return Err(Broken),
            }
            if flush == DeflateFlush::SyncFlush && !filled || stuck {
                break;
            }
        }
        input.clear();
        Ok(true)
    }

    fn ended(&self) -> bool {
        self.ended
    }

    fn totals(&self) -> (u64, u64) {
        self.z.as_ref().map_or((0, 0), |z| (z.total_in(), z.total_out()))
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        // One that was left in the middle of a stream is not used again: zlib-rs 0.6's reset
        // forgets that a block is open, and the next stream would begin inside of it.
        if let Some(z) = self.z.take().filter(|_| self.ended) {
            idle::keep(&IDLE, self.settings, z);
        }
    }
}
