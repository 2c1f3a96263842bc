//! Unpacking gzip, piece by piece.

use mem::{Buf, Chain};
use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

/// The room that output is written into at least.
const ROOM: usize = 4096;

// What zlib's `inflate()` returns.
const NEED_DICT: i32 = 2;
const STREAM_ERROR: i32 = -2;
const DATA_ERROR: i32 = -3;
const MEM_ERROR: i32 = -4;
const BUF_ERROR: i32 = -5;

/// gzip with any window.
const GZIP: u8 = 15 + 16;

/// The reason that a stream cannot be read: what zlib's `inflate()` returns, and a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure(pub i32, pub &'static str);

/// A decompressor at work on one response.
pub(crate) struct Inflater {
    z: Inflate,
    /// The bytes, packed and unpacked, of the members before the one that is being read.
    before: (u64, u64),
    /// A member ended, and no other has begun.
    ended: bool,
    /// Output may be left inside that had no room.
    pending: bool,
}

fn fresh() -> Inflate {
    Inflate::new(true, GZIP)
}

impl Inflater {
    /// A new one: zlib-rs cannot reset one for gzip to begin anew, only for zlib's own format.
    pub fn new() -> Inflater {
        Inflater { z: fresh(), before: (0, 0), ended: false, pending: false }
    }

    /// Bytes that went in.
    pub fn total_in(&self) -> u64 {
        self.before.0 + self.z.total_in()
    }

    /// Bytes that came out.
    pub fn total_out(&self) -> u64 {
        self.before.1 + self.z.total_out()
    }

    /// Whether what went in is whole.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Unpacks memory from `input` and appends to `out`, of which it makes `limit` bytes at most or
    /// a little more. True when it is done with the input.
    pub fn run(
        &mut self,
        input: &mut Chain,
        out: &mut Chain,
        limit: usize,
    ) -> Result<bool, Failure> {
        let from = self.total_out();
        loop {
            while input.front().is_some_and(Buf::is_empty) {
                input.pop_front();
            }
            let piece = match input.front() {
                Some(buf) => buf.memory().ok_or(Failure(STREAM_ERROR, "not in memory"))?,
                None => &[],
            };
            if piece.is_empty() && !self.pending {
                return Ok(true);
            }
            if self.total_out() - from >= limit as u64 {
                return Ok(false);
            }
            if self.ended {
                // Members may stand behind one another (RFC 1952 2.2).
                self.restart();
            }
            let used = self.step(piece, out)?;
            input.advance(used);
        }
    }

    /// One call of the library: how much of `piece` it used.
    fn step(&mut self, piece: &[u8], out: &mut Chain) -> Result<u64, Failure> {
        let z = &mut self.z;
        let (had_in, had_out) = (z.total_in(), z.total_out());
        let to = out.writer_for(ROOM);
        let start = to.len();
        to.resize(to.capacity(), 0);
        let status = z.decompress(piece, &mut to[start..], InflateFlush::NoFlush);
        let made = (z.total_out() - had_out) as usize;
        let filled = start + made == to.len();
        to.truncate(start + made);
        let used = z.total_in() - had_in;
        match status {
            Ok(Status::StreamEnd) => {
                self.ended = true;
                self.pending = false;
            }
            Ok(_) if used == 0 && made == 0 && !piece.is_empty() => {
                return Err(Failure(BUF_ERROR, "no progress"));
            }
            Ok(_) => self.pending = filled,
            Err(e) => {
                let code = match e {
                    InflateError::NeedDict { .. } => NEED_DICT,
                    InflateError::StreamError => STREAM_ERROR,
                    InflateError::DataError => DATA_ERROR,
                    InflateError::MemError => MEM_ERROR,
                };
                return Err(Failure(code, z.error_message().unwrap_or(e.as_str())));
            }
        }
        Ok(used)
    }

    fn restart(&mut self) {
        self.before = (self.total_in(), self.total_out());
        self.z = fresh();
        self.ended = false;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut z = GzEncoder::new(Vec::new(), Compression::new(6));
        z.write_all(text).unwrap();
        z.finish().unwrap()
    }

    fn chain(bytes: &[u8], step: usize) -> Chain {
        let mut chain = Chain::new();
        bytes.chunks(step).for_each(|piece| chain.push_bytes(Bytes::copy_from_slice(piece)));
        chain
    }

    fn text(chain: &Chain) -> Vec<u8> {
        chain.iter().flat_map(|buf| buf.memory().unwrap().to_vec()).collect()
    }

    #[test]
    fn whole_streams_in_pieces_of_any_size() {
        let plain: Vec<u8> =
            (0..100_000u32).flat_map(|n| (n % 65_521 * 7 % 251).to_le_bytes()).collect();
        let packed = gzip(&plain);
        for step in [1, 7, 4096, usize::MAX] {
            for _ in 0..2 {
                let mut z = Inflater::new();
                let mut out = Chain::new();
                assert_eq!(z.run(&mut chain(&packed, step), &mut out, usize::MAX), Ok(true));
                assert!(z.ended() && text(&out) == plain, "{step}");
                assert_eq!(z.total_in(), packed.len() as u64);
                assert_eq!(z.total_out(), plain.len() as u64);
            }
        }
    }

    #[test]
    fn members_behind_one_another() {
        let packed = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
        for step in [1, usize::MAX] {
            let mut z = Inflater::new();
            let mut out = Chain::new();
            assert_eq!(z.run(&mut chain(&packed, step), &mut out, usize::MAX), Ok(true));
            assert_eq!((text(&out), z.ended(), z.total_out()), (b"one two".to_vec(), true, 7));
            assert_eq!(z.total_in(), packed.len() as u64);
        }
    }

    #[test]
    fn output_is_bounded() {
        let packed = gzip(&vec![0; 10 << 20]);
        let mut z = Inflater::new();
        let mut input = chain(&packed, usize::MAX);
        let mut total = 0;
        loop {
            let mut out = Chain::new();
            let done = z.run(&mut input, &mut out, 50_000).unwrap();
            assert!(out.len() <= 50_000 + mem::PAGE_SIZE as u64);
            total += out.len();
            if done {
                break;
            }
        }
        assert_eq!((total, z.ended()), (10 << 20, true));
    }

    #[test]
    fn what_is_broken_is_said_to_be() {
        let packed = gzip(b"some text that is long enough to be cut");
        let run = |bytes: &[u8]| {
            let mut z = Inflater::new();
            let result = z.run(&mut chain(bytes, 5), &mut Chain::new(), usize::MAX);
            (result, z.ended())
        };
        for len in 0..packed.len() {
            assert_eq!(run(&packed[..len]), (Ok(true), false), "{len}");
        }
        for (at, with) in [(0, 0), (2, 9), (packed.len() - 1, 1), (packed.len() - 6, 1)] {
            let mut wrong = packed.clone();
            wrong[at] ^= with;
            wrong[at] = wrong[at].wrapping_add(u8::from(with == 0));
            assert!(run(&wrong).0.is_err(), "{at}");
        }
        assert!(run(&[&packed[..], b"garbage"].concat()).0.is_err());
    }
}
