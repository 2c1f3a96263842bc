//! Files that lines go to. Lines of one turn of the loop are handed over together; with `buffer=`
//! they are held back until it is full or `flush=` has passed. A thread writes them.

use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::rc::{Rc, Weak};

use engine::logs::{Haste, LogFile};
use event::Notify;

/// Lines are held back up to this size where no `buffer=` says otherwise.
const GATHER_MAX: usize = 64 << 10;

/// `buffer=`, `flush=` and `gzip=` of an `access_log`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Bytes held back at most.
    pub size: usize,
    /// The longest time that they are held back, in milliseconds; 0 is no limit.
    pub flush_ms: u64,
    /// The level that they are compressed with.
    pub gzip: Option<u32>,
}

/// A log file with the lines held back for it; one for each path of a configuration.
pub struct FileLog {
    /// The file that lines are appended to.
    pub file: Rc<LogFile>,
    buffer: Cell<Option<Buffer>>,
    held: RefCell<Vec<u8>>,
    /// Notified of the first line that is held back; the task behind it begins with the first line
    /// of all, which is after the fork.
    wake: RefCell<Option<Rc<Notify>>>,
}

impl FileLog {
    /// A log without a buffer.
    pub fn new(file: Rc<LogFile>) -> Rc<FileLog> {
        let log = Rc::new(FileLog {
            file,
            buffer: Cell::new(None),
            held: RefCell::default(),
            wake: RefCell::default(),
        });
        log.file.complain();
        let weak = Rc::downgrade(&log);
        log.file.on_flush(Rc::new(move || {
            if let Some(log) = weak.upgrade() {
                log.write_out(Haste::Now);
            }
        }));
        log
    }

    /// Sets the buffer; false where another one was set before.
    pub(crate) fn set_buffer(&self, buffer: Buffer) -> bool {
        let old = self.buffer.replace(Some(buffer));
        old.is_none_or(|old| old == buffer)
    }

    /// Adds the line that `write` appends; the line feed is added here. `now`: it is not held back
    /// unless there is a `buffer=`.
    pub fn line(self: &Rc<Self>, now: bool, write: impl FnOnce(&mut Vec<u8>)) {
        // Taken out while it grows: evaluating a variable may do anything.
        let mut held = self.held.take();
        let before = held.len();
        write(&mut held);
        held.push(b'\n');
        let buffer = self.buffer.get();
        let max = buffer.map_or(GATHER_MAX, |b| b.size);
        if held.len() > max {
            // Lines are not cut: those before go, and this one too if it alone is too long.
            let mut line = held.split_off(before);
            self.hand_over(&mut held, Haste::Later);
            held.append(&mut line);
            if held.len() > max {
                self.hand_over(&mut held, Haste::Later);
            }
        }
        let first = !held.is_empty() && (before == 0 || held.len() < before);
        self.held.replace(held);
        if now && buffer.is_none() {
            self.write_out(Haste::Now);
        } else if first && buffer.is_none_or(|b| b.flush_ms > 0) {
            self.wake();
        }
    }

    fn wake(self: &Rc<Self>) {
        let wake = self.wake.borrow_mut().get_or_insert_with(|| self.start()).clone();
        wake.notify_one();
    }

    /// Starts the task that writes the lines held back: after the tasks that are ready now, which
    /// may have lines too, or after `flush=`.
    fn start(self: &Rc<Self>) -> Rc<Notify> {
        let wake = Rc::new(Notify::new());
        event::spawn(writer(Rc::downgrade(self), wake.clone()));
        wake
    }

    /// Whether lines that are not to be held back go on at once.
    pub(crate) fn is_buffered(&self) -> bool {
        self.buffer.get().is_some()
    }

    /// Hands over the lines held back.
    pub(crate) fn write_out(&self, haste: Haste) {
        let mut held = self.held.take();
        self.hand_over(&mut held, haste);
        if held.capacity() <= GATHER_MAX && self.held.borrow().is_empty() {
            self.held.replace(held);
        }
    }

    fn hand_over(&self, lines: &mut Vec<u8>, haste: Haste) {
        let gzip_level = self.buffer.get().and_then(|b| b.gzip);
        self.file.append(lines, gzip_level.map(|level| (gzip as _, level)), haste);
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.write_out(Haste::Now);
        // The task finds nobody and ends.
        if let Some(wake) = self.wake.get_mut() {
            wake.notify_one();
        }
    }
}

async fn writer(log: Weak<FileLog>, wake: Rc<Notify>) {
    loop {
        wake.notified().await;
        let Some(strong) = log.upgrade() else { return };
        let ms = strong.buffer.get().map_or(0, |b| b.flush_ms);
        drop(strong);
        if ms > 0 {
            event::sleep(ms).await;
        }
        match log.upgrade() {
            Some(log) => log.write_out(Haste::Later),
            None => return,
        }
    }
}

/// One member of a gzip file; readers take several in a row for one.
fn gzip(bytes: &[u8], level: u32) -> io::Result<Vec<u8>> {
    let level = flate2::Compression::new(level);
    let mut z = flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    z.write_all(bytes)?;
    z.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::logs::LogFiles;
    use std::io::Read;
    use testkit::Folder;

    fn put(log: &Rc<FileLog>, line: &str) {
        log.line(false, |out| out.extend_from_slice(line.as_bytes()));
    }

    #[test]
    fn lines_are_held_back_and_never_cut() {
        let dir = Folder::new("held");
        let files = LogFiles::new(&dir);
        let log = FileLog::new(files.open(b"a.log"));
        let buffer = Buffer { size: 10, flush_ms: 0, gzip: None };
        assert!(log.set_buffer(buffer) && log.set_buffer(buffer));
        files.open_all().unwrap();
        let text = || std::fs::read_to_string(dir.join("a.log")).unwrap();
        put(&log, "1234");
        put(&log, "5678");
        assert_eq!(text(), "");
        put(&log, "9");
        assert_eq!(text(), "1234\n5678\n");
        put(&log, "longer than the buffer");
        assert_eq!(text(), "1234\n5678\n9\nlonger than the buffer\n");
        put(&log, "x");
        files.flush();
        assert!(text().ends_with("buffer\nx\n"));
        put(&log, "y");
        drop(log);
        assert!(text().ends_with("x\ny\n"));
    }

    #[test]
    fn compressed_writes_are_one_file() {
        let dir = Folder::new("gzip");
        let files = LogFiles::new(&dir);
        let log = FileLog::new(files.open(b"z.log"));
        assert!(log.set_buffer(Buffer { size: 16, flush_ms: 0, gzip: Some(1) }));
        assert!(!log.set_buffer(Buffer { size: 17, flush_ms: 0, gzip: Some(1) }));
        log.set_buffer(Buffer { size: 16, flush_ms: 0, gzip: Some(1) });
        files.open_all().unwrap();
        for i in 0..100 {
            put(&log, &format!("line {i}"));
        }
        drop(log);
        let bytes = std::fs::read(dir.join("z.log")).unwrap();
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        assert!(text.starts_with("line 0\nline 1\n") && text.ends_with("line 99\n"));
    }
}
