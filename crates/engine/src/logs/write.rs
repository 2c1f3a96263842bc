//! The thread's side of a log: the lines that wait, and writing them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use base::log::Level;

use super::{MODE, PRIVATE_MODE};

/// Lines of several turns of the loop that wait are put together up to this size: one write each.
const GATHER_MAX: usize = 64 << 10;

/// The pause after a write to a full disk: each attempt may take long.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// The most failures that one round of writing reports.
const TROUBLES_MAX: usize = 16;

/// An encoder of lines before they are written, with its setting (a level).
pub type Coding = (fn(&[u8], u32) -> io::Result<Vec<u8>>, u32);

/// Other work in the place of a write, such as a write to a file that is opened for it.
pub type Call = Box<dyn FnOnce(&mut Report) + Send>;

/// An entry of the queue.
enum Entry {
    /// Whole lines, for one write.
    Lines(Vec<u8>, Option<Coding>),
    Call(Call, usize),
    /// Open the path again, and give the file to its owner.
    Reopen(Option<u32>),
    /// Make standard error another name of the file.
    Stderr,
}

/// Something that went wrong, for the loop's thread to log.
#[derive(Debug)]
pub struct Trouble {
    /// How serious the event is.
    pub level: Level,
    /// The connection that it belongs to.
    pub connection: Option<u64>,
    /// The call that failed: `open() "/path"`.
    pub message: String,
    /// The system's reason.
    pub error: Option<io::Error>,
    /// A failed write of lines, of which there may be many alike.
    pub of_writing: bool,
}

/// The result of a round of writing.
#[derive(Default, Debug)]
pub struct Report {
    /// The failures; the first ones, if there were many.
    pub troubles: Vec<Trouble>,
    /// The lines that their reader did not take in time.
    pub dropped: u64,
    /// The limit of the wait for a reader; none in a thread, which may wait for any time.
    pub until: Option<Instant>,
}

impl Report {
    /// Adds a trouble, unless there were many.
    pub fn trouble(&mut self, trouble: Trouble) {
        if self.troubles.len() < TROUBLES_MAX {
            self.troubles.push(trouble);
        }
    }

    fn failed(&mut self, message: String, error: io::Error) {
        let (level, error) = (Level::Emerg, Some(error));
        self.trouble(Trouble { level, connection: None, message, error, of_writing: false });
    }
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    /// Bytes of lines, including those that are being written.
    bytes: usize,
    /// A written buffer, to be used again.
    spare: Vec<u8>,
}

/// The state that the loop and the writing thread share.
pub(super) struct Shared {
    /// Absolute; empty for standard error, and where entries know their files themselves.
    path: PathBuf,
    /// Nobody but its owner may read the file.
    private: AtomicBool,
    waiting: Mutex<Waiting>,
    /// Held by the writer: one at a time, which takes the entries in order.
    output: Mutex<Output>,
}

#[derive(Default)]
struct Output {
    file: Option<OwnedFd>,
    /// The disk was full then.
    full_at: Option<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The locks guard moves and counts only: nothing is left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(path: PathBuf) -> Shared {
        let private = AtomicBool::new(false);
        Shared { path, private, waiting: Mutex::default(), output: Mutex::default() }
    }

    /// Makes it a file that nobody but its owner may read; one that others may is not written to.
    pub(crate) fn keep_private(&self) {
        self.private.store(true, Ordering::Relaxed);
    }

    fn open_path(&self) -> io::Result<OwnedFd> {
        if !self.private.load(Ordering::Relaxed) {
            return os::append::open(&self.path, MODE);
        }
        let file = os::append::open(&self.path, PRIVATE_MODE)?;
        match os::file::fstat(&file)?.mode & 0o077 {
            0 => Ok(file),
            _ => Err(io::Error::other("others than its owner have access to it")),
        }
    }

    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Bytes that wait, including those that are being written.
    pub fn bytes(&self) -> usize {
        lock(&self.waiting).bytes
    }

    /// Whether nothing waits to be taken.
    pub fn is_empty(&self) -> bool {
        lock(&self.waiting).entries.is_empty()
    }

    /// Adds whole lines, if not more than `limit` bytes wait then. Lines alone are taken whatever
    /// their size. Leaves an empty buffer, which may be another one.
    pub fn put(&self, lines: &mut Vec<u8>, coding: Option<Coding>, limit: usize) -> bool {
        let waiting = &mut *lock(&self.waiting);
        if waiting.bytes > 0 && waiting.bytes.saturating_add(lines.len()) > limit {
            return false;
        }
        waiting.bytes += lines.len();
        match waiting.entries.back_mut() {
            Some(Entry::Lines(last, None))
                if coding.is_none() && last.len() + lines.len() <= GATHER_MAX =>
            {
                last.append(lines);
            }
            _ => {
                let full = std::mem::replace(lines, std::mem::take(&mut waiting.spare));
                waiting.entries.push_back(Entry::Lines(full, coding));
            }
        }
        true
    }

    /// As [`Shared::put`] for one line that lies elsewhere.
    pub(crate) fn put_line(&self, line: &[u8], limit: usize) -> bool {
        let waiting = &mut *lock(&self.waiting);
        if waiting.bytes > 0 && waiting.bytes.saturating_add(line.len()) > limit {
            return false;
        }
        waiting.bytes += line.len();
        match waiting.entries.back_mut() {
            Some(Entry::Lines(last, None)) if last.len() + line.len() <= GATHER_MAX => {
                last.extend_from_slice(line);
            }
            _ => {
                let mut lines = std::mem::take(&mut waiting.spare);
                lines.extend_from_slice(line);
                waiting.entries.push_back(Entry::Lines(lines, None));
            }
        }
        true
    }

