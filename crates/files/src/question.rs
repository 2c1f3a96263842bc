//! Questions to the file system, each in two shapes: answered at once from memory, or carried to a
//! thread that waits. Serving touches the file system here and nowhere else.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::task::{Poll, ready};

use event::Pool;
use mem::FileHandle;
use os::errno::{ELOOP, ENOENT};
use os::file::{FileKind, FileMeta};

use crate::aio::NoPool;
use crate::file::{CONTENT_MAX, DirEntry, Listing, OpenError};
use crate::links::{self, Links};
use crate::nonblocking;
use crate::path::as_path;

/// The time since its last change after which a file's content is held: a change right after the
/// reading could fall into the same tick of the file system's clock. Two seconds is the coarsest
/// tick there is (FAT). Milliseconds.
const SETTLE_MS: i64 = 2_000;

/// A file that was opened and, where it is small, read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub meta: FileMeta,
    /// Anything but a folder.
    pub fd: Option<OwnedFd>,
    /// All bytes of a regular file of at most [`CONTENT_MAX`].
    pub content: Option<Vec<u8>>,
    /// Whether it is read past the page cache.
    pub direct: bool,
    /// The error of `O_DIRECT`, where it was asked for and refused.
    pub direct_refused: Option<io::Error>,
    /// Whether its file system is one of this machine's own.
    pub local: bool,
}

/// The steps of an opening besides `open(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpenFlags {
    /// The size from which on the file is read past the page cache.
    pub direct_from: Option<u64>,
    /// The kernel is told that the file is read from front to back.
    pub read_ahead: bool,
    /// The file is the server's own: its access time is not written.
    pub internal: bool,
}

impl Loaded {
    /// Whether the content can be told from later ones by the file's facts.
    pub fn settled(&self) -> bool {
        settled(&self.meta)
    }
}

/// Whether what is read now of a file with these facts can be told from what a later change makes
/// of it. The loop's clock lags behind the kernel's, which errs on the safe side.
pub(crate) fn settled(meta: &FileMeta) -> bool {
    let ms = |sec: i64, nsec: u32| sec.saturating_mul(1000) + i64::from(nsec / 1_000_000);
    let changed = ms(meta.mtime_sec, meta.mtime_nsec).max(ms(meta.ctime_sec, meta.ctime_nsec));
    changed.saturating_add(SETTLE_MS) <= base::time::unix_ms() as i64
}

/// A question without its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Stat,
    Load(OpenFlags),
    /// With the attributes of every entry, or only where the folder does not tell files from
    /// folders.
    List(bool),
}

impl Answer {
    /// Whether the path leads to a file system of this machine's own.
    fn is_local(&self) -> bool {
        match self {
            Answer::Load(Ok(loaded)) => loaded.local,
            Answer::Stat(Ok(meta)) => nonblocking::device_is_local(meta.dev),
            _ => false,
        }
    }
}

/// A question to the file system that can be carried to a thread.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    operation: Operation,
    path: Vec<u8>,
    links: Links,
}

pub(crate) enum Answer {
    Stat(Result<FileMeta, OpenError>),
    Load(Result<Loaded, OpenError>),
    List(Result<Listing, OpenError>),
}

impl Question {
    pub fn new(operation: Operation, path: &[u8], links: Links) -> Question {
        Question { operation, path: path.to_vec(), links }
    }

    /// The question with a failure: the pool that a variable names does not exist.
    pub(crate) fn without_pool(self) -> (Question, Answer) {
        let answer = self.failed(NoPool.into());
        (self, answer)
    }

    fn failed(&self, error: io::Error) -> Answer {
        match self.operation {
            Operation::Stat => Answer::Stat(Err(OpenError::new("stat()", error))),
            Operation::Load(_) => Answer::Load(Err(OpenError::new("open()", error))),
            Operation::List(_) => Answer::List(Err(OpenError::new("opendir()", error))),
        }
    }

    pub fn is(&self, operation: Operation, path: &[u8], links: Links) -> bool {
        self.operation == operation && self.path == path && self.links == links
    }

