//! Files of the index, read piece by piece.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::index_format::{BadFile, FILE_HEADER, FileHeader, ReadStep, Record, read};

/// Bytes of a file that are read at once.
const PIECE: usize = 256 << 10;

/// A file that is being read.
pub struct Source {
    fd: OwnedFd,
    pub header: Result<FileHeader, BadFile>,
    pos: u64,
    buf: Vec<u8>,
    ended: bool,
    /// Bytes that were no records.
    pub bad: u64,
}

impl Source {
    /// Opens a file.
    pub fn open(path: &Path) -> io::Result<Source> {
        let fd = os::file::open(path)?;
        let mut start = [0; FILE_HEADER];
        let mut len = 0;
        while len < FILE_HEADER {
            match os::file::read_at(&fd, &mut start[len..], len as u64) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let header = FileHeader::decode(&start[..len]);
        let (pos, ended) = (FILE_HEADER as u64, header.is_err());
        Ok(Source { fd, header, pos, buf: Vec::new(), ended, bad: 0 })
    }

    /// Reads another piece; `each` gets the records in it, decoded and as they stand. False at the
    /// end.
    pub fn piece(&mut self, mut each: impl FnMut(&Record<'_>, &[u8])) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let had = self.buf.len();
        self.buf.resize(had + PIECE, 0);
        let n = loop {
            match os::file::read_at(&self.fd, &mut self.buf[had..], self.pos) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                n => break n?,
            }
        };
        self.buf.truncate(had + n);
        self.pos += n as u64;
        self.ended = n == 0;
        let mut at = 0;
        loop {
            match read(&self.buf[at..], self.ended) {
                ReadStep::Record(record, len) => {
                    each(&record, &self.buf[at..at + len]);
                    at += len;
                }
                ReadStep::Bad(len) => {
                    self.bad += len as u64;
                    at += len;
                }
                ReadStep::More => break,
            }
        }
        self.buf.drain(..at);
        if self.ended {
            self.bad += self.buf.len() as u64;
        }
        Ok(!self.ended)
    }

    /// Reads all that is left.
    pub fn rest(&mut self, mut each: impl FnMut(&Record<'_>, &[u8])) -> io::Result<()> {
        while self.piece(&mut each)? {}
        Ok(())
    }
}
