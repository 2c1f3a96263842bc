//! Files and folders that were opened, and what is known about them.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use mem::{Chain, FileHandle};
use os::file::{FileKind, FileMeta};

/// Files up to this size are held in memory and sent from there.
pub const CONTENT_MAX: u64 = 32 << 10;

/// The attributes of a file, with the texts that responses take from them.
#[derive(Debug)]
pub struct Facts {
    /// As the file system told it.
    pub meta: FileMeta,
    /// `ETag` as nginx makes it, with quotes.
    pub etag: Bytes,
}

impl Facts {
    pub(crate) fn new(meta: FileMeta) -> Rc<Facts> {
        let mut etag = Vec::with_capacity(28);
        etag.push(b'"');
        base::ascii::write_hex_u64(&mut etag, meta.mtime_sec as u64);
        etag.push(b'-');
        base::ascii::write_hex_u64(&mut etag, meta.size);
        etag.push(b'"');
        Rc::new(Facts { meta, etag: Bytes::from(etag) })
    }
}

/// An open file or folder. Cloning shares everything.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// Its attributes.
    pub facts: Rc<Facts>,
    /// The descriptor; `None` for folders, and for files whose content is in memory.
    pub fd: Option<FileHandle>,
    /// The content of a small file, all of it.
    pub content: Option<Bytes>,
}

impl OpenFile {
    /// The attributes that the file system told.
    #[inline]
    pub fn meta(&self) -> &FileMeta {
        &self.facts.meta
    }

    /// Appends the bytes `start..end` of the file to a chain.
    #[inline]
    pub fn append_to(&self, chain: &mut Chain, start: u64, end: u64) {
        if let Some(content) = &self.content {
            let len = content.len() as u64;
            chain.push_bytes(content.slice(start.min(len) as usize..end.min(len) as usize));
        } else if let Some(fd) = &self.fd {
            chain.push_file(fd.clone(), start, end);
        }
    }
}

/// An entry of a folder.
#[derive(Debug)]
pub struct DirEntry {
    /// The name within the folder.
    pub name: Vec<u8>,
    /// File, folder or other; links are followed where they lead somewhere.
    pub kind: FileKind,
    /// Its attributes, where they were asked for.
    pub meta: Option<FileMeta>,
}

/// The entries of a folder, hidden names left out: where their attributes were asked for, folders
/// first and by name, else in the folder's order.
#[derive(Default, Debug)]
pub struct Listing {
    /// The entries, in the order of the file system.
    pub entries: Vec<DirEntry>,
    /// Names about which nothing could be found out (`stat()` failed).
    pub failed: Vec<(Vec<u8>, io::Error)>,
}

/// The path could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// The system's error.
    pub error: io::Error,
    /// The call that failed, for the log: `open()`, `stat()`, `openat()`, `fstat()`.
    pub what: &'static str,
}

impl OpenError {
    /// The failure of the call `what`.
    pub fn new(what: &'static str, error: io::Error) -> OpenError {
        OpenError { error, what }
    }

    /// The number of the system's error.
    pub fn errno(&self) -> Option<i32> {
        self.error.raw_os_error()
    }

    pub(crate) fn copied(&self) -> OpenError {
        OpenError { error: copied(&self.error), what: self.what }
    }
}

/// The same error once more, for another asker.
pub(crate) fn copied(e: &io::Error) -> io::Error {
    match e.raw_os_error() {
        Some(n) => io::Error::from_raw_os_error(n),
        None => e.kind().into(),
    }
}
