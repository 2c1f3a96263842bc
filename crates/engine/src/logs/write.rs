//! The thread's side of a log: what waits to be written, and how it is.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::log::Level;

use super::MODE;

/// Lines of several turns of the loop that wait are put together up to this size: one write each.
const GATHER_MAX: usize = 64 << 10;

/// A full disk is left alone for so long: each try could take long.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Troubles that one round of writing tells of at most.
const TROUBLES_MAX: usize = 16;

/// How lines are encoded before they are written, with its setting (a level).
pub type Coding = (fn(&[u8], u32) -> io::Result<Vec<u8>>, u32);

/// Work of its own kind in the place of a write, such as to a file that is opened for it.
pub type Call = Box<dyn FnOnce(&mut Report) + Send>;

/// What waits.
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
    /// Its level.
    pub level: Level,
    /// The connection that it belongs to.
    pub connection: Option<u64>,
    /// What failed: `open() "/path"`.
    pub message: String,
    /// Why.
    pub error: Option<io::Error>,
    /// It is one of writing lines, of which there may be many alike.
    pub of_writing: bool,
}

/// What came of a round of writing.
#[derive(Default, Debug)]
pub struct Report {
    /// What went wrong; the first of it, if there was much.
    pub troubles: Vec<Trouble>,
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
    /// Bytes of lines, those included that are being written.
    bytes: usize,
    /// A buffer that was written, for whoever wants an empty one.
    spare: Vec<u8>,
}

/// What the loop and the thread that writes have in common.
pub(super) struct Shared {
    /// Absolute; empty for standard error, and where entries know their files themselves.
    path: PathBuf,
    waiting: Mutex<Waiting>,
    /// Held by whoever writes: one at a time, who takes what waits in its order.
    output: Mutex<Output>,
}

#[derive(Default)]
struct Output {
    file: Option<OwnedFd>,
    /// The disk was full then.
    full_at: Option<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Only moves and counts are done under the locks: nothing is left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(path: PathBuf) -> Shared {
        Shared { path, waiting: Mutex::default(), output: Mutex::default() }
    }

    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Bytes that wait, those included that are being written.
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
    pub fn put_line(&self, line: &[u8], limit: usize) -> bool {
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

    /// Adds work that counts as so many bytes.
    pub fn put_call(&self, call: Call, bytes: usize, limit: usize) -> bool {
        let waiting = &mut *lock(&self.waiting);
        if waiting.bytes > 0 && waiting.bytes.saturating_add(bytes) > limit {
            return false;
        }
        waiting.bytes += bytes;
        waiting.entries.push_back(Entry::Call(call, bytes));
        true
    }

    pub fn put_reopen(&self, owner: Option<u32>) {
        lock(&self.waiting).entries.push_back(Entry::Reopen(owner));
    }

    pub fn put_stderr(&self) {
        lock(&self.waiting).entries.push_back(Entry::Stderr);
    }

    /// Writes all that waits, and what comes meanwhile. May wait for a disk.
    pub fn write_all(&self) -> Report {
        let output = &mut *lock(&self.output);
        let mut report = Report::default();
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
        let (short, error) = match self.write_once(output, lines, coding) {
            Ok(None) => return,
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

    /// One write; how much of how many bytes was written, if not all.
    fn write_once(
        &self,
        output: &Output,
        lines: &[u8],
        coding: Option<Coding>,
    ) -> io::Result<Option<(usize, usize)>> {
        let coded = match coding {
            Some((encode, setting)) => Some(encode(lines, setting)?),
            None => None,
        };
        let bytes = coded.as_deref().unwrap_or(lines);
        let n = match &output.file {
            Some(file) => os::file::write(file, bytes)?,
            None if self.path.as_os_str().is_empty() => os::file::write(io::stderr(), bytes)?,
            None => return Err(io::ErrorKind::NotConnected.into()),
        };
        Ok((n < bytes.len()).then_some((n, bytes.len())))
    }

    /// Opens the file for the first time. At the start: there is nobody yet whom it could hold up.
    pub fn open(&self) -> io::Result<()> {
        let file = os::file::open_append(&self.path, MODE)?;
        lock(&self.output).file = Some(file);
        Ok(())
    }

    /// The path opened again (a log rotation has moved the old file away). `owner` is the user of
    /// the workers, who have to be able to do the same: the file is made theirs.
    fn reopened(&self, owner: Option<u32>) -> Result<OwnedFd, (String, io::Error)> {
        let path = self.path.display();
        let file = os::file::open_append(&self.path, MODE)
            .map_err(|e| (format!("open() \"{path}\""), e))?;
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
