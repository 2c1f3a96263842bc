//! The error log's front: levels, the list of sinks a message goes to, and nginx's line format.
//!
//! A line reads `2026/11/20 09:53:24 [error] 123#123: *7 MESSAGE`, or is a JSON object with the
//! same fields for a sink that asks for it ([`Sink::json`]). What a sink does with it (append
//! to a file, send to syslog, keep in memory) is the business of the crate that owns the sink.
//! Callers use [`log!`](crate::log!) or [`debug!`](crate::debug!), which format nothing unless some
//! sink wants the level.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, Write as _};
use std::rc::Rc;

mod line;

pub use self::line::{Context, Fields};
use self::line::{Head, Line};

/// A line is cut to this many bytes, its line feed included, as in nginx. A JSON object has what is
/// left of the text, and may be longer for its escapes.
pub const LINE_BYTES_MAX: usize = 2048;

/// Room kept for the system's error text when a message has to be cut.
const OS_ERROR_ROOM: usize = 50;

/// How grave a message is; a smaller value is graver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Printed on standard error without a level; never a sink's threshold.
    Stderr = 0,
    /// The server cannot run.
    Emerg = 1,
    /// Something that must not happen.
    Alert = 2,
    /// A fault of the surroundings.
    Crit = 3,
    /// A request failed.
    Error = 4,
    /// Suspicious.
    Warn = 5,
    /// Normal but notable.
    Notice = 6,
    /// A client's fault or a detail.
    Info = 7,
    /// Tracing.
    Debug = 8,
}

