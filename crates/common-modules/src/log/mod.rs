//! Access logs: formats of lines, and the files, syslog servers and paths that lines go to.
//!
//! An engine lists [`AccessLogFiles`] in scope `Main` and [`AccessLogs`] in scope `Location`, calls
//! [`init`] when all directives are read, and writes a line with [`AccessLog::write`].

mod file_log;
mod format;
mod json;
mod path_log;
mod sampling;

use std::cell::RefCell;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Node, Word, value};
use engine::logs::{LogFiles, LogQueue, Outbox, Record, Traced};
use engine::settings::Conf;
use engine::syslog::Syslog;
use engine::{Cx, Session};
use files::{AppendFile, FilePath};

pub use file_log::{Buffer, FileLog};
pub use format::Format;
pub use path_log::OpenLogFiles;
use sampling::Sampling;

/// The size of the buffer of a compressed log without `buffer=`.
const GZIP_BUFFER: usize = 64 << 10;

/// The value of scope `Main`: formats by name, files by path.
#[derive(Default)]
pub struct AccessLogFiles {
    formats: Vec<Rc<Format>>,
    files: Option<Rc<LogFiles>>,
    logs: RefCell<Vec<Rc<FileLog>>>,
}

impl Conf for AccessLogFiles {}

impl AccessLogFiles {
    /// The log of a file, one for each path.
    fn log(&self, files: &LogFiles, path: &[u8]) -> Rc<FileLog> {
        let file = files.open(path);
        let mut logs = self.logs.borrow_mut();
        if let Some(log) = logs.iter().find(|l| Rc::ptr_eq(&l.file, &file)) {
            return log.clone();
        }
        let log = FileLog::new(file);
        logs.push(log.clone());
        log
    }

    fn format(&self, name: &[u8]) -> Option<Rc<Format>> {
        self.formats.iter().find(|f| f.name.eq_ignore_ascii_case(name)).cloned()
    }
}

/// The place that the lines of one `access_log` go to.
pub enum Target {
    /// Lines go to a file.
    File(Rc<FileLog>),
    /// A syslog server.
    Syslog(Syslog),
    /// A collector, with the log's name.
    Collector(Rc<Outbox>, Rc<str>),
    /// A path with variables; its lines are written in their order.
    Path(Template, Rc<LogQueue>),
}

/// One `access_log`.
pub struct AccessLog {
    /// The place of its lines.
    pub target: Target,
    format: Rc<Format>,
    /// `if=`
    filter: Option<Template>,
    sampling: Sampling,
}

/// The value of scope `Location`: the `access_log` directives of one block.
#[derive(Default)]
pub struct AccessLogs {
    logs: Vec<Rc<AccessLog>>,
    off: bool,
    open_files: Option<Option<Arc<OpenLogFiles>>>,
}

impl Conf for AccessLogs {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.open_files.is_none() {
            self.open_files.clone_from(&prev.open_files);
        }
        if self.logs.is_empty() && !self.off {
            self.logs.clone_from(&prev.logs);
            self.off = prev.off;
        }
        Ok(())
    }
}

/// Reads `log_format`.
///
/// # Errors
/// The name is taken, or the format is malformed.
pub fn log_format<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let name = &n.args[0];
    if name.bytes() == b"combined" {
        combined(cx, name)?;
    }
    own_log_format(cx, n)
}

/// The same for an engine without a predefined format.
///
/// # Errors
/// As [`log_format`].
pub fn own_log_format<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    is_free(cx, &n.args[0])?;
    let format = Format::parse(&mut cx.vars, n)?;
    cx.main::<AccessLogFiles>().formats.push(Rc::new(format));
    Ok(())
}

/// Reads `log_json`.
///
/// # Errors
/// The name is taken, or a member is malformed.
pub fn log_json<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let name = &n.args[0];
    if name.bytes() == b"combined" {
        return Err(ConfError::at(name, "the format \"combined\" is predefined"));
    }
    is_free(cx, name)?;
    let format = json::parse(&mut cx.vars, n)?;
    cx.main::<AccessLogFiles>().formats.push(Rc::new(format));
    Ok(())
}

