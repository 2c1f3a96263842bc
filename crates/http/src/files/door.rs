//! The one place where serving touches the file system, in two shapes: at once, or by waiting.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::task::{Poll, ready};

use event::Pool;
use mem::FileHandle;
use os::errno::{ELOOP, ENOENT};
use os::file::{FileKind, FileMeta};

use super::links::{self, Links};
use super::near;
use super::{CONTENT_MAX, DirEntry, Listing, OpenError};

/// How long a file must have been left alone before what was read of it stands for it: a change
/// right after the reading could fall into the same tick of the file system's clock. Two seconds is
/// the coarsest tick there is (FAT).
const SETTLE_MS: i64 = 2_000;

pub(super) fn path_of(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

/// A file that was opened and, where it is small, read.
#[derive(Debug)]
pub(super) struct Loaded {
    pub meta: FileMeta,
    /// Of anything but folders.
    pub fd: Option<OwnedFd>,
    /// All bytes of a regular file of at most [`CONTENT_MAX`].
    pub content: Option<Vec<u8>>,
    /// Whether it is read past the page cache.
    pub direct: bool,
    /// It was to be, and this is why it is not.
    pub not_direct: Option<io::Error>,
    /// Whether its file system is one of this machine's own.
    pub local: bool,
}

/// How a file is opened besides `open(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct How {
    /// From which size on it is read past the page cache.
    pub direct_from: Option<u64>,
    /// Whether the kernel is told that it will be read from front to back.
    pub read_ahead: bool,
    /// Whether it is the server's own, whose access time nobody wants to know.
    pub own: bool,
}

impl Loaded {
    /// Whether the content can be told from later ones by the file's facts.
    pub fn settled(&self) -> bool {
        settled(&self.meta)
    }
}

/// Whether what is read now of a file with these facts can be told from what a later change makes
/// of it. The loop's clock lags behind the kernel's, which errs on the safe side.
pub(super) fn settled(meta: &FileMeta) -> bool {
    let ms = |sec: i64, nsec: u32| sec.saturating_mul(1000) + i64::from(nsec / 1_000_000);
    let changed = ms(meta.mtime_sec, meta.mtime_nsec).max(ms(meta.ctime_sec, meta.ctime_nsec));
    changed.saturating_add(SETTLE_MS) <= base::time::unix_ms() as i64
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Stat,
    Load(How),
    /// With the facts of every entry, or only where the folder does not tell their kind.
    List(bool),
}

impl Answer {
    /// Whether the path leads to a file system of this machine's own.
    fn is_local(&self) -> bool {
        match self {
            Answer::Load(Ok(loaded)) => loaded.local,
            Answer::Stat(Ok(meta)) => near::device_is_local(meta.dev),
            _ => false,
        }
    }
}

/// A question to the file system that can be carried elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Job {
    kind: Kind,
    path: Vec<u8>,
    links: Links,
}

pub(super) enum Answer {
    Stat(Result<FileMeta, OpenError>),
    Load(Result<Loaded, OpenError>),
    List(Result<Listing, OpenError>),
}

impl Job {
    pub fn new(kind: Kind, path: &[u8], links: Links) -> Job {
        Job { kind, path: path.to_vec(), links }
    }

    /// The question, and that nobody can be asked: the pool that a variable names does not exist.
    pub fn without_pool(self) -> (Job, Answer) {
        let answer = self.failed(io::Error::other("no thread pool"));
        (self, answer)
    }

    fn failed(&self, error: io::Error) -> Answer {
        match self.kind {
            Kind::Stat => Answer::Stat(Err(OpenError::new("stat()", error))),
            Kind::Load(_) => Answer::Load(Err(OpenError::new("open()", error))),
            Kind::List(_) => Answer::List(Err(OpenError::new("opendir()", error))),
        }
    }

    pub fn is(&self, kind: Kind, path: &[u8], links: Links) -> bool {
        self.kind == kind && self.path == path && self.links == links
    }

    fn run(&self) -> Answer {
        match self.kind {
            Kind::Stat => Answer::Stat(stat(&self.path, self.links)),
            Kind::Load(how) => Answer::Load(load(&self.path, self.links, how)),
            Kind::List(facts) => Answer::List(list(&self.path, facts)),
        }
    }
}

/// The facts about what `path` leads to; `Pending` where they have to be waited for, and `aio` is
/// not off.
#[inline]
pub(super) fn try_stat(path: &[u8], links: Links, off: bool) -> Poll<Result<FileMeta, OpenError>> {
    #[cfg(test)]
    if tests::COLD.get() {
        return Poll::Pending;
    }
    if off {
        return Poll::Ready(stat(path, links));
    }
    match links {
        Links::Follow => near::stat(path).map_err(|e| OpenError::new("stat()", e)),
        Links::Check { .. } if near::was_walked(path) => Poll::Ready(stat(path, links)),
        Links::Check { .. } => Poll::Pending,
    }
}

