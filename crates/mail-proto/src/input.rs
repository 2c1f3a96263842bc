//! The bytes of a client that are not used yet.

use bytes::Bytes;
use std::mem;

/// A buffer for one command at a time; commands behind it may wait in it.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// The number of first bytes of `bytes` in which no line ends.
    scanned: usize,
    /// Bytes of the command that were taken already: lines and literals of IMAP.
    used: usize,
    limit: usize,
}

impl Input {
    pub(crate) fn new(limit: usize) -> Input {
        Input { bytes: Vec::new(), scanned: 0, used: 0, limit }
    }

    /// Bytes that still fit: `used + bytes.len() + room() <= limit`.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.used).saturating_sub(self.bytes.len())
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn pending(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn take_pending(&mut self) -> Vec<u8> {
        self.scanned = 0;
        self.used = 0;
        mem::take(&mut self.bytes)
    }

    /// The next line with its end, if it is there. It counts until [`Input::command_ends`].
    pub(crate) fn line(&mut self) -> Option<Vec<u8>> {
        let rest = self.bytes.get(self.scanned..).unwrap_or_default();
        match memchr::memchr(b'\n', rest) {
            Some(at) => Some(self.take(self.scanned + at + 1)),
            None => {
                self.scanned = self.bytes.len();
                None
            }
        }
    }

    /// The next `len` bytes, if they are there.
    pub(crate) fn exactly(&mut self, len: usize) -> Option<Vec<u8>> {
        if self.bytes.len() < len { None } else { Some(self.take(len)) }
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(len.min(self.bytes.len()));
        let taken = mem::replace(&mut self.bytes, rest);
        self.scanned = 0;
        self.used += taken.len();
        taken
    }

    /// The bytes that a literal may have so that a line's end fits behind it.
    pub(crate) fn literal_max(&self) -> usize {
        self.limit.saturating_sub(self.used).saturating_sub(1)
    }

    /// The next bytes are another command.
    pub(crate) fn command_ends(&mut self) {
        self.used = 0;
    }
}

/// A line without its end, CR LF or LF alone.
pub(crate) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line may be a command: it has no CR inside, which another parser may take for its end, and no
/// NUL (RFC 3501 section 9, RFC 5321 section 4.1.2).
pub(crate) fn is_clean(line: &[u8]) -> bool {
    memchr::memchr2(b'\r', 0, line).is_none()
}

/// The words of a line, between spaces.
pub(crate) fn words(line: &[u8]) -> Vec<Bytes> {
    let words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    words.map(Bytes::copy_from_slice).collect()
}
