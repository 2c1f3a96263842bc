//! `error_log`: a destination with its level, the form of its lines, and their rate.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use base::log::{self, Form, Level, Log, Sink, debug};
use conf::{ConfError, Node, Word};
use event::Presence;

use super::{Haste, LogFile};
use crate::syslog::Syslog;

/// The time for which lines are counted against a rate, milliseconds.
const WINDOW_MS: u64 = 1_000;

/// The words of an `error_log` behind its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) level: Level,
    pub(super) debug_mask: u32,
    pub(super) form: Form,
    /// Lines a second and worker; `None`: all.
    pub(super) rate: Option<u32>,
}

impl Chosen {
    /// One level, or parts to debug; `json`, `format=json` and `rate=N/s`.
    pub(super) fn of(node: &Node) -> Result<Chosen, ConfError> {
        let (mut level, mut form, mut rate) = (None::<Level>, None::<Form>, None::<u32>);
        let mut mask = 0;
        for word in node.args.iter().skip(1) {
            if let Some(found) = form_of(word)? {
                if form.replace(found).is_some() {
                    return Err(ConfError::at(word, "duplicate log format \"json\""));
                }
                continue;
            }
            if let Some(text) = word.bytes().strip_prefix(b"rate=") {
                if rate.replace(lines_a_second(word, text)?).is_some() {
                    return Err(ConfError::at(word, "duplicate rate of the log"));
                }
                continue;
            }
            let part = debug::from_name(word.bytes());
            match (Level::from_name(word.bytes()), part) {
                (Some(_), _) if level.is_some() || mask != 0 => {
                    let message = format!("duplicate log level \"{}\"", word.lossy());
                    return Err(ConfError::at(word, message));
                }
                (Some(found), _) => level = Some(found),
                (None, Some(part)) if level.is_none() => mask |= part,
                _ => {
                    let message = format!("invalid log level \"{}\"", word.lossy());
                    return Err(ConfError::at(word, message));
                }
            }
        }
        let (level, debug_mask) = match level {
            Some(Level::Debug) => (Level::Debug, debug::ALL),
            Some(level) => (level, 0),
            None if mask != 0 => (Level::Debug, mask),
            None => (Level::Error, 0),
        };
        Ok(Chosen { level, debug_mask, form: form.unwrap_or_default(), rate })
    }
}

impl Chosen {
    /// The level of a log that goes to a collector.
    pub(super) fn of_collector(&self, target: &Word) -> Result<Level, ConfError> {
        let why = match self {
            Chosen { form: Form::Text, rate: None, level, .. } if *level < Level::Debug => {
                return Ok(*level);
            }
            Chosen { level: Level::Debug, .. } => "has no debug lines: sending one makes others",
            Chosen { rate: Some(_), .. } => "has no rate: \"batch_count\" limits it",
            _ => "has no format: its fields are attributes",
        };
        Err(ConfError::at(target, format!("a log that goes to a collector {why}")))
    }
}

/// The form that a word names: `json` has the members of NGINX Plus, `format=json` those of the
/// access log's `json`.
fn form_of(word: &Word) -> Result<Option<Form>, ConfError> {
    match word.bytes().strip_prefix(b"format=") {
        None if word.bytes() == b"json" => Ok(Some(Form::PlusJson)),
        None => Ok(None),
        Some(b"json") => Ok(Some(Form::Json)),
        Some(other) => {
            let message = format!("unknown log format \"{}\"", log::lossy(other));
            Err(ConfError::at(word, message))
        }
    }
}

fn lines_a_second(word: &Word, text: &[u8]) -> Result<u32, ConfError> {
    let number = text.strip_suffix(b"/s").and_then(base::ascii::parse_u64);
    let rate = number.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    rate.ok_or_else(|| {
        let text = log::lossy(text);
        ConfError::at(word, format!("invalid rate \"{text}\": lines a second, as in \"100/s\""))
    })
}

/// The receiver of the lines of an `error_log`.
pub(super) enum Place {
    File(Rc<LogFile>),
    Syslog(Rc<Syslog>),
}

/// The sink of an `error_log`.
pub(super) struct ErrorSink {
    pub(super) place: Place,
    pub(super) chosen: Chosen,
}

