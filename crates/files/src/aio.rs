//! `aio`: the thread that waits for a disk. By default that is not the worker: what the kernel has
//! in memory is taken at once, and for the rest a thread of a pool waits, or the ring of
//! `use io_uring`.

use conf::template::Template;
use event::Pool;

/// Where files are read, as `aio` says.
#[derive(Clone, Debug)]
pub enum Aio {
    /// `off`: the worker waits, as it is nginx's default.
    Off,
    /// `auto`, and nothing written: the event method where that reads files, else the default pool.
    Auto,
    /// `io_uring`: the same, and said so.
    Ring,
    /// `threads`, `threads=NAME`, and `on`.
    Pool(Pool),
    /// `threads=$NAME`: known when a request comes.
    Named(Template),
}

impl Aio {
    /// Whether the worker itself waits.
    #[inline]
    pub fn is_off(&self) -> bool {
        matches!(self, Aio::Off)
    }

    /// Whether the event method waits, by reading itself.
    #[inline]
    pub fn is_by_ring(&self) -> bool {
        matches!(self, Aio::Auto | Aio::Ring) && event::reads_files()
    }

    /// The pool that waits, `None` where the worker does. The error is the template of a pool whose
    /// name has variables: the session evaluates it.
    ///
    /// # Errors
    /// The template of the pool's name.
    #[inline]
    pub fn pool(&self) -> Result<Option<Pool>, &Template> {
        match self {
            Aio::Off => Ok(None),
            Aio::Auto | Aio::Ring => Ok(Some(event::pool::default())),
            Aio::Pool(pool) => Ok(Some(pool.clone())),
            Aio::Named(name) => Err(name),
        }
    }
}

/// The pool that a variable names does not exist; it was logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoPool;

impl From<NoPool> for std::io::Error {
    fn from(_: NoPool) -> std::io::Error {
        std::io::Error::other("no thread pool")
    }
}
