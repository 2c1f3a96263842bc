//! Logs whose path holds variables: opened for each line, or held open by `open_log_file_cache`.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::Path;

use base::log::{Level, lossy};
use http::files;
use http::request::Request;
use mem::Lru;

/// `open_log_file_cache`, with the files that a worker holds open.
pub(super) struct Cache {
    pub max: usize,
    /// A file that was not used for so many seconds is closed.
    pub inactive_secs: u64,
    /// For so many seconds a path is taken to be the file that is open.
    pub valid_secs: u64,
    /// A file is held open from this many uses on.
    pub min_uses: u64,
    pub open: RefCell<Lru<Entry>>,
}

pub(super) struct Entry {
    /// `None` while it is not used often enough.
    fd: Option<OwnedFd>,
    created: u64,
    accessed: u64,
    uses: u64,
}

/// Appends a line (with its line feed) to the file at `path`.
pub(super) fn append(r: &mut Request, cache: Option<&Cache>, path: &[u8], line: &[u8]) {
    let done = match cache {
        None => match files::open_append(r, path) {
            Ok(fd) => os::file::write(&fd, line),
            Err(e) => return not_opened(r, path, &e),
        },
        Some(cache) => match cache.with(r, path, |fd| os::file::write(fd, line)) {
            Ok(done) => done,
            Err(e) => return not_opened(r, path, &e),
        },
    };
    match done {
        Ok(n) if n == line.len() => {}
        Ok(n) => {
            let (path, len) = (lossy(path), line.len());
            let m = format_args!("write() to \"{path}\" was incomplete: {n} of {len}");
            r.log(Level::Alert, m);
        }
        Err(e) => r.log_os(Level::Alert, format_args!("write() to \"{}\"", lossy(path)), &e),
    }
}

fn not_opened(r: &Request, path: &[u8], e: &files::OpenError) {
    r.log_os(Level::Crit, format_args!("{} \"{}\"", e.what, lossy(path)), &e.error);
}

impl Cache {
    fn with<T>(
        &self,
        r: &mut Request,
        path: &[u8],
        write: impl FnOnce(&OwnedFd) -> T,
    ) -> Result<T, files::OpenError> {
        let now = base::time::now_ms() / 1000;
        let lru = &mut *self.open.borrow_mut();
        for _ in 0..2 {
            let unused = |e: &Entry| now.saturating_sub(e.accessed) > self.inactive_secs;
            if lru.oldest().is_some_and(unused) {
                lru.pop_oldest();
            }
        }
        let mut uses = 1;
        if let Some(e) = lru.get(path) {
            e.uses += 1;
            e.accessed = now;
            uses = e.uses;
            if let Some(fd) = &e.fd {
                if now.saturating_sub(e.created) < self.valid_secs {
                    return Ok(write(fd));
                }
                if is_at(fd, path) {
                    e.created = now;
                    return Ok(write(fd));
                }
            }
        }
        let fd = match files::open_append(r, path) {
            Ok(fd) => fd,
            Err(e) => {
                lru.remove(path);
                return Err(e);
            }
        };
        let done = write(&fd);
        if lru.peek(path).is_none() && lru.len() >= self.max {
            lru.pop_oldest();
        }
        let fd = (uses >= self.min_uses).then_some(fd);
        lru.insert(path, Entry { fd, created: now, accessed: now, uses });
        Ok(done)
    }
}

/// Whether the path still leads to the file that is open.
fn is_at(fd: &OwnedFd, path: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    match (os::file::stat(path), os::file::fstat(fd)) {
        (Ok(there), Ok(open)) => there.ino == open.ino && there.dev == open.dev,
        _ => false,
    }
}