fn is_free<S: Session>(cx: &mut Cx<S>, name: &Word) -> Result<(), ConfError> {
    if cx.main::<AccessLogFiles>().formats.iter().any(|f| f.name == name.text) {
        let m = format!("duplicate \"log_format\" name \"{}\"", name.lossy());
        return Err(ConfError::at(name, m));
    }
    Ok(())
}

/// The predefined format, compiled when it is first asked for.
fn combined<S: Session>(cx: &mut Cx<S>, at: &Word) -> Result<Rc<Format>, ConfError> {
    if let Some(f) = cx.main::<AccessLogFiles>().format(b"combined") {
        return Ok(f);
    }
    let format = Rc::new(Format::combined(&mut cx.vars, at)?);
    cx.main::<AccessLogFiles>().formats.push(format.clone());
    Ok(format)
}

/// Reads `access_log` into the [`AccessLogs`] of its block.
///
/// # Errors
/// A parameter is wrong, or contradicts an earlier log of the same file.
pub fn access_log<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let is_predefined = |name: &Word| name.bytes().eq_ignore_ascii_case(b"combined");
    if n.args[0].bytes() != b"off" && n.args.get(1).is_none_or(is_predefined) {
        combined(cx, &n.args[0])?;
    }
    // A configuration may have a format of that name.
    if let Some(name) = n.args.get(1).filter(|name| name.bytes() == b"json")
        && cx.main::<AccessLogFiles>().format(b"json").is_none()
    {
        let format = Rc::new(json::predefined(&mut cx.vars, name)?);
        cx.main::<AccessLogFiles>().formats.push(format);
    }
    own_access_log(cx, n)
}

/// The same for an engine without a predefined format.
///
/// # Errors
/// As [`access_log`].
pub fn own_access_log<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let first = &n.args[0];
    if first.bytes() == b"off" {
        if let Some(w) = n.args.get(1) {
            return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy())));
        }
        cx.loc::<AccessLogs>().off = true;
        return Ok(());
    }
    let target = target(cx, first)?;
    let known = |name: &[u8], cx: &mut Cx<S>| cx.main::<AccessLogFiles>().format(name);
    let format = match n.args.get(1) {
        Some(name) => known(name.bytes(), cx).ok_or_else(|| {
            ConfError::at(name, format!("unknown log format \"{}\"", name.lossy()))
        })?,
        None => known(b"combined", cx)
            .ok_or_else(|| ConfError::at(first, "log format is not specified"))?,
    };
    let options = Options::parse(cx, n.args.get(2..).unwrap_or(&[]))?;
    if let Some(buffer) = options.buffer(first)? {
        match &target {
            Target::File(log) if log.set_buffer(buffer) => {}
            Target::File(_) => {
                let path = first.lossy();
                let m =
                    format!("access_log \"{path}\" already defined with conflicting parameters");
                return Err(ConfError::at(first, m));
            }
            Target::Path(..) => {
                return Err(ConfError::at(first, "buffered logs cannot have variables in name"));
            }
            Target::Syslog(_) => {
                return Err(ConfError::at(first, "logs to syslog cannot be buffered"));
            }
            Target::Collector(..) => {
                let m = "logs to a collector cannot be buffered: \"otel_exporter\" has batches";
                return Err(ConfError::at(first, m));
            }
        }
    }
    let log = AccessLog { target, format, filter: options.filter, sampling: options.sampling };
    cx.loc::<AccessLogs>().logs.push(Rc::new(log));
    Ok(())
}

fn target<S: Session>(cx: &mut Cx<S>, word: &Word) -> Result<Target, ConfError> {
    if word.bytes().starts_with(b"syslog:") {
        return Ok(Target::Syslog(Syslog::parse(word, &cx.env.logs)?));
    }
    if let Some(name) = cx.env.logs.outbox().name(word, "access")? {
        return Ok(Target::Collector(cx.env.logs.outbox().clone(), name));
    }
    if memchr::memchr(b'$', word.bytes()).is_some() {
        use std::os::unix::ffi::OsStrExt;
        let path = cx.env.path(word.bytes());
        let text = Bytes::copy_from_slice(path.as_os_str().as_bytes());
        let path = cx.template(&Word { text, ..word.clone() })?;
        return Ok(Target::Path(path, cx.env.logs.queue(word.bytes())));
    }
    let files = cx.env.logs.clone();
    Ok(Target::File(cx.main::<AccessLogFiles>().log(&files, word.bytes())))
}

