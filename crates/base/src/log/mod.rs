//! The error log's front: levels, the list of sinks a message goes to, and nginx's line format.
//!
//! A line reads `2026/11/20 09:53:24 [error] 123#123: *7 MESSAGE`, or is a JSON object with the
//! same fields for a sink that asks for it ([`Sink::form`]). The crate that owns a sink decides
//! where lines go: to a file, to syslog, to memory. Callers use [`log!`](crate::log!) or
//! [`debug!`](crate::debug!), which format nothing unless some sink takes the level.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;

mod level;
mod line;
mod sinks;

pub use self::level::{Level, debug};
pub use self::line::{Context, Fields, MEMBERS, Parts, Tags};
use self::line::{Head, Line};
pub use self::sinks::{MemorySink, StderrSink, capture};

/// A line is cut to this many bytes, its line feed included, as in nginx. A JSON object holds the
/// text that is left, and may be longer for its escapes.
pub(crate) const LINE_BYTES_MAX: usize = 2048;

/// A destination of lines. Must not block for long, panic, or log in turn.
pub trait Sink {
    /// Takes one line that ends in a line feed. The sink handles its own errors.
    fn write_line(&self, level: Level, line: &[u8]);

    /// The same for a sink whose form is [`Form::Parts`].
    fn write_parts(&self, _: &Parts<'_>) {}

    /// The least severe level this sink takes.
    fn level(&self) -> Level;

    /// The parts whose debug lines it takes when [`level`](Sink::level) is `Debug`.
    fn debug_mask(&self) -> u32 {
        debug::ALL
    }

    /// The form of the lines that it takes.
    fn form(&self) -> Form {
        Form::Text
    }
}

/// The form of a sink's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// nginx's text.
    #[default]
    Text,
    /// `[emerg] MESSAGE` without time, process and connection: for people at a terminal.
    Bare,
    /// An object, with the names of access logs.
    Json,
    /// An object, with the names of NGINX Plus.
    PlusJson,
    /// The parts of the line, by [`Sink::write_parts`].
    Parts,
}

impl Form {
    /// Whether fields are apart from the message.
    fn has_fields(self) -> bool {
        matches!(self, Form::Json | Form::PlusJson | Form::Parts)
    }
}

struct Inner {
    sinks: Vec<Rc<dyn Sink>>,
    level: Level,
    debug_mask: u32,
    /// Some sink takes fields apart from the message.
    json: bool,
    /// `debug_connection` chose this client: every sink gets every line.
    forced: bool,
}

impl Inner {
    fn new(sinks: Vec<Rc<dyn Sink>>) -> Inner {
        let level = sinks.iter().map(|sink| sink.level()).max().unwrap_or(Level::Stderr);
        let debug_mask = sinks
            .iter()
            .filter(|sink| sink.level() == Level::Debug)
            .fold(0, |mask, sink| mask | sink.debug_mask());
        let json = sinks.iter().any(|sink| sink.form().has_fields());
        Inner { sinks, level, debug_mask, json, forced: false }
    }
}

/// A list of sinks and the least severe level that any of them takes; cheap to clone.
#[derive(Clone)]
pub struct Log(Rc<Inner>);

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("sinks", &self.0.sinks.len())
            .field("level", &self.0.level)
            .finish()
    }
}

impl Log {
    /// A log that writes to `sinks`, in that order. With none, nothing is enabled.
    pub fn new(sinks: Vec<Rc<dyn Sink>>) -> Log {
        Log(Rc::new(Inner::new(sinks)))
    }

    /// The same sinks and one more.
    pub fn with(&self, sink: Rc<dyn Sink>) -> Log {
        let mut sinks = self.0.sinks.clone();
        sinks.push(sink);
        let log = Log::new(sinks);
        if self.0.forced { log.debugging() } else { log }
    }

    /// The same sinks, each taking every line whatever its level (nginx's `debug_connection`).
    pub fn debugging(&self) -> Log {
        Log(Rc::new(Inner {
            sinks: self.0.sinks.clone(),
            level: Level::Debug,
            debug_mask: debug::ALL,
            json: self.0.json,
            forced: true,
        }))
    }

    /// Whether some sink takes lines of `level`.
    #[inline]
    pub fn enabled(&self, level: Level) -> bool {
        level <= self.0.level
    }

    /// Whether some sink takes debug lines of a part (a bit of [`debug`]).
    #[inline]
    pub fn debug_enabled(&self, part: u32) -> bool {
        self.0.debug_mask & part != 0
    }

    /// The least severe level that any sink takes.
    pub fn level(&self) -> Level {
        self.0.level
    }

    /// Writes one line to every sink that takes `level`. Prefer [`log!`](crate::log!), which checks
    /// [`enabled`](Log::enabled) before its arguments are formatted.
    #[cold]
    pub fn write(&self, level: Level, conn: Option<u64>, message: fmt::Arguments<'_>) {
        self.emit(level, debug::ALL, conn, |line| line.put(message));
    }

    /// Writes one line with the fields of a context behind the message.
    #[cold]
    pub fn write_about(
        &self,
        level: Level,
        conn: Option<u64>,
        message: fmt::Arguments<'_>,
        about: &dyn Context,
    ) {
        self.emit(level, debug::ALL, conn, |line| {
            line.put(message);
            about.tell(&mut Fields(line));
        });
    }