impl Level {
    /// The name used in `error_log` and in lines.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Stderr => "stderr",
            Level::Emerg => "emerg",
            Level::Alert => "alert",
            Level::Crit => "crit",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Notice => "notice",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// The level that `error_log` calls `name` (`emerg` to `debug`).
    pub fn from_name(name: &[u8]) -> Option<Level> {
        const ALL: [Level; 8] = [
            Level::Emerg,
            Level::Alert,
            Level::Crit,
            Level::Error,
            Level::Warn,
            Level::Notice,
            Level::Info,
            Level::Debug,
        ];
        ALL.into_iter().find(|level| level.name().as_bytes() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The parts that debug lines belong to: a bit each, as `debug_core` to `debug_stream` choose them.
pub mod debug {
    /// Configuration, signals, processes.
    pub const CORE: u32 = 0x010;
    /// Memory.
    pub const ALLOC: u32 = 0x020;
    /// Locks in shared memory.
    pub const MUTEX: u32 = 0x040;
    /// The event loop and sockets.
    pub const EVENT: u32 = 0x080;
    /// HTTP.
    pub const HTTP: u32 = 0x100;
    /// Mail.
    pub const MAIL: u32 = 0x200;
    /// TCP and UDP proxying.
    pub const STREAM: u32 = 0x400;
    /// All of them: plain `debug`.
    pub const ALL: u32 = 0x7f0;

    /// The bit that `error_log` calls `name`.
    pub fn from_name(name: &[u8]) -> Option<u32> {
        Some(match name {
            b"debug_core" => CORE,
            b"debug_alloc" => ALLOC,
            b"debug_mutex" => MUTEX,
            b"debug_event" => EVENT,
            b"debug_http" => HTTP,
            b"debug_mail" => MAIL,
            b"debug_stream" => STREAM,
            _ => return None,
        })
    }
}

/// A place where lines end up. Must not block for long, panic, or log in turn.
pub trait Sink {
    /// Takes one line that ends in a line feed. Errors are the sink's own to bear.
    fn write_line(&self, level: Level, line: &[u8]);

    /// The least grave level this sink takes.
    fn level(&self) -> Level;

    /// Which parts' debug lines it takes when [`level`](Sink::level) is `Debug`.
    fn debug_mask(&self) -> u32 {
        debug::ALL
    }

    /// A sink for people at a terminal: given `[emerg] MESSAGE` without time, process and
    /// connection.
    fn bare(&self) -> bool {
        false
    }

    /// A sink that is given each line as a JSON object.
    fn json(&self) -> bool {
        false
    }
}

struct Inner {
    sinks: Vec<Rc<dyn Sink>>,
    level: Level,
    debug_mask: u32,
    /// Some sink takes JSON.
    json: bool,
    /// `debug_connection` chose this client: every sink gets every line.
    forced: bool,
}

/// A list of sinks and the least grave level that any of them wants; cheap to clone.
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
        let level = sinks.iter().map(|sink| sink.level()).max().unwrap_or(Level::Stderr);
        let debug_mask = sinks
            .iter()
            .filter(|sink| sink.level() == Level::Debug)
            .fold(0, |mask, sink| mask | sink.debug_mask());
        let json = sinks.iter().any(|sink| sink.json());
        Log(Rc::new(Inner { sinks, level, debug_mask, json, forced: false }))
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

    /// Says whether a line of `level` would go anywhere.
    #[inline]
    pub fn enabled(&self, level: Level) -> bool {
        level <= self.0.level
    }

    /// Says whether debug lines of a part (a bit of [`debug`]) would go anywhere.
    #[inline]
    pub fn debug_enabled(&self, part: u32) -> bool {
        self.0.debug_mask & part != 0
    }

    /// The least grave level that any sink takes.
    pub fn level(&self) -> Level {
        self.0.level
    }

    /// Writes one line to every sink that wants `level`. Prefer [`log!`](crate::log!), which checks
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

    /// Writes `MESSAGE (2: No such file or directory)CONTEXT`; a message too long for the line is
    /// cut short of the error, which therefore always shows.
    #[cold]
    pub fn write_os(
        &self,
        level: Level,
        conn: Option<u64>,
        message: fmt::Arguments<'_>,
        error: &io::Error,
        context: fmt::Arguments<'_>,
    ) {
        self.emit(level, debug::ALL, conn, |line| {
            line.put(message);
            line.make_room(OS_ERROR_ROOM);
            line.put(format_args!(" {}", os_error(error)));
            line.put(context);
        });
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
        // Nobody who is quoted in a message writes lines of his own into the log, or to a terminal.
        let escaped = line.escaped(message_start);
        let text = escaped.as_deref().unwrap_or(&line.buf[..=line.len]);
        // Made once, and only if a sink that wants it wants this level.
        let mut object: Option<Vec<u8>> = None;
        for sink in &self.0.sinks {
            let wanted = self.0.forced
                || level < Level::Debug && level <= sink.level()
                || level == Level::Debug && sink.level() == level && sink.debug_mask() & part != 0;
            if !wanted {
                continue;
            }
            if sink.json() {
                let head = Head { level, pid, tid, conn };
                let object = object.get_or_insert_with(|| line.json(&head, message_start));
                sink.write_line(level, object);
            } else if sink.bare() {
                let bare = [&text[bare_start..tag_end], &text[message_start..]].concat();
                sink.write_line(level, &bare);
            } else {
                sink.write_line(level, text);
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
                    // std has no way to the bare text: it is what comes before the number.
                    let bare = text.strip_suffix(&format!(" (os error {code})")).unwrap_or(&text);
                    write!(f, "({code}: {bare})")
                }
                None => write!(f, "({text})"),
            }
        }
    }
    OsError(error)
}

/// Shows bytes as text in a message, as they are where they are UTF-8.
pub fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

thread_local! {
    static IDS: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
    static DEFAULT: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Sets what stands before the message as `pid#tid`; to be called after a fork and in new threads.
pub fn set_ids(pid: u32, tid: u32) {
    IDS.with(|ids| ids.set(Some((pid, tid))));
}

fn ids() -> (u32, u32) {
    IDS.try_with(Cell::get).ok().flatten().unwrap_or_else(|| {
        let pid = std::process::id();
        (pid, pid)
    })
}

/// This thread's log for what belongs to no configuration: standard error at `notice` until
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
    // Dropped here and not inside the replacement: a sink may do anything when it goes.
    drop(before);
}

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
        // Nowhere is left to report that standard error is closed.
        let _ = io::stderr().write_all(line);
    }

    fn level(&self) -> Level {
        self.level
    }
}

/// Keeps lines in memory: for tests, and for what has to be shown later.
pub struct MemorySink {
    level: Level,
    lines: RefCell<Vec<u8>>,
}

impl MemorySink {
    /// Takes lines up to `level`.
    pub const fn new(level: Level) -> MemorySink {
        MemorySink { level, lines: RefCell::new(Vec::new()) }
    }

