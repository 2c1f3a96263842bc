//! The temporary file for the part of a body that exceeds the buffers; a thread writes it.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use engine::TempPath;
use event::Pool;
use files::{FileError, Keep, TempFile};
use mem::Chain;

/// The file, and how much of it was sent.
pub(crate) struct SpillFile {
    pub file: TempFile,
    given: u64,
}

impl SpillFile {
    /// Creates the file. Blocks on the disk.
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

/// A write to the file in the thread pool.
pub(crate) type Writing = Pin<Box<dyn Future<Output = Result<Written, FileError>>>>;

/// The result of a write.
pub(crate) struct Written {
    /// The file, if it was created by this write.
    pub made: Option<SpillFile>,
    /// The number of bytes written.
    pub len: u64,
    /// The written bytes: returned, because their pages must be freed in the event loop's thread.
    _pieces: Vec<Bytes>,
}

/// Appends pieces to the file, which is created if necessary.
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
        let made = match there {
            Some((fd, at, path)) => {
                let done = os::file::write_all_at(&fd, &pieces, at);
                done.map_err(|e| FileError::new("pwritev()", path, e))?;
                None
            }
            None => {
                let made = SpillFile::make(&folder)?;
                let done = os::file::write_all_at(made.file.handle(), &pieces, 0);
                done.map_err(|e| FileError::new("pwritev()", made.file.path(), e))?;
                Some(made)
            }
        };
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        Ok(Written { made, len, _pieces: pieces })
    };
    Box::pin(async move {
        match pool {
            None => task(),
            Some(pool) => match pool.run(task).await {
                Ok(done) => done,
                Err(e) => Err(FileError::new("pwritev()", path, e.into())),
            },
        }
    })
}
