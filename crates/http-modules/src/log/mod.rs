//! `log`: the access log.

mod by_path;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};

use base::log::{Level, lossy};
use bytes::Bytes;
use common_modules::log::{Buffer, FileLog, Format};
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::{ConfError, Node, Word, value};
use engine::logs::{LogFiles, LogQueue};
use engine::syslog::Syslog;
use http::core_directives::{HSL, HSLI, directive};
use http::cx::Cx;
use http::files::{self, FilePath};
use http::module::{Conf, ConfType, LocView, Module, PhaseHandler, Pipeline, Scope, Step, Verdict};
use http::request::Request;

/// The module's table.
pub static MODULE: Module = Module {
    name: "log",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<LogMain>(Scope::Main), ConfType::of::<LogConf>(Scope::Location)],
    init: Some(init),
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "log_format",
        C::HTTP,
        Args::TWO_MORE,
        "combined \"…\"",
        "A format of access log lines.",
        log_format,
    ),
    directive(
        "access_log",
        HSLI.or(C::LIMIT_EXCEPT),
        Args::ONE_MORE,
        "logs/access.log combined",
        "Where requests are logged, and in which format.",
        access_log,
    ),
    directive(
        "open_log_file_cache",
        HSL,
        Args::T1234,
        "off",
        "Keeps log files open whose paths hold variables.",
        open_log_file_cache,
    ),
];

const DEFAULT_PATH: &[u8] = b"logs/access.log";

/// What the buffer of a compressed log holds where `buffer=` does not say.
const GZIP_BUFFER: usize = 64 << 10;

/// What all levels share: formats by name, files by path.
#[derive(Default)]
struct LogMain {
    formats: Vec<Rc<Format>>,
    files: Option<Rc<LogFiles>>,
    logs: RefCell<Vec<Rc<FileLog>>>,
}

impl Conf for LogMain {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

impl LogMain {
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

/// Where the lines of one `access_log` go.
enum Target {
    File(Rc<FileLog>),
    Syslog(Syslog),
    /// A path with variables; its lines are written in their order.
    Path(Template, Rc<LogQueue>),
}

/// One `access_log`.
struct AccessLog {
    target: Target,
    format: Rc<Format>,
    /// `if=`
    filter: Option<Template>,
}

#[derive(Default)]
struct LogConf {
    logs: Vec<Rc<AccessLog>>,
    off: bool,
    cache: Option<Option<Arc<by_path::Cache>>>,
}

impl Conf for LogConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.cache.is_none() {
            self.cache.clone_from(&prev.cache);
        }
        if self.logs.is_empty() && !self.off {
            self.logs.clone_from(&prev.logs);
            self.off = prev.off;
        }
        Ok(())
    }
}

fn log_format(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let name = &n.args[0];
    if name.bytes() == b"combined" {
        combined(cx, name)?;
    }
    if cx.main::<LogMain>().formats.iter().any(|f| f.name == name.text) {
        let m = format!("duplicate \"log_format\" name \"{}\"", name.lossy());
        return Err(ConfError::at(name, m));
    }
    let format = Format::parse(&mut cx.vars, n)?;
    cx.main::<LogMain>().formats.push(Rc::new(format));
    Ok(())
}

/// The predefined format, compiled when it is first asked for.
fn combined(cx: &mut Cx, at: &Word) -> Result<Rc<Format>, ConfError> {
    if let Some(f) = cx.main::<LogMain>().format(b"combined") {
        return Ok(f);
    }
    let format = Rc::new(Format::combined(&mut cx.vars, at)?);
    cx.main::<LogMain>().formats.push(format.clone());
    Ok(format)
}

fn access_log(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let first = &n.args[0];
    if first.bytes() == b"off" {
        if let Some(w) = n.args.get(1) {
            return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy())));
        }
        cx.loc::<LogConf>().off = true;
        return Ok(());
    }
    let target = target(cx, first)?;
    let format = match n.args.get(1) {
        Some(name) if !name.bytes().eq_ignore_ascii_case(b"combined") => {
            cx.main::<LogMain>().format(name.bytes()).ok_or_else(|| {
                ConfError::at(name, format!("unknown log format \"{}\"", name.lossy()))
            })?
        }
        _ => combined(cx, first)?,
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
        }
    }
    let log = AccessLog { target, format, filter: options.filter };
    cx.loc::<LogConf>().logs.push(Rc::new(log));
    Ok(())
}

fn target(cx: &mut Cx, word: &Word) -> Result<Target, ConfError> {
    if word.bytes().starts_with(b"syslog:") {
        return Ok(Target::Syslog(Syslog::parse(word)?));
    }
    if memchr::memchr(b'$', word.bytes()).is_some() {
        use std::os::unix::ffi::OsStrExt;
        let path = cx.env.path(word.bytes());
        let text = Bytes::copy_from_slice(path.as_os_str().as_bytes());
        let path = cx.template(&Word { text, ..word.clone() })?;
        return Ok(Target::Path(path, cx.env.logs.queue(word.bytes())));
    }
    let files = cx.env.logs.clone();
    Ok(Target::File(cx.main::<LogMain>().log(&files, word.bytes())))
}

