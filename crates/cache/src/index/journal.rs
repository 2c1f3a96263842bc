//! A journal that is being written.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{FOLDER, JOURNAL};
use crate::index_format::{FileHeader, IndexFileKind};

/// A journal that is being written. It is opened for each write alone, so that a file system can be
/// made read-only, and a journal that was deleted is noticed.
pub struct Journal {
    /// Holds the lock.
    #[expect(dead_code, reason = "kept for its lock")]
    lock: OwnedFd,
    pub path: PathBuf,
    pub bytes: u64,
}

impl Journal {
    /// Begins a journal; of a later order where there is one of that order: after a reload the
    /// keeper before may have begun one in the same millisecond.
    pub fn create(folder: &Path, mut order: u64, part: u32) -> io::Result<Journal> {
        let folder = folder.join(FOLDER);
        let (path, fd) = loop {
            let path = folder.join(format!("{JOURNAL}{order:016x}.{part:08x}"));
            match os::file::create_new(&path, 0o600) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => order += 1,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
                    break (path.clone(), os::file::create_new(&path, 0o600)?);
                }
                made => break (path, made?),
            }
        };
        drop(fd);
        let lock = os::file::open(&path)?;
        os::file::try_lock(&lock)?;
        let mut journal = Journal { lock, path, bytes: 0 };
        let header = FileHeader { kind: IndexFileKind::Journal, order, part };
        journal.append(&header.encode(), false)?;
        // The name is on the disk before a flush of its content is reported. Some file systems
        // cannot do that.
        let _ = os::file::open(&folder).and_then(os::file::sync_data);
        Ok(journal)
    }

    /// Flushes the journal to the disk.
    pub fn sync(&self) -> io::Result<()> {
        os::file::sync_data(os::file::open_to_change(&self.path)?)
    }

    /// Appends records, and flushes the journal to the disk where `flush` says so. Bytes of a write
    /// that failed are written over.
    pub fn append(&mut self, bytes: &[u8], flush: bool) -> io::Result<()> {
        let fd = os::file::open_to_change(&self.path)?;
        os::file::write_all_at(&fd, &[bytes], self.bytes)?;
        self.bytes += bytes.len() as u64;
        if flush {
            os::file::sync_data(&fd)?;
        }
        Ok(())
    }
}
