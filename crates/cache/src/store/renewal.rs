//! Responses that were found to be still good: their files get new headers.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use event::Pool;
use files::{FileError, as_path};
use mem::FileHandle;
use os::file::FileMeta;

use super::stored::Stored;
use super::unfinished::{TempPlace, UnfinishedFile};
use super::{blocks, elsewhere, identity, invalidate};
use crate::faults::FaultCause;
use crate::file_header::Header;
use crate::index_format::{IndexEntry, Record};
use crate::instance::Cache;
use crate::key::{self, Hash};
use crate::keys::RenameTurn;
use crate::purge_marks::Since;
use crate::purging;
use crate::tags;

/// Gives the file of a response that was found to be still good a new header, unless the file is
/// another one by now: over the old one where the body can stay in its place, else in a new file.
/// Gives the facts about the file. For threads.
fn rewrite_header(
    path: &[u8],
    meta: &FileMeta,
    mut header: Header,
    body_start: u64,
) -> Result<Option<FileMeta>, FileError> {
    let fail = |what, e| FileError::new(what, as_path(path), e);
    let fd: OwnedFd = match os::file::open_to_change(as_path(path)) {
        Ok(fd) => fd,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail("open()", e)),
    };
    let now = os::file::fstat(&fd).map_err(|e| fail("fstat()", e))?;
    if (now.ino, now.dev, now.size) != (meta.ino, meta.dev, meta.size) {
        return Ok(None);
    }
    if !header.reach(body_start as usize) {
        header.room = HEAD_ROOM;
        header.align();
        return copy_behind(path, fd.into(), &header, body_start).map(Some);
    }
    let bytes = header.encode();
    os::file::write_all_at(&fd, &[bytes], 0).map_err(|e| fail("pwritev()", e))?;
    os::file::fstat(&fd).map(Some).map_err(|e| fail("fstat()", e))
}

/// Bytes by which a head that may be changed can grow in its place.
pub const HEAD_ROOM: usize = 256;

/// Makes a new file of a header and the body of another one, in the place of that.
fn copy_behind(
    path: &[u8],
    from: FileHandle,
    header: &Header,
    body_start: u64,
) -> Result<FileMeta, FileError> {
    let mut unfinished = UnfinishedFile::create(&TempPlace::Beside, path)?;
    unfinished.write(&[Bytes::from(header.encode())], 0)?;
    let at = header.body_start() as u64;
    unfinished
        .take_from(&from, body_start, at)
        .map_err(|e| FileError::new("pread()", as_path(path), e))??;
    unfinished.place(path)
}

/// Renews a response that was found to be still good: its file gets a new header, and other workers
/// see a new version. `since`: the state of purges when the upstream was asked.
pub async fn renew(
    cache: &Rc<Cache>,
    hash: Hash,
    since: Since,
    stored: &Stored,
    header: Header,
    pool: Option<Pool>,
) {
    let path = cache.settings.layout.path(&hash);
    let (meta, body_start) = (*stored.meta(), stored.body_start());
    let (tags, date) = (tags::of_header(&header), header.date);
    let is_purged = || purging::meanwhile(cache, since, &stored.header.key, &tags);
    // A purged response would look as if it had been fetched since; and of two renewals at the same
    // time one is enough.
    let mut evicted = Vec::new();
    let turn = cache.keys.turn(&hash, cache.settings.inactive, is_purged, &mut evicted);
    cache.discard(evicted, pool.as_ref());
    let RenameTurn::Ours(placing) = turn else { return };
    let task = move || rewrite_header(&path, &meta, header, body_start);
    placing.is_under_way(true);
    let rewritten = elsewhere(pool.as_ref(), task).await;
    placing.is_under_way(false);
    match rewritten {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(meta))) => {
            let blocks = blocks(&meta, cache.block());
            let version = cache.keys.renewed(&hash, blocks, is_purged);
            cache.memory.borrow_mut().forget(&hash);
            if version != 0 {
                cache.tell_index(&Record::Put(IndexEntry {
                    hash,
                    blocks,
                    expire: u32::try_from(date).unwrap_or(0),
                    date: u32::try_from(date).unwrap_or(0),
                    version,
                    file: identity(&meta),
                    uses: 1,
                    is_variant: key::hash(&stored.header.key) != hash,
                    key: &stored.header.key,
                    tags: &tags,
                }));
            }
            if is_purged() {
                // Its file may not be deleted yet, and looks young now.
                invalidate(cache, vec![hash], pool).await;
            }
        }
        Ok(Err(e)) => cache.tell(FaultCause::Write, format_args!("{e}")),
        Err(e) => cache.tell(FaultCause::Write, format_args!("{e}")),
    }
}