    /// Writes a debug line of one part.
    #[cold]
    pub fn write_debug(&self, part: u32, conn: Option<u64>, message: fmt::Arguments<'_>) {
        self.emit(Level::Debug, part, conn, |line| line.put(message));
    }

    fn emit(&self, level: Level, part: u32, conn: Option<u64>, fill: impl Fn(&mut Line)) {
        if !self.enabled(level) {
            return;
        }
        let (pid, tid) = ids();
        let mut line = Line::new(self.0.json);
        line.put_bytes(&crate::time::error_log_time());
        let bare_start = line.len + 1;
        line.put(format_args!(" [{level}] "));
        let tag_end = line.len;
        line.put(format_args!("{pid}#{tid}: "));
        if let Some(conn) = conn {
            line.put(format_args!("*{conn} "));
        }
        let message_start = line.len;
        fill(&mut line);
        line.buf[line.len] = b'\n';
        // Text quoted from a client cannot forge lines of the log, nor control a terminal.
        let escaped = line.escaped(message_start);
        let text = escaped.as_deref().unwrap_or(&line.buf[..=line.len]);
        let head = Head { level, pid, tid, conn };
        // Made once, and only for a JSON sink that takes this level.
        let (mut object, mut plus) = (None::<Vec<u8>>, None::<Vec<u8>>);
        for sink in &self.0.sinks {
            let wanted = self.0.forced
                || level < Level::Debug && level <= sink.level()
                || level == Level::Debug && sink.level() == level && sink.debug_mask() & part != 0;
            if !wanted {
                continue;
            }
            match sink.form() {
                Form::Text => sink.write_line(level, text),
                Form::Bare => {
                    let bare = [&text[bare_start..tag_end], &text[message_start..]].concat();
                    sink.write_line(level, &bare);
                }
                Form::Json => {
                    let object = object.get_or_insert_with(|| line.json(&head, message_start));
                    sink.write_line(level, object);
                }
                Form::PlusJson => {
                    let plus = plus.get_or_insert_with(|| line.plus_json(&head, message_start));
                    sink.write_line(level, plus);
                }
                Form::Parts => line.parts(&head, message_start, |parts| sink.write_parts(parts)),
            }
        }
    }
}

/// Logs a line: `log!(log, Level::Error, Some(7), "upstream {name} failed")`. The connection is an
/// `Option<u64>`; arguments are evaluated only when a sink wants the level.
#[macro_export]
macro_rules! log {
    ($log:expr, $level:expr, $conn:expr, $($args:tt)+) => {{
        let (log, level) = (&$log, $level);
        if log.enabled(level) {
            log.write(level, $conn, ::core::format_args!($($args)+));
        }
    }};
}

/// Logs a debug line of one part: `debug!(log, debug::HTTP, conn, "http header done")`.
#[macro_export]
macro_rules! debug {
    ($log:expr, $part:expr, $conn:expr, $($args:tt)+) => {{
        let (log, part) = (&$log, $part);
        if log.debug_enabled(part) {
            log.write_debug(part, $conn, ::core::format_args!($($args)+));
        }
    }};
}

/// Displays an error as nginx ends its messages: `(2: No such file or directory)`.
///
/// An error without a number (one made in Rust) shows its text alone: `(unexpected end of file)`.
pub fn os_error(error: &io::Error) -> impl fmt::Display + '_ {
    struct OsError<'a>(&'a io::Error);
    impl fmt::Display for OsError<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let text = self.0.to_string();
            match self.0.raw_os_error() {
                Some(code) => {
                    // std has no way to the bare text: it stands before the number.
                    let bare = text.strip_suffix(&format!(" (os error {code})")).unwrap_or(&text);
                    write!(f, "({code}: {bare})")
                }
                None => write!(f, "({text})"),
            }
        }
    }
    OsError(error)
}

/// Shows bytes as text in a message; invalid UTF-8 becomes U+FFFD.
pub fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

thread_local! {
    static IDS: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
    static DEFAULT: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Sets the `pid#tid` of this thread's lines; to be called after a fork and in new threads.
pub fn set_ids(pid: u32, tid: u32) {
    IDS.with(|ids| ids.set(Some((pid, tid))));
}

fn ids() -> (u32, u32) {
    IDS.try_with(Cell::get).ok().flatten().unwrap_or_else(|| {
        let pid = std::process::id();
        (pid, pid)
    })
}

/// This thread's log for messages outside any configuration: standard error at `notice` until
/// [`set_default`].
pub fn default() -> Log {
    DEFAULT
        .try_with(|log| log.borrow().clone())
        .ok()
        .flatten()
        .unwrap_or_else(|| Log::new(vec![Rc::new(StderrSink::new(Level::Notice))]))
}

/// Replaces this thread's default log.
pub fn set_default(log: Log) {
    let before = DEFAULT.with(|cell| cell.replace(Some(log)));
    // Dropped here and not inside the replacement: a sink's destructor may log.
    drop(before);
}

#[cfg(test)]
mod tests;