/// The parameters behind the format of an `access_log`.
#[derive(Default)]
struct Options {
    size: usize,
    flush_ms: u64,
    gzip: Option<u32>,
    filter: Option<Template>,
    sampling: Sampling,
}

impl Options {
    fn parse<S: Session>(cx: &mut Cx<S>, words: &[Word]) -> Result<Options, ConfError> {
        let mut o = Options::default();
        for w in words {
            let text = w.bytes();
            let bad = |what: &str, v: &[u8]| {
                ConfError::at(w, format!("invalid {what} \"{}\"", String::from_utf8_lossy(v)))
            };
            if let Some(v) = text.strip_prefix(b"buffer=") {
                let size = value::parse_size(v).filter(|s| *s > 0);
                o.size = size.ok_or_else(|| bad("buffer size", v))?;
            } else if let Some(v) = text.strip_prefix(b"flush=") {
                let ms = value::parse_msec(v).filter(|ms| *ms > 0);
                o.flush_ms = ms.ok_or_else(|| bad("flush time", v))?;
            } else if text == b"gzip" {
                o.compressed(1);
            } else if let Some(v) = text.strip_prefix(b"gzip=") {
                let level = base::ascii::parse_u64(v).filter(|l| (1..=9).contains(l));
                o.compressed(level.ok_or_else(|| bad("compression level", v))? as u32);
            } else if text.starts_with(b"if=") {
                o.filter = Some(Template::parse_slice(&w.text.slice(3..), w, 3, &mut cx.vars)?);
            } else if !o.sampling.parse(cx, w)? {
                return Err(bad("parameter", text));
            }
        }
        Ok(o)
    }

    fn compressed(&mut self, level: u32) {
        self.gzip = Some(level);
        if self.size == 0 {
            self.size = GZIP_BUFFER;
        }
    }

    fn buffer(&self, path: &Word) -> Result<Option<Buffer>, ConfError> {
        if self.size == 0 {
            if self.flush_ms > 0 {
                let m = format!("no buffer is defined for access_log \"{}\"", path.lossy());
                return Err(ConfError::at(path, m));
            }
            return Ok(None);
        }
        Ok(Some(Buffer { size: self.size, flush_ms: self.flush_ms, gzip: self.gzip }))
    }
}

/// Reads `open_log_file_cache`.
///
/// # Errors
/// A parameter is wrong, or the directive is duplicate.
pub fn open_log_file_cache<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<AccessLogs>().open_files.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let (mut max, mut inactive, mut valid, mut min_uses, mut off) = (0, 10, 60, 1, false);
    for w in &n.args {
        let bad = || {
            let m = format!("invalid \"open_log_file_cache\" parameter \"{}\"", w.lossy());
            ConfError::at(w, m)
        };
        let number = |v| base::ascii::parse_u64(v).ok_or_else(bad);
        let secs = |v| value::parse_sec(v).ok_or_else(bad);
        match w.bytes().split_at(w.bytes().iter().position(|b| *b == b'=').map_or(0, |i| i + 1)) {
            (b"max=", v) => max = number(v)?,
            (b"inactive=", v) => inactive = secs(v)?,
            (b"valid=", v) => valid = secs(v)?,
            (b"min_uses=", v) => min_uses = number(v)?,
            (b"", b"off") => off = true,
            _ => return Err(bad()),
        }
    }
    if !off && max == 0 {
        let m = "\"open_log_file_cache\" must have \"max\" parameter";
        return Err(ConfError::at(&n.name, m));
    }
    let cache = OpenLogFiles::new(max as usize, inactive, valid, min_uses);
    cx.loc::<AccessLogs>().open_files = Some((!off).then(|| Arc::new(cache)));
    Ok(())
}

