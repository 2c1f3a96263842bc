//! The bytes of a response that were received, and the positions of its readers.

use std::any::Any;
use std::collections::VecDeque;

use bytes::Bytes;
use mem::{Chain, FileHandle};

use super::FeedEnding;

/// Bytes of the file that stay in memory for readers close behind.
const TAIL: u64 = 256 << 10;

/// Bytes of a file that are given to a reader at once.
const FILE_PIECE: u64 = 1 << 20;

#[derive(Default)]
pub(super) struct Received {
    /// The last bytes received.
    pub tail: VecDeque<Bytes>,
    /// Where in the body they begin.
    pub tail_start: u64,
    /// Bytes of the body received.
    pub total: u64,
    /// Bytes of the body in the file.
    pub written: u64,
    pub file: Option<FileHandle>,
    /// All of the body was received.
    pub ended: bool,
    /// It cannot be finished.
    pub broken: bool,
    /// Nothing is done any more.
    pub over: bool,
    /// For the reader that logs: why.
    pub failure: Option<Box<dyn Any>>,
    pub ending: FeedEnding,
    /// Bytes received from the upstream that are not counted for a request yet.
    pub fresh: u64,
    /// How far each reader is, by its index.
    pub readers: Vec<Option<u64>>,
}

impl Received {
    pub fn push(&mut self, piece: Bytes) {
        self.total += piece.len() as u64;
        self.tail.push_back(piece);
    }

    /// The part of the tail that is not in the file yet.
    pub fn unwritten(&self) -> Vec<Bytes> {
        let mut skip = self.written - self.tail_start;
        let mut out = Vec::new();
        for piece in &self.tail {
            let len = piece.len() as u64;
            if skip < len {
                out.push(piece.slice(skip as usize..));
            }
            skip = skip.saturating_sub(len);
        }
        out
    }

    pub fn slowest(&self) -> Option<u64> {
        self.readers.iter().flatten().min().copied()
    }

    /// Drops bytes that are in the file, or that all readers have where there is none.
    pub fn trim(&mut self, in_file: bool) {
        let slowest = self.slowest().unwrap_or(self.total);
        let most = match in_file {
            true => self.written.min(slowest.max(self.total.saturating_sub(TAIL))),
            false => slowest,
        };
        while let Some(first) = self.tail.front() {
            let end = self.tail_start + first.len() as u64;
            if end > most {
                break;
            }
            self.tail_start = end;
            self.tail.pop_front();
        }
    }

    /// The bytes from `pos` on, about `most`.
    pub fn take(&self, pos: u64, most: u64, body_start: u64) -> Chain {
        let mut out = Chain::new();
        if pos < self.tail_start {
            if let Some(file) = &self.file {
                let end = self.tail_start.min(self.written).min(pos + FILE_PIECE);
                out.push_file(file.clone(), body_start + pos, body_start + end);
            }
            return out;
        }
        let mut skip = pos - self.tail_start;
        for piece in &self.tail {
            let len = piece.len() as u64;
            if skip < len {
                out.push_bytes(piece.slice(skip as usize..));
                if out.len() >= most {
                    break;
                }
            }
            skip = skip.saturating_sub(len);
        }
        out
    }
}