impl Sink for ErrorSink {
    fn write_line(&self, level: Level, line: &[u8]) {
        match &self.place {
            Place::File(file) => {
                let haste = if level < Level::Debug { Haste::Now } else { Haste::Soon };
                file.append_line(line, haste);
            }
            Place::Syslog(syslog) => {
                syslog.send(Some(level), line.strip_suffix(b"\n").unwrap_or(line));
            }
        }
    }

    fn level(&self) -> Level {
        self.chosen.level
    }

    fn debug_mask(&self) -> u32 {
        self.chosen.debug_mask
    }

    fn form(&self) -> Form {
        self.chosen.form
    }
}

/// A sink that takes a number of lines a second, and tells how many it left out. Lines of `crit`
/// and above always pass, and do not count.
pub(super) struct Limited {
    sink: Rc<ErrorSink>,
    /// Writes lines of its own to the sink.
    log: Log,
    rate: u32,
    me: Weak<Limited>,
    /// The beginning of the window, and the lines that passed in it.
    began_ms: Cell<u64>,
    passed: Cell<u32>,
    /// Lines left out since the last message about them, and the gravest level among them.
    left_out: Cell<u64>,
    gravest: Cell<Level>,
}

impl Limited {
    pub(super) fn new(sink: ErrorSink, rate: u32) -> Rc<Limited> {
        let sink = Rc::new(sink);
        let log = Log::new(vec![sink.clone()]);
        Rc::new_cyclic(|me| Limited {
            sink,
            log,
            rate,
            me: me.clone(),
            began_ms: Cell::new(0),
            passed: Cell::new(0),
            left_out: Cell::new(0),
            gravest: Cell::new(Level::Debug),
        })
    }

    /// Whether one more line passes now.
    fn admits(&self) -> bool {
        let now = base::time::now_ms();
        if now.saturating_sub(self.began_ms.get()) >= WINDOW_MS {
            self.tell();
            self.began_ms.set(now);
            self.passed.set(0);
        }
        let passed = self.passed.get();
        self.passed.set(passed.saturating_add(1));
        passed < self.rate
    }

    fn leave_out(&self, level: Level) {
        let before = self.left_out.replace(self.left_out.get() + 1);
        self.gravest.set(if before == 0 { level } else { self.gravest.get().min(level) });
        // Without a loop, the next line or the end of the process has the message written.
        if before == 0 && event::presence() == Presence::Free {
            let (me, ends_ms) = (self.me.clone(), self.began_ms.get() + WINDOW_MS);
            event::spawn(async move {
                event::sleep(ends_ms.saturating_sub(base::time::now_ms())).await;
                if let Some(limited) = me.upgrade() {
                    limited.tell();
                }
            });
        }
    }

    /// Writes how many lines were left out, if any were.
    pub(super) fn tell(&self) {
        let (n, level) = (self.left_out.take(), self.gravest.get());
        if n > 0 {
            let lines = if n == 1 { "line was" } else { "lines were" };
            let m =
                format_args!("{n} {lines} left out of this log: more than {} a second", self.rate);
            // Debug lines have a part; all sinks of that level take this one.
            self.log.debugging().write(level, None, m);
        }
    }
}

impl Sink for Limited {
    fn write_line(&self, level: Level, line: &[u8]) {
        if level <= Level::Crit || self.admits() {
            self.sink.write_line(level, line);
        } else {
            self.leave_out(level);
        }
    }

    fn level(&self) -> Level {
        self.sink.level()
    }

    fn debug_mask(&self) -> u32 {
        self.sink.debug_mask()
    }

    fn form(&self) -> Form {
        self.sink.form()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LogFiles, node};
    use super::*;
    use std::path::Path;
    use testkit::Folder;