/// Makes the predefined format, when all directives are read.
///
/// # Errors
/// The engine has no variable of a name in it.
pub fn init<S: Session>(cx: &mut Cx<S>) -> Result<(), ConfError> {
    let at = Word {
        text: Bytes::new(),
        pos: conf::Pos { file: std::path::Path::new("").into(), line: 0, column: 0 },
        quoted: false,
    };
    combined(cx, &at)?;
    let files = cx.env.logs.clone();
    cx.main::<AccessLogFiles>().files = Some(files);
    Ok(())
}

impl AccessLogs {
    /// The logs of a location: its directives', or else the `default` one, if there is one.
    pub fn all(&self, main: &AccessLogFiles, default: Option<&[u8]>) -> Vec<Rc<AccessLog>> {
        if self.off {
            return Vec::new();
        }
        let mut logs = self.logs.clone();
        if logs.is_empty()
            && let Some(path) = default
            && let (Some(files), Some(format)) = (&main.files, main.format(b"combined"))
        {
            // Only here, so that a configuration whose servers all name their logs makes no other
            // file.
            let Some(path) = files.default_path(path) else { return logs };
            let target = Target::File(main.log(files, path.as_os_str().as_bytes()));
            logs.push(Rc::new(AccessLog {
                target,
                format,
                filter: None,
                sampling: Sampling::default(),
            }));
        }
        logs
    }

    /// `open_log_file_cache`
    pub fn open_files(&self) -> Option<Arc<OpenLogFiles>> {
        self.open_files.clone().flatten()
    }
}

impl AccessLog {
    /// Writes the session's line, unless `if=` or the sampling excludes it. `now`: the line is not
    /// held back where there is no `buffer=`. `path` gives the file of a path with variables;
    /// `None` where it is not to be written.
    pub fn write<S: Session>(
        &self,
        s: &mut S,
        now: bool,
        open_files: Option<&Arc<OpenLogFiles>>,
        path: impl FnOnce(&mut S, &[u8]) -> Option<AppendFile>,
    ) {
        if let Some(filter) = &self.filter {
            let value = s.eval(filter);
            if value.is_empty() || value.as_ref() == b"0" {
                return;
            }
        }
        if !self.sampling.takes(s) {
            return;
        }
        match &self.target {
            Target::File(file) => file.line(now, |out| self.format.write(s, out)),
            Target::Syslog(syslog) => {
                let mut line = FilePath::new();
                self.format.write(s, &mut line);
                syslog.send(None, &line);
            }
            Target::Collector(outbox, log) => {
                let mut line = FilePath::new();
                self.format.write(s, &mut line);
                let trace = s.shared::<Traced>().0.get();
                let (level, numbers, fields) = (None, &[][..], &[][..]);
                outbox.put(&Record { log, level, body: &line, numbers, fields, trace });
            }
            Target::Path(template, queue) => {
                let mut name = FilePath::new();
                template.eval_into(s, &mut name);
                let Some(file) = path(s, &name) else { return };
                let mut line = Vec::with_capacity(256);
                self.format.write(s, &mut line);
                line.push(b'\n');
                path_log::append(queue, open_files.cloned(), file, line, s.connection());
            }
        }
    }

    /// Waits until the lines handed over so far are written, for a target that writes them soon.
    pub async fn settled(&self) {
        match &self.target {
            Target::File(file) => file.file.settled().await,
            Target::Path(_, queue) => queue.settled().await,
            Target::Syslog(_) | Target::Collector(..) => {}
        }
    }

    /// Says whether lines are written soon after they are handed over, and can be waited for.
    pub fn writes_soon(&self) -> bool {
        match &self.target {
            Target::File(file) => !file.is_buffered(),
            Target::Path(..) => true,
            Target::Syslog(_) | Target::Collector(..) => false,
        }
    }

    /// Says whether the path holds variables.
    pub fn has_path(&self) -> bool {
        matches!(self.target, Target::Path(..))
    }
}
