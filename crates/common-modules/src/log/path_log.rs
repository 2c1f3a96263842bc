//! Logs whose path holds variables: opened for each line, or held open by `open_log_file_cache`.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base::log::{Level, lossy};
use engine::logs::{LogQueue, Report, Trouble};
use files::{AppendFile, OpenError};
use mem::Lru;

/// `open_log_file_cache`, with the files that a worker holds open.
pub struct OpenLogFiles {
    max: usize,
    /// The time without use, in seconds, after which a file is closed.
    inactive_secs: u64,
    /// The time, in seconds, for which the path is not compared with the file that is open.
    valid_secs: u64,
    /// The number of uses from which on a file is held open.
    min_uses: u64,
    open: Mutex<Lru<OpenLog>>,
}

struct OpenLog {
    /// `None` while it is not used often enough.
    fd: Option<OwnedFd>,
    created: u64,
    accessed: u64,
    uses: u64,
}

/// Appends a line (with its line feed) to a file: in its turn, by a thread.
pub fn append(
    queue: &LogQueue,
    cache: Option<Arc<OpenLogFiles>>,
    file: AppendFile,
    line: Vec<u8>,
    connection: u64,
) {
    let now = base::time::now_ms() / 1000;
    let bytes = line.len() + file.path.len();
    let write = move |report: &mut Report| {
        let done = match cache {
            None => file.open().map(|fd| os::append::write(&fd, &line, report.until)),
            Some(cache) => cache.with(&file, now, |fd| os::append::write(fd, &line, report.until)),
        };
        let path = lossy(&file.path);
        let (level, message, error) = match done {
            Err(e) => (Level::Crit, format!("{} \"{path}\"", e.what), Some(e.error)),
            Ok(Err(e)) if e.kind() == std::io::ErrorKind::WouldBlock => {
                report.dropped += 1;
                return;
            }
            Ok(Err(e)) => (Level::Alert, format!("write() to \"{path}\""), Some(e)),
            Ok(Ok(n)) if n == line.len() => return,
            Ok(Ok(n)) => {
                let len = line.len();
                let message = format!("write() to \"{path}\" was incomplete: {n} of {len}");
                (Level::Alert, message, None)
            }
        };
        let connection = Some(connection);
        report.trouble(Trouble { level, connection, message, error, of_writing: false });
    };
    queue.call(bytes, Box::new(write));
}

impl OpenLogFiles {
    /// An empty cache of `max` files; times are in seconds.
    pub fn new(max: usize, inactive_secs: u64, valid_secs: u64, min_uses: u64) -> OpenLogFiles {
        OpenLogFiles { max, inactive_secs, valid_secs, min_uses, open: Mutex::default() }
    }

    fn with<T>(
        &self,
        file: &AppendFile,
        now: u64,
        write: impl FnOnce(&OwnedFd) -> T,
    ) -> Result<T, OpenError> {
        let path = &file.path;
        let lru = &mut *self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..2 {
            let unused = |e: &OpenLog| now.saturating_sub(e.accessed) > self.inactive_secs;
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
        let fd = match file.open() {
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
        lru.insert(path, OpenLog { fd, created: now, accessed: now, uses });
        Ok(done)
    }
}

/// Says whether the path still leads to the file that is open.
fn is_at(fd: &OwnedFd, path: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    match (os::file::stat(path), os::file::fstat(fd)) {
        (Ok(there), Ok(open)) => there.ino == open.ino && there.dev == open.dev,
        _ => false,
    }
}
