//! `log`: the access log.

use common_modules::log::{self, AccessLogFiles, AccessLogs};
use conf::ConfError;
use conf::table::directive;
use conf::table::{Args, Contexts as C, Directive};
use engine::settings::{ConfType, Scope};
use files::{AppendFile, Links};
use stream::module::SS;
use stream::{Cx, Module, Pipeline, View};

/// The module's table.
pub static MODULE: Module = Module {
    name: "log",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<AccessLogFiles>(Scope::Main),
        ConfType::of::<AccessLogs>(Scope::Server),
    ],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "log_format",
        C::STREAM,
        Args::TWO_MORE,
        "",
        "Defines a format of access log lines.",
        log::own_log_format,
    ),
    directive(
        "log_json",
        C::STREAM,
        Args::T1.or(Args::BLOCK),
        "",
        "Defines a format of access log lines that are JSON objects, one member per line.",
        log::log_json,
    ),
    directive(
        "access_log",
        SS,
        Args::ONE_MORE,
        "off",
        "A session log: its file or syslog server, and its format.",
        log::own_access_log,
    ),
    directive(
        "open_log_file_cache",
        SS,
        Args::T1234,
        "off",
        "Keeps log files with variables in their paths open: max=N [inactive=] [valid=] …",
        log::open_log_file_cache,
    ),
];

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = view.conf::<AccessLogs>();
    let logs = conf.all(&view.conf::<AccessLogFiles>(), None);
    if logs.is_empty() {
        return Ok(());
    }
    let open_files = conf.open_files();
    p.log.push(Box::new(move |s| {
        for log in &logs {
            log.write(s, true, open_files.as_ref(), |_, path| {
                Some(AppendFile { path: path.to_vec(), links: Links::Follow })
            });
            if log.writes_soon() {
                s.settle(log);
            }
        }
    }));
    Ok(())
}