    /// Adds work that counts like `bytes` bytes.
    pub(crate) fn put_call(&self, call: Call, bytes: usize, limit: usize) -> bool {
        let waiting = &mut *lock(&self.waiting);
        if waiting.bytes > 0 && waiting.bytes.saturating_add(bytes) > limit {
            return false;
        }
        waiting.bytes += bytes;
        waiting.entries.push_back(Entry::Call(call, bytes));
        true
    }

    pub(crate) fn put_reopen(&self, owner: Option<u32>) {
        lock(&self.waiting).entries.push_back(Entry::Reopen(owner));
    }

    pub(crate) fn put_stderr(&self) {
        lock(&self.waiting).entries.push_back(Entry::Stderr);
    }

    /// Writes all waiting entries, and those added meanwhile. May wait for a disk, and until then
    /// for the reader of a pipe. With a limit it leaves the entries to a thread that writes, which
    /// takes them along.
    pub fn write_all(&self, until: Option<Instant>) -> Report {
        let mut report = Report { until, ..Report::default() };
        let output = match until {
            None => Ok(lock(&self.output)),
            Some(_) => self.output.try_lock(),
        };
        let output = &mut *match output {
            Ok(output) => output,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return report,
        };
        loop {
            let Some(entry) = lock(&self.waiting).entries.pop_front() else { return report };
            match entry {
                Entry::Lines(lines, coding) => {
                    self.write(output, &lines, coding, &mut report);
                    self.written(lines);
                }
                Entry::Call(call, bytes) => {
                    call(&mut report);
                    lock(&self.waiting).bytes -= bytes;
                }
                Entry::Reopen(owner) => match self.reopened(owner) {
                    Ok(file) => output.file = Some(file),
                    Err((what, e)) => report.failed(what, e),
                },
                Entry::Stderr => {
                    if let Some(file) = &output.file
                        && let Err(e) = os::fd::redirect_stderr(file)
                    {
                        report.failed("dup2(STDERR)".to_owned(), e);
                    }
                }
            }
        }
    }

    fn written(&self, mut lines: Vec<u8>) {
        let waiting = &mut *lock(&self.waiting);
        waiting.bytes -= lines.len();
        if lines.capacity() <= GATHER_MAX && waiting.spare.capacity() == 0 {
            lines.clear();
            waiting.spare = lines;
        }
    }

    fn write(
        &self,
        output: &mut Output,
        lines: &[u8],
        coding: Option<Coding>,
        report: &mut Report,
    ) {
        if output.full_at.is_some_and(|at| at.elapsed() < FULL_PAUSE) {
            return;
        }
        let (short, error) = match self.write_once(output, lines, coding, report.until) {
            Ok(None) => return,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                report.dropped += memchr::memchr_iter(b'\n', lines).count() as u64;
                return;
            }
            Ok(Some((n, len))) => (format!(" was incomplete: {n} of {len}"), None),
            Err(e) if e.raw_os_error().is_none() => (format!(" was {e}"), None),
            Err(e) => (String::new(), Some(e)),
        };
        if error.as_ref().is_some_and(|e| e.kind() == io::ErrorKind::StorageFull) {
            output.full_at = Some(Instant::now());
        }
        let message = format!("write() to \"{}\"{short}", self.path.display());
        let level = Level::Alert;
        report.trouble(Trouble { level, connection: None, message, error, of_writing: true });
    }

    /// One write; the bytes written and the bytes given, if not all were written.
    fn write_once(
        &self,
        output: &Output,
        lines: &[u8],
        coding: Option<Coding>,
        until: Option<Instant>,
    ) -> io::Result<Option<(usize, usize)>> {
        let coded = match coding {
            Some((encode, setting)) => Some(encode(lines, setting)?),
            None => None,
        };
        let bytes = coded.as_deref().unwrap_or(lines);
        let n = match &output.file {
            Some(file) => os::append::write(file, bytes, until)?,
            None if self.path.as_os_str().is_empty() => {
                os::append::write(io::stderr(), bytes, until)?
            }
            None => return Err(io::ErrorKind::NotConnected.into()),
        };
        Ok((n < bytes.len()).then_some((n, bytes.len())))
    }

    /// Opens the file for the first time, at the start, when blocking holds up nobody.
    pub fn open(&self) -> io::Result<()> {
        let file = self.open_path()?;
        lock(&self.output).file = Some(file);
        Ok(())
    }

    /// The path opened again (a log rotation has moved the old file away). `owner` is the user of
    /// the workers, who have to be able to do the same: the file is made theirs.
    fn reopened(&self, owner: Option<u32>) -> Result<OwnedFd, (String, io::Error)> {
        let path = self.path.display();
        let file = self.open_path().map_err(|e| (format!("open() \"{path}\""), e))?;
        let Some(owner) = owner else { return Ok(file) };
        let meta = os::file::fstat(&file).map_err(|e| (format!("stat() \"{path}\""), e))?;
        if meta.uid != owner {
            os::file::chown_fd(&file, Some(owner), None)
                .map_err(|e| (format!("chown(\"{path}\", {owner})"), e))?;
        }
        if meta.mode & 0o600 != 0o600 {
            os::file::chmod_fd(&file, meta.mode & 0o7777 | 0o600)
                .map_err(|e| (format!("chmod() \"{path}\""), e))?;
        }
        Ok(file)
    }
}