    #[test]
    fn levels_of_an_error_log() {
        let words = |text: &str| Chosen::of(&node(text)).map(|c| ((c.level, c.debug_mask), c.form));
        let of = |text: &str| words(&format!("error_log f {text}")).map(|(levels, _)| levels);
        assert_eq!(words("error_log f").unwrap(), ((Level::Error, 0), Form::Text));
        assert_eq!(words("error_log f format=json").unwrap(), ((Level::Error, 0), Form::Json));
        for both in ["format=json warn", "warn format=json"] {
            let got = words(&format!("error_log f {both}")).unwrap();
            assert_eq!(got, ((Level::Warn, 0), Form::Json));
        }
        assert_eq!(words("error_log f warn json").unwrap(), ((Level::Warn, 0), Form::PlusJson));
        assert_eq!(of("info").unwrap(), (Level::Info, 0));
        assert_eq!(of("debug").unwrap(), (Level::Debug, debug::ALL));
        assert_eq!(
            of("debug_http debug_event").unwrap(),
            (Level::Debug, debug::HTTP | debug::EVENT)
        );
        let rate = |text: &str| Chosen::of(&node(&format!("error_log f {text}"))).unwrap().rate;
        assert_eq!((rate("warn"), rate("rate=5/s warn json")), (None, Some(5)));
        for (text, message) in [
            ("warning", "invalid log level \"warning\" in f:1"),
            ("info warn", "duplicate log level \"warn\" in f:1"),
            ("info debug_http", "invalid log level \"debug_http\" in f:1"),
            ("debug_http info", "duplicate log level \"info\" in f:1"),
            ("stderr", "invalid log level \"stderr\" in f:1"),
            ("format=xml", "unknown log format \"xml\" in f:1"),
            ("warn format=", "unknown log format \"\" in f:1"),
            ("format=json format=json", "duplicate log format \"json\" in f:1"),
            ("format=json json", "duplicate log format \"json\" in f:1"),
            ("rate=1/s rate=1/s", "duplicate rate of the log in f:1"),
            ("rate=0/s", "invalid rate \"0/s\": lines a second, as in \"100/s\" in f:1"),
            ("rate=5r/m", "invalid rate \"5r/m\": lines a second, as in \"100/s\" in f:1"),
        ] {
            assert_eq!(of(text).unwrap_err().to_string(), message);
        }
        let logs = LogFiles::new(Path::new("/"));
        let error = logs.error_log(&node("error_log memory:32k")).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("not supported"));
    }

    #[test]
    fn lines_beyond_the_rate_are_left_out_and_counted() {
        let dir = Folder::new("rate");
        let logs = LogFiles::new(&dir);
        let limited =
            Log::new(vec![logs.error_log(&node("error_log a.log info rate=2/s")).unwrap()]);
        logs.open_all().unwrap();
        let log = |level, n: u32| base::log!(limited, level, None, "n{n}");
        base::time::pin(5_000, 784_111_777_000);
        (1..=5).for_each(|n| log(Level::Info, n));
        log(Level::Error, 6);
        log(Level::Crit, 7);
        base::time::pin(5_999, 784_111_777_999);
        log(Level::Info, 8);
        base::time::pin(6_000, 784_111_778_000);
        (9..=11).for_each(|n| log(Level::Info, n));
        logs.flush();
        logs.flush();
        base::time::unpin();
        let text = std::fs::read_to_string(dir.join("a.log")).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once(": ").unwrap().1).collect();
        let told = |n: &str| format!("{n} left out of this log: more than 2 a second");
        let want = ["n1", "n2", "n7", &told("5 lines were"), "n9", "n10", &told("1 line was")];
        assert_eq!(lines, want);
        let levels: Vec<&str> = text.lines().map(|line| line.split(' ').nth(2).unwrap()).collect();
        assert_eq!(levels[3..], ["[error]", "[info]", "[info]", "[info]"]);
    }

    #[test]
    fn a_rate_tells_in_time_where_no_line_follows() {
        event::testing::each_driver(|| async {
            let dir = Folder::new("rate-timer");
            let logs = LogFiles::new(&dir);
            let sink = logs.error_log(&node("error_log a.log rate=1/s format=json")).unwrap();
            let limited = Log::new(vec![sink]);
            logs.open_all().unwrap();
            (0..3).for_each(|_| base::log!(limited, Level::Error, None, "same"));
            let text = || std::fs::read_to_string(dir.join("a.log")).unwrap();
            event::testing::until(|| text().lines().count() == 2).await;
            assert!(text().contains("\"message\":\"2 lines were left out"), "{}", text());
        });
    }
}
