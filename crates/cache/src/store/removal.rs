//! Files that are deleted, and entries that are not to be used any more.

use std::io;

use event::Pool;
use files::{FileError, as_path};

use super::elsewhere;
use crate::faults::FaultCause;
use crate::instance::Cache;
use crate::key::{Hash, Layout};

/// Deletes a file before another one may take its place.
pub(crate) async fn take_away(cache: &Cache, hash: &Hash, pool: Option<&Pool>) {
    cache.memory.borrow_mut().forget(hash);
    delete_all(cache, vec![*hash], pool).await;
}

/// Deletes files in a thread, and tells of the last that could not be. Gives how many there were.
pub(crate) async fn delete_all(cache: &Cache, files: Vec<Hash>, pool: Option<&Pool>) -> usize {
    if files.is_empty() {
        return 0;
    }
    let layout = cache.settings.layout.clone();
    match elsewhere(pool, move || delete_each(&layout, &files)).await {
        Ok((count, failed)) => {
            if let Some(e) = failed {
                cache.tell(FaultCause::Delete, format_args!("{e}"));
            }
            count
        }
        Err(e) => {
            cache.tell(FaultCause::Delete, format_args!("{e}"));
            0
        }
    }
}

/// Deletes files: how many there were, and why the last that could not be. May wait for a disk.
pub(crate) fn delete_each(layout: &Layout, files: &[Hash]) -> (usize, Option<FileError>) {
    let deleted = files.iter().map(|hash| delete(layout, hash));
    deleted.fold((0, None), |(count, failed), deleted| match deleted {
        Ok(was_there) => (count + usize::from(was_there), failed),
        Err(e) => (count, Some(e)),
    })
}

/// Deletes the file of a hash; that there is none is as well. Whether there was one. For threads.
pub(crate) fn delete(layout: &Layout, hash: &Hash) -> Result<bool, FileError> {
    let path = layout.path(hash);
    match std::fs::remove_file(as_path(&path)) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(FileError::new("unlink()", as_path(&path), e)),
    }
}

/// The origin has changed the targets of some keys: kept responses of them are not used any more,
/// and responses that are being fetched now are not kept.
pub async fn outdate(cache: &Cache, hashes: Vec<Hash>, pool: Option<Pool>) {
    hashes.iter().for_each(|hash| cache.keys.marks.purge_key(hash));
    invalidate(cache, hashes.clone(), pool).await;
    // One that is killed while it gives a file its place leaves it there.
    for hash in &hashes {
        let _ = cache.keys.tell_purged(hash);
    }
}

/// Invalidates the responses of some keys: when this has ended no request uses them.
pub async fn invalidate(cache: &Cache, hashes: Vec<Hash>, pool: Option<Pool>) {
    let forget = || {
        for hash in &hashes {
            if cache.keys.invalidate(hash) {
                cache.tell_gone(hash);
            }
            cache.memory.borrow_mut().forget(hash);
            if let Some(fill) = cache.fills.borrow_mut().remove(hash) {
                fill.spoil();
            }
            cache.waiters.forget(hash);
        }
    };
    forget();
    delete_all(cache, hashes.clone(), pool.as_ref()).await;
    // Before the files of the folder are known, one may have been found in between.
    forget();
}
