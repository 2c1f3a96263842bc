//! Log files: each path open once, opened when the whole configuration was read, reopened together;
//! and the `error_log` directive.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::log;
use base::log::{Level, Log, Sink, debug, os_error};
use conf::{ConfError, Node};

use crate::syslog::{Syslog, SyslogSink};

/// What new log files are made with, less the umask.
const MODE: u32 = 0o644;

/// Writes what is held back for a file, before it is reopened or the process ends.
pub type Flush = Rc<dyn Fn()>;

/// A log file, or standard error.
pub struct LogFile {
    /// Absolute; empty for standard error.
    path: PathBuf,
    fd: RefCell<Option<OwnedFd>>,
    flush: RefCell<Vec<Flush>>,
    /// The second in which the disk was full: no more is tried in it.
    full_at: Cell<u64>,
}

impl LogFile {
    fn new(path: PathBuf) -> LogFile {
        let (fd, flush) = (RefCell::default(), RefCell::default());
        LogFile { path, fd, flush, full_at: Cell::new(0) }
    }

    /// The path; empty for standard error.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is standard error.
    pub fn is_stderr(&self) -> bool {
        self.path.as_os_str().is_empty()
    }

    /// Appends in one call. What was written is told, which on a full disk can be less than given.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_stderr() {
            return os::file::write(io::stderr(), bytes);
        }
        match &*self.fd.borrow() {
            Some(fd) => os::file::write(fd, bytes),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Makes standard error another name of this file, so that what libraries and the runtime have
    /// to say is not lost.
    pub fn redirect_stderr(&self) -> io::Result<()> {
        match &*self.fd.borrow() {
            Some(fd) => os::fd::redirect_stderr(fd.as_fd()),
            None => Ok(()),
        }
    }

    /// Registers what is called before the file is reopened and by [`LogFiles::flush`].
    pub fn on_flush(&self, flush: Flush) {
        self.flush.borrow_mut().push(flush);
    }

    fn flush(&self) {
        // Called without the borrow: writing may well come back here.
        let all = self.flush.borrow().clone();
        all.iter().for_each(|flush| flush());
    }

    fn open(&self) -> io::Result<()> {
        if !self.is_stderr() {
            let fd = os::file::open_append(&self.path, MODE)?;
            *self.fd.borrow_mut() = Some(fd);
        }
        Ok(())
    }

    /// Opens the path again (a log rotation has moved the old file away); on failure the old one
    /// stays. `owner` is the user of the workers, who have to be able to do the same: the file
    /// is made theirs.
    fn reopen(&self, owner: Option<u32>, log: &Log) {
        if self.is_stderr() {
            return;
        }
        self.flush();
        let path = self.path.display();
        let fail = |what: &str, e: io::Error| {
            log!(log, Level::Emerg, None, "{what} failed {}", os_error(&e));
        };
        let fd = match os::file::open_append(&self.path, MODE) {
            Ok(fd) => fd,
            Err(e) => return fail(&format!("open() \"{path}\""), e),
        };
        if let Some(owner) = owner {
            let meta = match os::file::fstat(&fd) {
                Ok(meta) => meta,
                Err(e) => return fail(&format!("stat() \"{path}\""), e),
            };
            if meta.uid != owner
                && let Err(e) = os::file::chown_fd(&fd, Some(owner), None)
            {
                return fail(&format!("chown(\"{path}\", {owner})"), e);
            }
            if meta.mode & 0o600 != 0o600
                && let Err(e) = os::file::chmod_fd(&fd, meta.mode & 0o7777 | 0o600)
            {
                return fail(&format!("chmod() \"{path}\""), e);
            }
        }
        base::debug!(log, debug::EVENT, None, "reopen file \"{path}\"");
        *self.fd.borrow_mut() = Some(fd);
    }
}

impl std::fmt::Debug for LogFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogFile({:?})", self.path)
    }
}

/// The log files of a configuration.
#[derive(Debug)]
pub struct LogFiles {
    prefix: PathBuf,
    files: RefCell<Vec<Rc<LogFile>>>,
}

