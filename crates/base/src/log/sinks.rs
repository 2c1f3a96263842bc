//! The sinks that need no other crate: standard error, and memory.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::rc::Rc;

use super::{Level, Log, Sink};

/// Writes whole lines to standard error.
pub struct StderrSink {
    level: Level,
}

impl StderrSink {
    /// Takes lines up to `level`.
    pub const fn new(level: Level) -> StderrSink {
        StderrSink { level }
    }
}

impl Sink for StderrSink {
    fn write_line(&self, _: Level, line: &[u8]) {
        // There is nowhere left to report that standard error is closed.
        let _ = io::stderr().write_all(line);
    }

    fn level(&self) -> Level {
        self.level
    }
}

/// Keeps lines in memory: for tests, and for messages that are shown later.
pub struct MemorySink {
    level: Level,
    lines: RefCell<Vec<u8>>,
}

impl MemorySink {
    /// Takes lines up to `level`.
    pub const fn new(level: Level) -> MemorySink {
        MemorySink { level, lines: RefCell::new(Vec::new()) }
    }

    /// Takes the lines written so far.
    pub fn take(&self) -> String {
        String::from_utf8_lossy(&self.lines.take()).into_owned()
    }
}

impl Sink for MemorySink {
    fn write_line(&self, _: Level, line: &[u8]) {
        self.lines.borrow_mut().extend_from_slice(line);
    }

    fn level(&self) -> Level {
        self.level
    }
}

/// A log that keeps its lines, and the sink to read them from.
pub fn capture(level: Level) -> (Log, Rc<MemorySink>) {
    let sink = Rc::new(MemorySink::new(level));
    (Log::new(vec![sink.clone()]), sink)
}
