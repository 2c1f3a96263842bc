//! The part of a body that does not fit in memory: a file that a thread writes.

use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use engine::TempPath;
use event::Pool;
use files::{FileError, Keep, TempFile};
use mem::{Chain, FileHandle};

/// The file, and how much of it was given out.
pub(crate) struct SpillFile {
    pub file: TempFile,
    given: u64,
}

impl SpillFile {
    /// Makes the file. Waits for the disk.
    fn make(folder: &TempPath) -> Result<SpillFile, FileError> {
        let file = TempFile::create(folder, Keep::Nameless, 0o600)?;
        Ok(SpillFile { file, given: 0 })
    }

    pub fn left(&self) -> u64 {
        self.file.len() - self.given
    }

    /// The next piece of the file.
    pub fn take(&mut self, most: u64) -> Chain {
        let mut out = Chain::new();
        let end = self.given + self.left().min(most);
        out.push_file(self.file.handle().clone(), self.given, end);
        self.given = end;
        out
    }
}

/// A write to the file in a thread of the pool.
pub(crate) type Writing = Pin<Box<dyn Future<Output = Result<Written, FileError>>>>;

/// The result of a write.
pub(crate) struct Written {
    /// The file, if it was made now.
    pub made: Option<SpillFile>,
    /// Bytes written.
    pub len: u64,
    /// The bytes: their pages go back to the loop, which made them.
    _pieces: Vec<Bytes>,
}

/// Writes pieces behind the content of the file, which is made first if there is none.
pub(crate) fn write(
    file: Option<&SpillFile>,
    folder: &TempPath,
    pieces: Vec<Bytes>,
    pool: Option<Pool>,
) -> Writing {
    let there = file
        .map(|SpillFile { file, .. }| (file.handle().clone(), file.len(), file.path().to_owned()));
    let (folder, path) = (folder.clone(), folder.path.clone());
    let task = move || {
        let (made, len) = match there {
            Some((fd, at, path)) => {
                let n = write_all(&fd, &pieces, at);
                (None, n.map_err(|e| FileError::new("pwrite()", path, e))?)
            }
            None => {
                let made = SpillFile::make(&folder)?;
                let n = write_all(made.file.handle(), &pieces, 0);
                let n = n.map_err(|e| FileError::new("pwrite()", made.file.path(), e))?;
                (Some(made), n)
            }
        };
        Ok(Written { made, len, _pieces: pieces })
    };
    Box::pin(async move {
        match pool {
            None => task(),
            Some(pool) => match pool.run(task).await {
                Ok(done) => done,
                Err(e) => Err(FileError::new("pwrite()", path, e.into())),
            },
        }
    })
}

/// Runs in a thread of the pool.
fn write_all(fd: &FileHandle, pieces: &[Bytes], mut at: u64) -> io::Result<u64> {
    let from = at;
    for piece in pieces {
        let mut rest: &[u8] = piece;
        while !rest.is_empty() {
            match os::file::write_at(fd, rest, at) {
                Ok(n) => {
                    at += n as u64;
                    rest = &rest[n..];
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(at - from)
}
