//! Log files: each path open once, opened when the whole configuration was read, reopened together;
//! and the `error_log` directive. Lines wait in a [`LogQueue`] each for a thread that writes them.

mod error;
mod outbox;
mod queue;
mod write;

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use base::log;
use base::log::{Form, Level, Log, Sink, debug, os_error};
use conf::{ConfError, Node};

use self::error::{Chosen, ErrorSink, Limited, Place};
use self::outbox::OutboxSink;
pub use self::outbox::{Outbox, Record, Taker, TraceIds, Traced};
pub use self::queue::{Haste, LogQueue, QUEUE_MAX, dropped};
pub use self::write::{Call, Coding, Report, Trouble};

use crate::places::Places;
use crate::settings::Inherit;
use crate::syslog::Syslog;

/// The permissions of new log files, before the umask.
const MODE: u32 = 0o644;

/// The mode of files with secrets.
const PRIVATE_MODE: u32 = 0o600;

/// Hands over the lines held back for a file, before it is reopened or the process ends.
pub(crate) type Flush = Rc<dyn Fn()>;

/// A log file, or standard error.
pub struct LogFile {
    queue: Rc<LogQueue>,
    flush: RefCell<Vec<Flush>>,
}

impl LogFile {
    fn new(path: PathBuf, limit: &Rc<Cell<usize>>) -> LogFile {
        let name = match path.as_os_str().is_empty() {
            true => "stderr".to_owned(),
            false => path.display().to_string(),
        };
        let queue = LogQueue::new(path, name, limit.clone());
        LogFile { queue, flush: RefCell::default() }
    }

    /// The path; empty for standard error.
    pub fn path(&self) -> &Path {
        self.queue.shared().path()
    }

    /// Whether this is standard error.
    pub(crate) fn is_stderr(&self) -> bool {
        self.path().as_os_str().is_empty()
    }

    /// Appends whole lines, in one write, and leaves an empty buffer. A thread writes them where
    /// there is a loop that it would hold up; while lines wait they may be written together.
    /// Lines for which there is no room are dropped and counted.
    pub fn append(&self, lines: &mut Vec<u8>, coding: Option<Coding>, haste: Haste) {
        self.queue.append(lines, coding, haste);
    }

    /// Appends one whole line.
    pub(crate) fn append_line(&self, line: &[u8], haste: Haste) {
        self.queue.line(line, haste);
    }

    /// See [`LogQueue::settled`].
    pub async fn settled(&self) {
        self.queue.settled().await;
    }

    /// Failures to write are told in the error log from now on.
    pub fn complain(&self) {
        self.queue.complain();
    }

    /// Makes standard error another name of this file, so that messages of libraries and of the
    /// runtime are not lost.
    pub fn redirect_stderr(&self) {
        self.queue.redirect_stderr();
    }

    /// Registers a function called before the file is reopened and by [`LogFiles::end`].
    pub fn on_flush(&self, flush: Flush) {
        self.flush.borrow_mut().push(flush);
    }

    fn flush(&self) {
        // Called without the borrow: writing may well come back here.
        let all = self.flush.borrow().clone();
        all.iter().for_each(|flush| flush());
    }

    fn open(&self) -> io::Result<()> {
        match self.is_stderr() {
            true => Ok(()),
            false => self.queue.shared().open(),
        }
    }

    /// Opens the path again (a log rotation has moved the old file away), behind the lines that
    /// wait; on failure the old one stays.
    fn reopen(&self, owner: Option<u32>, log: &Log) {
        if self.is_stderr() {
            return;
        }
        self.flush();
        base::debug!(log, debug::EVENT, None, "reopen file \"{}\"", self.path().display());
        self.queue.reopen(owner);
    }
}

impl std::fmt::Debug for LogFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogFile({:?})", self.path())
    }
}

