//! A response that another worker fetches, read by this one from the file that it grows in: see
//! [`crate::streams`].
//!
//! When the other worker is done, or dead, the header of the file says which: it tells the body's
//! length when all of it is there.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use event::Pool;
use mem::{Chain, FileHandle};

use crate::file_header::{BadHeader, Header, UNFINISHED};
use crate::instance::Cache;
use crate::key::Hash;
use crate::store::{self, TempPlace};
use crate::streams::{LiveStream, StreamId};

/// Bytes of a header that are read at first.
const FIRST: usize = 4096;

/// A response on its way, open.
pub struct GrowingFile {
    cache: Rc<Cache>,
    id: StreamId,
    file: FileHandle,
    /// The file's header, but for the length of the body.
    pub header: Header,
    pool: Option<Pool>,
}

/// Opens a file that has a whole header. For threads.
fn open(path: &Path) -> Option<(FileHandle, Header)> {
    let file = files::wrap_local(os::file::open_own(path).ok()?);
    header_of(&file).map(|header| (file, header))
}

/// Reads the header at the start of a file, if it is a whole one. For threads.
fn header_of(file: &FileHandle) -> Option<Header> {
    let mut bytes = vec![0; FIRST];
    loop {
        let len = os::file::read_at(file, &mut bytes, 0).ok()?;
        match Header::decode(&Bytes::copy_from_slice(&bytes[..len])) {
            Ok(header) => return Some(header),
            Err(BadHeader::Short(need)) if need > bytes.len() => bytes.resize(need, 0),
            Err(_) => return None,
        }
    }
}

impl GrowingFile {
    /// Opens a response that another process publishes; `None` where it is gone, or `fits` says
    /// that it is another one than the request asks for.
    pub async fn open(
        cache: &Rc<Cache>,
        hash: &Hash,
        stream: &LiveStream,
        temp: TempPlace,
        pool: Option<Pool>,
        fits: impl FnOnce(&Header) -> bool,
    ) -> Option<Box<GrowingFile>> {
        let path: PathBuf = temp.name(&cache.settings.layout.path(hash), stream.number?);
        let opened = store::elsewhere(pool.as_ref(), move || open(&path)).await;
        let (file, header) = opened.ok().flatten()?;
        if !fits(&header) || cache.keys.marks.fetched_before(&header) {
            return None;
        }
        let cache = cache.clone();
        Some(Box::new(GrowingFile { cache, id: stream.id, file, header, pool }))
    }

    /// Bytes of the body that are in the file; `None`: the other worker is done, or dead.
    pub fn written(&self) -> Option<u64> {
        self.cache.keys.streams.written(self.id)
    }

    /// Waits until more than `there` bytes are in the file, or the other worker is done.
    pub async fn grown(&self, there: u64) {
        self.cache.waiters.grown(&self.cache.keys, self.id, there).await;
    }

    /// Bytes `from..to` of the body.
    pub fn body(&self, from: u64, to: u64) -> Chain {
        let start = self.header.body_start() as u64;
        let mut out = Chain::new();
        out.push_file(self.file.clone(), start + from, start + to);
        out
    }

    /// Whether all of it, `len` bytes of body, is in the file, as its header says by now.
    pub async fn is_whole(&self, len: u64) -> bool {
        let file = self.file.clone();
        let read = store::elsewhere(self.pool.as_ref(), move || header_of(&file)).await;
        let told = read.ok().flatten().map_or(UNFINISHED, |header| header.body_len);
        told == len
    }
}
