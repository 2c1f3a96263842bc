//! Files of a cache: opened and checked, written and renamed to their names, deleted. A step that
//! may wait for a disk runs in a thread; bytes that the kernel has in memory are taken at once.

mod memory;
mod removal;
mod renewal;
mod stored;
mod unfinished;

use std::io;

use base::crc::Crc32;
use event::Pool;
use os::file::FileMeta;

pub(crate) use self::memory::ResponseMemory;
pub(crate) use self::removal::{delete, delete_all, delete_each, take_away};
pub use self::removal::{invalidate, outdate};
pub use self::renewal::{HEAD_ROOM, renew};
pub use self::stored::{Opened, Stored, held, open_file, unless_purged};
pub use self::unfinished::TempPlace;
pub(crate) use self::unfinished::UnfinishedFile;

/// Blocks that a file takes, as nginx counts them: where a file system says something strange, its
/// length counts.
pub(crate) fn blocks(meta: &FileMeta, block: u64) -> u32 {
    let on_disk = meta.blocks.saturating_mul(512);
    let plausible = on_disk > meta.size && on_disk < meta.size + 8 * u64::from(meta.blksize);
    let bytes = if plausible { on_disk } else { meta.size };
    u32::try_from(bytes.div_ceil(block.max(1))).unwrap_or(u32::MAX)
}

/// The fingerprint of a file, whatever its name; never 0. A file that is written to or copied has
/// another one.
pub(crate) fn identity(meta: &FileMeta) -> u32 {
    let mut sum = Crc32::new();
    for n in [meta.ino, meta.size, meta.mtime_sec as u64, meta.mtime_nsec.into()] {
        sum.update(&n.to_le_bytes());
    }
    sum.finish().max(1)
}

/// Runs a task that may wait for a disk in a thread of `pool`, or here where there is none.
pub(crate) async fn elsewhere<T: Send + 'static>(
    pool: Option<&Pool>,
    task: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    match pool {
        None => Ok(task()),
        Some(pool) => Ok(pool.run(task).await?),
    }
}