impl LogFiles {
    /// No files yet; relative paths will start from `prefix`.
    pub fn new(prefix: &Path) -> LogFiles {
        LogFiles { prefix: prefix.to_owned(), files: RefCell::default() }
    }

    /// The file at a path (empty: standard error), the same one for each time it is asked for. It
    /// is not open before [`LogFiles::open_all`], so that a configuration with an error leaves
    /// no files behind.
    pub fn open(&self, path: &[u8]) -> Rc<LogFile> {
        let path = match path {
            b"" => PathBuf::new(),
            path => self.prefix.join(OsStr::from_bytes(path)),
        };
        let mut files = self.files.borrow_mut();
        if let Some(file) = files.iter().find(|f| f.path == path) {
            return file.clone();
        }
        let file = Rc::new(LogFile::new(path));
        files.push(file.clone());
        file
    }

    /// Opens all files; the first that cannot be opened ends it.
    pub fn open_all(&self) -> Result<(), ConfError> {
        for file in self.files.borrow().iter() {
            file.open().map_err(|e| {
                let (path, e) = (file.path.display(), os_error(&e));
                ConfError::new(format!("open() \"{path}\" failed {e}"))
            })?;
        }
        Ok(())
    }

    /// Opens all files again (USR1). `owner`: see nginx's `user`; given by the master alone.
    pub fn reopen(&self, owner: Option<u32>, log: &Log) {
        let files = self.files.borrow().clone();
        files.iter().for_each(|file| file.reopen(owner, log));
    }

    /// Writes what is held back, before the process ends.
    pub fn flush(&self) {
        let files = self.files.borrow().clone();
        files.iter().for_each(|file| file.flush());
    }

    /// The sink that an `error_log` directive describes. A level's log is made of the sinks of all
    /// its `error_log` directives: `Log::new(sinks)`.
    pub fn error_log(&self, node: &Node) -> Result<Rc<dyn Sink>, ConfError> {
        let target = node.arg(0)?;
        let (level, debug_mask) = levels(node)?;
        Ok(match target.bytes() {
            b"stderr" => self.file_sink(b"", level, debug_mask),
            text if text.starts_with(b"syslog:") => {
                let syslog = Rc::new(Syslog::parse(target)?);
                Rc::new(SyslogSink { syslog, level, debug_mask })
            }
            text if text.starts_with(b"memory:") => {
                let message = "error logs in \"memory:\" are not supported by this version of weir";
                return Err(ConfError::at(target, message));
            }
            path => self.file_sink(path, level, debug_mask),
        })
    }

    /// A sink that appends to a file (empty path: standard error).
    pub fn file_sink(&self, path: &[u8], level: Level, debug_mask: u32) -> Rc<dyn Sink> {
        Rc::new(FileSink { file: self.open(path), level, debug_mask })
    }

    /// Whether some log goes to standard error, which then has to stay what it is.
    pub fn uses_stderr(&self) -> bool {
        self.files.borrow().iter().any(|f| f.is_stderr())
    }
}

/// The level words of an `error_log`: one level, or parts to debug.
fn levels(node: &Node) -> Result<(Level, u32), ConfError> {
    let mut chosen: Option<Level> = None;
    let mut mask = 0;
    for word in node.args.iter().skip(1) {
        let part = debug::from_name(word.bytes());
        match (Level::from_name(word.bytes()), part) {
            (Some(_), _) if chosen.is_some() || mask != 0 => {
                let message = format!("duplicate log level \"{}\"", word.lossy());
                return Err(ConfError::at(word, message));
            }
            (Some(level), _) => chosen = Some(level),
            (None, Some(part)) if chosen.is_none() => mask |= part,
            _ => {
                let message = format!("invalid log level \"{}\"", word.lossy());
                return Err(ConfError::at(word, message));
            }
        }
    }
    Ok(match chosen {
        Some(Level::Debug) => (Level::Debug, debug::ALL),
        Some(level) => (level, 0),
        None if mask != 0 => (Level::Debug, mask),
        None => (Level::Error, 0),
    })
}

struct FileSink {
    file: Rc<LogFile>,
    level: Level,
    debug_mask: u32,
}

