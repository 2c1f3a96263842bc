//! Files to serve: opening, facts, small contents kept in memory, `open_file_cache`.

use std::io;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use mem::{FileHandle, Page};
use os::file::FileMeta;

use crate::request::Request;

/// A file or folder that was opened.
pub struct OpenFile {
    /// Facts about it.
    pub meta: FileMeta,
    /// The descriptor; `None` for folders, and for files whose content is held.
    pub fd: Option<FileHandle>,
    /// The content of a small file, trusted to be current.
    pub content: Option<Bytes>,
    /// `ETag` as nginx makes it, with quotes.
    pub etag: Bytes,
}

/// The path could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// Why.
    pub error: io::Error,
    /// Which call failed, for the log: `open()`, `stat()`.
    pub what: &'static str,
}

fn path_of(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

/// Opens `path` as the location's settings say.
pub fn open(_r: &Request, path: &[u8]) -> Result<Rc<OpenFile>, OpenError> {
    let fail = |what| move |error| OpenError { error, what };
    let fd = os::file::open(path_of(path)).map_err(fail("open()"))?;
    let meta = os::file::fstat(&fd).map_err(fail("fstat()"))?;
    let etag = Bytes::from(format!("\"{:x}-{:x}\"", meta.mtime_sec, meta.size));
    let fd = meta.is_file().then(|| Rc::new(fd));
    Ok(Rc::new(OpenFile { meta, fd, content: None, etag }))
}

/// Facts about `path`, links followed as the location's settings say; nothing is kept open.
pub fn stat(_r: &Request, path: &[u8]) -> Result<FileMeta, OpenError> {
    os::file::stat(path_of(path)).map_err(|error| OpenError { error, what: "stat()" })
}

/// Reads up to `len` bytes at `pos`.
pub(crate) fn read_page(file: &FileHandle, pos: u64, len: usize) -> io::Result<Page> {
    let mut page = Page::get(len);
    page.append_with(|v| {
        let at = v.len();
        v.resize(at + len, 0);
        let n = os::file::read_at(file.as_ref(), &mut v[at..], pos);
        v.truncate(at + n.as_ref().map_or(0, |n| *n));
        n.map(drop)
    })?;
    Ok(page)
}
