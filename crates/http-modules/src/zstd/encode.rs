//! Zstandard streams.

use mem::Buf;
use zstd_safe::zstd_sys::ZSTD_EndDirective as End;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use crate::compress::coder::{Broken, Coder, Job, Until};
use crate::compress::idle::{self, Idle};

/// The largest window that browsers have to have: 8 MB (RFC 9659).
const WINDOW_LOG_MAX: u32 = 23;

/// From this level on windows are larger unless it is said otherwise.
const LARGE_WINDOWS: i32 = 20;

/// The room that output is written into at least.
const ROOM: usize = 4096;

/// The most idle compressors that a worker keeps: from some hundred kilobytes to megabytes each.
const IDLE_MAX: usize = 2;

/// Levels from here on take too much memory to keep compressors.
const KEEP_LEVEL_MAX: i32 = 9;

thread_local! {
    static IDLE: Idle<i32, CCtx<'static>> = const { Idle::new(IDLE_MAX) };
}

/// A compressor at work on one response; when that is whole, it goes back to the others.
pub struct Zstd {
    level: i32,
    /// `None` only while it is being dropped.
    cx: Option<CCtx<'static>>,
    total_in: u64,
    total_out: u64,
    ended: bool,
}

impl Zstd {
    /// One of that level, used before or new, for so many bytes, where that is known.
    pub fn take(level: i32, len: Option<u64>) -> Result<Zstd, Broken> {
        let mut cx = match idle::take(&IDLE, &level) {
            Some(cx) => cx,
            None => {
                let mut cx = CCtx::try_create().ok_or(Broken)?;
                let set = |cx: &mut CCtx<'_>, parameter| {
                    cx.set_parameter(parameter).map(drop).map_err(|_| Broken)
                };
                set(&mut cx, CParameter::CompressionLevel(level))?;
                if level >= LARGE_WINDOWS {
                    set(&mut cx, CParameter::WindowLog(WINDOW_LOG_MAX))?;
                }
                cx
            }
        };
        // Small windows and tables for small responses; and the length stands in the frame.
        cx.set_pledged_src_size(len).map_err(|_| Broken)?;
        Ok(Zstd { level, cx: Some(cx), total_in: 0, total_out: 0, ended: false })
    }
}

impl Coder for Zstd {
    fn run(&mut self, Job { input, until, out, limit }: Job<'_>) -> Result<bool, Broken> {
        let Some(cx) = &mut self.cx else { return Err(Broken) };
        let mut made = 0;
        while !self.ended {
            let is_last = input.iter().skip_while(|buf| buf.is_empty()).skip(1).all(Buf::is_empty);
            let piece = Job::first(input)?;
            let end = match until {
                Until::Flushed if is_last => End::ZSTD_e_flush,
                Until::Ended if is_last => End::ZSTD_e_end,
                _ => End::ZSTD_e_continue,
            };
            if piece.is_empty() && until == Until::Free {
                break;
            }
            if made >= limit {
                return Ok(false);
            }
            let to = out.writer_for(ROOM);
            let start = to.len();
            let mut from = InBuffer::around(piece);
            let mut output = OutBuffer::around_pos(to, start);
            let left = cx.compress_stream2(&mut output, &mut from, end).map_err(|_| Broken)?;
            let (used, now) = (from.pos(), output.pos() - start);
            made += now;
            self.total_in += used as u64;
            self.total_out += now as u64;
            let all = used == piece.len();
            input.advance(used as u64);
            if left == 0 && all && end != End::ZSTD_e_continue {
                self.ended = end == End::ZSTD_e_end;
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
        (self.total_in, self.total_out)
    }
}

impl Drop for Zstd {
    fn drop(&mut self) {
        let Some(mut cx) = self.cx.take().filter(|_| self.level <= KEEP_LEVEL_MAX) else { return };
        if cx.reset(ResetDirective::SessionOnly).is_ok() {
            idle::keep(&IDLE, self.level, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use mem::Chain;

    use super::*;
    use crate::compress::coder::tests;

    fn unzip(bytes: &[u8]) -> Vec<u8> {
        let mut cx = zstd_safe::DCtx::create();
        let mut out = Vec::with_capacity(64 << 10);
        let mut from = InBuffer::around(bytes);
        loop {
            out.reserve(64 << 10);
            let at = out.len();
            let mut output = OutBuffer::around_pos(&mut out, at);
            cx.decompress_stream(&mut output, &mut from).expect("a zstd stream");
            let made = output.pos() - at;
            if from.pos() == bytes.len() && made == 0 {
                return out;
            }
        }
    }

    #[test]
    fn streams_can_be_read() {
        for level in [1, 9, 19, 22] {
            tests::streams_can_be_read(|len| Box::new(Zstd::take(level, len).unwrap()), unzip);
        }
    }

    #[test]
    fn one_that_was_left_in_the_middle_begins_anew() {
        let mut out = Chain::new();
        let mut z = Zstd::take(3, None).unwrap();
        tests::run(&mut z, &mut tests::chain(&[b"half of it"]), (Until::Free, 1 << 16), &mut out)
            .unwrap();
        drop(z);
        let mut z = Zstd::take(3, Some(5)).unwrap();
        let mut out = Chain::new();
        tests::run(&mut z, &mut tests::chain(&[b"whole"]), (Until::Ended, 1 << 16), &mut out)
            .unwrap();
        assert_eq!((unzip(&tests::bytes(&out)), z.totals().0), (b"whole".to_vec(), 5));
    }
}
