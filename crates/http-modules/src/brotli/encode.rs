//! Brotli streams.

use std::io::Write;

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use mem::Chain;

use crate::compress::coder::{Broken, Coder, Job, Until};

/// The size of the library's output buffer.
const BUFFER: usize = 4096;

/// The input that goes in between two looks at the output.
const PIECE: usize = 64 << 10;

/// A compressor at work on one response.
pub struct Brotli {
    /// `None` behind the end.
    writer: Option<CompressorWriter<Vec<u8>>>,
    total_in: u64,
    total_out: u64,
}

impl Brotli {
    /// One of that level and window (a power of two), for so many bytes, where that is known.
    pub fn new(level: i32, window: i32, len: Option<u64>) -> Brotli {
        let hint = len.unwrap_or(0);
        // A window that is larger than the text is only memory; 10 is the least there is.
        let fits = 64 - hint.saturating_add(16).leading_zeros() as i32;
        let lgwin = if hint > 0 { window.min(fits.max(10)) } else { window };
        let params = BrotliEncoderParams {
            quality: level,
            lgwin,
            size_hint: usize::try_from(hint).unwrap_or(usize::MAX),
            ..BrotliEncoderParams::default()
        };
        let writer = CompressorWriter::with_params(Vec::new(), BUFFER, &params);
        Brotli { writer: Some(writer), total_in: 0, total_out: 0 }
    }

    fn give(&mut self, made: Vec<u8>, out: &mut Chain) {
        self.total_out += made.len() as u64;
        if made.len() <= BUFFER {
            out.write(&made);
        } else {
            out.push_bytes(Bytes::from(made));
        }
    }

    /// Gives out what has been made so far.
    fn take_made(&mut self, out: &mut Chain) -> usize {
        let Some(writer) = &mut self.writer else { return 0 };
        let made = std::mem::take(writer.get_mut());
        let len = made.len();
        self.give(made, out);
        len
    }
}

impl Coder for Brotli {
    fn run(&mut self, Job { input, until, out, limit }: Job<'_>) -> Result<bool, Broken> {
        let mut made = 0;
        while !input.is_empty() {
            if made >= limit {
                return Ok(false);
            }
            let Some(writer) = &mut self.writer else { return Err(Broken) };
            let Some(buf) = input.front() else { break };
            let piece = buf.memory().ok_or(Broken)?;
            let piece = &piece[..piece.len().min(PIECE)];
            writer.write_all(piece).map_err(|_| Broken)?;
            let used = piece.len() as u64;
            self.total_in += used;
            input.advance(used);
            made += self.take_made(out);
        }
        match until {
            Until::Free => {}
            Until::Flushed => {
                let Some(writer) = &mut self.writer else { return Err(Broken) };
                writer.flush().map_err(|_| Broken)?;
                self.take_made(out);
            }
            Until::Ended => {
                if let Some(writer) = self.writer.take() {
                    let made = writer.into_inner();
                    self.give(made, out);
                }
            }
        }
        input.clear();
        Ok(true)
    }

    fn ended(&self) -> bool {
        self.writer.is_none()
    }

    fn totals(&self) -> (u64, u64) {
        (self.total_in, self.total_out)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::compress::coder::tests;

    fn unzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        // An end that is missing is an error, which comes behind what is there.
        let _ = brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out);
        out
    }

    #[test]
    fn streams_can_be_read() {
        for (level, window) in [(0, 10), (5, 19), (6, 24), (11, 16)] {
            let make = |len| Box::new(Brotli::new(level, window, len)) as Box<dyn Coder>;
            tests::streams_can_be_read(make, unzip);
        }
    }
}