/// What stands behind the format of an `access_log`.
#[derive(Default)]
struct Options {
    size: usize,
    flush_ms: u64,
    gzip: Option<u32>,
    filter: Option<Template>,
}

impl Options {
    fn parse(cx: &mut Cx, words: &[Word]) -> Result<Options, ConfError> {
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
            } else {
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

fn open_log_file_cache(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<LogConf>().cache.is_some() {
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
    let cache = by_path::Cache {
        max: max as usize,
        inactive_secs: inactive,
        valid_secs: valid,
        min_uses,
        open: std::sync::Mutex::default(),
    };
    cx.loc::<LogConf>().cache = Some((!off).then(|| Arc::new(cache)));
    Ok(())
}

fn init(cx: &mut Cx) -> Result<(), ConfError> {
    let at = Word {
        text: Bytes::new(),
        pos: conf::Pos { file: std::path::Path::new("").into(), line: 0, column: 0 },
        quoted: false,
    };
    combined(cx, &at)?;
    let files = cx.env.logs.clone();
    cx.main::<LogMain>().files = Some(files);
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<LogConf>();
    if conf.off {
        return Ok(());
    }
    let mut logs = conf.logs.clone();
    if logs.is_empty() {
        // Only here, so that a configuration whose servers all name their logs makes no other file.
        let main = l.conf::<LogMain>();
        if let (Some(files), Some(format)) = (&main.files, main.format(b"combined")) {
            let target = Target::File(main.log(files, DEFAULT_PATH));
            logs.push(Rc::new(AccessLog { target, format, filter: None }));
        }
    }
    let by_path = logs.iter().any(|l| matches!(l.target, Target::Path(..)));
    let cache = conf.cache.clone().flatten();
    p.log.push(Box::new(Handler { logs, by_path, cache }));
    Ok(())
}

struct Handler {
    logs: Vec<Rc<AccessLog>>,
    by_path: bool,
    cache: Option<Arc<by_path::Cache>>,
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if self.by_path && !r.flags.root_tested {
            return Step::Wait(Box::pin(async {
                let there = files::asking(r, root_is_there).await;
                self.write(r, there);
                self.settle(r);
                Verdict::Next
            }));
        }
        self.write(r, true);
        self.settle(r);
        Step::Now(Verdict::Next)
    }
}

impl Handler {
    /// Who sees a connection end finds its last request in the log, as with nginx: it is closed
    /// when the lines are written.
    fn settle(&self, r: &mut Request) {
        if r.flags.keepalive || r.is_subrequest() {
            return;
        }
        for log in &self.logs {
            let log = log.clone();
            match &log.target {
                Target::File(file) if file.is_buffered() => continue,
                Target::File(_) | Target::Path(..) => {}
                Target::Syslog(_) => continue,
            }
            r.before_close(async move {
                match &log.target {
                    Target::File(file) => file.file.settled().await,
                    Target::Path(_, queue) => queue.settled().await,
                    Target::Syslog(_) => {}
                }
            });
        }
    }

    fn write(&self, r: &mut Request, paths: bool) {
        for log in &self.logs {
            if let Some(filter) = &log.filter {
                let value = r.eval(filter);
                if value.is_empty() || value.as_ref() == b"0" {
                    continue;
                }
            }
            match &log.target {
                Target::File(file) => {
                    file.line(!r.flags.keepalive, |out| log.format.write(r, out));
                }
                Target::Syslog(syslog) => {
                    let mut line = FilePath::new();
                    log.format.write(r, &mut line);
                    syslog.send(None, &line);
                }
                Target::Path(path, queue) if paths => {
                    let mut name = FilePath::new();
                    path.eval_into(r, &mut name);
                    let mut line = Vec::with_capacity(256);
                    log.format.write(r, &mut line);
                    line.push(b'\n');
                    let file = files::append_file(r, &name);
                    by_path::append(queue, self.cache.clone(), file, line, r.c().number);
                }
                Target::Path(..) => {}
            }
        }
    }
}

/// Whether the folder that the request's file would lie in exists: paths made of what clients send
/// make no logs for hosts that are not there.
fn root_is_there(r: &mut Request) -> Poll<bool> {
    use os::errno::ENOTDIR;
    let mut root = FilePath::new();
    r.root_into(&mut root);
    let error = match ready!(files::try_stat(r, &root)) {
        Ok(meta) if meta.is_dir() => return Poll::Ready(true),
        Ok(_) => std::io::Error::from_raw_os_error(ENOTDIR),
        Err(e) => e.error,
    };
    r.log_os(Level::Error, format_args!("testing \"{}\" existence", lossy(&root)), &error);
    Poll::Ready(false)
}