    fn run(&self) -> Answer {
        match self.operation {
            Operation::Stat => Answer::Stat(stat(&self.path, self.links)),
            Operation::Load(flags) => Answer::Load(load(&self.path, self.links, flags)),
            Operation::List(facts) => Answer::List(list(&self.path, facts)),
        }
    }
}

/// The facts about what `path` leads to; `Pending` where they have to be waited for, and `aio` is
/// not off.
#[inline]
pub(crate) fn try_stat(path: &[u8], links: Links, off: bool) -> Poll<Result<FileMeta, OpenError>> {
    if off {
        return Poll::Ready(stat(path, links));
    }
    match links {
        Links::Follow => nonblocking::stat(path).map_err(|e| OpenError::new("stat()", e)),
        Links::Check { .. } if nonblocking::was_walked(path) => Poll::Ready(stat(path, links)),
        Links::Check { .. } => Poll::Pending,
    }
}

/// Opens a file, and reads it if it is small; `Pending` where that has to be waited for, and `aio`
/// is not off.
#[inline]
pub(crate) fn try_load(
    path: &[u8],
    links: Links,
    flags: OpenFlags,
    off: bool,
) -> Poll<Result<Loaded, OpenError>> {
    if off {
        return Poll::Ready(load(path, links, flags));
    }
    if links != Links::Follow {
        return Poll::Pending;
    }
    let (fd, meta) =
        ready!(nonblocking::open(path, flags.internal)).map_err(|e| OpenError::new("open()", e))?;
    finish(fd, meta, flags, true)
}

/// Answers a question for which a `try_*` was `Pending`: in a thread of `pool`, or here without
/// one.
pub(crate) async fn wait(question: Question, pool: Option<Pool>) -> (Question, Answer) {
    let Some(pool) = pool else {
        let answer = question.run();
        return (question, answer);
    };
    let for_thread = question.clone();
    let answer = match pool.run_short(move || for_thread.run()).await {
        Ok(answer) => answer,
        Err(e) => question.failed(e.into()),
    };
    if answer.is_local() {
        nonblocking::walked(&question.path);
    }
    (question, answer)
}

/// Reads a folder; `Pending` where that has to be waited for: always, unless `aio` is off.
pub(crate) fn try_list(path: &[u8], facts: bool, off: bool) -> Poll<Result<Listing, OpenError>> {
    if off { Poll::Ready(list(path, facts)) } else { Poll::Pending }
}

fn stat(path: &[u8], links: Links) -> Result<FileMeta, OpenError> {
    match links {
        Links::Follow => {
            let meta = os::file::stat(as_path(path)).map_err(|e| OpenError::new("stat()", e))?;
            nonblocking::learn_by_path(meta.dev, as_path(path));
            Ok(meta)
        }
        Links::Check { owner, from } => {
            let fd = links::open(path, owner, from)?;
            os::file::fstat(&fd).map_err(|e| OpenError::new("fstat()", e))
        }
    }
}

fn load(path: &[u8], links: Links, flags: OpenFlags) -> Result<Loaded, OpenError> {
    let fd = match links {
        Links::Follow => nonblocking::open_any(as_path(path), flags.internal)
            .map_err(|e| OpenError::new("open()", e))?,
        Links::Check { owner, from } => links::open(path, owner, from)?,
    };
    let meta = os::file::fstat(&fd).map_err(|e| OpenError::new("fstat()", e))?;
    match finish(fd, meta, flags, false) {
        Poll::Ready(loaded) => loaded,
        Poll::Pending => Err(OpenError::new("read()", io::ErrorKind::WouldBlock.into())),
    }
}

/// Takes the steps that follow `open(2)`. `nowait`: `Pending` where it cannot be done from memory.
fn finish(
    fd: OwnedFd,
    meta: FileMeta,
    flags: OpenFlags,
    nowait: bool,
) -> Poll<Result<Loaded, OpenError>> {
    let local = nowait || nonblocking::learn(meta.dev, &fd);
    let mut loaded =
        Loaded { meta, fd: None, content: None, direct: false, direct_refused: None, local };
    if meta.is_dir() {
        return Poll::Ready(Ok(loaded));
    }
    if meta.is_file() && flags.direct_from.is_some_and(|from| meta.size >= from) {
        match os::file::set_direct(&fd, true) {
            Ok(()) => loaded.direct = true,
            Err(e) => loaded.direct_refused = Some(e),
        }
    }
    if flags.read_ahead && meta.size > READ_AHEAD_MIN {
        // Advice, of which nothing depends.
        let _ = os::file::advise_sequential(&fd);
    }
    if !loaded.direct && meta.is_file() && meta.size <= CONTENT_MAX {
        loaded.content = match nowait {
            true => Some(ready!(nonblocking::read(&fd, meta.size as usize))),
            false => read_small(&fd, &meta),
        };
    }
    loaded.fd = Some(fd);
    Poll::Ready(Ok(loaded))
}

