//! `log`: the access log.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};

use base::log::{Level, lossy};
use common_modules::log::{self, AccessLog, AccessLogFiles, AccessLogs, OpenLogFiles};
use conf::ConfError;
use conf::table::{Args, Contexts as C, Directive};
use http::core_directives::{HSL, HSLI, directive};
use http::cx::Cx;
use http::files::{self, FilePath};
use http::module::{ConfType, LocView, Module, PhaseHandler, Pipeline, Scope, Step, Verdict};
use http::request::Request;

/// The module's table.
pub static MODULE: Module = Module {
    name: "log",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<AccessLogFiles>(Scope::Main),
        ConfType::of::<AccessLogs>(Scope::Location),
    ],
    init: Some(log::init),
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "log_format",
        C::HTTP,
        Args::TWO_MORE,
        "combined \"…\"",
        "Defines a format of access log lines.",
        log::log_format,
    ),
    directive(
        "log_json",
        C::HTTP,
        Args::T1.or(Args::BLOCK),
        "",
        "Defines a format of access log lines that are JSON objects, one member per line.",
        log::log_json,
    ),
    directive(
        "access_log",
        HSLI.or(C::LIMIT_EXCEPT),
        Args::ONE_MORE,
        "logs/access.log combined",
        "An access log: its file or syslog server, and its format.",
        log::access_log,
    ),
    directive(
        "open_log_file_cache",
        HSL,
        Args::T1234,
        "off",
        "Keeps log files with variables in their paths open: max=N [inactive=] [valid=] …",
        log::open_log_file_cache,
    ),
];

const DEFAULT_PATH: &[u8] = b"logs/access.log";

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<AccessLogs>();
    let logs = conf.all(&l.conf::<AccessLogFiles>(), Some(DEFAULT_PATH));
    if !logs.is_empty() {
        let has_paths = logs.iter().any(|l| l.has_path());
        p.log.push(Box::new(Handler { logs, has_paths, open_files: conf.open_files() }));
    }
    Ok(())
}

struct Handler {
    logs: Vec<Rc<AccessLog>>,
    has_paths: bool,
    open_files: Option<Arc<OpenLogFiles>>,
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if self.has_paths && !r.flags.root_tested {
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
    /// Keeps the connection open until the lines are written: a client that sees its connection end
    /// finds its last request in the log, as with nginx.
    fn settle(&self, r: &mut Request) {
        if r.keeps_connection() || r.is_subrequest() {
            return;
        }
        for log in self.logs.iter().filter(|log| log.writes_soon()) {
            let log = log.clone();
            r.before_close(async move { log.settled().await });
        }
    }

    /// Writes a line to each log; to those whose path holds variables, only with `paths`.
    fn write(&self, r: &mut Request, paths: bool) {
        for log in &self.logs {
            let now = !r.keeps_connection();
            log.write(r, now, self.open_files.as_ref(), |r, path| {
                paths.then(|| files::append_file(r, path))
            });
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