/// The log files of a configuration.
#[derive(Debug)]
pub struct LogFiles {
    prefix: PathBuf,
    places: Rc<Places>,
    files: RefCell<Vec<Rc<LogFile>>>,
    /// The queues of logs whose path holds variables.
    queues: RefCell<Vec<Rc<LogQueue>>>,
    /// The error logs with a rate, which may have left lines out.
    limited: RefCell<Vec<Weak<Limited>>>,
    outbox: Rc<Outbox>,
    queue_max: Rc<Cell<usize>>,
}

impl LogFiles {
    /// No files yet; relative paths will start from `prefix`.
    pub fn new(prefix: &Path) -> LogFiles {
        LogFiles {
            prefix: prefix.to_owned(),
            places: Rc::default(),
            files: RefCell::default(),
            queues: RefCell::default(),
            limited: RefCell::default(),
            outbox: Rc::default(),
            queue_max: Rc::new(Cell::new(QUEUE_MAX)),
        }
    }

    /// Sets where files go that only built-in defaults name.
    pub fn with_places(mut self, places: Rc<Places>) -> LogFiles {
        self.places = places;
        self
    }

    /// The way of lines to a collector.
    pub fn outbox(&self) -> &Rc<Outbox> {
        &self.outbox
    }

    /// The path of a log that only a built-in default names; `None` if there is no place for it.
    pub fn default_path(&self, name: &[u8]) -> Option<PathBuf> {
        self.places.logs.path(&self.prefix, name)
    }

    /// Sets the bytes that may wait for a disk, for each file (`log_queue_size`).
    pub fn set_queue_max(&self, bytes: usize) {
        self.queue_max.set(bytes);
    }

    /// A queue for a log whose path holds variables; the error log names it `name`.
    pub fn queue(&self, name: &[u8]) -> Rc<LogQueue> {
        let name = log::lossy(name).into_owned();
        let queue = LogQueue::new(PathBuf::new(), name, self.queue_max.clone());
        self.queues.borrow_mut().push(queue.clone());
        queue
    }

    /// A queue for lines to one receiver, the same one for each time that it is named. Its failures
    /// are told in the error log.
    pub(crate) fn shared_queue(&self, name: &str) -> Rc<LogQueue> {
        let known = self.queues.borrow().iter().find(|queue| queue.name() == name).cloned();
        known.unwrap_or_else(|| {
            let queue = self.queue(name.as_bytes());
            queue.complain();
            queue
        })
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
        if let Some(file) = files.iter().find(|f| f.path() == path) {
            return file.clone();
        }
        let file = Rc::new(LogFile::new(path, &self.queue_max));
        files.push(file.clone());
        file
    }

    /// As [`LogFiles::open`] for a file with secrets: others than its owner cannot read it.
    pub(crate) fn open_private(&self, path: &[u8]) -> Rc<LogFile> {
        let file = self.open(path);
        file.queue.shared().keep_private();
        file
    }

    /// Opens all files; the first that cannot be opened ends it.
    pub fn open_all(&self) -> Result<(), ConfError> {
        self.open_those(|_| true)
    }

    /// Opens the files that the configuration names, and makes nothing for built-in defaults
    /// outside of the prefix: for a test of the configuration.
    pub fn open_named(&self) -> Result<(), ConfError> {
        self.open_those(|file| !self.places.logs.holds(file.path()))
    }

