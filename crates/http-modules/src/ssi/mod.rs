//! `ssi`: server side includes. Commands in pages, carried out as the pages go out.

mod eval;
mod run;

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::{ConfError, value};
use http::core_directives::{HSL, HSLI, directive};
use http::cx::Cx;
use http::module::{HeaderFilter, LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http::types::TypeList;
use http::vars::VarDef;

use self::run::Body;

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[
        VarDef::new("date_local", |r, out| date(r, true, out)),
        VarDef::new("date_gmt", |r, out| date(r, false, out)),
    ],
    ..Module::of::<SsiConf>("ssi", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "ssi",
        HSLI,
        Args::FLAG,
        "off",
        "Processes server-side includes in responses (<!--#include ... -->).",
        |cx, n| value::set_flag(&mut cx.loc::<SsiConf>().on, n),
    ),
    directive(
        "ssi_silent_errors",
        HSL,
        Args::FLAG,
        "off",
        "Omits the error message when an SSI command fails.",
        |cx, n| value::set_flag(&mut cx.loc::<SsiConf>().silent, n),
    ),
    directive(
        "ssi_value_length",
        HSL,
        Args::T1,
        "256",
        "The maximum length of a parameter value in an SSI command.",
        |cx, n| value::set_size(&mut cx.loc::<SsiConf>().value_length, n),
    ),
    directive(
        "ssi_variable_length",
        HSL,
        Args::T1,
        "64k",
        "The maximum length of a variable set by a page; 16 times that for all of its variables.",
        |cx, n| value::set_size(&mut cx.loc::<SsiConf>().variable_length, n),
    ),
    directive(
        "ssi_types",
        HSL,
        Args::ONE_MORE,
        "text/html",
        "MIME types to process in addition to text/html; `*` matches all.",
        |cx, n| TypeList::set(&mut cx.loc::<SsiConf>().types, n, Some("text/html")),
    ),
    directive(
        "ssi_last_modified",
        HSL,
        Args::FLAG,
        "off",
        "Keeps Last-Modified and ETag of pages with SSI.",
        |cx, n| value::set_flag(&mut cx.loc::<SsiConf>().last_modified, n),
    ),
    directive(
        "ssi_min_file_chunk",
        HSL,
        Args::T1,
        "1k",
        "Accepted without effect: pages are always read into memory.",
        |cx, n| value::set_size(&mut cx.loc::<SsiConf>().min_file_chunk, n),
    ),
    directive(
        "ssi_ignore_recycled_buffers",
        HSL,
        Args::FLAG,
        "off",
        "Accepted without effect: buffers of proxied pages are shared.",
        |cx, n| value::set_flag(&mut cx.loc::<SsiConf>().ignore_recycled, n),
    ),
];

engine::settings! {
    struct SsiConf {
        on: Option<bool>,
        silent: Option<bool>,
        value_length: Option<usize>,
        variable_length: Option<usize>,
        types: Option<TypeList>,
        last_modified: Option<bool>,
        min_file_chunk: Option<usize>,
        ignore_recycled: Option<bool>,
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<SsiConf>();
    if conf.on == Some(true) {
        p.header_filters.push(Box::new(Filter {
            silent: conf.silent.unwrap_or(false),
            value_length: conf.value_length.unwrap_or(255),
            variable_length: conf.variable_length.unwrap_or(64 << 10),
            types: conf.types.clone().unwrap_or_else(|| TypeList::of(&["text/html"])),
            last_modified: conf.last_modified.unwrap_or(false),
        }));
    }
    Ok(())
}

struct Filter {
    silent: bool,
    value_length: usize,
    variable_length: usize,
    types: TypeList,
    last_modified: bool,
}

impl HeaderFilter for Filter {
    fn in_subrequests(&self) -> bool {
        true
    }

    fn run(&self, r: &mut Request) -> Verdict {
        if r.out.content_length == Some(0) || !self.types.has(&r.out) {
            return Verdict::Next;
        }
        r.out.text_changes(self.last_modified);
        let lengths = (self.value_length, self.variable_length);
        let body = Body::new(r.shared(), self.silent, lengths);
        r.out.filters.push(Box::new(body));
        Verdict::Next
    }
}

/// The format of dates where no command sets another.
const TIME_FORMAT: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";

/// The longest date, bytes.
const DATE_MAX: usize = 2048;

/// The format that a page's `config` command set.
#[derive(Default)]
struct TimeFormat(Option<Bytes>);

fn date(r: &mut Request, local: bool, out: &mut Vec<u8>) -> bool {
    let own = r.ctx::<TimeFormat>().and_then(|f| f.0.as_deref());
    let format = own.unwrap_or(TIME_FORMAT);
    let now = base::time::unix_secs();
    if format == b"%s" {
        base::ascii::write_u64(out, now);
        return true;
    }
    match os::clock::strftime(format, now as i64, local, DATE_MAX) {
        Some(text) => {
            out.extend_from_slice(&text);
            true
        }
        None => false,
    }
}
