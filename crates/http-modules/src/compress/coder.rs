//! The interface of all compressors, so that one body filter does for them.

use mem::{Buf, Chain};

/// The extent to which a piece's output is demanded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// As much as the compressor gives.
    Free,
    /// All that went in so far.
    Flushed,
    /// The end of the stream.
    Ended,
}

/// The compressor failed, which it does not do unless it is used wrongly or has no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

/// One call of a compressor.
pub struct Job<'a> {
    /// The bytes to compress, in memory.
    pub input: &'a mut Chain,
    /// The extent to which its output is demanded.
    pub until: Until,
    /// The chain that the output is appended to.
    pub out: &'a mut Chain,
    /// The number of bytes of output that are enough for one call.
    pub limit: usize,
}

impl Job<'_> {
    /// The first bytes of the input; none at its end.
    ///
    /// # Errors
    /// They are not in memory.
    pub fn first(input: &mut Chain) -> Result<&[u8], Broken> {
        while input.front().is_some_and(Buf::is_empty) {
            input.pop_front();
        }
        match input.front() {
            Some(buf) => buf.memory().ok_or(Broken),
            None => Ok(&[]),
        }
    }
}

/// A compressor at work on one response. It may work in a thread of a pool, and is in one place at
/// a time.
pub trait Coder: Send {
    /// Compresses the input and appends to the output, of which it makes `limit` bytes at most or a
    /// little more. True when it is done with the input, and with what it was to flush.
    ///
    /// # Errors
    /// See [`Broken`].
    fn run(&mut self, job: Job<'_>) -> Result<bool, Broken>;

    /// Whether the stream has ended.
    fn ended(&self) -> bool;

    /// Bytes that went in, and that came out.
    fn totals(&self) -> (u64, u64);
}

#[cfg(test)]
#[allow(missing_docs)]
pub mod tests {
    use super::*;
    use bytes::Bytes;

    pub fn chain(pieces: &[&[u8]]) -> Chain {
        let mut chain = Chain::new();
        pieces.iter().for_each(|piece| chain.push(mem::Buf::Mem(Bytes::copy_from_slice(piece))));
        chain
    }

    pub fn bytes(chain: &Chain) -> Vec<u8> {
        chain.iter().flat_map(|buf| buf.memory().unwrap().to_vec()).collect()
    }

    /// Bytes that do not compress.
    pub fn noise(len: usize) -> Vec<u8> {
        let mut n = 88172645463325252u64;
        let next = || {
            n ^= n << 13;
            n ^= n >> 7;
            n ^= n << 17;
            n as u8
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    pub fn run(
        z: &mut dyn Coder,
        input: &mut Chain,
        (until, limit): (Until, usize),
        out: &mut Chain,
    ) -> Result<bool, Broken> {
        z.run(Job { input, until, out, limit })
    }

    /// Tests a compressor; `unzip` gives the readable part of a stream so far.
    pub(crate) fn streams_can_be_read(
        make: impl Fn(Option<u64>) -> Box<dyn Coder>,
        unzip: impl Fn(&[u8]) -> Vec<u8>,
    ) {
        let text = [noise(5000), vec![b'x'; 100_000], noise(200_000), b"the end".to_vec()].concat();
        for (len, limit) in [(Some(text.len() as u64), usize::MAX), (None, 4096)] {
            let mut z = make(len);
            let mut input = chain(&[&text[..1], b"", &text[1..150_000], &text[150_000..]]);
            let mut all = Vec::new();
            loop {
                let mut out = Chain::new();
                let done = run(&mut *z, &mut input, (Until::Ended, limit), &mut out).unwrap();
                all.extend(bytes(&out));
                if done {
                    break;
                }
                assert!(!out.is_empty());
            }
            assert!(z.ended() && input.is_empty() && unzip(&all) == text);
            assert_eq!(z.totals(), (text.len() as u64, all.len() as u64));
        }
        let (mut z, mut out) = (make(None), Chain::new());
        for piece in [&b"one "[..], b"", b"two "] {
            let done = run(&mut *z, &mut chain(&[piece]), (Until::Flushed, usize::MAX), &mut out);
            assert_eq!(done, Ok(true));
        }
        assert_eq!(unzip(&bytes(&out)), b"one two ");
        assert_eq!(
            run(&mut *z, &mut chain(&[b"three"]), (Until::Free, usize::MAX), &mut out),
            Ok(true)
        );
        assert_eq!(run(&mut *z, &mut Chain::new(), (Until::Ended, usize::MAX), &mut out), Ok(true));
        assert!(z.ended() && unzip(&bytes(&out)) == b"one two three");
        let (mut z, mut out) = (make(Some(0)), Chain::new());
        assert_eq!(run(&mut *z, &mut Chain::new(), (Until::Ended, usize::MAX), &mut out), Ok(true));
        assert!(z.ended() && unzip(&bytes(&out)).is_empty() && !out.is_empty());
    }
}
