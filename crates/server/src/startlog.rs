//! Logs for the time before a configuration names some: the file of `-e`, and standard error for
//! people.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use base::log::{Form, Level, Log, Sink, StderrSink};
use engine::logs::LogFiles;

use crate::paint;
use crate::paths::Paths;

/// Messages for the terminal: `weir: [emerg] …`, from warnings up.
pub struct Console;

impl Sink for Console {
    fn write_line(&self, level: Level, line: &[u8]) {
        let mut message = b"weir: ".to_vec();
        match paint::stderr() {
            true => message.extend(paint::line(level, line)),
            false => message.extend_from_slice(line),
        }
        // Nowhere is left to report that standard error is closed.
        let _ = io::stderr().write_all(&message);
    }

    fn level(&self) -> Level {
        Level::Warn
    }

    fn form(&self) -> Form {
        Form::Bare
    }
}

/// The log until the configuration's own is open. When its file cannot be opened, standard error
/// takes the whole lines.
pub fn open(paths: &Paths, level: Level) -> Log {
    if !paths.error_log_is_known() {
        return Log::new(vec![Rc::new(Console)]);
    }
    let path = paths.error_log.as_os_str().as_bytes();
    if !path.is_empty() {
        let files = LogFiles::new(&paths.prefix);
        let sink = files.file_sink(path, level, 0);
        match files.open_all() {
            Ok(()) => return Log::new(vec![sink, Rc::new(Console)]),
            Err(e) => eprintln!("weir: [alert] could not open error log file: {e}"),
        }
    }
    Log::new(vec![Rc::new(StderrSink::new(level))])
}
