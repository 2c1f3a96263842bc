//! Compressors, which are large and dear to make, kept by each worker for the next response.

use std::cell::RefCell;

use mem::{Buf, Chain};
use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Status};

/// How a compressor is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `gzip_comp_level`, 1 to 9.
    pub level: i32,
    /// `gzip_window` as a power of two, 9 to 15.
    pub window_bits: i32,
    /// `gzip_hash`: 1 to 9, as zlib's memLevel.
    pub mem_level: i32,
}

thread_local! {
    static IDLE: RefCell<Vec<(Settings, Deflate)>> = const { RefCell::new(Vec::new()) };
}

/// How many idle compressors a worker keeps: a few hundred kilobytes each.
const IDLE_MAX: usize = 4;

/// The room that output is written into at least.
const ROOM: usize = 1024;

/// A compressor at work on one response; when that is whole, it goes back to the others.
pub struct Compressor {
    settings: Settings,
    /// `None` only while it is being dropped.
    z: Option<Deflate>,
    /// What the last call was to flush has not come out whole.
    unflushed: bool,
    ended: bool,
}

/// What is to come out of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Whatever the compressor gives.
    Free,
    /// All that went in so far.
    Flushed,
    /// The end of the stream.
    Ended,
}

/// The compressor failed, which it does not do unless it is used wrongly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

impl Compressor {
    /// One with these settings, used before or new.
    pub fn take(settings: Settings) -> Compressor {
        let idle = IDLE.with_borrow_mut(|idle| {
            let at = idle.iter().rposition(|(s, _)| *s == settings)?;
            Some(idle.swap_remove(at).1)
        });
        let z = match idle {
            Some(mut z) => {
                z.reset();
                z
            }
            None => Deflate::new_with_config(DeflateConfig {
                level: settings.level,
                // Above 15 stands for gzip's header and end instead of zlib's.
                window_bits: settings.window_bits + 16,
                mem_level: settings.mem_level,
                ..DeflateConfig::default()
            }),
        };
        Compressor { settings, z: Some(z), unflushed: false, ended: false }
    }

    /// Bytes that went in.
    pub fn total_in(&self) -> u64 {
        self.z.as_ref().map_or(0, Deflate::total_in)
    }

    /// Bytes that came out.
    pub fn total_out(&self) -> u64 {
        self.z.as_ref().map_or(0, Deflate::total_out)
    }

    /// Whether the stream has ended.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Compresses memory from `input` and appends to `out`, of which it makes `limit` bytes at most
    /// or a little more. True when it is done with the input, and with what it was to flush.
    pub fn run(
        &mut self,
        input: &mut Chain,
        until: Until,
        out: &mut Chain,
        limit: usize,
    ) -> Result<bool, Broken> {
        let Some(z) = &mut self.z else { return Err(Broken) };
        let from = z.total_out();
        while !self.ended {
            while input.front().is_some_and(Buf::is_empty) {
                input.pop_front();
            }
            let piece = match input.front() {
                Some(buf) => buf.memory().ok_or(Broken)?,
                None => &[],
            };
            if piece.is_empty() && !self.unflushed && until == Until::Free {
                break;
            }
            if z.total_out() - from >= limit as u64 {
                return Ok(false);
            }
            let is_last = input.iter().skip(1).all(Buf::is_empty);
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
}

impl Drop for Compressor {
    fn drop(&mut self) {
        // One that was left in the middle of a stream is not used again: zlib-rs 0.6's reset
        // forgets that a block is open, and the next stream would begin inside of it.
        if let Some(z) = self.z.take().filter(|_| self.ended) {
            // At the thread's end there is nobody to keep it for.
            let _ = IDLE.try_with(|idle| {
                let mut idle = idle.borrow_mut();
                if idle.len() >= IDLE_MAX {
                    // Others are wanted now: the one that waits longest goes.
                    idle.remove(0);
                }
                idle.push((self.settings, z));
            });
        }
    }
}
