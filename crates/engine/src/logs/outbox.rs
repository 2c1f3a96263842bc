//! Lines for a collector of logs, where `otel:` stands in the place of a file. The module that
//! knows the collector takes them, in a worker, from the moment when it has started.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::log::{Form, Level, Parts, Sink};
use conf::{ConfError, Word};

/// The beginning of a destination that is a collector.
const PREFIX: &[u8] = b"otel:";

/// The ids of a session's span, for lines about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIds {
    /// The id of the trace that the line belongs to.
    pub trace_id: [u8; 16],
    /// The id of the span that the line belongs to.
    pub span_id: [u8; 8],
}

/// The ids of a session that is traced; a module sets them in what the session shares.
#[derive(Default)]
pub struct Traced(pub Cell<Option<TraceIds>>);

/// A line.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The name of its log.
    pub log: &'a str,
    /// Its level; none in an access log.
    pub level: Option<Level>,
    /// Its text, as UTF-8 as far as it is.
    pub body: &'a [u8],
    /// The process and the connection, if it is a line of an error log.
    pub numbers: &'a [(&'a str, u64)],
    /// The fields behind the message, if it is a line of an error log.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// The span of the request.
    pub trace: Option<TraceIds>,
}

/// Takes lines; it must not log, but for lines that may be lost.
pub type Taker = Rc<dyn Fn(&Record<'_>)>;

/// The way of lines to a collector.
#[derive(Default)]
pub struct Outbox {
    /// The first directive that names it.
    used_at: RefCell<Option<Word>>,
    has_exporter: Cell<bool>,
    taker: RefCell<Option<Taker>>,
    /// A line is being taken: lines about that are left out.
    busy: Cell<bool>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outbox({:?})", self.used_at.borrow())
    }
}

impl Outbox {
    /// The name of the log, where `word` is a destination of this kind; `default` if it is empty.
    ///
    /// # Errors
    /// The name has other characters than letters, digits, `_`, `-` and `.`.
    pub fn name(&self, word: &Word, default: &str) -> Result<Option<Rc<str>>, ConfError> {
        let Some(name) = word.bytes().strip_prefix(PREFIX) else { return Ok(None) };
        let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-.".contains(b);
        if !name.iter().all(is_plain) {
            let m = format!("invalid name of a log in \"{}\"", word.lossy());
            return Err(ConfError::at(word, m));
        }
        self.used_at.borrow_mut().get_or_insert_with(|| word.clone());
        let name = base::log::lossy(name);
        Ok(Some(if name.is_empty() { default.into() } else { name.into() }))
    }

    /// Whether some log goes to a collector.
    pub fn is_used(&self) -> bool {
        self.used_at.borrow().is_some()
    }

    /// The configuration has an exporter.
    pub fn has_exporter(&self) {
        self.has_exporter.set(true);
    }

    /// When all is read: checks that there is an exporter for the logs.
    ///
    /// # Errors
    /// There is none.
    pub fn check(&self) -> Result<(), ConfError> {
        match &*self.used_at.borrow() {
            Some(at) if !self.has_exporter.get() => {
                let m = "\"http\" has no \"otel_exporter\" block, or one whose endpoint has a path \
                         that does not end in \"/traces\"";
                Err(ConfError::at(at, m))
            }
            _ => Ok(()),
        }
    }

    /// In a worker: lines are taken from now on.
    pub fn open(&self, taker: Taker) {
        self.taker.replace(Some(taker));
    }

    /// Hands over a line. Before [`Outbox::open`], and in the master, it is dropped.
    pub fn put(&self, record: &Record<'_>) {
        let Some(taker) = self.taker.borrow().clone() else { return };
        if !self.busy.replace(true) {
            taker(record);
            self.busy.set(false);
        }
    }
}

/// The sink of an `error_log` that goes to a collector.
pub(super) struct OutboxSink {
    pub(super) outbox: Rc<Outbox>,
    pub(super) log: Rc<str>,
    pub(super) level: Level,
}

impl Sink for OutboxSink {
    fn write_line(&self, _: Level, _: &[u8]) {}

    fn write_parts(&self, parts: &Parts<'_>) {
        let numbers = [("pid", u64::from(parts.pid)), ("connection", parts.conn.unwrap_or(0))];
        let fields: Vec<(&str, &[u8])> =
            parts.fields.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        self.outbox.put(&Record {
            log: &self.log,
            level: Some(parts.level),
            body: parts.message.as_bytes(),
            numbers: if parts.conn.is_some() { &numbers } else { &numbers[..1] },
            fields: &fields,
            trace: None,
        });
    }

    fn level(&self) -> Level {
        self.level
    }

    fn form(&self) -> Form {
        Form::Parts
    }
}