impl Sink for FileSink {
    fn write_line(&self, _: Level, line: &[u8]) {
        let now = base::time::unix_secs();
        // A full disk is left alone for a second: each try could take long.
        if self.file.full_at.get() == now {
            return;
        }
        if let Err(e) = self.file.write(line)
            && e.kind() == io::ErrorKind::StorageFull
        {
            self.file.full_at.set(now);
        }
    }

    fn level(&self) -> Level {
        self.level
    }

    fn debug_mask(&self) -> u32 {
        self.debug_mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use conf::{Pos, Word};

    fn node(text: &str) -> Node {
        let pos = Pos { file: Path::new("f").into(), line: 1, column: 1 };
        let mut words = text.split(' ').map(|w| Word {
            text: Bytes::copy_from_slice(w.as_bytes()),
            pos: pos.clone(),
            quoted: false,
        });
        let name = words.next().unwrap();
        Node { name, args: words.collect(), block: None, broken: None }
    }

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("weir-net-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn levels_of_an_error_log() {
        let of = |text: &str| levels(&node(&format!("error_log f {text}")));
        assert_eq!(levels(&node("error_log f")).unwrap(), (Level::Error, 0));
        assert_eq!(of("info").unwrap(), (Level::Info, 0));
        assert_eq!(of("debug").unwrap(), (Level::Debug, debug::ALL));
        assert_eq!(
            of("debug_http debug_event").unwrap(),
            (Level::Debug, debug::HTTP | debug::EVENT)
        );
        for (text, message) in [
            ("warning", "invalid log level \"warning\" in f:1"),
            ("info warn", "duplicate log level \"warn\" in f:1"),
            ("info debug_http", "invalid log level \"debug_http\" in f:1"),
            ("debug_http info", "duplicate log level \"info\" in f:1"),
            ("stderr", "invalid log level \"stderr\" in f:1"),
        ] {
            assert_eq!(of(text).unwrap_err().to_string(), message);
        }
        let logs = LogFiles::new(Path::new("/"));
        let error = logs.error_log(&node("error_log memory:32k")).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("not supported"));
    }

    #[test]
    fn files_are_opened_late_and_once_and_again() {
        let dir = folder("logs");
        let logs = LogFiles::new(&dir);
        let one = logs.error_log(&node("error_log a.log")).unwrap();
        let same = logs.open(dir.join("a.log").as_os_str().as_bytes());
        assert!(Rc::ptr_eq(&same, &logs.open(b"a.log")));
        assert!(!dir.join("a.log").exists());
        one.write_line(Level::Error, b"lost\n");
        logs.open_all().unwrap();
        one.write_line(Level::Error, b"first\n");

        let flushed = Rc::new(Cell::new(0));
        let count = flushed.clone();
        same.on_flush(Rc::new(move || count.set(count.get() + 1)));
        std::fs::rename(dir.join("a.log"), dir.join("a.log.1")).unwrap();
        one.write_line(Level::Error, b"second\n");
        let (log, told) = base::log::capture(Level::Info);
        logs.reopen(None, &log);
        one.write_line(Level::Error, b"third\n");
        assert_eq!(std::fs::read_to_string(dir.join("a.log.1")).unwrap(), "first\nsecond\n");
        assert_eq!(std::fs::read_to_string(dir.join("a.log")).unwrap(), "third\n");
        assert_eq!((flushed.get(), told.take().as_str()), (1, ""));

        // The folder is gone: the old file stays in use.
        std::fs::remove_dir_all(&dir).unwrap();
        logs.reopen(None, &log);
        assert!(told.take().contains("failed (2: No such file or directory)"));
        assert_eq!(same.write(b"x").unwrap(), 1);
        assert!(!logs.uses_stderr());
        assert!(logs.open(b"").is_stderr() && logs.uses_stderr());
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let logs = LogFiles::new(Path::new("/does/not"));
        logs.open(b"exist.log");
        let error = logs.open_all().unwrap_err().to_string();
        let expected = "open() \"/does/not/exist.log\" failed (2: No such file or directory)";
        assert_eq!(error, expected);
    }
}
