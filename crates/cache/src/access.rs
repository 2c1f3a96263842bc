//! The access of one request, or of a helper, to the files of a cache.

use std::io;

use base::log::Level;
use engine::Client;
use event::Pool;
use files::{FileCaches, NoPool, OpenError, OpenFile, OpenSettings, ReadSettings};
use mem::{Buf, FileHandle};

/// The settings of a location about files, and the pool that waits for its disks.
pub struct DiskAccess<'a> {
    /// The worker's caches of files.
    pub files: &'a FileCaches,
    /// About opening.
    pub open: OpenSettings,
    /// About reading.
    pub read: ReadSettings,
    /// The pool; `None` where the loop waits (`aio off`).
    pub pool: Result<Option<Pool>, NoPool>,
    /// The ring reads in place of the pool.
    pub by_ring: bool,
}

impl DiskAccess<'_> {
    /// The pool that waits, if there is one.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref().ok()?.as_ref()
    }

    pub(crate) async fn open(&self, path: &[u8]) -> Result<OpenFile, OpenError> {
        let pool = match &self.pool {
            Ok(pool) => pool.clone(),
            Err(no_pool) => return Err(OpenError::new("open()", (*no_pool).into())),
        };
        files::open_internal(self.files, self.open, pool, path).await
    }

    pub(crate) async fn piece(
        &self,
        client: &dyn Client,
        file: &FileHandle,
        pos: u64,
        len: usize,
    ) -> io::Result<Buf> {
        let pool = || {
            let pool = match &self.pool {
                _ if self.by_ring => return Ok(None),
                Ok(Some(pool)) => pool.clone(),
                Ok(None) => event::pool::default(),
                Err(no_pool) => return Err(files::of_file((*no_pool).into())),
            };
            if client.logs(Level::Debug) {
                let name = pool.name();
                client.log(Level::Debug, format_args!("thread pool \"{name}\": read"));
            }
            Ok(Some(pool))
        };
        files::piece(file, pos, len, self.read, pool).await
    }
}