    fn open_those(&self, choose: impl Fn(&LogFile) -> bool) -> Result<(), ConfError> {
        for file in self.files.borrow().iter().filter(|file| choose(file)) {
            let ready = match self.places.logs.holds(file.path()) {
                true => self.places.logs.make(),
                false => Ok(()),
            };
            ready.and_then(|()| file.open()).map_err(|e| {
                let (path, e) = (file.path().display(), os_error(&e));
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

    /// Hands over all lines held back.
    pub fn flush(&self) {
        let limited: Vec<_> = self.limited.borrow().iter().filter_map(Weak::upgrade).collect();
        limited.iter().for_each(|limited| limited.tell());
        let files = self.files.borrow().clone();
        files.iter().for_each(|file| file.flush());
    }

    /// Writes all lines before the process ends, when the loop has stopped. Lines logged later are
    /// written at once. A stalled disk is given a few seconds.
    pub fn end(&self) {
        self.flush();
        let files = self.files.borrow();
        let mut all: Vec<_> = files.iter().map(|file| file.queue.clone()).collect();
        all.extend(self.queues.borrow().iter().cloned());
        drop(files);
        queue::end(&all);
    }

    /// The sink that an `error_log` directive describes. A level's log is made of the sinks of all
    /// its `error_log` directives: see [`ErrorLog`].
    pub fn error_log(&self, node: &Node) -> Result<Rc<dyn Sink>, ConfError> {
        let target = node.arg(0)?;
        let chosen = Chosen::of(node)?;
        if let Some(log) = self.outbox.name(target, "error")? {
            let level = chosen.of_collector(target)?;
            return Ok(Rc::new(OutboxSink { outbox: self.outbox.clone(), log, level }));
        }
        let place = match target.bytes() {
            b"stderr" => Place::File(self.open(b"")),
            text if text.starts_with(b"syslog:") => {
                Place::Syslog(Rc::new(Syslog::parse(target, self)?))
            }
            text if text.starts_with(b"memory:") => {
                let message = "error logs in \"memory:\" are not supported by this version of weir";
                return Err(ConfError::at(target, message));
            }
            path => Place::File(self.open(path)),
        };
        let sink = ErrorSink { place, chosen };
        let Some(rate) = chosen.rate else { return Ok(Rc::new(sink)) };
        let limited = Limited::new(sink, rate);
        self.limited.borrow_mut().push(Rc::downgrade(&limited));
        Ok(limited)
    }

    /// A sink that appends lines of text to a file (empty path: standard error).
    pub fn file_sink(&self, path: &[u8], level: Level, debug_mask: u32) -> Rc<dyn Sink> {
        let chosen = Chosen { level, debug_mask, form: Form::Text, rate: None };
        Rc::new(ErrorSink { place: Place::File(self.open(path)), chosen })
    }

    /// Says whether some log goes to standard error, which then must not be redirected.
    pub fn uses_stderr(&self) -> bool {
        self.files.borrow().iter().any(|f| f.is_stderr())
    }
}

/// The log that the `error_log` directives of a level make together.
#[derive(Clone, Default)]
pub struct ErrorLog(Option<(Vec<Rc<dyn Sink>>, Log)>);

impl ErrorLog {
    /// Reads one `error_log`.
    ///
    /// # Errors
    /// An argument is wrong.
    pub fn add(&mut self, logs: &LogFiles, node: &Node) -> Result<(), ConfError> {
        let sink = logs.error_log(node)?;
        let mut sinks = self.0.take().map_or_else(Vec::new, |(sinks, _)| sinks);
        sinks.push(sink);
        self.0 = Some((sinks.clone(), Log::new(sinks)));
        Ok(())
    }

    /// The log; none where no directive names one.
    pub fn log(&self) -> Option<&Log> {
        self.0.as_ref().map(|(_, log)| log)
    }
}

impl Inherit for ErrorLog {
    fn inherit(&mut self, prev: &Self) {
        if self.0.is_none() {
            self.clone_from(prev);
        }
    }
}

/// A directive of these words, in `f:1`.
#[cfg(test)]
fn node(text: &str) -> Node {
    let pos = conf::Pos { file: Path::new("f").into(), line: 1, column: 1 };
    let mut words = text.split(' ').map(|w| conf::Word {
        text: bytes::Bytes::copy_from_slice(w.as_bytes()),
        pos: pos.clone(),
        quoted: false,
    });
    let name = words.next().expect("a name");
    Node { name, args: words.collect(), block: None, broken: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    #[test]
    fn files_are_opened_late_and_once_and_again() {
        let dir = Folder::new("logs");
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
        std::fs::remove_dir_all(dir.path()).unwrap();
        log::set_default(log.clone());
        logs.reopen(None, &log);
        assert!(told.take().contains("failed (2: No such file or directory)"));
        same.append(&mut b"x\n".to_vec(), None, Haste::Now);
        assert_eq!(same.queue.shared().bytes(), 0);
        assert!(!logs.uses_stderr());
        assert!(logs.open(b"").is_stderr() && logs.uses_stderr());
    }

    #[test]
    fn what_a_thread_writes_is_in_order_and_all_there() {
        let dir = Folder::new("queue");
        let logs = LogFiles::new(&dir);
        logs.set_queue_max(1000);
        let (told, lines) = log::capture(Level::Error);
        log::set_default(told);
        let file = logs.open(b"a.log");
        logs.open_all().unwrap();
        let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
        let own = file.clone();
        event_loop
            .block_on(async move {
                let hastes = [Haste::Now, Haste::Soon, Haste::Later];
                for n in 0..100 {
                    own.append(&mut format!("{n}\n").into_bytes(), None, hastes[n % 3]);
                    if n % 10 == 0 {
                        event::sleep(1).await;
                    }
                }
            })
            .unwrap();
        // The loop has stopped: the last lines are written all the same, later ones at once.
        file.append(&mut b"100\n".to_vec(), None, Haste::Later);
        logs.end();
        file.append(&mut b"101\n".to_vec(), None, Haste::Later);
        let want: String = (0..=101).map(|n| format!("{n}\n")).collect();
        assert_eq!(std::fs::read_to_string(dir.join("a.log")).unwrap(), want);
        assert_eq!(lines.take(), "");
    }

    #[test]
    fn the_same_on_every_driver_and_in_every_order_of_threads() {
        event::testing::each_driver(|| async {
            let dir = Folder::new("drivers");
            let logs = LogFiles::new(&dir);
            let files = [logs.open(b"a.log"), logs.open(b"b.log")];
            logs.open_all().unwrap();
            let hastes = [Haste::Now, Haste::Soon, Haste::Later];
            for n in 0..60 {
                for file in &files {
                    file.append(&mut format!("{n}\n").into_bytes(), None, hastes[n % 3]);
                }
                if n == 30 {
                    std::fs::rename(dir.join("a.log"), dir.join("a.old")).unwrap();
                    logs.reopen(None, &log::default());
                }
                if n % 7 == 0 {
                    event::sleep(n as u64 % 4).await;
                }
            }
            event::testing::until(|| files.iter().all(|file| file.queue.shared().bytes() == 0))
                .await;
            let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
            let want = |from: usize, to: usize| -> String {
                (from..to).map(|n| format!("{n}\n")).collect()
            };
            assert_eq!((text("a.old"), text("a.log")), (want(0, 31), want(31, 60)));
            assert_eq!(text("b.log"), want(0, 60));
        });
    }

    #[test]
    fn lines_that_nothing_takes_are_dropped_and_counted() {
        let logs = LogFiles::new(Path::new("/"));
        logs.set_queue_max(25);
        let (told, lines) = log::capture(Level::Error);
        log::set_default(told);
        let queue = logs.queue(b"by path");
        let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
        let before = dropped();
        let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let into = order.clone();
        let own = queue.clone();
        // The loop writes the second line, when it learns that the queue is empty.
        let told = event_loop
            .block_on(async move {
                for n in 0..10 {
                    let into = into.clone();
                    own.call(10, Box::new(move |_| into.lock().unwrap().push(n)));
                }
                let mut told = String::new();
                event::testing::until(|| {
                    told += &lines.take();
                    told.lines().count() == 2
                })
                .await;
                assert_eq!(own.shared().bytes(), 0);
                told
            })
            .unwrap();
        assert_eq!(*order.lock().unwrap(), [0, 1]);
        assert_eq!(dropped() - before, 8);
        let mut told = told.lines().map(|line| line.split_once(": ").unwrap().1);
        let first = "lines for \"by path\" are dropped: 20 bytes wait to be written";
        assert_eq!(told.next(), Some(first));
        let last = "lines for \"by path\" are written again: 8 were dropped";
        assert_eq!(told.next(), Some(last));
        assert_eq!(told.next(), None);
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