/// Files up to this size are not worth telling the kernel how they are read; nginx's bound.
const READ_AHEAD_MIN: u64 = 128 << 10;

fn list(path: &[u8], facts: bool) -> Result<Listing, OpenError> {
    let open = |e| OpenError::new("opendir()", e);
    let mut listing = Listing::default();
    for entry in std::fs::read_dir(as_path(path)).map_err(open)? {
        let entry = entry.map_err(|e| OpenError::new("readdir()", e))?;
        let name = entry.file_name().into_vec();
        if name.first() == Some(&b'.') {
            continue;
        }
        let kind = entry.file_type().ok().and_then(|t| match t {
            t if t.is_file() => Some(FileKind::File),
            t if t.is_dir() => Some(FileKind::Dir),
            t if t.is_symlink() => None,
            _ => Some(FileKind::Other),
        });
        if let (Some(kind), false) = (kind, facts) {
            listing.entries.push(DirEntry { name, kind, meta: None });
            continue;
        }
        let path = entry.path();
        let meta = match os::file::stat(&path) {
            // A link that leads nowhere is shown as the link that it is.
            Err(e) if matches!(e.raw_os_error(), Some(ENOENT | ELOOP)) => os::file::lstat(&path),
            m => m,
        };
        match meta {
            Ok(m) => listing.entries.push(DirEntry { name, kind: m.kind, meta: Some(m) }),
            // Removed since the folder was read.
            Err(e) if e.raw_os_error() == Some(ENOENT) => {}
            Err(e) => listing.failed.push((name, e)),
        }
    }
    if facts {
        let is_file = |e: &DirEntry| e.kind != FileKind::Dir;
        listing.entries.sort_by(|a, b| (is_file(a), &a.name).cmp(&(is_file(b), &b.name)));
    }
    Ok(listing)
}

/// The content of a small file that was opened before and is still of the version that `meta`
/// tells. Unless `aio` is off only if that can be read at once.
pub(crate) fn read_again(fd: &FileHandle, meta: &FileMeta, off: bool) -> Option<Vec<u8>> {
    if fd.is_direct() || fd.is_slow() && !off {
        return None;
    }
    let same = os::file::fstat(fd).is_ok_and(|now| now.same_version(meta));
    match (same, off) {
        (false, _) => None,
        (true, true) => read_small(fd, meta),
        (true, false) => match nonblocking::read(fd, meta.size as usize) {
            Poll::Ready(content) => Some(content),
            Poll::Pending => None,
        },
    }
}

/// The content of a small regular file, if it is as long as its facts say.
pub(crate) fn read_small(fd: impl AsFd, meta: &FileMeta) -> Option<Vec<u8>> {
    if !meta.is_file() || meta.size > CONTENT_MAX {
        return None;
    }
    let len = meta.size as usize;
    let mut content = vec![0; len];
    if len == 0 {
        return Some(content);
    }
    // Short: truncated since, or an error that whoever sends the file will meet and log.
    let n = os::file::read_at(fd, &mut content, 0).ok()?;
    (n == len).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_files_are_not_settled() {
        let path = std::env::temp_dir().join(format!("weir-question-{}", std::process::id()));
        std::fs::write(&path, b"x").unwrap();
        base::time::update();
        let meta = os::file::stat(&path).unwrap();
        assert!(!settled(&meta));
        let old = FileMeta { mtime_sec: 1, ctime_sec: 1, ..meta };
        assert!(settled(&old));
        // A time of change that was set back does not hide the change.
        assert!(!settled(&FileMeta { mtime_sec: 1, ..meta }));
        std::fs::remove_file(&path).unwrap();
    }
}