/// Opens a file, and reads it if it is small; `Pending` where that has to be waited for, and `aio`
/// is not off.
#[inline]
pub(super) fn try_load(
    path: &[u8],
    links: Links,
    how: How,
    off: bool,
) -> Poll<Result<Loaded, OpenError>> {
    #[cfg(test)]
    if tests::COLD.get() {
        return Poll::Pending;
    }
    if off {
        return Poll::Ready(load(path, links, how));
    }
    if links != Links::Follow {
        return Poll::Pending;
    }
    let (fd, meta) = ready!(near::open(path, how.own)).map_err(|e| OpenError::new("open()", e))?;
    finish(fd, meta, how, true)
}

/// Answers a question for which a `try_*` was `Pending`, in a thread of `pool` if there is one.
pub(super) async fn wait(job: Job, pool: Option<Pool>) -> (Job, Answer) {
    let Some(pool) = pool else {
        let answer = job.run();
        return (job, answer);
    };
    let for_thread = job.clone();
    let answer = match pool.run_short(move || for_thread.run()).await {
        Ok(answer) => answer,
        Err(e) => job.failed(e.into()),
    };
    if answer.is_local() {
        near::walked(&job.path);
    }
    (job, answer)
}

/// Reads a folder; `Pending` where that has to be waited for: always, unless `aio` is off.
pub(super) fn try_list(path: &[u8], facts: bool, off: bool) -> Poll<Result<Listing, OpenError>> {
    #[cfg(test)]
    if tests::COLD.get() {
        return Poll::Pending;
    }
    if off { Poll::Ready(list(path, facts)) } else { Poll::Pending }
}

fn stat(path: &[u8], links: Links) -> Result<FileMeta, OpenError> {
    match links {
        Links::Follow => {
            let meta = os::file::stat(path_of(path)).map_err(|e| OpenError::new("stat()", e))?;
            near::learn_by_path(meta.dev, path_of(path));
            Ok(meta)
        }
        Links::Check { owner, from } => {
            let fd = links::open(path, owner, from)?;
            os::file::fstat(&fd).map_err(|e| OpenError::new("fstat()", e))
        }
    }
}

fn load(path: &[u8], links: Links, how: How) -> Result<Loaded, OpenError> {
    let fd = match links {
        Links::Follow => {
            near::open_any(path_of(path), how.own).map_err(|e| OpenError::new("open()", e))?
        }
        Links::Check { owner, from } => links::open(path, owner, from)?,
    };
    let meta = os::file::fstat(&fd).map_err(|e| OpenError::new("fstat()", e))?;
    match finish(fd, meta, how, false) {
        Poll::Ready(loaded) => loaded,
        Poll::Pending => Err(OpenError::new("read()", io::ErrorKind::WouldBlock.into())),
    }
}

/// What follows the opening. `nowait`: `Pending` where it cannot be done from memory.
fn finish(fd: OwnedFd, meta: FileMeta, how: How, nowait: bool) -> Poll<Result<Loaded, OpenError>> {
    let local = nowait || near::learn(meta.dev, &fd);
    let mut loaded =
        Loaded { meta, fd: None, content: None, direct: false, not_direct: None, local };
    if meta.is_dir() {
        return Poll::Ready(Ok(loaded));
    }
    if meta.is_file() && how.direct_from.is_some_and(|from| meta.size >= from) {
        match os::file::set_direct(&fd, true) {
            Ok(()) => loaded.direct = true,
            Err(e) => loaded.not_direct = Some(e),
        }
    }
    if how.read_ahead && meta.size > READ_AHEAD_MIN {
        // Advice, of which nothing depends.
        let _ = os::file::advise_sequential(&fd);
    }
    if !loaded.direct && meta.is_file() && meta.size <= CONTENT_MAX {
        loaded.content = match nowait {
            true => Some(ready!(near::read(&fd, meta.size as usize))),
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
    for entry in std::fs::read_dir(path_of(path)).map_err(open)? {
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
    Ok(listing)
}

/// The content of a small file that was opened before and is still of the version that `meta`
/// tells. Unless `aio` is off only if that can be read at once.
pub(super) fn read_again(fd: &FileHandle, meta: &FileMeta, off: bool) -> Option<Vec<u8>> {
    if fd.is_direct() || fd.is_slow() && !off {
        return None;
    }
    let same = os::file::fstat(fd).is_ok_and(|now| now.same_version(meta));
    match (same, off) {
        (false, _) => None,
        (true, true) => read_small(fd, meta),
        (true, false) => match near::read(fd, meta.size as usize) {
            Poll::Ready(content) => Some(content),
            Poll::Pending => None,
        },
    }
}

/// The content of a small regular file, if it is as long as its facts say.
pub(super) fn read_small(fd: impl AsFd, meta: &FileMeta) -> Option<Vec<u8>> {
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
pub(super) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Makes every question one that has to be waited for.
        pub static COLD: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn fresh_files_are_not_settled() {
        let path = std::env::temp_dir().join(format!("weir-door-{}", std::process::id()));
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