    /// Hands over what was written and forgets it.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn after_time(text: &str) -> &str {
        &text[19..]
    }

    #[test]
    fn a_line_has_nginx_s_form() {
        set_ids(12, 34);
        let (log, lines) = capture(Level::Error);
        crate::log!(log, Level::Error, Some(7), "upstream {} failed", "a");
        crate::log!(log, Level::Emerg, None, "x");
        crate::log!(log, Level::Warn, None, "not wanted");
        let text = lines.take();
        let mut parts = text.lines();
        let first = parts.next().unwrap();
        assert_eq!(first[..19].len(), "2026/11/20 09:53:24".len());
        assert_eq!(after_time(first), " [error] 12#34: *7 upstream a failed");
        assert_eq!(after_time(parts.next().unwrap()), " [emerg] 12#34: x");
        assert_eq!(parts.next(), None);
    }

    #[test]
    fn arguments_are_not_evaluated_for_a_level_nobody_wants() {
        let (log, _lines) = capture(Level::Warn);
        let count = Cell::new(0);
        let touch = || count.replace(count.get() + 1);
        crate::log!(log, Level::Info, None, "{}", touch());
        crate::debug!(log, debug::HTTP, None, "{}", touch());
        assert_eq!(count.get(), 0);
        crate::log!(log, Level::Warn, None, "{}", touch());
        assert_eq!(count.get(), 1);
    }

    #[test]
    fn long_lines_are_cut_and_keep_their_line_feed() {
        let (log, lines) = capture(Level::Info);
        crate::log!(log, Level::Info, None, "{}", "x".repeat(5000));
        let text = lines.take();
        assert_eq!(text.len(), LINE_BYTES_MAX);
        assert!(text.ends_with("x\n"));
        let missing = io::Error::from_raw_os_error(2);
        let long = "x".repeat(5000);
        log.write_os(
            Level::Info,
            None,
            format_args!("open() {long}"),
            &missing,
            format_args!(", c"),
        );
        assert!(lines.take().ends_with("xxx... (2: No such file or directory), c\n"));
    }

    #[test]
    fn errors_show_number_and_text() {
        let missing = io::Error::from_raw_os_error(2);
        assert_eq!(os_error(&missing).to_string(), "(2: No such file or directory)");
        assert_eq!(os_error(&io::Error::other("own")).to_string(), "(own)");
    }

    #[test]
    fn each_sink_has_its_own_level_and_debug_parts() {
        struct Part(MemorySink);
        impl Sink for Part {
            fn write_line(&self, level: Level, line: &[u8]) {
                self.0.write_line(level, line);
            }
            fn level(&self) -> Level {
                Level::Debug
            }
            fn debug_mask(&self) -> u32 {
                debug::HTTP
            }
        }
        let part = Rc::new(Part(MemorySink::new(Level::Debug)));
        let grave = Rc::new(MemorySink::new(Level::Crit));
        let log = Log::new(vec![part.clone(), grave.clone()]);
        crate::debug!(log, debug::EVENT, None, "event");
        crate::debug!(log, debug::HTTP, None, "http");
        crate::log!(log, Level::Crit, None, "crit");
        let (part_text, grave_text) = (part.0.take(), grave.take());
        assert!(!part_text.contains("event") && part_text.contains("http"));
        assert!(part_text.contains("crit"));
        assert_eq!(grave_text.lines().count(), 1);
        crate::debug!(log.debugging(), debug::EVENT, None, "forced");
        assert!(grave.take().contains("forced"));
    }

    #[test]
    fn bare_sinks_get_level_and_message_alone() {
        struct Bare(MemorySink);
        impl Sink for Bare {
            fn write_line(&self, level: Level, line: &[u8]) {
                self.0.write_line(level, line);
            }
            fn level(&self) -> Level {
                Level::Warn
            }
            fn bare(&self) -> bool {
                true
            }
        }
        let bare = Rc::new(Bare(MemorySink::new(Level::Warn)));
        crate::log!(Log::new(vec![bare.clone()]), Level::Emerg, Some(3), "no {}", "way");
        assert_eq!(bare.0.take(), "[emerg] no way\n");
    }

    struct Json(MemorySink);

    impl Sink for Json {
        fn write_line(&self, level: Level, line: &[u8]) {
            self.0.write_line(level, line);
        }
        fn level(&self) -> Level {
            self.0.level()
        }
        fn json(&self) -> bool {
            true
        }
    }

    struct About(&'static str);

    impl Context for About {
        fn tell(&self, fields: &mut Fields<'_>) {
            fields.plain("client", format_args!("::1"));
            fields.plain("server", format_args!(""));
            fields.quoted("request", format_args!("{}", self.0));
            fields.quoted("host", format_args!("h"));
        }
    }

    /// What follows the time in one line of each form.
    fn both_forms(write: impl Fn(&Log)) -> (String, String) {
        let text = Rc::new(MemorySink::new(Level::Info));
        let json = Rc::new(Json(MemorySink::new(Level::Info)));
        set_ids(12, 34);
        write(&Log::new(vec![json.clone(), text.clone()]));
        let (text, json) = (text.take(), json.0.take());
        let (time, rest) = json.strip_prefix("{\"time\":\"").unwrap().split_at(25);
        assert_eq!(time[..10].replace('-', "/"), text[..10]);
        assert_eq!(time[11..19], text[11..19]);
        assert!(time.is_ascii() && matches!(time.as_bytes()[19], b'+' | b'-'), "{time}");
        (after_time(&text).to_owned(), rest.to_owned())
    }

    #[test]
    fn json_has_the_fields_of_the_text() {
        crate::time::pin(1000, 784_111_777_000);
        let (text, json) = both_forms(|log| {
            let m = format_args!("a \"b\" \u{1}\n{}", lossy(b"\xff"));
            log.write_about(Level::Error, Some(7), m, &About("GET \\ \"é\""));
        });
        crate::time::unpin();
        let want = " [error] 12#34: *7 a \"b\" \\x01\\x0A\u{fffd}, client: ::1, server: , \
                    request: \"GET \\ \"é\"\", host: \"h\"\n";
        assert_eq!(text, want);
        let want = r#"","level":"error","pid":12,"tid":34,"connection":7,"#.to_owned()
            + r#""message":"a \"b\" \u0001\n"#
            + "\u{fffd}"
            + r#"","client":"::1","server":"","request":"GET \\ \"é\"","host":"h"}"#
            + "\n";
        assert_eq!(json, want);
        let (_, json) = both_forms(|log| crate::log!(log, Level::Info, None, ""));
        assert_eq!(json, "\",\"level\":\"info\",\"pid\":12,\"tid\":34,\"message\":\"\"}\n");
    }

    #[test]
    fn json_is_whole_where_the_text_is_cut() {
        let cut = |message: &str, request: &'static str| {
            both_forms(|log| {
                log.write_about(Level::Info, None, format_args!("{message}"), &About(request));
            })
            .1
        };
        // Within the message: no fields. Within a character of a value: the others are gone.
        let json = cut(&"m".repeat(3000), "r");
        assert!(json.ends_with("mmm\"}\n"), "{json}");
        let mut counts = [0; 5];
        for pad in 1890..2013 {
            let json = cut(&"m".repeat(pad), "éééééééééé");
            let (_, json) = json.split_once("\"message\":\"m").unwrap();
            let json = json.strip_suffix("\"}\n").unwrap().trim_start_matches('m');
            let whole =
                "\",\"client\":\"::1\",\"server\":\"\",\"request\":\"éééééééééé\",\"host\":\"h";
            let (got, half) = (json.trim_end_matches('\u{fffd}'), json.ends_with('\u{fffd}'));
            assert!(whole.starts_with(got), "{json}");
            assert!(!half || got.ends_with(['é', '"']), "{json}");
            counts[json.matches("\":\"").count()] += 1;
        }
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        // A line of nothing but what has to be escaped.
        let json = cut(&"\u{1}".repeat(3000), "");
        assert!(json.ends_with("\\u0001\"}\n") && json.len() < 6 * LINE_BYTES_MAX);
    }

    #[test]
    fn the_default_log_can_be_replaced() {
        let (log, lines) = capture(Level::Notice);
        set_default(log);
        crate::log!(default(), Level::Notice, None, "here");
        assert!(lines.take().contains("here"));
    }

    #[test]
    fn level_names_round_trip() {
        assert_eq!(Level::from_name(b"crit"), Some(Level::Crit));
        assert_eq!(Level::from_name(b"stderr"), None);
        assert_eq!(debug::from_name(b"debug_stream"), Some(debug::STREAM));
    }
}
